"""How an attempt ended, from its pods, their final reports and its Job."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from pydantic import ValidationError

from colocated_operator.observe import ChildJob, ChildPod, Observation
from colocated_runtime.contract.outcome import Outcome
from colocated_runtime.contract.report import TERMINATION_LIMIT, Report

LOST_AFTER = timedelta(seconds=15)
"""Past its deletionTimestamp, which includes the grace period, a pod that is not terminal is lost."""
ADMISSION = ("UnexpectedAdmissionError", "OutOfcpu", "OutOfmemory", "OutOfpods", "NodeAffinity", "NodeShutdown")
"""Pod reasons of a kubelet that refuses a pod: the node is not what the scheduler took it for."""


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
    """The ending of the pod that failed by itself, and first; of the others only if none did."""
    endings = [
        (found.outcome is Outcome.PREEMPTED, pod.exit_time or pod.created, pod.index, found)
        for pod in pods
        if (found := _of_pod(observation, pod))
    ]
    return min(endings, key=lambda entry: entry[:3])[3] if endings else None


def _of_pod(observation: Observation, pod: ChildPod) -> Ending | None:
    report = final_report(observation, pod)
    if pod.exit_reason == "OOMKilled":
        return Ending(
            Outcome.HOST_OUT_OF_MEMORY,
            f"pod {pod.name} used more than its memory limit; raise resources.limits.memory",
            pod.exit_code,
            report,
        )
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
