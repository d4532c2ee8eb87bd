"""Attempts one after the other: what follows from how each ended."""

import pytest
from tests.unit.operator.cluster import Life, spec

from colocated_operator.decide import CreateAttempt
from colocated_runtime.contract.outcome import Outcome


def test_first_pass_creates_attempt_one_and_the_next_creates_nothing() -> None:
    life = Life()
    (create,) = life.one_pass().actions
    assert isinstance(create, CreateAttempt)
    assert create.plan.attempt == 1
    assert life.one_pass().actions == ()
    assert life.status["phase"] == "Starting"
    assert life.status["attempt"] == 1


def test_running_job_shows_progress_and_counts_as_current() -> None:
    life = Life()
    life.passes(2)
    life.runs(step=3, metrics={"reward": 0.123456, "loss": 1.5e-7})
    assert life.status["phase"] == "Running"
    assert life.status["metrics"] == {"reward": 0.1235, "loss": 1.5e-7}
    assert life.status["progress"]["step"] == 3
    assert life.status["progress"]["percent"] == 30
    assert life.status["checkpoints"]["step"] == 3
    assert life.condition("Reconciling")["status"] == "False"
    assert life.condition("Running")["status"] == "True"


def test_complete_job_keeps_what_its_final_report_lacks() -> None:
    life = Life()
    life.passes(2)
    life.runs(step=9, metrics={"reward": 0.5})
    life.ends(1, Outcome.COMPLETE, step=10, exit_code=0, model_uri="pvc://c/model")
    life.passes(3)
    assert life.status["phase"] == "Complete"
    assert life.condition("Complete")["status"] == "True"
    assert life.status["metrics"] == {"reward": 0.5}
    assert life.status["output"] == {"model": "pvc://c/model"}
    assert life.status["progress"]["percent"] == 100


def test_finished_status_does_not_change_any_more() -> None:
    life = Life()
    life.passes(2)
    life.ends(1, Outcome.COMPLETE, step=10, exit_code=0)
    life.passes(2)
    before = life.status
    life.passes(5, seconds=100)
    assert life.status == before


def test_crash_is_followed_by_a_counted_attempt_after_the_backoff() -> None:
    life = Life(spec(restart={"maxRestarts": 2, "backoffSeconds": 10}))
    life.passes(2)
    life.runs(step=4)
    life.ends(1, Outcome.CRASH, step=4)
    life.one_pass()
    assert life.status["phase"] == "Restarting"
    assert life.status["restarts"][0]["outcome"] == "Crash"
    life.passes(8)
    assert 2 not in life.children, "the backoff of 10 s is not over"
    life.passes(3)
    assert life.children[2].restart_count == 1
    life.one_pass()
    assert life.status["restartCount"] == 1
    assert len(life.status["restarts"]) == 1


def test_next_attempt_begins_where_it_can_resume_not_where_the_last_one_was() -> None:
    on_claim = {"storage": {"claim": "checkpoints"}}
    life = Life(spec(restart={"maxRestarts": 2, "backoffSeconds": 0}, checkpoint=on_claim))
    life.passes(2)
    life.runs(step=4)
    life.runs(step=7, checkpoints=[])
    life.ends(1, Outcome.CRASH, step=7, checkpoints=[])
    life.passes(4)
    assert (life.status["attempt"], life.status["phase"]) == (2, "Starting")
    assert (life.status["progress"]["step"], life.status["progress"]["percent"]) == (4, 40)


def test_counted_restarts_end_at_the_limit() -> None:
    life = Life(spec(restart={"maxRestarts": 2, "backoffSeconds": 0}))
    for attempt in (1, 2, 3):
        life.passes(3)
        life.runs(attempt, step=attempt)
        life.ends(attempt, Outcome.CRASH, step=attempt)
    life.passes(3)
    assert life.status["phase"] == "Failed"
    assert "maxRestarts: 2" in life.condition("Failed")["message"]
    assert max(life.children) == 3


def test_preemptions_are_not_counted_while_each_brings_a_step() -> None:
    life = Life(spec(restart={"maxRestarts": 0, "backoffSeconds": 0}))
    for attempt in range(1, 15):
        life.passes(3)
        life.runs(attempt, step=attempt, resumed_from_step=attempt - 1)
        life.ends(attempt, Outcome.PREEMPTED, step=attempt, exit_code=143, resumed_from_step=attempt - 1)
    life.passes(3)
    assert life.status["phase"] in ("Starting", "Restarting")
    assert life.status["restartCount"] == 0


def test_ten_fruitless_preemptions_fail() -> None:
    life = Life(spec(restart={"maxRestarts": 0, "backoffSeconds": 0}))
    for attempt in range(1, 11):
        life.passes(3)
        life.ends(attempt, Outcome.PREEMPTED, exit_code=143)
    life.passes(3)
    assert life.status["phase"] == "Failed"
    assert "10 times in a row" in life.condition("Failed")["message"]


def test_ten_fruitless_preemptions_fail_also_after_a_good_beginning() -> None:
    life = Life(spec(restart={"maxRestarts": 0, "backoffSeconds": 0}))
    life.passes(3)
    life.runs(1, step=5)
    for attempt in range(1, 13):
        life.ends(attempt, Outcome.PREEMPTED, exit_code=143)
        life.passes(3)
        if life.status["phase"] == "Failed":
            break
    assert life.status["phase"] == "Failed"
    assert max(life.children) in (10, 11)


@pytest.mark.parametrize("outcome", [Outcome.USER_ERROR, Outcome.WEIGHTS_STALE, Outcome.BAD_PLAN])
def test_what_a_restart_cannot_mend_fails_at_once(outcome: Outcome) -> None:
    life = Life()
    life.passes(2)
    life.ends(1, outcome)
    life.passes(3)
    assert life.status["phase"] == "Failed"
    assert life.condition("Failed")["reason"] == outcome.value
    assert list(life.children) == [1]


def test_jobs_of_the_two_last_attempts_stay() -> None:
    life = Life(spec(restart={"maxRestarts": 5, "backoffSeconds": 0}))
    for attempt in (1, 2, 3):
        life.passes(3)
        life.ends(attempt, Outcome.CRASH, step=attempt)
    life.passes(4)
    assert [number for number, job in life.children.items() if not job.gone] == [3, 4]
