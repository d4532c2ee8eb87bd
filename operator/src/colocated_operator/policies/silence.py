"""When a launcher that does not answer is given up: it would have ended a hung attempt, and hangs itself."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from colocated_operator.observe import ChildJob, ChildPod, Observation, Pulled
from colocated_operator.policies.ending import Ending
from colocated_runtime.contract import names
from colocated_runtime.contract.job import JobSpec, Watchdog
from colocated_runtime.contract.outcome import Outcome
from colocated_runtime.contract.pod_template import items
from colocated_runtime.contract.report import Stage

MARGIN_SECONDS = 60
"""The launcher's own word comes first."""
REACHED_LEAST = 20
"""So many asks came as far as the pod. Fewer: maybe the network, a NetworkPolicy or the operator is at fault, and the
job trains on. Not all have to: a stopped launcher's queue of connections is full after a while."""
STARTED = (Stage.RUNNING, Stage.STOPPING, Stage.FINISHED)


def silence(observation: Observation, child: ChildJob, spec: JobSpec) -> Ending | None:
    """The ending where a pod runs and its launcher has been silent for longer than a hung rank may be.

    Only the time counts in which this operator has asked in vain: one that was away or is new begins again.
    """
    if child.suspended or not child.live or child.deleting:
        return None
    for pod in observation.pods_of(child.attempt):
        pulled = observation.reports.get(pod.uid)
        if not pulled or not pod.running or pod.deadline:
            continue
        field, seconds = _limit(pulled, spec.watchdog)
        given_up = pulled.in_vain > timedelta(seconds=seconds + MARGIN_SECONDS)
        if given_up and pulled.reached >= REACHED_LEAST:
            return Ending(Outcome.HUNG, _words(pod, pulled, f"{field} ({seconds} s)", spec), report=pulled.report)
    return None


def _limit(pulled: Pulled, watchdog: Watchdog) -> tuple[str, int]:
    """Field and seconds: how long the launcher itself would wait. Without a report it may still start."""
    stall, start = watchdog.stall_timeout_seconds, watchdog.start_timeout_seconds
    may_start = pulled.report is None or pulled.report.stage not in STARTED
    if may_start and start > stall:
        return "spec.watchdog.startTimeoutSeconds", start
    return "spec.watchdog.stallTimeoutSeconds", stall


def _words(pod: ChildPod, pulled: Pulled, limit: str, spec: JobSpec) -> str:
    seconds = pulled.in_vain.total_seconds()
    said = f"pod {pod.name} runs, but its launcher has not answered for {seconds:.0f} s, longer than {limit}"
    changed = _own_command(spec)
    if changed:
        return (
            f"{said}: {pulled.error}; spec.runtime.podTemplate sets {changed} of the container {names.CONTAINER}, which"
            " replaces the launcher: take it out, and give your program as spec.runtime.command"
        )
    return f"{said}: {pulled.error}; where it only was slow, raise that"


def _own_command(spec: JobSpec) -> str:
    """What runtime.podTemplate runs instead of the launcher: command, args or both; empty if nothing."""
    containers = (entry for _, entry in items(spec.runtime.pod_template, "containers"))
    ours: Mapping[str, Any] = next((entry for entry in containers if entry.get("name") == names.CONTAINER), {})
    return " and ".join(key for key in ("command", "args") if ours.get(key))
