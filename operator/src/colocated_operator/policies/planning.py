"""The memory plan before any pod: where the spec tells enough of model and device."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import structlog

from colocated_runtime.contract.job import JobSpec
from colocated_runtime.contract.outcome import Outcome
from colocated_runtime.contract.plan import Plan
from colocated_runtime.contract.pod_resources import memory_limit
from colocated_runtime.contract.status import JobStatus, RestartStatus
from colocated_runtime.planner.agreement import disagreements
from colocated_runtime.planner.devices import hardware_of
from colocated_runtime.planner.plan import make_plan
from colocated_runtime.planner.shapes import shape_of

log = structlog.get_logger()

ROOM = 0.05
"""Share of the device that the plan leaves free, in addition, for each attempt that ran out of the device's memory."""
MOST_HEADROOM = 0.85
HOST_ROOM = 0.1
"""The same of the pod's memory limit, for each attempt that was killed at it."""
MOST_HOST_ROOM = 0.5
FULL = (Outcome.DEVICE_OUT_OF_MEMORY, Outcome.HOST_OUT_OF_MEMORY)


@dataclass(frozen=True)
class Refusal:
    """No pod is made for this spec; only a change of it can mend that."""

    reason: str
    message: str
    plan: Plan | None = None


def with_room(spec: JobSpec, restarts: Sequence[RestartStatus]) -> JobSpec:
    """`spec` as the next attempt gets it: where attempts have run out of device memory its plan takes less of it.

    Under Manual the settings are the user's.
    """
    times = sum(entry.outcome == Outcome.DEVICE_OUT_OF_MEMORY for entry in restarts)
    if not times or spec.memory.policy == "Manual":
        return spec
    headroom = max(spec.memory.headroom, min(MOST_HEADROOM, spec.memory.headroom + ROOM * times))
    memory = spec.memory.model_copy(update={"headroom": round(headroom, 2)})
    return spec.model_copy(update={"memory": memory})


def host_reserve(spec: JobSpec, restarts: Sequence[RestartStatus]) -> int:
    """Bytes below the pod's memory limit that the next attempt's plan leaves free; under Manual none."""
    limit = memory_limit(spec)
    if limit is None or spec.memory.policy == "Manual":
        return 0
    times = sum(entry.outcome == Outcome.HOST_OUT_OF_MEMORY for entry in restarts)
    return int(limit * min(MOST_HOST_ROOM, HOST_ROOM * times))


def before_attempt(spec: JobSpec, status: JobStatus, reserve: int, *, tried: bool) -> Plan | Refusal | None:
    """The plan of the next attempt, or why there is none to be; None where nothing can be planned.

    `tried`: the objects of this very attempt could not be created so far; the plan made for it then holds, because
    planning at every pass would cost a thousand waiting jobs seconds.
    """
    if tried and status.memory.plan:
        return status.memory.plan
    try:
        found, plan = impossible(spec), planned(spec, reserve)
    except ValueError as error:
        return Refusal("InvalidSpec", f"spec.model.shape: {error}")
    if found and not status.attempt:
        return Refusal(Outcome.BAD_PLAN.value, "; ".join(f"spec.{line}" for line in found))
    if plan is None or plan.fits:
        return plan
    last = status.restarts[-1] if status.restarts else None
    if last and last.outcome in FULL:
        return Refusal(last.outcome, f"{last.message}; and no smaller plan is left: {plan.refusal}", plan)
    # What has run before is not stopped by a prediction.
    return None if status.attempt else Refusal(Outcome.BAD_PLAN.value, plan.refusal, plan)


def impossible(spec: JobSpec) -> list[str]:
    """What the model cannot have, on any device, as far as the spec tells enough of it; nothing for a user's command.

    Raise ValueError where model.shape contradicts itself.
    """
    shape = shape_of(spec.model) if spec.model and not spec.runtime.command else None
    return disagreements(spec, shape) if shape else []


def planned(spec: JobSpec, reserve: int = 0) -> Plan | None:
    """The plan; None on CPUs, for a command of the user's, and where only the pod will know model or device.

    The launcher plans again with what it finds. Raise ValueError where model.shape contradicts itself.
    """
    if spec.runtime.command or spec.model is None or spec.backend == "cpu":
        return None
    shape = shape_of(spec.model)
    try:
        hardware = hardware_of(spec)
        if shape is None or hardware is None:
            return None
        return make_plan(spec, shape, replace(hardware, host_reserve_bytes=reserve))
    except Exception:  # a mistake of the planner's must not stop a job
        log.exception("planning failed; the job starts without a plan", model=spec.model.source)
        return None


def with_plan(status: JobStatus, plan: Plan | None) -> JobStatus:
    """`status` with `plan`; without one, that of the attempt before stays."""
    if plan is None:
        return status
    return status.model_copy(update={"memory": status.memory.model_copy(update={"plan": plan})})
