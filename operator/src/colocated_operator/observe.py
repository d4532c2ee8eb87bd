"""What one pass knows: slim copies of the job's objects, and what its pods reported.

Values only. The functions here read the API server's dicts and keep the fields that decisions need.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple

from colocated_runtime.contract import names
from colocated_runtime.contract.report import Report
from colocated_runtime.contract.values import quantity_bytes

STARTING = (None, "ContainerCreating", "PodInitializing")
"""What the kubelet says of a container that nothing is known to hold up."""
DIGITS = re.compile(r"[0-9]{1,18}")
MOST = 10**9 - 1
"""Attempts and restarts that a status can hold."""
LONGEST_GAP = timedelta(seconds=15)
"""Between two asks of a pod: what is longer is the operator's own absence, and no silence of the pod's."""


@dataclass(frozen=True, slots=True)
class RLJob:
    """A ColocatedRLJob."""

    name: str
    namespace: str
    uid: str
    generation: int
    version: int
    """resourceVersion."""
    deleting: bool
    labels: Mapping[str, str]
    spec: Mapping[str, Any]
    status: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ChildJob:
    """The batch/v1 Job of one attempt."""

    name: str
    namespace: str
    uid: str
    owner: str
    """uid of the ColocatedRLJob that controls it."""
    version: int
    attempt: int
    restart_count: int
    """Counted restarts before this attempt, from the annotation."""
    created: datetime
    completions: int
    """Pods that it takes."""
    deleting: bool
    suspended: bool
    conditions: Mapping[str, str]
    """Type of each true condition → its reason."""
    message: str
    """Of the Failed condition."""
    terminating: int
    gone: bool
    """Whether it has been deleted: this is what was last seen of it."""

    @property
    def finished(self) -> bool:
        """Complete, or failed with all its pods gone."""
        return "Complete" in self.conditions or ("Failed" in self.conditions and not self.terminating)

    @property
    def live(self) -> bool:
        """Whether it has, or will have, running pods."""
        return not (self.gone or self.finished)

    @property
    def failing(self) -> bool:
        """Will fail, or has."""
        return "FailureTarget" in self.conditions or "Failed" in self.conditions


class Failure(NamedTuple):
    """A container beside ours, or one that runs before it, that ended with an error."""

    container: str
    exit_code: int
    words: str
    """Its termination message, or the kubelet's reason."""


@dataclass(frozen=True, slots=True)
class ChildPod:
    """A pod of an attempt, or what was last seen of it."""

    name: str
    namespace: str
    uid: str
    job_uid: str
    """uid of the Job that controls it."""
    version: int
    attempt: int
    index: int
    phase: str
    reason: str
    ip: str
    created: datetime
    deadline: datetime | None
    """deletionTimestamp, which includes the grace period."""
    gone: bool
    unschedulable: str
    """Why the pod has no node."""
    scheduled: datetime | None
    """When it was given its node."""
    disruption: str
    """Reason of the DisruptionTarget condition."""
    waiting_container: str
    """Ours, unless another one is known to be stuck."""
    waiting_reason: str
    waiting_message: str
    initializing: str
    """The init container that runs."""
    runs: bool
    """Whether our container runs, as far as its node has said."""
    others: tuple[str, ...]
    """The containers beside ours that have not ended."""
    failure: Failure | None
    exit_code: int | None
    """Of our container, as all that follows."""
    exit_reason: str
    exit_time: datetime | None
    last_words: str
    """The termination message."""
    message: str
    """Of the pod's status: what the kubelet says of an eviction."""
    memory_limit: int | None
    """Bytes; of the container."""

    @property
    def terminal(self) -> bool:
        """Whether nothing of the pod runs any more."""
        return self.gone or self.phase in ("Succeeded", "Failed")

    @property
    def ended(self) -> bool:
        """Whether our container has ended, or never will begin; others of the pod may run on."""
        return self.terminal or self.exit_code is not None

    @property
    def running(self) -> bool:
        """Whether our container runs and can be asked, as far as its node has said."""
        return self.runs and not self.terminal


@dataclass(frozen=True, slots=True)
class Pulled:
    """The answer of one pod's launcher."""

    report: Report | None
    error: str = ""
    since: datetime | None = None
    """Of an error: when the launcher was first not reached."""
    tried: datetime | None = None
    """Of an error: the last ask."""
    in_vain: timedelta = timedelta(0)
    """How long this operator itself has asked without any answer; its own absence is left out."""
    reached: int = 0
    """Asks in that time which came as far as the pod: the network is there, and the launcher silent."""

    def unreadable(self, error: str, now: datetime) -> "Pulled":
        """After an answer that is no report: whoever gives it is not silent."""
        return Pulled(self.report, error, self.since or now)

    def unanswered(self, error: str, now: datetime, *, reached: bool) -> "Pulled":
        """After one more ask without an answer."""
        gap = min(max(now - self.tried, timedelta(0)), LONGEST_GAP) if self.tried else timedelta(0)
        return Pulled(self.report, error, self.since or now, now, self.in_vain + gap, self.reached + reached)


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why the attempt could not be created: found by trying."""

    kind: Literal["Waiting", "Invalid"]
    """Waiting: it may pass by itself. Invalid: the spec must change."""
    reason: str
    message: str
    generation: int


class Trace(NamedTuple):
    """What the ConfigMap of an attempt tells where neither its Job nor a status is left."""

    attempt: int
    restart_count: int
    """Counted restarts before it."""


@dataclass(frozen=True, slots=True)
class Observation:
    """Everything that `decide` looks at, besides the clock."""

    job: RLJob
    children: tuple[ChildJob, ...] = ()
    pods: tuple[ChildPod, ...] = ()
    reports: Mapping[str, Pulled] = field(default_factory=dict)
    """By pod uid."""
    obstacle: Obstacle | None = None
    refusal: str = ""
    """What the API server answered last, where the present attempt's Job could not be given all its pods."""
    trace: Trace | None = None
    """Of the newest attempt; looked for only where the status is empty and no Job is known."""
    swept: bool = False
    """Whether everything that belonged to the job has been deleted since it was over."""

    def child(self, attempt: int) -> ChildJob | None:
        """The Job of `attempt`."""
        return next((child for child in self.children if child.attempt == attempt), None)

    def pods_of(self, attempt: int) -> tuple[ChildPod, ...]:
        """Pods of `attempt`, the newest of each index, in order of index."""
        newest: dict[int, ChildPod] = {}
        for pod in sorted((p for p in self.pods if p.attempt == attempt), key=lambda p: (not p.gone, p.created)):
            newest[pod.index] = pod
        return tuple(newest[index] for index in sorted(newest))


def rl_job(body: Mapping[str, Any]) -> RLJob:
    """The slim copy of a ColocatedRLJob."""
    meta = body["metadata"]
    return RLJob(
        name=meta["name"],
        namespace=meta["namespace"],
        uid=meta["uid"],
        generation=int(meta.get("generation") or 0),
        version=version(body),
        deleting="deletionTimestamp" in meta,
        labels=dict(meta.get("labels") or {}),
        spec=body.get("spec") or {},
        status=body.get("status") or {},
    )


def child_job(body: Mapping[str, Any], *, gone: bool = False) -> ChildJob:
    """The slim copy of a batch/v1 Job; `gone` if its DELETED event brought it."""
    meta, status = body["metadata"], body.get("status") or {}
    annotations = meta.get("annotations") or {}
    conditions = {c["type"]: c for c in status.get("conditions") or [] if c.get("status") == "True"}
    return ChildJob(
        name=meta["name"],
        namespace=meta["namespace"],
        uid=meta["uid"],
        owner=controller(body, names.KIND),
        version=version(body),
        attempt=_ordinal(meta["labels"].get(names.LABEL_ATTEMPT)),
        restart_count=_ordinal(annotations.get(names.ANNOTATION_RESTARTS)),
        created=moment(meta["creationTimestamp"]),
        completions=_number((body.get("spec") or {}).get("completions")),
        deleting="deletionTimestamp" in meta,
        suspended=bool((body.get("spec") or {}).get("suspend")),
        conditions={name: c.get("reason", "") for name, c in conditions.items()},
        message=conditions.get("Failed", {}).get("message", ""),
        terminating=int(status.get("terminating") or 0),
        gone=gone,
    )


def trace(body: Mapping[str, Any]) -> Trace:
    """The trace of the attempt whose ConfigMap this is."""
    meta = body["metadata"]
    restarts = (meta.get("annotations") or {}).get(names.ANNOTATION_RESTARTS)
    return Trace(_ordinal((meta.get("labels") or {}).get(names.LABEL_ATTEMPT)), _ordinal(restarts))


COMBINED = "(combined from similar events): "
NOT_CREATED = "FailedCreate"
"""Reason of a Job's Event: its controller could not make a pod."""


def refusal(events: Iterable[Mapping[str, Any]], child: ChildJob) -> str:
    """What the API server answered last to the controller of `child`, by the Events of the Job; empty if nothing."""
    refused = [
        event
        for event in events
        if event.get("reason") == NOT_CREATED and (event.get("involvedObject") or {}).get("uid") == child.uid
    ]
    last: Mapping[str, Any] = max(refused, key=lambda event: event.get("lastTimestamp") or "", default={})
    return str(last.get("message") or "").removeprefix(COMBINED).removeprefix("Error creating: ")


def child_pod(body: Mapping[str, Any], *, gone: bool = False) -> ChildPod:
    """The slim copy of a pod; `gone` if its DELETED event brought it."""
    meta, status = body["metadata"], body.get("status") or {}
    conditions = {c["type"]: c for c in status.get("conditions") or []}
    scheduled = conditions.get("PodScheduled", {})
    before, beside = status.get("initContainerStatuses") or [], status.get("containerStatuses") or []
    ours: Mapping[str, Any] = next((c for c in beside if c["name"] == names.CONTAINER), {"name": names.CONTAINER})
    others = [c for c in beside if c["name"] != names.CONTAINER]
    restarted = _restarted(body)
    once = [c for c in before if c["name"] not in restarted]
    stuck = next((c for c in (*before, ours, *others) if _state(c, "waiting").get("reason") not in STARTING), ours)
    ended = _state(ours, "terminated")
    deadline, finished, bound = (
        meta.get("deletionTimestamp"),
        ended.get("finishedAt"),
        scheduled.get("lastTransitionTime"),
    )
    return ChildPod(
        name=meta["name"],
        namespace=meta["namespace"],
        uid=meta["uid"],
        job_uid=controller(body, "Job"),
        version=version(body),
        attempt=_ordinal(meta["labels"].get(names.LABEL_ATTEMPT)),
        index=_number((meta.get("annotations") or {}).get("batch.kubernetes.io/job-completion-index")),
        phase=status.get("phase", "Pending"),
        reason=status.get("reason", ""),
        ip=status.get("podIP", ""),
        created=moment(meta["creationTimestamp"]),
        deadline=moment(deadline) if deadline else None,
        gone=gone,
        unschedulable=scheduled.get("message", "") if scheduled.get("status") == "False" else "",
        scheduled=moment(bound) if bound and scheduled.get("status") == "True" else None,
        disruption=conditions.get("DisruptionTarget", {}).get("reason", ""),
        waiting_container=stuck["name"],
        waiting_reason=_state(stuck, "waiting").get("reason", ""),
        waiting_message=_state(stuck, "waiting").get("message", ""),
        initializing=next((c["name"] for c in once if _is("running", c)), ""),
        runs=_is("running", ours),
        others=tuple(c["name"] for c in others if not _is("terminated", c)),
        failure=next(filter(None, map(_failure, (*once, *others))), None),
        exit_code=ended.get("exitCode"),
        exit_reason=ended.get("reason", ""),
        exit_time=moment(finished) if finished else None,
        last_words=ended.get("message", ""),
        message=status.get("message", ""),
        memory_limit=_memory_limit(body),
    )


def _restarted(body: Mapping[str, Any]) -> set[str]:
    """Init containers that run beside the others and are started again when they end: their ends fail no pod."""
    containers = (body.get("spec") or {}).get("initContainers") or []
    return {c["name"] for c in containers if c.get("restartPolicy") == "Always"}


def _is(state: str, container: Mapping[str, Any]) -> bool:
    """Whether a container is in that state: running, waiting or terminated."""
    return state in (container.get("state") or {})


def _state(container: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """What the kubelet says of a container in the state `name`; empty if it is in another one."""
    return (container.get("state") or {}).get(name) or {}


def _failure(container: Mapping[str, Any]) -> Failure | None:
    ended = _state(container, "terminated")
    code = _number(ended.get("exitCode"))
    return (
        Failure(container["name"], code, ended.get("message") or ended.get("reason") or "no message") if code else None
    )


def _memory_limit(body: Mapping[str, Any]) -> int | None:
    containers = (body.get("spec") or {}).get("containers") or []
    ours: Mapping[str, Any] = next((c for c in containers if c["name"] == names.CONTAINER), {})
    limit = ((ours.get("resources") or {}).get("limits") or {}).get("memory")
    return quantity_bytes(limit) if limit else None


def controller(body: Mapping[str, Any], kind: str) -> str:
    """uid of the object of `kind` that controls this one; empty if none does."""
    for reference in body["metadata"].get("ownerReferences") or []:
        if reference.get("kind") == kind and reference.get("controller"):
            return str(reference["uid"])
    return ""


def version(body: Mapping[str, Any]) -> int:
    """resourceVersion as a number: only compared between states of one object."""
    return _number(body["metadata"].get("resourceVersion"))


def moment(text: str) -> datetime:
    """An RFC 3339 time of the API server."""
    return datetime.fromisoformat(text)


def _number(text: Any) -> int:
    """A number of the API server, or 0: labels and annotations can be anyone's."""
    return int(text) if DIGITS.fullmatch(str(text or "")) else 0


def _ordinal(text: Any) -> int:
    """The number of an attempt or of restarts, as a status can hold it."""
    return min(_number(text), MOST)
