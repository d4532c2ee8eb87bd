"""Why an attempt's pods do not run yet: what a user must know, before any report exists."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from colocated_operator.observe import STARTING, ChildJob, ChildPod, Observation
from colocated_operator.policies.fields import TEMPLATE, of_missing, of_refusal, of_unschedulable, see
from colocated_runtime.contract import names
from colocated_runtime.contract.job import JobSpec

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


PODS_COME = timedelta(seconds=3)
"""So long the Job's controller may take to make its pods."""


def lacking_pods(observation: Observation, now: datetime) -> ChildJob | None:
    """The Job whose pods do not come, so that its own Events are worth a look."""
    child = max(observation.children, key=lambda child: child.attempt, default=None)
    if child is None or not child.live or child.deleting or child.suspended or child.failing:
        return None
    present = [pod for pod in observation.pods_of(child.attempt) if not pod.gone]
    return child if len(present) < child.completions and now - child.created > PODS_COME else None


def waiting(
    child: ChildJob, pods: tuple[ChildPod, ...], spec: JobSpec, now: datetime, refusal: str = ""
) -> Waiting | None:
    """The most telling reason; None if nothing is in the way. `refusal`: the answer to the last try to make a pod."""
    if child.suspended:
        return Waiting("Queued", f"Job {child.name} is suspended by its queue and waits for admission")
    for pod in pods:
        found = None if pod.ended else _unscheduled(pod, spec) or _stuck(pod, spec)
        if found:
            return found
    if len(pods) < spec.nodes:
        exist = f"{len(pods)} of {spec.nodes} pods exist"
        if refusal:
            why = f"{refusal}{see(of_refusal(refusal, spec))}"
            return Waiting("PodsRefused", f"{exist}, for the API server says: {why}")
        return Waiting("PodsPending", f"{exist}; kubectl describe job {child.name} says why (quota, Pod Security)")
    return next((found for pod in pods if not pod.ended and (found := _slow(pod, now))), None)


def _unscheduled(pod: ChildPod, spec: JobSpec) -> Waiting | None:
    if not pod.unschedulable:
        return None
    why = f"{pod.unschedulable.rstrip('.')}{see(of_unschedulable(pod.unschedulable, spec))}"
    return Waiting("Unschedulable", f"pod {pod.name}: {why}")


def _stuck(pod: ChildPod, spec: JobSpec) -> Waiting | None:
    """A container that cannot be started: ours, one that runs before it, or one beside it."""
    reason = pod.waiting_reason
    if not reason or reason in STARTING:
        return None
    ours = pod.waiting_container == names.CONTAINER
    which = f"pod {pod.name}" if ours else f"pod {pod.name}, container {pod.waiting_container}"
    message = f"{which}: {reason}: {pod.waiting_message}"
    if reason in IMAGE:
        field = "spec.runtime.image" if ours else TEMPLATE
        return Waiting("ImageError", f"{message}{see(iter([field]))}", stalled=reason == "InvalidImageName")
    if reason in CONFIG:
        fields = of_missing(pod.waiting_message, spec) if ours else iter([TEMPLATE])
        return Waiting("ConfigError", f"{message}{see(fields)}")
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
