"""Whatever befalls the operator, its watches, its calls and the cluster: nothing is lost, doubled or taken back.

Hypothesis looks for an order of events that breaks an invariant. CHAOS_EXAMPLES asks for a longer search.
"""

import contextlib
import logging
import os
from collections.abc import Iterator
from datetime import datetime, timedelta

import hypothesis.strategies as st
import pytest
import structlog
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.unit.operator.simulated import WATCHED, Cluster, Fault, Killed, Loop, Operator

from colocated_operator.kube import KubeError
from colocated_operator.observe import moment
from colocated_runtime.contract.outcome import Outcome

STUB = {"command": ["stub"]}
BESIDE = {"containers": [{"name": "proxy"}], "initContainers": [{"name": "fetch"}]}
"""Containers of the user's, in the pods of the job."""
LAST_CALL = 12
"""A pass makes fewer calls than this, mostly."""
ENDS = [Outcome.COMPLETE, Outcome.CRASH, Outcome.DEVICE_OUT_OF_MEMORY, Outcome.TRANSIENT, Outcome.USER_ERROR]
REFUSALS = (429, 500, 0)
kinds = st.sampled_from(WATCHED)


@pytest.fixture(autouse=True, scope="module")
def quiet() -> Iterator[None]:
    """Thousands of passes are of no interest in the log."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.reset_defaults()


class Life(RuleBasedStateMachine):
    """One job; one operator, sometimes two by mistake."""

    @initialize(
        nodes=st.integers(1, 2),
        max_restarts=st.integers(0, 2),
        backoff=st.sampled_from([0, 10]),
        beside=st.booleans(),
        deadline=st.sampled_from([None, 300]),
    )
    def begin(self, nodes: int, max_restarts: int, backoff: int, beside: bool, deadline: int | None) -> None:
        self.loop = Loop()
        self.cluster = Cluster()
        template = {"storage": "1Gi", "accessModes": ["ReadWriteMany"]}
        self.spec = {
            "runtime": STUB | ({"podTemplate": {"spec": BESIDE}} if beside else {}),
            "nodes": nodes,
            "checkpoint": {"storage": {"volumeClaimTemplate": template}},
            "restart": {"maxRestarts": max_restarts, "backoffSeconds": backoff},
        }
        self.user_moves_the_deadline(deadline)
        self.operators = [Operator(self.cluster, self.loop)]
        self.seen = 0

    # The operator

    def run_pass(self, which: int, fault: Fault | None = None) -> None:
        number = which % len(self.operators)
        try:
            self.operators[number].one_pass(fault)
        except KubeError:
            pass
        except Killed:
            self.operators[number].stop()
            self.operators[number] = Operator(self.cluster, self.loop)

    @rule(which=st.integers(0, 1))
    def passes(self, which: int) -> None:
        self.run_pass(which)

    @rule(which=st.integers(0, 1))
    def passes_with_news(self, which: int) -> None:
        self.operators[which % len(self.operators)].deliver_all()
        self.run_pass(which)

    @rule(call=st.integers(1, LAST_CALL), after=st.booleans(), which=st.integers(0, 1))
    def killed(self, call: int, after: bool, which: int) -> None:
        self.run_pass(which, Fault(call, after=Killed()) if after else Fault(call, before=Killed()))

    @rule(call=st.integers(1, LAST_CALL), code=st.sampled_from(REFUSALS), which=st.integers(0, 1))
    def refused(self, call: int, code: int, which: int) -> None:
        self.run_pass(which, Fault(call, before=KubeError(code, "injected")))

    @rule(call=st.integers(1, LAST_CALL), which=st.integers(0, 1))
    def answer_lost(self, call: int, which: int) -> None:
        self.run_pass(which, Fault(call, after=KubeError(0, "injected")))

    @rule(call=st.integers(1, LAST_CALL), which=st.integers(0, 1))
    def somebody_else_wrote(self, call: int, which: int) -> None:
        self.run_pass(which, Fault(call, meanwhile=self.cluster.touch))

    @precondition(lambda self: len(self.operators) == 1)
    @rule()
    def second_operator_by_mistake(self) -> None:
        self.operators.append(Operator(self.cluster, self.loop))

    @precondition(lambda self: len(self.operators) == 2)
    @rule()
    def second_operator_removed(self) -> None:
        self.operators.pop().stop()

    @precondition(lambda self: len(self.operators) == 2)
    @rule(call=st.integers(1, LAST_CALL), which=st.integers(0, 1))
    def one_pass_inside_the_other(self, call: int, which: int) -> None:
        async def other() -> None:
            with contextlib.suppress(KubeError):
                await self.operators[1 - which].passes()

        self.run_pass(which, Fault(call, meanwhile=other))

    # The watches

    @rule(kind=kinds, count=st.integers(1, 3), twice=st.booleans(), which=st.integers(0, 1))
    def some_events(self, kind: str, count: int, twice: bool, which: int) -> None:
        self.operators[which % len(self.operators)].deliver(kind, count, twice=twice)

    @rule(kind=kinds, which=st.integers(0, 1))
    def listed_again(self, kind: str, which: int) -> None:
        self.operators[which % len(self.operators)].list_again(kind)

    @rule(which=st.integers(0, 1))
    def pruned(self, which: int) -> None:
        self.operators[which % len(self.operators)].prune()

    # The cluster

    @rule(seconds=st.sampled_from([0.5, 3.0, 20.0, 200.0]))
    def time_passes(self, seconds: float) -> None:
        self.cluster.now += timedelta(seconds=seconds)
        self.loop.seconds += seconds

    @rule(raised=st.booleans())
    def jobs_own_deadline_comes(self, raised: bool) -> None:
        """No operator looks meanwhile."""
        if raised:
            self.user_moves_the_deadline(100_000)
        self.time_passes(400.0)
        for _ in range(2):
            self.cluster.control()
            self.kubelet()

    @rule(seconds=st.sampled_from([-3600.0, 0.0, 3600.0]))
    def clock_jumps(self, seconds: float) -> None:
        self.cluster.skew = timedelta(seconds=seconds)

    @rule()
    def controller(self) -> None:
        self.cluster.control()

    @rule()
    def kubelet(self) -> None:
        for pod in self.cluster.of_kind("Pod"):
            self.cluster.start(pod)
            self.cluster.end(pod)

    @rule(save=st.booleans())
    def step(self, save: bool) -> None:
        for pod in self.cluster.of_kind("Pod"):
            self.cluster.work(pod, save=save)

    @rule(data=st.data(), outcome=st.sampled_from(ENDS))
    def pod_exits(self, data: st.DataObject, outcome: Outcome) -> None:
        pods = self.cluster.of_kind("Pod")
        if outcome is Outcome.COMPLETE:  # all ranks complete together
            for pod in pods:
                self.cluster.exit(pod, outcome)
        elif pods:
            self.cluster.exit(data.draw(st.sampled_from(pods)), outcome)

    @rule(data=st.data(), code=st.sampled_from([0, 1]))
    def other_container_exits(self, data: st.DataObject, code: int) -> None:
        pods = self.cluster.of_kind("Pod")
        if pods:
            self.cluster.exit_others(data.draw(st.sampled_from(pods)), code)

    @rule(data=st.data())
    def init_container_fails(self, data: st.DataObject) -> None:
        pods = self.cluster.of_kind("Pod")
        if pods:
            self.cluster.fail_before(data.draw(st.sampled_from(pods)))

    @rule(data=st.data())
    def pod_deleted_by_hand(self, data: st.DataObject) -> None:
        pods = self.cluster.of_kind("Pod")
        if pods:
            self.cluster.delete("Pod", data.draw(st.sampled_from(pods))["metadata"]["name"])

    @rule(data=st.data())
    def node_lost(self, data: st.DataObject) -> None:
        pods = self.cluster.of_kind("Pod")
        if pods:
            pod = data.draw(st.sampled_from(pods))
            self.cluster.lost.add(pod["metadata"]["uid"])
            self.cluster.delete("Pod", pod["metadata"]["name"])

    @rule(data=st.data())
    def job_deleted_by_hand(self, data: st.DataObject) -> None:
        written = self.cluster.job["status"].get("attempt", 0)
        known = [job for job in self.cluster.of_kind("Job") if _attempt(job) <= written]
        if known:  # one that no status knows of yet could not be told from one that was never made
            self.cluster.delete("Job", data.draw(st.sampled_from(known))["metadata"]["name"])

    @rule(value=st.booleans())
    def queue_suspends_the_child(self, value: bool) -> None:
        for job in self.cluster.of_kind("Job")[-1:]:
            self.cluster.suspend_child(job, value)

    @rule(value=st.booleans())
    def user_suspends(self, value: bool) -> None:
        self.spec = {**self.spec, "suspend": value}
        self.cluster.apply({key: value for key, value in self.spec.items() if value is not None})

    @rule(seconds=st.sampled_from([None, 30, 300, 100_000]))
    def user_moves_the_deadline(self, seconds: int | None) -> None:
        self.spec = {**self.spec, "activeDeadlineSeconds": seconds}
        self.cluster.apply({key: value for key, value in self.spec.items() if value is not None})

    @rule(value=st.booleans())
    def quota(self, value: bool) -> None:
        self.cluster.quota = value

    @rule()
    def reports_fail(self) -> None:
        self.cluster.silent ^= {pod["metadata"]["uid"] for pod in self.cluster.of_kind("Pod")}

    # What must hold

    @invariant()
    def nothing_is_doubled_or_taken_back(self) -> None:
        self.no_attempt_has_two_jobs()
        self.attempts_never_overlap()
        self.no_event_is_repeated()
        self.status_never_goes_backwards()

    def no_attempt_has_two_jobs(self) -> None:
        twice = [name for name, count in self.cluster.made.items() if name.startswith("Job ") and count > 1]
        assert not twice

    def attempts_never_overlap(self) -> None:
        assert not self.cluster.overlaps

    def no_event_is_repeated(self) -> None:
        told = [(event["reason"], event["message"]) for event in self.cluster.events if _once(event)]
        assert len(told) == len(set(told)), told

    def status_never_goes_backwards(self) -> None:
        statuses = self.cluster.statuses
        for before, after in zip(statuses[max(0, self.seen - 1) :], statuses[max(1, self.seen) :], strict=False):
            for number in ("attempt", "restartCount"):
                assert after.get(number, 0) >= before.get(number, 0), number
            if _deadline(after) and before["phase"] != "Failed":
                assert self.cluster.now + self.cluster.skew >= _deadline(after)
            if before.get("phase") in ("Complete", "Failed"):
                assert after["phase"] == before["phase"]
            ended = [entry["attempt"] for entry in after.get("restarts", [])]
            assert ended == sorted(set(ended))
            if before.get("attempt") == after.get("attempt"):
                assert _step(after) >= _step(before)
        self.seen = len(statuses)

    def teardown(self) -> None:
        """Faults stop: the job ends, and everything about it is told."""
        if not hasattr(self, "cluster"):
            return
        self.cluster.quota, self.cluster.silent, self.cluster.skew = False, set(), timedelta(0)
        self.user_suspends(False)
        for _ in range(60):
            self.time_passes(20.0)
            self.cluster.control()
            for job in self.cluster.of_kind("Job"):
                if job["spec"].get("suspend"):
                    self.cluster.suspend_child(job, False)
            self.kubelet()
            for pod in self.cluster.of_kind("Pod"):
                self.cluster.exit(pod, Outcome.COMPLETE)
            for number, operator in enumerate(list(self.operators)):
                operator.deliver_all()
                operator.prune()
                self.run_pass(number)
        self.nothing_is_doubled_or_taken_back()
        status = self.cluster.job["status"]
        assert status["phase"] in ("Complete", "Failed"), status
        reasons = [event["reason"] for event in self.cluster.events]
        assert reasons.count(status["phase"]) == 1, "the end is told"
        told = {entry["attempt"] for entry in status.get("restarts", [])}
        suspended = {before.get("attempt", 0) for before in self.cluster.statuses if _suspension(before)}
        missing = set(range(1, status["attempt"])) - told - suspended
        assert not missing or len(told) == 10, f"attempts {missing} ended without a word"
        live = [job for job in self.cluster.of_kind("Job") if not job["status"]["conditions"]]
        assert not live
        self.loop.close()


def _attempt(job: dict) -> int:
    return int(job["metadata"]["labels"]["rl.colocated.dev/attempt"])


def _step(status: dict) -> int:
    return status.get("checkpoints", {}).get("step", 0)


def _deadline(status: dict) -> datetime | None:
    """When the deadline was over that a failed job is said to have exceeded."""
    failed = next(entry for entry in status["conditions"] if entry["type"] == "Failed")
    if failed["reason"] != "DeadlineExceeded":
        return None
    return moment(status["startTime"]) + timedelta(seconds=int(failed["message"].rpartition(" ")[2]))


def _suspension(status: dict) -> bool:
    return any(entry["reason"] in ("Suspending", "Suspended") for entry in status["conditions"])


def _once(event: dict) -> bool:
    """Whether it tells of something that happens once: an attempt's start or end, the job's end."""
    return ".restart-" in event["metadata"]["name"] or event["reason"] in ("Running", "Complete", "Failed")


Life.TestCase.settings = settings(
    max_examples=int(os.environ.get("CHAOS_EXAMPLES", "40")), stateful_step_count=40, deadline=None
)
TestLife = Life.TestCase
