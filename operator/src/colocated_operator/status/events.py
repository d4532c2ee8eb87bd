"""Kubernetes Events, derived from a written status.

Their names are made from what they tell, so that each appears once however often it is posted: a second post meets
AlreadyExists. Old news is not posted again by a new operator.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from colocated_operator.observe import RLJob
from colocated_operator.status.conditions import NOT_RUNNING
from colocated_runtime.contract import names
from colocated_runtime.contract.status import Condition, JobStatus

NEWS = timedelta(minutes=15)
COMPONENT = "colocated-operator"
MESSAGE_LIMIT = 1000
Kind = Literal["Normal", "Warning"]
TOLD: dict[tuple[str, str], Kind] = {
    ("Stalled", "True"): "Warning",
    ("Suspended", "True"): "Normal",
    ("WeightsInSync", "False"): "Warning",
    ("CheckpointReady", "False"): "Warning",
    ("ReportReachable", "False"): "Warning",
}
"""Condition and status → type of the Event that a transition to it makes."""

SETTLES: dict[str, timedelta] = {"PodsPending": timedelta(seconds=10)}
"""Waits that every start passes through: what is over sooner is no news."""
USUAL = ("Queued",)
"""Waits that are as they should be."""


@dataclass(frozen=True)
class Event:
    """One Event; `name` without the job's own prefix."""

    name: str
    type: Kind
    reason: str
    message: str
    time: str


def events(status: JobStatus, now: datetime) -> list[Event]:
    """All Events that `status` tells of and that are still news."""
    found = [*_all(status), *_waiting(status, now)]
    return [event for event in found if now - datetime.fromisoformat(event.time) < NEWS]


def _all(status: JobStatus) -> Iterator[Event]:
    conditions = {condition.type: condition for condition in status.conditions}
    for restart in status.restarts:
        text = f"attempt {restart.attempt} ended: {restart.outcome}: {restart.message}"
        yield Event(f"restart-{restart.attempt}", "Warning", restart.outcome, text, restart.time)
    running = conditions.get("Running")
    if status.attempt and running and running.status == "True":
        after = f" from step {status.resumed_from_step}" if status.resumed_from_step is not None else ""
        text = f"attempt {status.attempt} trains{after}"
        yield Event(f"running-{status.attempt}", "Normal", "Running", text, running.last_transition_time)
    for saved in status.checkpoints.kept:
        text = f"step {saved.step}: {saved.uri}"
        yield Event(f"checkpoint-{saved.step}", "Normal", "CheckpointSaved", text, saved.time)
    yield from _pressure(status, conditions.get("MemoryPressure"))
    for condition in status.conditions:
        told = TOLD.get((condition.type, condition.status))
        if told and condition.reason != NOT_RUNNING:
            yield _transition(condition, told)
    ends: dict[str, Kind] = {"Complete": "Normal", "Failed": "Warning"}
    for name, kind in ends.items():
        end = conditions.get(name)
        if end and end.status == "True":
            text = f"{end.reason}: {end.message}" if name == "Failed" else end.message
            yield Event(name.lower(), kind, name, text, end.last_transition_time)


def _pressure(status: JobStatus, condition: Condition | None) -> Iterator[Event]:
    if condition and condition.status == "True":
        name = f"memorypressure-{status.attempt}-{status.memory.pressure_events}"
        reason = condition.reason if condition.reason == "SleepIneffective" else "MemoryPressure"
        yield Event(name, "Warning", reason, condition.message, condition.last_transition_time)


def _waiting(status: JobStatus, now: datetime) -> Iterator[Event]:
    waiting = status.waiting
    if waiting is None or now - datetime.fromisoformat(waiting.since) < SETTLES.get(waiting.reason, timedelta(0)):
        return
    message = next((entry.message for entry in status.conditions if entry.type == "Reconciling"), "")
    kind: Kind = "Normal" if waiting.reason in USUAL else "Warning"
    yield Event(f"{waiting.reason.lower()}-{_compact(waiting.since)}", kind, waiting.reason, message, waiting.since)


def _compact(time: str) -> str:
    """As part of a name."""
    return time.translate(str.maketrans("", "", ":-")).lower()


def _transition(condition: Condition, kind: Kind) -> Event:
    when = _compact(condition.last_transition_time)
    reason = condition.reason if condition.type in ("Stalled", "Suspended") else f"{condition.type}{condition.reason}"
    name = f"{condition.type.lower()}-{when}"
    return Event(name, kind, reason, condition.message, condition.last_transition_time)


def body(event: Event, job: RLJob) -> dict[str, Any]:
    """The v1 Event to create."""
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": f"{names.job_key(job.name, job.uid)}.{event.name}",
            "namespace": job.namespace,
        },
        "involvedObject": {
            "apiVersion": f"{names.GROUP}/{names.VERSION}",
            "kind": names.KIND,
            "name": job.name,
            "namespace": job.namespace,
            "uid": job.uid,
        },
        "type": event.type,
        "reason": event.reason,
        "message": event.message[:MESSAGE_LIMIT],
        "firstTimestamp": event.time,
        "lastTimestamp": event.time,
        "count": 1,
        "source": {"component": COMPONENT},
        "reportingComponent": COMPONENT,
        "reportingInstance": "",
    }
