"""Which outcome an attempt had."""

from dataclasses import replace
from datetime import timedelta

import pytest
from tests.unit.operator.cluster import START, child, last_words, pod, report, rl_job

from colocated_operator.observe import ChildJob, ChildPod, Observation, Pulled
from colocated_operator.policies.ending import Ending, ending
from colocated_runtime.contract.outcome import Outcome
from colocated_runtime.contract.report import TERMINATION_LIMIT

FAILED = {"conditions": {"Failed": "BackoffLimitExceeded"}}
OVER = {"phase": "Failed", "exit_code": 1}


def judged(job: ChildJob, *pods: ChildPod, reports: dict[str, Pulled] | None = None) -> Ending | None:
    return ending(Observation(rl_job(), (job,), pods, reports or {}), job, START)


def test_it_goes_on_until_job_and_pods_are_over() -> None:
    assert judged(child(), pod()) is None
    assert judged(child(**FAILED), pod()) is None
    assert judged(child(), pod(**OVER)) is None
    assert judged(child(**FAILED), pod(**OVER)) is not None
    assert judged(child(**FAILED, terminating=1), pod(**OVER)) is None


def test_the_pod_that_failed_by_itself_decides_not_those_stopped_because_of_it() -> None:
    stopped = pod(index=0, **OVER, last_words=last_words(Outcome.PREEMPTED), exit_time=START)
    crashed = pod(
        index=1, **OVER, exit_time=START + timedelta(seconds=3),
        last_words=report(node=1, outcome=Outcome.CRASH, message="NCCL error").within(TERMINATION_LIMIT),
    )  # fmt: skip
    found = judged(child(**FAILED), stopped, crashed)
    assert found is not None
    assert (found.outcome, found.message) == (Outcome.CRASH, "NCCL error")


def test_of_two_failures_the_first_decides() -> None:
    late = pod(index=0, **OVER, exit_time=START + timedelta(seconds=9), last_words=last_words(Outcome.CRASH))
    early = pod(
        index=1, **OVER, exit_time=START,
        last_words=report(node=1, outcome=Outcome.DEVICE_OUT_OF_MEMORY).within(TERMINATION_LIMIT),
    )  # fmt: skip
    found = judged(child(**FAILED), late, early)
    assert found is not None
    assert found.outcome is Outcome.DEVICE_OUT_OF_MEMORY


@pytest.mark.parametrize(
    ("changes", "outcome"),
    [
        ({"exit_code": 137, "exit_reason": "OOMKilled"}, Outcome.HOST_OUT_OF_MEMORY),
        ({"exit_code": 137, "exit_reason": "Error"}, Outcome.CRASH),
        ({"exit_code": 143}, Outcome.PREEMPTED),
        ({"exit_code": None, "disruption": "PreemptionByScheduler"}, Outcome.PREEMPTED),
        ({"exit_code": None, "reason": "UnexpectedAdmissionError"}, Outcome.PREEMPTED),
        ({"exit_code": 1, "last_words": "some garbage \x00 {"}, Outcome.CRASH),
        ({"exit_code": 1, "last_words": '{"name": "cut off'}, Outcome.CRASH),
        ({"exit_code": 2, "last_words": last_words(Outcome.USER_ERROR)}, Outcome.USER_ERROR),
        ({"exit_code": 1, "last_words": last_words(Outcome.COMPLETE, attempt=7)}, Outcome.CRASH),
    ],
)
def test_outcome_of_one_pod(changes: dict[str, object], outcome: Outcome) -> None:
    found = judged(child(**FAILED), pod(**({"phase": "Failed"} | changes)))
    assert found is not None
    assert found.outcome is outcome


def test_deleted_pod_without_a_word_was_preempted() -> None:
    found = judged(replace(child(), gone=True), pod(gone=True))
    assert found is not None
    assert found.outcome is Outcome.PREEMPTED


def test_last_pulled_report_stands_in_for_a_missing_termination_message() -> None:
    pulled = Pulled(report(4, outcome=Outcome.HUNG, message="rank 1 is silent"))
    found = judged(child(**FAILED), pod(**OVER), reports={"pod-1-0": pulled})
    assert found is not None
    assert (found.outcome, found.message) == (Outcome.HUNG, "rank 1 is silent")


def test_complete_job_is_complete_even_without_reports() -> None:
    found = judged(child(conditions={"Complete": ""}), pod(gone=True))
    assert found is not None
    assert found.outcome is Outcome.COMPLETE


def test_deadline_of_the_job_itself() -> None:
    found = judged(child(conditions={"Failed": "DeadlineExceeded"}), pod(**OVER))
    assert found is not None
    assert found.outcome is Outcome.DEADLINE_EXCEEDED
