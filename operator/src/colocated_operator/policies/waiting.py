"""Why an attempt's pods do not run yet: what a user must know, before any report exists."""

from dataclasses import dataclass

from colocated_operator.observe import ChildJob, ChildPod

IMAGE = ("ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "ImageInspectError")
CONFIG = ("CreateContainerConfigError", "CreateContainerError", "RunContainerError")


@dataclass(frozen=True)
class Waiting:
    """A reason (CamelCase) and a sentence."""

    reason: str
    message: str
    stalled: bool = False
    """Whether only a change of the spec can mend it."""


def waiting(child: ChildJob | None, pods: tuple[ChildPod, ...], nodes: int) -> Waiting | None:
    """The most telling reason; None if nothing is in the way."""
    if child and child.suspended:
        return Waiting("Queued", f"Job {child.name} is suspended by its queue and waits for admission")
    for pod in pods:
        if pod.terminal:
            continue
        if pod.unschedulable:
            return Waiting("Unschedulable", f"pod {pod.name}: {pod.unschedulable}")
        if pod.waiting_reason in IMAGE:
            invalid = pod.waiting_reason == "InvalidImageName"
            message = f"pod {pod.name}: {pod.waiting_reason}: {pod.waiting_message}; see runtime.image"
            return Waiting("ImageError", message, stalled=invalid)
        if pod.waiting_reason in CONFIG:
            message = f"pod {pod.name}: {pod.waiting_reason}: {pod.waiting_message}; see runtime.env, runtime.envFrom"
            return Waiting("ConfigError", message)
    if len(pods) < nodes:
        why = f"; kubectl describe job {child.name} says why (quota, Pod Security)" if child else ""
        return Waiting("PodsPending", f"{len(pods)} of {nodes} pods exist{why}")
    return None
