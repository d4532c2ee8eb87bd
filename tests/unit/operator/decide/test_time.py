"""A job's deadline, and the time to live of what belongs to it."""

from datetime import timedelta

import pytest
from tests.unit.operator.cluster import Life, last_words, pod, spec

from colocated_operator.decide import DeleteJob, Sweep
from colocated_runtime.contract.outcome import Outcome


def test_deadline_counts_from_the_first_attempt() -> None:
    life = Life(spec(activeDeadlineSeconds=100, restart={"maxRestarts": 5, "backoffSeconds": 0}))
    life.passes(2)
    life.runs(step=1)
    life.now += timedelta(seconds=60)
    life.ends(1, Outcome.CRASH, step=1)
    life.passes(4)
    assert life.status["attempt"] == 2
    life.now += timedelta(seconds=40)
    decision = life.one_pass()
    assert decision.actions == (DeleteJob("job-abcde-2"),)
    assert life.condition("Failed")["reason"] == "DeadlineExceeded"
    first = life.status["completionTime"]
    life.passes(3)
    assert life.status["completionTime"] == first


def with_deadline(life: Life, seconds: int | None) -> None:
    life.spec = {key: value for key, value in life.spec.items() if key != "activeDeadlineSeconds"}
    if seconds is not None:
        life.spec["activeDeadlineSeconds"] = seconds
    life.generation += 1


def job_ends_it(life: Life) -> None:
    """The Job controller stops the pods, which save, at the deadline that the Job was made with."""
    words = last_words(Outcome.PREEMPTED, 5)
    life.put_pod(pod(1, phase="Failed", exit_code=143, last_words=words, exit_time=life.now))
    life.change_child(1, conditions={"Failed": "DeadlineExceeded"}, message="Job was active longer than deadline")


@pytest.mark.parametrize("seconds", [1000, None])
def test_deadline_that_was_raised_or_removed_costs_an_uncounted_restart_at_most(seconds: int | None) -> None:
    claim = {"storage": {"claim": "checkpoints"}}
    life = Life(spec(activeDeadlineSeconds=60, restart={"maxRestarts": 0, "backoffSeconds": 0}, checkpoint=claim))
    life.passes(2)
    life.runs(step=3)
    with_deadline(life, seconds)
    life.passes(95)
    assert life.status["phase"] == "Running"
    job_ends_it(life)
    life.passes(4)
    (entry,) = life.status["restarts"]
    assert (entry["outcome"], entry["counted"]) == ("Preempted", False)
    assert "activeDeadlineSeconds it was made with" in entry["message"]
    assert (life.status["attempt"], life.status["checkpoints"]["step"]) == (2, 5)
    life.runs(2, step=6)
    life.one_pass(seconds=890)
    assert life.status["phase"] == "Running"
    life.one_pass(seconds=30)
    assert life.status["phase"] == ("Running" if seconds is None else "Failed")


def test_deadline_that_was_lowered_ends_the_job_then() -> None:
    life = Life(spec(activeDeadlineSeconds=1000))
    life.passes(2)
    life.runs(step=3)
    with_deadline(life, 30)
    life.passes(20)
    assert life.status["phase"] == "Running"
    decision = life.passes(15)
    assert life.condition("Failed")["reason"] == "DeadlineExceeded"
    assert life.condition("Failed")["message"] == "the job took longer than spec.activeDeadlineSeconds: 30"
    assert decision.actions == ()
    assert life.children[1].gone


def test_the_jobs_own_deadline_ends_what_ran_on_without_an_operator() -> None:
    life = Life(spec(activeDeadlineSeconds=60))
    life.passes(2)
    life.runs(step=3)
    life.now += timedelta(seconds=200)
    job_ends_it(life)
    life.passes(2)
    assert life.condition("Failed")["reason"] == "DeadlineExceeded"
    assert life.status["checkpoints"]["step"] == 5


def test_failed_job_stays_failed_although_its_deadline_is_raised_before_its_pods_have_ended() -> None:
    life = Life(spec(activeDeadlineSeconds=30))
    life.passes(2)
    life.runs(step=3)
    life.now += timedelta(seconds=30)
    life.one_pass()
    life.change_child(1, gone=False)  # the operator was killed before it could delete the Job
    with_deadline(life, None)
    assert life.one_pass().actions == (DeleteJob("job-abcde-1"),)
    life.put_pod(pod(1, phase="Succeeded", exit_code=0, last_words=last_words(Outcome.COMPLETE, 10)))
    life.passes(3)
    assert life.status["phase"] == "Failed"


def test_complete_job_whose_proxy_runs_on_is_complete_and_gives_its_gpus_back() -> None:
    life = Life(spec(restart={"maxRestarts": 0, "backoffSeconds": 0}))
    life.passes(2)
    life.runs(step=10)
    words = last_words(Outcome.COMPLETE, 10, model_uri="pvc://c/model")
    life.put_pod(pod(1, others=("proxy",), exit_code=0, exit_time=life.now, last_words=words))
    life.passes(10)
    assert life.status["phase"] == "Running", "the proxy may end by itself: then the pod's log stays"
    life.passes(10)
    assert life.status["phase"] == "Complete"
    assert life.children[1].gone
    first = life.status
    life.passes(5)
    assert life.status == first


def test_time_to_live_removes_what_belongs_to_the_job_and_nothing_earlier() -> None:
    life = Life(spec(ttlSecondsAfterFinished=60))
    life.passes(2)
    life.ends(1, Outcome.COMPLETE, step=10, exit_code=0)
    assert life.passes(2).actions == ()
    decision = life.one_pass(seconds=30)
    assert decision.actions == ()
    assert decision.again_in == pytest.approx(60, abs=32)
    assert life.one_pass(seconds=40).actions == (DeleteJob("job-abcde-1"), Sweep("job-abcde"))
    assert life.one_pass().actions == ()
    assert life.status["phase"] == "Complete"


def test_time_to_live_removes_what_is_left_of_a_job_whose_child_was_deleted_by_hand() -> None:
    life = Life(spec(ttlSecondsAfterFinished=60))
    life.passes(2)
    life.ends(1, Outcome.COMPLETE, step=10, exit_code=0)
    life.passes(2)
    life.change_child(1, gone=True)
    life.one_pass()
    life.new_operator()
    assert life.one_pass(seconds=70).actions == (Sweep("job-abcde"),)
    assert life.one_pass().actions == ()
    life.new_operator()
    assert life.one_pass().actions == (Sweep("job-abcde"),), "nobody remembers that it was done"


def test_job_mended_after_a_refusal_is_swept_again_when_it_is_over() -> None:
    life = Life(spec(trainer={"learning_rat": 1e-6}, ttlSecondsAfterFinished=60))
    life.passes(2)
    life.passes(2, seconds=60)
    assert life.swept
    life.spec, life.generation = spec(ttlSecondsAfterFinished=60), 2
    life.passes(2)
    life.ends(1, Outcome.COMPLETE, step=10, exit_code=0)
    life.one_pass()
    assert life.one_pass(seconds=70).actions == (DeleteJob("job-abcde-1"), Sweep("job-abcde"))
