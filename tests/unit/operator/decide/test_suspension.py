"""Suspension and resumption: no restart, and no number twice."""

from datetime import timedelta

import pytest
from tests.unit.operator.cluster import START, Life, pod, spec

from colocated_operator.decide import DeleteJob
from colocated_operator.observe import Obstacle, Trace
from colocated_runtime.contract.outcome import Outcome
from colocated_runtime.contract.report import Stage


def test_suspend_deletes_the_job_and_resume_goes_on_uncounted() -> None:
    life = Life()
    life.passes(2)
    life.runs(step=3)
    life.spec = spec(suspend=True)
    assert life.one_pass().actions == (DeleteJob("job-abcde-1"),)
    assert life.status["phase"] == "Suspending", "at once, while the pod still saves"
    assert life.condition("Reconciling")["reason"] == "Suspending"
    life.put_pod(pod(1, deadline=START + timedelta(seconds=90)))
    life.one_pass()
    told = life.condition("Suspended")
    assert (told["status"], told["reason"]) == ("False", "Suspending")
    assert told["message"] == "pods save and end, by 2026-01-01T00:01:30Z at the latest"
    life.put_pod(pod(1, gone=True))
    life.one_pass()
    assert life.status["phase"] == "Suspended"
    assert life.condition("Suspended")["status"] == "True"
    life.spec = spec()
    life.passes(3)
    assert life.children[2].restart_count == 0
    assert "restarts" not in life.status


def test_resume_before_the_pods_have_ended_is_no_restart() -> None:
    life = Life()
    life.passes(2)
    life.runs(step=3)
    life.spec = spec(suspend=True)
    life.one_pass()
    assert life.status["phase"] == "Suspending"
    life.spec = spec()
    life.one_pass()
    life.put_pod(pod(1, gone=True))
    life.passes(3)
    assert 2 in life.children
    assert "restarts" not in life.status


def test_resume_that_meets_an_obstacle_is_no_restart() -> None:
    life = Life()
    life.passes(2)
    life.suspend()
    life.spec = spec()
    life.obstacle = Obstacle("Waiting", "CreateForbidden", "exceeded quota", 1)
    life.passes(4)
    assert "restarts" not in life.status
    life.obstacle = None
    life.passes(2)
    assert 2 in life.children


def test_resume_by_a_new_operator_that_has_never_seen_the_old_job() -> None:
    life = Life()
    life.passes(2)
    life.suspend()
    life.children.clear()
    life.pods.clear()
    life.spec = spec()
    life.passes(3)
    assert list(life.children) == [2]
    assert "restarts" not in life.status


def test_status_wiped_during_a_suspension_does_not_make_a_number_come_again() -> None:
    life = Life(spec(restart={"maxRestarts": 5, "backoffSeconds": 0}))
    life.passes(2)
    life.ends(1, Outcome.CRASH, step=1)
    life.passes(3)
    life.spec = life.spec | {"suspend": True}
    life.one_pass()
    life.put_pod(pod(2, gone=True))
    life.passes(2)
    assert life.status["phase"] == "Suspended"
    life.status = {}
    life.new_operator()
    life.children.pop(1)
    life.one_pass()
    assert (life.status["phase"], life.status["attempt"], life.status["restartCount"]) == ("Suspended", 2, 1)
    life.spec = life.spec | {"suspend": False}
    life.passes(3)
    assert list(life.children) == [3]
    assert "restarts" not in life.status


def test_operator_killed_before_the_first_job_was_created_begins_with_attempt_one() -> None:
    life = Life()
    life.config_maps[1] = Trace(1, 0)
    life.passes(2)
    assert list(life.children) == [1]
    assert "restarts" not in life.status


def test_config_maps_of_old_attempts_go_also_where_their_jobs_were_deleted() -> None:
    life = Life()
    for number in (1, 2, 3):
        life.passes(3)
        life.spec = life.spec | {"suspend": True}
        life.one_pass()
        life.put_pod(pod(number, gone=True))
        life.passes(2)
        life.spec = life.spec | {"suspend": False}
    life.passes(3)
    assert list(life.config_maps) == [3, 4]


def test_job_suspended_from_the_start_creates_nothing() -> None:
    life = Life(spec(suspend=True))
    assert life.one_pass().actions == ()
    assert life.status["phase"] == "Suspended"


@pytest.mark.parametrize(
    ("leaving", "said"),
    [
        ({}, ("True", "Saved", "pvc://c/checkpoint-7")),
        ({"checkpoint_error": "step 7: No space left"}, ("False", "SaveFailed", "step 7: No space left")),
    ],
)
def test_what_the_pods_save_while_they_leave_is_told(leaving: dict[str, str], said: tuple[str, str, str]) -> None:
    life = Life()
    life.one_pass()
    life.runs(step=3)
    life.spec = spec(suspend=True)
    life.one_pass()
    life.runs(step=7, stage=Stage.STOPPING, **leaving)
    life.one_pass()
    assert life.status["phase"] == "Suspending"
    found = life.condition("CheckpointReady")
    assert (found["status"], found["reason"], found["message"]) == said
    life.put_pod(pod(1, gone=True))
    life.one_pass()
    assert life.status["phase"] == "Suspended"
    found = life.condition("CheckpointReady")
    assert (found["status"], found["reason"], found["message"]) == said
