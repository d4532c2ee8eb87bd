"""How an attempt can end, and what follows from it (docs/architecture.md has the table in words)."""

from enum import StrEnum
from typing import NamedTuple


class Outcome(StrEnum):
    """The end of one attempt. The names appear in status, Events and metrics."""

    COMPLETE = "Complete"
    DEVICE_OUT_OF_MEMORY = "DeviceOutOfMemory"
    HOST_OUT_OF_MEMORY = "HostOutOfMemory"
    PREEMPTED = "Preempted"
    NODE_LOST = "NodeLost"
    HUNG = "Hung"
    WEIGHTS_STALE = "WeightsStale"
    USER_ERROR = "UserError"
    TRANSIENT = "Transient"
    CRASH = "Crash"
    BAD_PLAN = "BadPlan"
    DEADLINE_EXCEEDED = "DeadlineExceeded"


DEVICE_FULL = ("out of memory", "cumem_allocator", "CUBLAS_STATUS_ALLOC_FAILED")
"""Texts of a device that is full, in exceptions and logs: torch's, the driver's, vLLM's sleep-mode allocator's."""


def node_memory_ran_out(limit: int | None, used: int | None) -> str:
    """What is said of a pod that the kernel killed although it was not at its limit; both in bytes."""
    if limit and used is not None:
        why = f"it had used {used / 2**30:.1f} of its {limit / 2**30:.1f} GiB"
    else:
        why = "it has no limit"
    return (
        f"the node's memory ran out, not the pod's: {why}. Give resources.requests.memory what it needs, so that the"
        " scheduler keeps it free"
    )


class Verdict(NamedTuple):
    """What the operator does after an outcome."""

    restart: bool
    counted: bool
    """Whether a restart counts against spec.restart.maxRestarts."""


VERDICTS: dict[Outcome, Verdict] = {
    Outcome.COMPLETE: Verdict(restart=False, counted=False),
    Outcome.DEVICE_OUT_OF_MEMORY: Verdict(restart=True, counted=True),
    Outcome.HOST_OUT_OF_MEMORY: Verdict(restart=True, counted=True),
    Outcome.PREEMPTED: Verdict(restart=True, counted=False),
    Outcome.NODE_LOST: Verdict(restart=True, counted=False),
    Outcome.HUNG: Verdict(restart=True, counted=True),
    Outcome.WEIGHTS_STALE: Verdict(restart=False, counted=False),
    Outcome.USER_ERROR: Verdict(restart=False, counted=False),
    Outcome.TRANSIENT: Verdict(restart=True, counted=True),
    Outcome.CRASH: Verdict(restart=True, counted=True),
    Outcome.BAD_PLAN: Verdict(restart=False, counted=False),
    Outcome.DEADLINE_EXCEEDED: Verdict(restart=False, counted=False),
}
