"""Conditions: types, and how they change."""

from collections.abc import Mapping
from datetime import datetime
from typing import Literal, NamedTuple

from colocated_runtime.contract.status import Condition

MESSAGE_LIMIT = 4000


class Fact(NamedTuple):
    """What a condition says now."""

    status: Literal["True", "False", "Unknown"]
    reason: str
    message: str = ""


Facts = Mapping[str, Fact]
"""By condition type."""


def updated(old: list[Condition], facts: Facts, now: datetime, generation: int) -> list[Condition]:
    """`old` with `facts`; the transition time moves only where the status flips. Types without a fact stay."""
    known = {condition.type: condition for condition in old}
    for name, fact in facts.items():
        before = known.get(name)
        same = before is not None and before.status == fact.status
        known[name] = Condition(
            type=name,
            status=fact.status,
            reason=fact.reason,
            message=fact.message[:MESSAGE_LIMIT],
            last_transition_time=before.last_transition_time if before and same else stamp(now),
            observed_generation=generation,
        )
    return [known[name] for name in sorted(known)]


def stamp(time: datetime) -> str:
    """RFC 3339 in UTC, whole seconds, as Kubernetes writes it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")


# kstatus: Reconciling and Stalled; a started job counts as current, or a GitOps tool would wait for days.


def reconciling(reason: str, message: str = "") -> dict[str, Fact]:
    """The operator still brings the job to what the spec says."""
    return {"Reconciling": Fact("True", reason, message), "Stalled": Fact("False", reason)}


def current(reason: str) -> dict[str, Fact]:
    """The job is as the spec says."""
    return {"Reconciling": Fact("False", reason), "Stalled": Fact("False", reason)}


def stalled(reason: str, message: str) -> dict[str, Fact]:
    """Only a change of the spec can mend it."""
    return {"Reconciling": Fact("False", reason), "Stalled": Fact("True", reason, message)}


NOT_RUNNING = "NotRunning"
"""Reason of what can only be said of pods that run."""


def idle() -> dict[str, Fact]:
    """No attempt runs: no memory is short, and there is nothing to reach."""
    return {"MemoryPressure": Fact("False", NOT_RUNNING), "ReportReachable": Fact("False", NOT_RUNNING)}


def ended(outcome: Literal["Complete", "Failed"], reason: str, message: str) -> dict[str, Fact]:
    """The job is over. Both types are written, so that a wait for either ends."""
    other = "Failed" if outcome == "Complete" else "Complete"
    return {
        outcome: Fact("True", reason, message),
        other: Fact("False", reason),
        "Running": Fact("False", reason),
        "Suspended": Fact("False", reason),
    }
