"""Why an attempt's pods do not run yet: what a user must know, before any report exists."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from colocated_operator.observe import STARTING, ChildJob, ChildPod
from colocated_runtime.contract import names

IMAGE = (
    "ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "ImageInspectError",
    "RegistryUnavailable", "SignatureValidationFailed",
)  # fmt: skip
CONFIG = ("CreateContainerConfigError", "CreateContainerError", "RunContainerError")
SLOW_AFTER = timedelta(seconds=30)
"""From then on a pod that has its node and does not start is told: the kubelet says why in Events alone."""


@dataclass(frozen=True)
class Waiting:
    """A reason (CamelCase) and a sentence."""

    reason: str
    message: str
    stalled: bool = False
    """Whether only a change of the spec can mend it."""


def waiting(child: ChildJob | None, pods: tuple[ChildPod, ...], nodes: int, now: datetime) -> Waiting | None:
    """The most telling reason; None if nothing is in the way."""
    if child and child.suspended:
        return Waiting("Queued", f"Job {child.name} is suspended by its queue and waits for admission")
    for pod in pods:
        found = None if pod.ended else _unscheduled(pod) or _stuck(pod)
        if found:
            return found
    if len(pods) < nodes:
        why = f"; kubectl describe job {child.name} says why (quota, Pod Security)" if child else ""
        return Waiting("PodsPending", f"{len(pods)} of {nodes} pods exist{why}")
    return next((found for pod in pods if not pod.ended and (found := _slow(pod, now))), None)


def _unscheduled(pod: ChildPod) -> Waiting | None:
    return Waiting("Unschedulable", f"pod {pod.name}: {pod.unschedulable}") if pod.unschedulable else None


def _stuck(pod: ChildPod) -> Waiting | None:
    """A container that cannot be started: ours, one that runs before it, or one beside it."""
    reason = pod.waiting_reason
    if not reason or reason in STARTING:
        return None
    ours = pod.waiting_container == names.CONTAINER
    which = f"pod {pod.name}" if ours else f"pod {pod.name}, container {pod.waiting_container}"
    message = f"{which}: {reason}: {pod.waiting_message}"
    if reason in IMAGE:
        field = "runtime.image" if ours else "runtime.podTemplate"
        return Waiting("ImageError", f"{message}; see {field}", stalled=reason == "InvalidImageName")
    if reason in CONFIG:
        field = "runtime.env, runtime.envFrom" if ours else "runtime.podTemplate"
        return Waiting("ConfigError", f"{message}; see {field}")
    return Waiting(reason, message)


def _slow(pod: ChildPod, now: datetime) -> Waiting | None:
    """A pod that has had its node for a while, and of which the kubelet says in its status only that it starts."""
    if pod.runs or pod.scheduled is None or now - pod.scheduled < SLOW_AFTER:
        return None
    reason = pod.waiting_reason or "PodsPending"  # where the node's kubelet has said nothing
    if pod.initializing:
        return Waiting(reason, f"pod {pod.name} waits for its init container {pod.initializing}")
    why = f"`kubectl describe pod {pod.name}` says why (image download, volumes, network)"
    return Waiting(reason, f"pod {pod.name} waits in {pod.waiting_reason or pod.phase}; {why}")
