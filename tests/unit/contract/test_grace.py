import pytest
from tests.unit.contract.plans import plan

from colocated_runtime.contract.grace import LEAVING, period_seconds, shortage


@pytest.mark.parametrize(("leaving", "seconds"), [(0.0, 120), (10.0, 120), (100.0, 170), (400.0, 620), (5000.0, 1800)])
def test_the_period_follows_what_was_measured(leaving: float, seconds: int) -> None:
    assert period_seconds({LEAVING: leaving, "secondsPerStep": 7.0}, None) == seconds


def test_the_first_attempts_period_comes_from_the_plan() -> None:
    long = plan().model_copy(update={"step_seconds": 300.0})
    assert period_seconds({}, long) >= 470
    assert period_seconds({LEAVING: 100.0}, long) == 170


def test_a_period_that_does_not_suffice_is_told_with_the_way_out() -> None:
    assert shortage({}, 110.0) == ""
    assert shortage({LEAVING: 110.0}, 110.0) == ""
    assert shortage({LEAVING: 110.0}, 0.0) == ""
    assert shortage({LEAVING: 200.0}, 110.0) == (
        "to end a step and save takes 200 s, and the pods have 110 s: a preemption would lose all steps since the last"
        " checkpoint. The next attempt's pods get 320 s, unless"
        " runtime.podTemplate.spec.terminationGracePeriodSeconds says otherwise"
    )
