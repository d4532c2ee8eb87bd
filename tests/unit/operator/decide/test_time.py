"""A job's deadline, and the time to live of what belongs to it."""

from datetime import timedelta

import pytest
from tests.unit.operator.cluster import Life, spec

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
