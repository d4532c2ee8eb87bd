"""How a rank fails: state file, exit code, and the other rank with it."""

import pytest

from colocated_runtime.contract.outcome import Outcome

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def raising(make_workplace):
    """Two ranks; the reward raises on the second, while the first goes on to the next collective and waits there."""
    place = make_workplace()
    rewards = [{"function": "raising:reward", "configMap": "raising"}]
    return place.run(place.spec(processesPerNode=2, evaluation=None, rewards=rewards))


def test_a_reward_that_raises(raising):
    assert raising.exit_code != 0
    failed = raising.states[1]
    assert failed.outcome is Outcome.USER_ERROR
    assert failed.message == "rewards[0].function: raising:reward raised KeyError: 'solution'"
    assert 'raise KeyError("solution")' in failed.traceback


def test_the_rank_to_blame_is_the_first_to_end(raising):
    """The other one loses its connection, or is ended by torchrun."""
    first, second = raising.states
    assert first.outcome in (Outcome.CRASH, None)
    assert first.outcome is None or first.updated > second.updated


def test_a_signal_asks_for_the_stacks(raising):
    assert "Current thread" in raising.output
    assert "raising.py" in raising.output


def test_a_reward_module_that_does_not_import(workplace):
    rewards = [{"function": "broken:reward", "configMap": "broken"}]
    run = workplace.run(workplace.spec(rewards=rewards))
    assert run.exit_code != 0
    assert run.state.outcome is Outcome.USER_ERROR
    assert run.state.message == (
        "rewards[0].function: cannot import 'broken': ModuleNotFoundError: No module named 'no_such_module'; the"
        " ConfigMap holds broken.py"
    )
