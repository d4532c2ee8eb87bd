"""Which outcome an attempt had."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.contract.bad_jobs import GOOD
from tests.unit.operator.cluster import START, Life, child, last_words, pod, report, rl_job

from colocated_operator.observe import ChildJob, ChildPod, Failure, Observation, Pulled, child_pod
from colocated_operator.policies.ending import Ending, ending
from colocated_runtime.contract.outcome import Outcome
from colocated_runtime.contract.report import TERMINATION_LIMIT
from colocated_runtime.contract.status import JobStatus

FAILED = {"conditions": {"Failed": "BackoffLimitExceeded"}}
OVER = {"phase": "Failed", "exit_code": 1}


def judged(job: ChildJob, *pods: ChildPod, reports: dict[str, Pulled] | None = None, after: float = 0) -> Ending | None:
    return ending(Observation(rl_job(), (job,), pods, reports or {}), job, START + timedelta(seconds=after))


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
        ({"exit_code": None, "reason": "OutOfnvidia.com/gpu"}, Outcome.PREEMPTED),
        ({"exit_code": None, "failure": Failure("fetch", 1, "Error")}, Outcome.CRASH),
        ({"exit_code": 0, "failure": Failure("proxy", 1, "Error")}, Outcome.CRASH),
        (
            {"exit_code": None, "failure": Failure("fetch", 1, "x"), "disruption": "EvictionByEvictionAPI"},
            Outcome.PREEMPTED,
        ),
        (
            {"exit_code": 0, "failure": Failure("proxy", 1, "x"), "last_words": last_words(Outcome.COMPLETE)},
            Outcome.COMPLETE,
        ),
        ({"exit_code": None, "failure": Failure("fetch", 143, "Error"), "deadline": START}, Outcome.PREEMPTED),
        ({"exit_code": None, "failure": Failure("fetch", 1, "Error"), "deadline": START}, Outcome.CRASH),
        ({"exit_code": 137, "exit_reason": "Error", "deadline": START}, Outcome.PREEMPTED),
        ({"exit_code": 137, "exit_reason": "ContainerStatusUnknown"}, Outcome.NODE_LOST),
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


KILLED = {"phase": "Failed", "exit_code": 137, "exit_reason": "OOMKilled", "exit_time": START}
GIB = 2**30
LOW = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 12Mi."
FULL_DISK = 'Usage of EmptyDir volume "checkpoints" exceeds the limit "1Gi".'


@pytest.mark.parametrize(
    ("changes", "used", "outcome", "message"),
    [
        ({}, 0, Outcome.HOST_OUT_OF_MEMORY, "used more than its memory limit of 64.0 GiB; raise spec.resources.limits"),
        ({}, 40 * GIB, Outcome.HOST_OUT_OF_MEMORY, "used more than its memory limit"),
        (
            {},
            4 * GIB,
            Outcome.PREEMPTED,
            "the node's memory ran out, not the pod's: it had used 4.0 of its 64.0",
        ),
        ({"memory_limit": 8 * GIB}, GIB, Outcome.HOST_OUT_OF_MEMORY, "used more than its memory limit of 8.0 GiB"),
        (
            {"memory_limit": None},
            4 * GIB,
            Outcome.PREEMPTED,
            "the node's memory ran out, not the pod's: it has no limit",
        ),
        ({"reason": "Evicted", "message": LOW}, 4 * GIB, Outcome.PREEMPTED, f"was evicted by its node: {LOW}"),
        ({"reason": "Evicted", "message": FULL_DISK}, GIB, Outcome.CRASH, f"was evicted by its node: {FULL_DISK}"),
    ],
)
def test_whose_memory_ran_out(changes: dict[str, object], used: int, outcome: Outcome, message: str) -> None:
    """By what the pod used two seconds before, and how fast memory can be filled."""
    pulled = Pulled(report(4, host_used_bytes=used, updated=START.timestamp() - 2)) if used else Pulled(None)
    found = judged(child(**FAILED), pod(**(KILLED | changes)), reports={"pod-1-0": pulled})
    assert found is not None
    assert found.outcome is outcome
    assert message in found.message


def test_what_the_node_did_to_one_pod_is_the_cause_of_what_the_others_say() -> None:
    later = START + timedelta(seconds=5)
    other = pod(
        index=1, **OVER, exit_time=later,
        last_words=report(node=1, outcome=Outcome.CRASH, message="closed by peer").within(TERMINATION_LIMIT),
    )  # fmt: skip
    words = report(outcome=Outcome.PREEMPTED, exit_code=137, message="the node's memory ran out")
    killed = pod(**OVER, exit_time=START, last_words=words.within(TERMINATION_LIMIT))
    evicted = pod(phase="Failed", reason="Evicted", message=LOW, disruption="TerminationByKubelet", exit_time=START)
    for cause in (killed, evicted):
        found = judged(child(**FAILED), cause, other)
        assert found is not None
        assert found.outcome is Outcome.PREEMPTED


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


NEARLY = last_words(Outcome.CRASH, 3, metrics={"reward": 1.0}, traceback="x" * 500)
GARBAGE = st.one_of(
    st.text(max_size=4096),
    st.binary(max_size=4096).map(lambda data: data.decode(errors="replace")),
    st.tuples(st.integers(0, len(NEARLY)), st.text(max_size=20)).map(lambda cut: NEARLY[: cut[0]] + cut[1]),
    st.sampled_from(
        ["{" * 4096, "[" * 4096, '{"a":' * 800, "\0" * 4096, NEARLY + NEARLY, NEARLY.replace("3", "9" * 400)]
    ),
)


@given(words=GARBAGE, exit_code=st.sampled_from([0, 1, 3, 137, 143, 255]))
def test_any_last_words_end_in_a_status_that_can_be_written(words: str, exit_code: int) -> None:
    life = Life(GOOD | {"restart": {"maxRestarts": 0, "backoffSeconds": 0}})
    life.passes(2)
    life.ends(1, Outcome.CRASH, exit_code=exit_code)
    life.put_pod(replace(life.pods["pod-1-0"], last_words=words))
    life.passes(3)
    status = JobStatus.model_validate(life.status)
    assert status.phase in ("Complete", "Failed", "Restarting", "Starting")
    assert all(len(condition.message) <= 4096 for condition in status.conditions)


def test_container_that_failed_the_pod_is_named() -> None:
    found = judged(child(**FAILED), pod(phase="Failed", failure=Failure("fetch", 2, "no such bucket\n")))
    assert found is not None
    assert found.message == "pod job-abcde-1-0-x, container fetch, exit code 2: no such bucket"
    assert found.exit_code == 2


def test_a_node_that_does_not_admit_the_pod_is_quoted() -> None:
    said = "Pod was rejected: Allocate failed due to no healthy devices present"
    found = judged(child(**FAILED), pod(phase="Failed", reason="UnexpectedAdmissionError", message=said))
    assert found is not None
    assert found.message == f"pod job-abcde-1-0-x: UnexpectedAdmissionError: {said}"


PROXIED = {"others": ("proxy",), "exit_time": START}


def test_pod_whose_proxy_runs_on_is_over_a_while_after_its_launcher() -> None:
    done = pod(exit_code=0, last_words=last_words(Outcome.COMPLETE, 10), **PROXIED)
    assert judged(child(), done, after=14) is None, "the proxy may end by itself"
    found = judged(child(), done, after=16)
    assert found is not None
    assert (found.outcome, found.message, found.report is not None) == (Outcome.COMPLETE, "Complete", True)
    assert judged(child(completions=2), done, after=16) is None, "the other node's pod is not known yet"
    other = pod(index=1, others=("proxy",))
    assert judged(child(completions=2), done, other, after=16) is None, "the other node still saves"


def test_failure_of_a_pod_whose_proxy_runs_on_ends_the_attempt_although_others_wait_for_it() -> None:
    crashed = pod(exit_code=1, last_words=last_words(Outcome.CRASH), **PROXIED)
    waiting = pod(index=1, others=("proxy",))
    assert judged(child(completions=2), crashed, waiting, after=14) is None
    found = judged(child(completions=2), crashed, waiting, after=16)
    assert found is not None
    assert found.outcome is Outcome.CRASH
    assert judged(child(), pod(exit_code=1, exit_time=START), after=99) is None, "its phase will follow"


def body(phase: str, ours: dict, *others: dict, before: tuple[dict, ...] = (), **spec: object) -> dict:
    return {
        "metadata": {"name": "p", "namespace": "ns", "uid": "u", "labels": {}, "creationTimestamp": START.isoformat()},
        "spec": {"containers": [{"name": "colocated"}], **spec},
        "status": {
            "phase": phase,
            "initContainerStatuses": list(before),
            "containerStatuses": [*others, {"name": "colocated", "state": ours}],
        },
    }


ERROR = {"terminated": {"exitCode": 3, "reason": "Error", "message": "no such bucket"}}
INITIALIZING = {"waiting": {"reason": "PodInitializing"}}


def test_other_containers_are_read_from_the_pod() -> None:
    failed = child_pod(body("Failed", INITIALIZING, before=({"name": "fetch", "state": ERROR},)))
    assert failed.failure == Failure("fetch", 3, "no such bucket")
    helper = {"name": "helper", "restartPolicy": "Always"}
    restarted = body("Running", {"running": {}}, before=({"name": "helper", "state": ERROR},), initContainers=[helper])
    assert child_pod(restarted).failure is None, "it is started again"
    proxied = child_pod(body("Running", {"terminated": {"exitCode": 0}}, {"name": "proxy", "state": {"running": {}}}))
    assert (proxied.others, proxied.running, proxied.ended, proxied.terminal) == (("proxy",), False, True, False)
    unpulled = {"name": "proxy", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}
    beside = child_pod(body("Pending", {"running": {}}, unpulled))
    assert beside.running, "the phase stays Pending while another container waits for its image"
    assert (beside.waiting_container, beside.waiting_reason) == ("proxy", "ImagePullBackOff")
    fetching = child_pod(body("Pending", INITIALIZING, before=({"name": "fetch", "state": {"running": {}}},)))
    assert (fetching.initializing, fetching.waiting_reason) == ("fetch", "PodInitializing")


def test_limit_and_message_are_read_from_the_pod() -> None:
    resources = {"limits": {"memory": "2Gi"}}
    body = {
        "metadata": {"name": "p", "namespace": "ns", "uid": "u", "labels": {}, "creationTimestamp": START.isoformat()},
        "spec": {"containers": [{"name": "sidecar"}, {"name": "colocated", "resources": resources}]},
        "status": {"phase": "Failed", "reason": "Evicted", "message": LOW},
    }
    found = child_pod(body)
    assert (found.memory_limit, found.reason, found.message) == (2 * GIB, "Evicted", LOW)
