"""How an attempt ended, from its pods, their final reports and its Job."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from pydantic import ValidationError

from colocated_operator.observe import ChildJob, ChildPod, Observation
from colocated_runtime.contract.outcome import Outcome, node_memory_ran_out
from colocated_runtime.contract.report import TERMINATION_LIMIT, Report

LOST_AFTER = timedelta(seconds=15)
"""Past its deletionTimestamp, which includes the grace period, a pod that is not terminal is lost."""
OTHERS_END = timedelta(seconds=15)
"""After our container has ended, others of its pod may take so long to end by themselves: then its logs stay."""
EVICTED = "Evicted"
PRESSURE = "The node "
"""How the kubelet begins to speak of an eviction for the node's sake; else the pod was above a limit of its own."""
FILLED_BYTES_PER_SECOND = 16 << 30
"""No pod fills memory faster. It bounds what a pod can have used since its last report."""
UNKNOWN = "ContainerStatusUnknown"
"""The kubelet's word for a container that was no longer there when it looked, as after a reboot of the node."""
KILLED = 137
STOPPED = 143
"""Exit codes: of what the kernel killed, and of a launcher that was asked to stop."""


@dataclass(frozen=True)
class Ending:
    """The end of an attempt."""

    outcome: Outcome
    message: str
    exit_code: int | None = None
    report: Report | None = None
    """Of the pod that decided."""


def ending(observation: Observation, child: ChildJob, now: datetime) -> Ending | None:
    """How the attempt of `child` ended; None while it goes on.

    While its pods can still be read it is judged only when all are terminal, so that the one that failed by itself
    is not mistaken for those that were stopped because of it.
    """
    pods = observation.pods_of(child.attempt)
    if "Complete" in child.conditions:
        return _complete(observation, pods)
    outlived = _outlived(observation, child, pods, now)
    if outlived:
        return outlived
    lost = [pod for pod in pods if is_lost(pod, now)]
    if lost:
        reason = lost[0].disruption or "it does not end"
        return Ending(Outcome.NODE_LOST, f"pod {lost[0].name} is lost: {reason}")
    if child.live or not all(pod.terminal for pod in pods):
        return None
    if child.conditions.get("Failed") == "DeadlineExceeded":
        return Ending(Outcome.DEADLINE_EXCEEDED, child.message, report=_last_report(observation, pods))
    return _by_pods(observation, pods) or Ending(
        Outcome.PREEMPTED, "the Job was deleted" if child.gone else child.message or "all pods are gone"
    )


def _outlived(observation: Observation, child: ChildJob, pods: tuple[ChildPod, ...], now: datetime) -> Ending | None:
    """The ending where other containers of a pod run on without ours: neither pod nor Job would ever be over.

    A failure ends the attempt at once, for the other pods wait for the one that failed; all have to complete.
    """
    if not child.live or not any(_is_outlived(pod, now) for pod in pods):
        return None
    failed = tuple(pod for pod in pods if pod.exit_code)
    if failed:
        return _by_pods(observation, failed)
    if len(pods) < child.completions or any(pod.exit_code is None for pod in pods):
        return None
    return _complete(observation, pods)


def _complete(observation: Observation, pods: tuple[ChildPod, ...]) -> Ending:
    report = _last_report(observation, pods)
    return Ending(Outcome.COMPLETE, report.message if report else "", 0, report)


def _is_outlived(pod: ChildPod, now: datetime) -> bool:
    over = pod.exit_code is not None and not pod.terminal and pod.deadline is None
    return over and bool(pod.others) and now > (pod.exit_time or pod.created) + OTHERS_END


def _by_pods(observation: Observation, pods: tuple[ChildPod, ...]) -> Ending | None:
    """The ending of the pod that failed by itself, or was taken, and first; of the others only if none was."""
    endings = [
        (_only_stopped(found, pod), pod.exit_time or pod.created, pod.index, found)
        for pod in pods
        if (found := _of_pod(observation, pod))
    ]
    return min(endings, key=lambda entry: entry[:3])[3] if endings else None


def _of_pod(observation: Observation, pod: ChildPod) -> Ending | None:
    report = final_report(observation, pod)
    if pod.reason == EVICTED:
        outcome = Outcome.PREEMPTED if pod.message.startswith(PRESSURE) else Outcome.CRASH
        return Ending(outcome, f"pod {pod.name} was evicted by its node: {pod.message}", pod.exit_code, report)
    knows = report and report.outcome in (Outcome.PREEMPTED, Outcome.HOST_OUT_OF_MEMORY)
    if pod.exit_reason == "OOMKilled" and not knows:
        return _killed_for_memory(pod, report)
    if report and report.outcome:
        return Ending(report.outcome, report.message, _exit_code(report, pod), report)
    if pod.disruption:
        return Ending(Outcome.PREEMPTED, f"pod {pod.name}: {pod.disruption}", pod.exit_code, report)
    if not pod.exit_code:
        return _without_ours(pod)
    if pod.exit_code == STOPPED or (pod.exit_code == KILLED and pod.deadline):
        late = "" if pod.exit_code == STOPPED else ", and killed when its grace period was over"
        return Ending(Outcome.PREEMPTED, f"pod {pod.name} was stopped{late}", pod.exit_code, report)
    if pod.exit_reason == UNKNOWN:
        return Ending(Outcome.NODE_LOST, f"pod {pod.name}: its node lost the container", pod.exit_code, report)
    words = pod.last_words.strip()[-1000:] or pod.exit_reason or "no message"
    return Ending(Outcome.CRASH, f"pod {pod.name}, exit code {pod.exit_code}: {words}", pod.exit_code, report)


def _without_ours(pod: ChildPod) -> Ending | None:
    """The ending of a pod whose launcher never began, or ended well without a word."""
    if pod.phase != "Failed":
        return None
    failure = pod.failure
    if failure and not (pod.deadline and failure.exit_code in (KILLED, STOPPED)):
        words = failure.words.strip()[-1000:]
        message = f"pod {pod.name}, container {failure.container}, exit code {failure.exit_code}: {words}"
        return Ending(Outcome.CRASH, message, failure.exit_code)
    if _refused_by_node(pod):
        return Ending(Outcome.PREEMPTED, f"pod {pod.name}: {pod.reason}: {pod.message}")
    return None


def _refused_by_node(pod: ChildPod) -> bool:
    """Whether the kubelet did not admit the pod (UnexpectedAdmissionError, OutOfcpu): the scheduler knew too little."""
    return pod.phase == "Failed" and pod.exit_code is None and pod.reason not in ("", EVICTED)


def _only_stopped(end: Ending, pod: ChildPod) -> bool:
    """Whether the pod was asked to stop, maybe because of another pod's end; not: taken by its node or the cluster."""
    taken = pod.disruption or pod.reason == EVICTED or _refused_by_node(pod) or end.exit_code == KILLED
    return end.outcome is Outcome.PREEMPTED and not taken


def _killed_for_memory(pod: ChildPod, report: Report | None) -> Ending:
    """The kernel killed the launcher too: at the pod's limit, unless it cannot have come near it since its report."""
    limit = pod.memory_limit
    if limit is None:
        return Ending(Outcome.PREEMPTED, f"pod {pod.name}: {node_memory_ran_out(None, None)}", pod.exit_code, report)
    if report and report.host_used_bytes and pod.exit_time:
        seconds = max(0.0, pod.exit_time.timestamp() - report.updated) + 1
        if report.host_used_bytes + seconds * FILLED_BYTES_PER_SECOND < limit:
            message = f"pod {pod.name}: {node_memory_ran_out(limit, report.host_used_bytes)}"
            return Ending(Outcome.PREEMPTED, message, pod.exit_code, report)
    most = f"{limit / 2**30:.1f} GiB"
    message = f"pod {pod.name} used more than its memory limit of {most}; raise spec.resources.limits.memory"
    return Ending(Outcome.HOST_OUT_OF_MEMORY, message, pod.exit_code, report)


def is_lost(pod: ChildPod, now: datetime) -> bool:
    """Whether nobody will ever tell how the pod ended: its node does not answer."""
    return not pod.terminal and pod.deadline is not None and now > pod.deadline + LOST_AFTER


def final_report(observation: Observation, pod: ChildPod) -> Report | None:
    """The pod's last report: its termination message, else the last that was pulled."""
    if pod.last_words.startswith("{"):
        try:
            report = Report.model_validate_json(pod.last_words[: TERMINATION_LIMIT * 2])
        except ValidationError:
            pass
        else:
            if report.uid == observation.job.uid and report.attempt == pod.attempt:
                return report
    pulled = observation.reports.get(pod.uid)
    return pulled.report if pulled else None


def _exit_code(report: Report, pod: ChildPod) -> int | None:
    return report.exit_code if report.exit_code is not None else pod.exit_code


def _last_report(observation: Observation, pods: tuple[ChildPod, ...]) -> Report | None:
    """The final report of the first pod that left one."""
    return next((report for pod in pods if (report := final_report(observation, pod))), None)
