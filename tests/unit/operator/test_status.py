"""Patches and Events."""

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.operator.cluster import Life, rl_job, spec
from tests.unit.operator.simulated import merged

from colocated_operator.status.events import body, events
from colocated_operator.status.patch import merge_patch, without_empty
from colocated_runtime.contract.outcome import Outcome
from colocated_runtime.contract.status import JobStatus

VALUES = st.recursive(
    st.integers() | st.text(max_size=3) | st.lists(st.integers(), max_size=2),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
)
MAPS = st.dictionaries(st.sampled_from("abc"), VALUES, max_size=3)


@given(MAPS, MAPS)
def test_patch_turns_one_into_the_other(old: dict, new: dict) -> None:
    assert merged(old, merge_patch(old, new)) == new


@given(MAPS)
def test_no_patch_between_equals(value: dict) -> None:
    assert merge_patch(value, value) == {}


def test_empty_values_are_left_out_but_zero_is_not() -> None:
    assert without_empty({"a": "", "b": 0, "c": {"d": []}, "e": False}) == {"b": 0, "e": False}


def test_each_event_has_a_name_of_its_own_that_does_not_change() -> None:
    life = Life(spec(checkpoint={"storage": {"claim": "checkpoints"}}))
    life.passes(2)
    life.runs(step=3)
    life.ends(1, Outcome.CRASH, step=4)
    life.passes(15)
    life.runs(2, step=6)
    told = events(JobStatus.model_validate(life.status), life.now)
    names = [event.name for event in told]
    assert sorted(names) == ["checkpoint-4", "checkpoint-6", "restart-1", "running-2"]
    life.runs(2, step=6)
    assert [event.name for event in events(JobStatus.model_validate(life.status), life.now)] == names


def test_old_news_is_not_told_by_a_new_operator() -> None:
    life = Life()
    life.passes(2)
    life.runs(step=3)
    status = JobStatus.model_validate(life.status)
    assert events(status, life.now)
    assert events(status, life.now + timedelta(hours=1)) == []


def test_event_refers_to_the_job() -> None:
    life = Life()
    life.passes(2)
    life.ends(1, Outcome.COMPLETE, exit_code=0)
    life.passes(2)
    (event,) = events(JobStatus.model_validate(life.status), life.now)
    made = body(event, rl_job())
    assert made["metadata"]["name"] == "job-abcde.complete"
    assert made["involvedObject"]["uid"] == rl_job().uid
