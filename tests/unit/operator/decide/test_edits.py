"""What users, crashes and lost nodes do to the objects between two passes."""

from dataclasses import replace
from datetime import timedelta

import pytest
from tests.unit.operator.cluster import SETTINGS, START, Life, child, pod, spec

from colocated_operator.decide import decide
from colocated_runtime.contract.outcome import Outcome


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
