"""What users, crashes and lost nodes do to the objects between two passes."""

import copy
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.operator.cluster import SETTINGS, START, Life, child, pod, spec

from colocated_operator.decide import decide
from colocated_operator.observe import Obstacle
from colocated_operator.status.events import events
from colocated_runtime.contract.outcome import Outcome
from colocated_runtime.contract.status import JobStatus

END_OF_TIME = "9999-12-31T23:59:59Z"
NO_TIMES = (END_OF_TIME, "0001-01-01T00:00:00Z", "9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+23:59", "")
NUMBERS = (-1, -(2**63), 2**53, 2**62, 2**63 - 1, 10**9 - 1)


def test_operator_killed_between_creating_the_job_and_writing_status() -> None:
    life = Life()
    life.children[1] = child(1)
    assert life.one_pass().actions == ()
    assert life.status["attempt"] == 1


def test_wiped_status_is_rebuilt_from_the_jobs() -> None:
    life = Life(spec(restart={"maxRestarts": 5, "backoffSeconds": 0}))
    for attempt in (1, 2):
        life.passes(3)
        life.ends(attempt, Outcome.CRASH, step=attempt)
    life.passes(3)
    life.status = {}
    life.passes(2)
    assert life.status["attempt"] == 3
    assert life.status["restartCount"] == 2
    assert max(life.children) == 3


def test_status_edited_to_complete_does_not_end_a_running_job() -> None:
    life = Life()
    life.passes(2)
    life.runs(step=2)
    life.status = life.status | {"phase": "Complete"}
    life.runs(step=3)
    assert life.status["phase"] == "Running"


@pytest.mark.parametrize(
    "forged",
    [
        {"attempt": 7}, {"attempt": 2}, {"startTime": "yesterday"}, {"startTime": "2026-01-01T00:00:00"},
        {"restarts": [{"attempt": 1, "outcome": "Crash", "time": "noon"}]}, {"conditions": "none"},
    ],
)  # fmt: skip
def test_forged_status_neither_ends_nor_freezes_a_running_job(forged: dict[str, object]) -> None:
    life = Life()
    life.passes(2)
    life.runs(step=2)
    life.status = life.status | forged
    life.runs(step=3)
    life.passes(20)
    assert life.status["phase"] == "Running"
    assert life.status["attempt"] == 1
    assert [number for number, job in life.children.items() if not job.gone] == [1]


def failed() -> Life:
    life = Life(spec(ttlSecondsAfterFinished=100))
    life.passes(2)
    life.runs(step=3)
    life.ends(1, Outcome.USER_ERROR, step=3)
    life.passes(2)
    return life


def between() -> Life:
    life = Life(spec(activeDeadlineSeconds=10_000, checkpoint={"storage": {"claim": "c"}}))
    life.passes(2)
    life.runs(step=3)
    life.ends(1, Outcome.CRASH, step=3)
    life.passes(2)
    return life


def trains() -> Life:
    life = between()
    life.passes(15)
    life.runs(2, step=5)
    return life


LIVES = (failed, between, trains)


def places(value: Any, kind: type, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Where in `value` something of `kind` stands."""
    if isinstance(value, dict | list):
        for key, entry in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(entry, kind, (*path, key))
    elif type(value) is kind:
        yield path


def put(life: Life, path: tuple[str | int, ...], value: object) -> None:
    life.status = copy.deepcopy(life.status)
    node: Any = life.status
    for key in path[:-1]:
        node = node[key]
    node[path[-1]] = value


@pytest.mark.parametrize("make", LIVES)
@pytest.mark.parametrize("time", NO_TIMES)
def test_no_time_in_an_edited_status_stops_the_passes(make: Any, time: str) -> None:
    times = [path for path in places(make().status, str) if "ime" in str(path[-1]) or path[-1] == "observedAt"]
    assert len(times) > 6
    for path in times:
        life = make()
        put(life, path, time)
        life.passes(20)
        status = JobStatus.model_validate(life.status)
        events(status, life.now)
        assert END_OF_TIME not in str(life.status), path
        assert status.phase == ("Failed" if make is failed else "Running" if make is trains else "Starting"), path


@pytest.mark.parametrize("phase", ["Complete", "Failed", "Pending", "Running", "Suspended"])
def test_a_phase_of_somebody_elses_is_put_right_where_no_attempt_runs(phase: str) -> None:
    waits = Life()
    waits.obstacle = Obstacle("Waiting", "ConfigMapMissing", "there is no ConfigMap", 1)
    waits.passes(2)
    for life, attempt in ((waits, 1), (between(), 2)):
        life.status = life.status | {"phase": phase}
        life.obstacle = None
        life.passes(20)
        assert (life.status["phase"], life.status["attempt"]) == ("Starting", attempt)


@pytest.mark.parametrize("phase", ["Complete", "Failed", "Pending", "Running"])
def test_a_phase_of_somebody_elses_is_put_right_while_suspended(phase: str) -> None:
    life = Life()
    life.passes(2)
    life.suspend()
    life.status = life.status | {"phase": phase}
    life.passes(2)
    assert life.status["phase"] == "Suspended"
    life.status = life.status | {"phase": phase}
    life.spec = spec()
    life.passes(3)
    assert life.status["phase"] == "Starting"
    assert life.children[2].restart_count == 0


def test_job_that_ended_at_the_end_of_time_is_swept() -> None:
    life = failed()
    put(life, ("completionTime",), END_OF_TIME)
    life.passes(2)
    assert not life.swept
    life.passes(2, seconds=60)
    assert life.swept


def test_attempt_that_ended_at_the_end_of_time_is_followed_by_another() -> None:
    life = between()
    put(life, ("restarts", 0, "time"), END_OF_TIME)
    life.passes(20)
    assert 2 in life.children


@pytest.mark.parametrize("number", [10**9 - 1, 10**9 - 2, 10**9, 2**63 - 1, -1])
@pytest.mark.parametrize("make", LIVES)
def test_attempt_without_a_successor_is_not_believed(make: Any, number: int) -> None:
    life = make()
    put(life, ("attempt",), number)
    life.passes(40)
    status = JobStatus.model_validate(life.status)
    assert status.attempt in life.children
    assert status.attempt <= 2
    assert status.phase == ("Failed" if make is failed else "Running" if make is trains else "Starting")


@given(st.data())
def test_no_number_in_an_edited_status_stops_the_passes(data: st.DataObject) -> None:
    life = data.draw(st.sampled_from(LIVES))()
    numbers = list(places(life.status, int))
    for path in data.draw(st.lists(st.sampled_from(numbers), min_size=1, max_size=3)):
        put(life, path, data.draw(st.sampled_from(NUMBERS) | st.integers(-(2**63), 2**63 - 1)))
    life.passes(20)
    events(JobStatus.model_validate(life.status), life.now)


def test_new_operator_does_not_take_a_running_job_back_to_starting() -> None:
    life = Life()
    life.passes(2)
    life.runs(step=3)
    life.reports = {}
    life.one_pass()
    assert life.status["phase"] == "Running"
    assert life.status["progress"]["step"] == 3


def test_job_deleted_by_hand_is_followed_by_the_next_attempt() -> None:
    life = Life()
    life.passes(2)
    life.runs(step=3)
    life.change_child(1, gone=True)
    life.put_pod(pod(1, gone=True))
    life.passes(15)
    assert life.status["restarts"][0]["outcome"] == "Preempted"
    assert life.children[2].restart_count == 0


def test_job_deleted_while_no_operator_ran() -> None:
    life = Life()
    life.passes(2)
    life.children.clear()
    life.pods.clear()
    life.passes(15)
    assert life.status["restarts"][0]["outcome"] == "Preempted"
    assert list(life.children) == [2]


def test_lost_node_ends_the_attempt_without_its_word() -> None:
    life = Life()
    life.passes(2)
    life.runs(step=3)
    life.put_pod(pod(1, deadline=life.now, disruption="DeletionByTaintManager"))
    life.passes(10)
    assert life.status["phase"] == "Running", "its node may still answer"
    life.passes(10)
    assert life.status["restarts"][0]["outcome"] == "NodeLost"
    assert life.children[1].gone
    life.passes(15)
    assert 2 in life.children


def test_next_attempt_waits_until_the_pods_of_the_last_are_gone() -> None:
    life = Life(spec(restart={"maxRestarts": 5, "backoffSeconds": 0}))
    life.passes(2)
    life.ends(1, Outcome.CRASH, step=1)
    life.one_pass()
    life.put_pod(pod(1, deadline=life.now + timedelta(seconds=60)))
    life.passes(20)
    assert 2 not in life.children


def test_job_being_deleted_is_left_alone() -> None:
    life = Life()
    observation = life.observe()
    deleting = replace(observation, job=replace(observation.job, deleting=True))
    assert decide(deleting, START, SETTINGS).actions == ()
