"""A cluster in memory: API server, Job controller, garbage collector and kubelet, as far as an operator can tell.

Bodies are as on the wire. Nothing happens by itself: tests say when the controller, the kubelet and the watches move,
so that every order of events can be had. Time is the cluster's.
"""

import asyncio
import copy
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from tests.unit.operator.cluster import SETTINGS, START

from colocated_operator import observe, relist
from colocated_operator.drivers import Driver, World
from colocated_operator.kube import KubeError
from colocated_operator.observe import ChildPod, Pulled
from colocated_operator.status.conditions import stamp
from colocated_operator.store import Store
from colocated_runtime.contract import names
from colocated_runtime.contract.outcome import Outcome
from colocated_runtime.contract.report import TERMINATION_LIMIT, Checkpoint, Progress, Report, Stage

Body = dict[str, Any]
NAMESPACE = "ns"
TOTAL_STEPS = 10
WATCHED = (names.KIND, "Job", "Pod")


class Killed(BaseException):
    """The operator's process is gone: no handler of its own may see this."""


@dataclass
class Cluster:
    """What is persisted, and what would happen to it."""

    now: datetime = START
    objects: dict[tuple[str, str], Body] = field(default_factory=dict)
    watchers: list[deque[tuple[str, Body]]] = field(default_factory=list)
    version: int = 0
    numbers: int = 0
    quota: bool = False
    """Whether Jobs are forbidden."""
    saved_step: int = 0
    """The newest checkpoint on the volume."""
    steps: dict[str, int] = field(default_factory=dict)
    """Done, by pod uid."""
    lost: set[str] = field(default_factory=set)
    """Pods whose node is gone."""
    silent: set[str] = field(default_factory=set)
    """Pods whose report cannot be had."""
    skew: timedelta = timedelta(0)
    """How far the operator's clock is ahead."""
    # What tests look at afterwards
    made: Counter[str] = field(default_factory=Counter)
    """Objects created so far, by kind and name."""
    overlaps: list[str] = field(default_factory=list)
    """Attempts that were created while pods of another one ran."""
    statuses: list[Body] = field(default_factory=list)
    """Every status that was written."""
    events: list[Body] = field(default_factory=list)

    # The API server

    def put(self, body: Body) -> Body:
        """Persist `body` and tell the watches."""
        kind, meta = body["kind"], body["metadata"]
        new = (kind, meta["name"]) not in self.objects
        self.version += 1
        meta["resourceVersion"] = str(self.version)
        if new:
            self.numbers += 1
            meta |= {"uid": f"{kind.lower()}-{self.numbers}", "creationTimestamp": stamp(self.now)}
            self.made[f"{kind} {meta['name']}"] += 1
        self.objects[kind, meta["name"]] = body
        self._tell("ADDED" if new else "MODIFIED", body)
        return body

    def remove(self, kind: str, name: str) -> None:
        """The object vanishes; what it owned is deleted too."""
        body = self.objects.pop((kind, name))
        self.version += 1
        body["metadata"]["resourceVersion"] = str(self.version)
        self._tell("DELETED", body)
        for child in self.of_kind("Job", "Pod", "ConfigMap", "Service"):
            if observe.controller(child, kind) == body["metadata"]["uid"]:
                self.delete(child["kind"], child["metadata"]["name"])

    def delete(self, kind: str, name: str, grace: int = 30) -> None:
        """What a DELETE does: pods end in their own time, everything else is gone at once."""
        body = self.objects.get((kind, name))
        if body is None:
            return
        if kind != "Pod":
            self.remove(kind, name)
        elif "deletionTimestamp" not in body["metadata"]:
            body["metadata"]["deletionTimestamp"] = stamp(self.now + timedelta(seconds=grace))
            self.put(body)

    def of_kind(self, *kinds: str) -> list[Body]:
        return [body for (kind, _), body in sorted(self.objects.items()) if kind in kinds]

    def _tell(self, what: str, body: Body) -> None:
        if body["kind"] in WATCHED:
            for inbox in self.watchers:
                inbox.append((what, copy.deepcopy(body)))

    # The job and its user

    @property
    def job(self) -> Body:
        """The ColocatedRLJob."""
        return next(iter(self.of_kind(names.KIND)))

    def apply(self, spec: Body) -> Body:
        """Create the job, or change its spec."""
        found = self.of_kind(names.KIND)
        meta = {"name": "job", "namespace": NAMESPACE, "generation": 0}
        body = found[0] if found else {"kind": names.KIND, "metadata": meta, "status": {}}
        body["metadata"]["generation"] += 1
        return self.put({**body, "spec": spec})

    async def touch(self) -> None:
        """Somebody else writes to the job: who has read it before meets a conflict."""
        self.put(self.job)

    # The Job controller

    def control(self) -> None:
        """One sync of every Job."""
        for job in self.of_kind("Job"):
            self._sync(job)

    def _sync(self, job: Body) -> None:
        spec, status = job["spec"], job["status"]
        true = {entry["type"] for entry in status["conditions"]}
        if true & {"Complete", "Failed"}:
            return
        pods = self.pods_of(job)
        phases = Counter(pod["status"]["phase"] for pod in pods)
        over = phases["Succeeded"] + phases["Failed"] == len(pods)
        if spec.get("suspend"):
            for pod in pods:
                self.delete("Pod", pod["metadata"]["name"])
        elif status.get("late") or self._is_late(job):
            status["late"] = True
            for pod in pods:
                if pod["status"]["phase"] not in ("Succeeded", "Failed"):
                    self.delete("Pod", pod["metadata"]["name"])
            self._condition(job, "FailureTarget" if not over else "Failed", "DeadlineExceeded")
        elif phases["Failed"] or status.get("vanished"):
            for pod in pods:
                if pod["status"]["phase"] not in ("Succeeded", "Failed"):
                    self.delete("Pod", pod["metadata"]["name"])
            self._condition(job, "FailureTarget" if not over else "Failed", "BackoffLimitExceeded")
        elif phases["Succeeded"] == spec["completions"]:
            self._condition(job, "Complete", "CompletionsReached")
        else:
            for index in range(spec["completions"]):
                if not any(_index(pod) == index for pod in pods):
                    self._make_pod(job, index)

    def _is_late(self, job: Body) -> bool:
        seconds, start = job["spec"].get("activeDeadlineSeconds"), job["status"].get("startTime")
        return seconds is not None and start and self.now - observe.moment(start) >= timedelta(seconds=seconds)

    def _condition(self, job: Body, kind: str, reason: str) -> None:
        if kind not in {entry["type"] for entry in job["status"]["conditions"]}:
            job["status"]["conditions"].append({"type": kind, "status": "True", "reason": reason})
            self.put(job)

    def _make_pod(self, job: Body, index: int) -> None:
        meta = job["metadata"]
        self.put({
            "kind": "Pod",
            "metadata": {
                "name": f"{meta['name']}-{index}-{self.numbers}",
                "namespace": NAMESPACE,
                "labels": dict(job["spec"]["template"]["metadata"]["labels"]),
                "annotations": {"batch.kubernetes.io/job-completion-index": str(index)},
                "ownerReferences": [{"kind": "Job", "uid": meta["uid"], "controller": True}],
            },
            "spec": copy.deepcopy(job["spec"]["template"]["spec"]),
            "status": {"phase": "Pending"},
        })  # fmt: skip

    def pods_of(self, job: Body) -> list[Body]:
        return [pod for pod in self.of_kind("Pod") if observe.controller(pod, "Job") == job["metadata"]["uid"]]

    def suspend_child(self, job: Body, value: bool) -> None:
        """As a queue does it."""
        job["spec"]["suspend"] = value
        job["status"]["startTime"] = stamp(self.now)  # the clock of the Job's own deadline starts again
        self.put(job)

    # The kubelet

    def start(self, pod: Body) -> None:
        """Its containers run, ours from the newest checkpoint."""
        if pod["status"]["phase"] == "Pending" and "deletionTimestamp" not in pod["metadata"]:
            running = [{"name": entry["name"], "state": {"running": {}}} for entry in pod["spec"]["containers"]]
            pod["status"] |= {"phase": "Running", "podIP": "10.0.0.1", "containerStatuses": running}
            self.steps[pod["metadata"]["uid"]] = self.saved_step
            self.put(pod)

    def work(self, pod: Body, *, save: bool = False) -> None:
        """One step."""
        uid = pod["metadata"]["uid"]
        if runs(pod) and uid not in self.lost:
            self.steps[uid] = min(TOTAL_STEPS, self.steps[uid] + 1)
            if save:
                self.saved_step = max(self.saved_step, self.steps[uid])

    def exit(self, pod: Body, outcome: Outcome) -> None:
        """The launcher exits with its last words; a stopped one has saved. Other containers of the pod run on."""
        uid = pod["metadata"]["uid"]
        if not runs(pod) or uid in self.lost:
            return
        if outcome is Outcome.COMPLETE:
            self.steps[uid] = TOTAL_STEPS
        if outcome in (Outcome.COMPLETE, Outcome.PREEMPTED):
            self.saved_step = max(self.saved_step, self.steps[uid])
        code = {Outcome.COMPLETE: 0, Outcome.PREEMPTED: 143}.get(outcome, 1)
        words = self.report(pod, stage=Stage.FINISHED, outcome=outcome, message=outcome.value).within(TERMINATION_LIMIT)
        self._exit(pod, {names.CONTAINER}, code, words)

    def exit_others(self, pod: Body, code: int) -> None:
        """The containers beside ours exit."""
        if pod["status"]["phase"] == "Running" and pod["metadata"]["uid"] not in self.lost:
            running = {entry["name"] for entry in pod["status"]["containerStatuses"] if "running" in entry["state"]}
            self._exit(pod, running - {names.CONTAINER}, code)

    def _exit(self, pod: Body, which: set[str], code: int, words: str = "") -> None:
        """A pod is over when all its containers are."""
        ended = {"exitCode": code, "finishedAt": stamp(self.now), "message": words}
        states = {entry["name"]: entry["state"] for entry in pod["status"]["containerStatuses"]}
        states |= {name: {"terminated": ended} for name in which}
        pod["status"]["containerStatuses"] = [{"name": name, "state": state} for name, state in states.items()]
        if all("terminated" in state for state in states.values()):
            failed = any(state["terminated"]["exitCode"] for state in states.values())
            pod["status"]["phase"] = "Failed" if failed else "Succeeded"
        self.put(pod)

    def fail_before(self, pod: Body) -> None:
        """A container that runs before ours fails: the pod is over."""
        before = pod["spec"].get("initContainers")
        if before and pod["status"]["phase"] == "Pending" and pod["metadata"]["uid"] not in self.lost:
            ended = {"exitCode": 1, "finishedAt": stamp(self.now), "message": "no such bucket"}
            states = [{"name": before[0]["name"], "state": {"terminated": ended}}]
            pod["status"] |= {"phase": "Failed", "initContainerStatuses": states}
            self.put(pod)

    def end(self, pod: Body) -> None:
        """What the kubelet does with a pod that is being deleted: SIGTERM, then it is gone."""
        meta = pod["metadata"]
        if "deletionTimestamp" not in meta or meta["uid"] in self.lost:
            return
        failed = pod["status"]["phase"] != "Succeeded"
        self.exit(pod, Outcome.PREEMPTED)
        self.exit_others(pod, 143)
        self.remove("Pod", meta["name"])
        for job in self.of_kind("Job"):
            if failed and job["metadata"]["uid"] == observe.controller(pod, "Job") and not job["spec"].get("suspend"):
                job["status"]["vanished"] = True

    def report(self, pod: Body, **changes: Any) -> Report:
        """What its launcher says."""
        slim = observe.child_pod(pod)
        step = self.steps.get(slim.uid, 0)
        saved = [Checkpoint(step=self.saved_step, uri=f"pvc://c/{self.saved_step}", time=self.now.timestamp())]
        values: dict[str, Any] = {
            "name": "job", "uid": pod["metadata"]["labels"][names.LABEL_JOB_UID], "attempt": slim.attempt,
            "node": slim.index, "stage": Stage.RUNNING, "started": 0.0, "updated": 0.0,
            "progress": Progress(step=step, total_steps=TOTAL_STEPS),
            "checkpoints": saved if self.saved_step else [],
        }  # fmt: skip
        return Report(**(values | changes))


def runs(pod: Body) -> bool:
    """Whether our container runs."""
    return observe.child_pod(pod).running


def _index(pod: Body) -> int:
    return int(pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"])


@dataclass
class Fault:
    """Something that befalls one call of the operator's."""

    call: int
    """Of this pass, from 1."""
    before: Exception | Killed | None = None
    """Raised instead of the call."""
    after: Exception | Killed | None = None
    """Raised although the call had its effect."""
    meanwhile: Callable[[], Awaitable[None]] | None = None
    """Happens before the call."""


class Client:
    """In place of `kube.Kube`: what the API server does with each call, and faults on the way to it."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.calls = 0
        self.fault: Fault | None = None

    async def _call(self, effect: Callable[[], Any]) -> Any:
        self.calls += 1
        fault = self.fault if self.fault and self.fault.call == self.calls else None
        if fault and fault.meanwhile:
            await fault.meanwhile()
        if fault and fault.before:
            raise fault.before
        result = copy.deepcopy(effect())
        if fault and fault.after:
            raise fault.after
        return result

    async def create(self, body: Body, *, dry_run: bool = False) -> Body:
        return await self._call(lambda: self._create(copy.deepcopy(body), dry_run))

    def _create(self, body: Body, dry_run: bool) -> Body:
        kind, name = body["kind"], body["metadata"]["name"]
        if (kind, name) in self.cluster.objects:
            raise KubeError(409, f"{name} already exists", reason="AlreadyExists")
        if kind == "Job" and self.cluster.quota:
            raise KubeError(403, "exceeded quota")
        if dry_run:
            return body
        if kind == "Event":
            self.cluster.events.append(body)
        if kind == "Job":
            body["status"] = {"conditions": [], "startTime": stamp(self.cluster.now)}
            self.cluster.overlaps += [
                f"{name} beside {pod['metadata']['name']}"
                for pod in self.cluster.of_kind("Pod")
                if pod["status"]["phase"] == "Running"
                and pod["metadata"]["uid"] not in self.cluster.lost
                # A clock that is an hour ahead takes a pod that ends for lost: the volume is fenced against it.
                and self.cluster.skew <= timedelta(0)
            ]
        return self.cluster.put(body)

    async def get(self, kind: str, namespace: str, name: str) -> Body | None:
        return await self._call(lambda: self.cluster.objects.get((kind, name)))

    async def list(self, kind: str, namespace: str | None, label: str = "", field: str = "") -> list[Body]:
        return await self._call(lambda: self.cluster.of_kind(kind))

    async def delete(self, kind: str, namespace: str, name: str) -> None:
        await self._call(lambda: self.cluster.delete(kind, name))

    async def patch_status(self, namespace: str, name: str, version: int, patch: Body) -> Body:
        return await self._call(lambda: self._patch(name, version, patch))

    def _patch(self, name: str, version: int, patch: Body) -> Body:
        body = self.cluster.objects.get((names.KIND, name))
        if body is None:
            raise KubeError(404, "not found")
        if body["metadata"]["resourceVersion"] != str(version):
            raise KubeError(409, "the object has been modified")
        status = merged(body["status"], patch)
        self.cluster.statuses.append(copy.deepcopy(status))
        return self.cluster.put({**body, "status": status})


def merged(old: Body, patch: Body) -> Body:
    """`patch` applied to `old` as the API server does it (RFC 7386)."""
    result = dict(old)
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            before = result.get(key)
            result[key] = merged(before if isinstance(before, dict) else {}, value)
        else:
            result[key] = value
    return result


class Reports:
    """In place of `reports.Reports`."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    async def pull(self, pods: list[ChildPod], job_uid: str, known: dict[str, Pulled]) -> dict[str, Pulled]:
        return {pod.uid: self._ask(pod, known.get(pod.uid)) for pod in pods}

    def _ask(self, pod: ChildPod, before: Pulled | None) -> Pulled:
        body = self.cluster.objects.get(("Pod", pod.name))
        answers = body and runs(body)
        if not answers or pod.uid in self.cluster.lost | self.cluster.silent:
            return (before or Pulled(None)).unanswered("no answer within 3 s", self.cluster.now, reached=True)
        return Pulled(self.cluster.report(body))


class Loop(asyncio.SelectorEventLoop):
    """An event loop whose time is the cluster's: it goes forward, whatever the wall clock does."""

    seconds = 0.0

    def time(self) -> float:
        return self.seconds


class Nobody:
    """In place of `Drivers`: tests say when passes are made."""

    def end(self, uid: str) -> None: ...

    def wake_all(self, uids: set[str]) -> None: ...


class Operator:
    """One life of the operator's process, over the simulated cluster; the watches' events wait until delivered."""

    def __init__(self, cluster: Cluster, loop: Loop) -> None:
        self.cluster, self.loop = cluster, loop
        self.client = Client(cluster)
        clock = lambda: cluster.now + cluster.skew  # noqa: E731
        self.world = World(self.client, Store(clock), Reports(cluster), SETTINGS, clock)  # type: ignore[arg-type]
        self.inbox: dict[str, deque[tuple[str, Body]]] = {kind: deque() for kind in WATCHED}
        self._told: deque[tuple[str, Body]] = deque()
        cluster.watchers.append(self._told)
        loop.run_until_complete(relist.seed(self.world))
        self.driver = Driver(cluster.job["metadata"]["uid"], self.world)

    def stop(self) -> None:
        self.cluster.watchers[:] = [inbox for inbox in self.cluster.watchers if inbox is not self._told]

    def one_pass(self, fault: Fault | None = None) -> None:
        """Raise Killed, KubeError or whatever else ends the pass."""
        self.loop.run_until_complete(self.passes(fault))

    async def passes(self, fault: Fault | None = None) -> None:
        self.client.calls, self.client.fault = 0, fault
        try:
            await self.driver.one_pass()
        finally:
            self.client.fault = None

    # Watches: each kind has a stream of its own, in order

    def _sort(self) -> None:
        while self._told:
            event = self._told.popleft()
            self.inbox[event[1]["kind"]].append(event)

    def deliver(self, kind: str, count: int = 1_000, *, twice: bool = False) -> None:
        """The next `count` events of a kind reach the operator."""
        self._sort()
        for _ in range(min(count, len(self.inbox[kind]))):
            event = self.inbox[kind].popleft()
            self._handle(*event)
            if twice:
                self._handle(*event)

    def deliver_all(self) -> None:
        for kind in WATCHED:
            self.deliver(kind)

    def list_again(self, kind: str) -> None:
        """As kopf after 410: what exists now is told; what was deleted meanwhile never is."""
        self._sort()
        self.inbox[kind].clear()
        for body in self.cluster.of_kind(kind):
            self._handle("", copy.deepcopy(body))

    def prune(self) -> None:
        self.loop.run_until_complete(relist.prune(self.world, Nobody()))  # type: ignore[arg-type]

    def _handle(self, what: str, body: Body) -> None:
        """What `handlers` does."""
        store, gone = self.world.store, what == "DELETED"
        if body["kind"] == "Job":
            store.put_child(observe.child_job(body, gone=gone))
        elif body["kind"] == "Pod":
            store.put_pod(observe.child_pod(body, gone=gone))
        elif gone:
            store.forget_job(body["metadata"]["uid"])
        else:
            job = observe.rl_job(body)
            store.put_job(job)
            store.watched(job.uid, job.version)
