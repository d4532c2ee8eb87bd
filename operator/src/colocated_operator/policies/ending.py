"""How an attempt ended, from its pods, their final reports and its Job."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from pydantic import ValidationError

from colocated_operator.observe import ChildJob, ChildPod, Observation
from colocated_runtime.contract.outcome import Outcome, node_memory_ran_out
from colocated_runtime.contract.report import TERMINATION_LIMIT, Report

LOST_AFTER = timedelta(seconds=15)
"""Past its deletionTimestamp, which includes the grace period, a pod that is not terminal is lost."""
ADMISSION = ("UnexpectedAdmissionError", "OutOfcpu", "OutOfmemory", "OutOfpods", "NodeAffinity", "NodeShutdown")
"""Pod reasons of a kubelet that refuses a pod: the node is not what the scheduler took it for."""
EVICTED = "Evicted"
PRESSURE = "The node "
"""How the kubelet begins to speak of an eviction for the node's sake; else the pod was above a limit of its own."""
FILLED_BYTES_PER_SECOND = 16 << 30
"""No pod fills memory faster. It bounds what a pod can have used since its last report."""
KILLED = 137
"""Exit code of what the kernel killed; a launcher that was asked to stop says 143."""


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
        report = _first([final_report(observation, pod) for pod in pods])
        return Ending(Outcome.COMPLETE, report.message if report else "", 0, report)
    lost = [pod for pod in pods if is_lost(pod, now)]
    if lost:
        reason = lost[0].disruption or "it does not end"
        return Ending(Outcome.NODE_LOST, f"pod {lost[0].name} is lost: {reason}")
    if child.live or not all(pod.terminal for pod in pods):
        return None
    if child.conditions.get("Failed") == "DeadlineExceeded":
        return Ending(Outcome.DEADLINE_EXCEEDED, child.message)
    return _by_pods(observation, pods) or Ending(
        Outcome.PREEMPTED, "the Job was deleted" if child.gone else child.message or "all pods are gone"
    )


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
    if pod.disruption or pod.reason in ADMISSION:
        reason = pod.disruption or pod.reason
        return Ending(Outcome.PREEMPTED, f"pod {pod.name}: {reason}", pod.exit_code, report)
    if pod.exit_code in (None, 0):
        return None
    if pod.exit_code == 143:
        return Ending(Outcome.PREEMPTED, f"pod {pod.name} was stopped", pod.exit_code, report)
    words = pod.last_words.strip()[-1000:] or pod.exit_reason or "no message"
    return Ending(Outcome.CRASH, f"pod {pod.name}, exit code {pod.exit_code}: {words}", pod.exit_code, report)


def _only_stopped(end: Ending, pod: ChildPod) -> bool:
    """Whether the pod was asked to stop, maybe because of another pod's end; not: taken by its node or the cluster."""
    taken = pod.disruption or pod.reason in (EVICTED, *ADMISSION) or end.exit_code == KILLED
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
    message = f"pod {pod.name} used more than its memory limit of {most}; raise resources.limits.memory"
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


def _first(reports: list[Report | None]) -> Report | None:
    return next((report for report in reports if report), None)
