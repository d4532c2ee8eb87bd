"""What a pass may do: create or delete objects, and the status that it writes."""

from dataclasses import dataclass

from colocated_operator.desired import AttemptPlan
from colocated_runtime.contract.status import JobStatus


@dataclass(frozen=True)
class CreateAttempt:
    """Create the objects of an attempt."""

    plan: AttemptPlan


@dataclass(frozen=True)
class DeleteJob:
    """Delete the Job of an attempt, its pods with it. Its ConfigMap stays: the trace that the number was used."""

    name: str


@dataclass(frozen=True)
class DeleteAttempt:
    """Delete the Job of an attempt, its pods with it, and its ConfigMap."""

    name: str


@dataclass(frozen=True)
class Sweep:
    """Delete the Service and every ConfigMap of the job, whatever has become of its Jobs."""

    service: str


Action = CreateAttempt | DeleteJob | DeleteAttempt | Sweep


@dataclass(frozen=True)
class Decision:
    """What follows from an observation."""

    status: JobStatus
    actions: tuple[Action, ...] = ()
    again_in: float | None = None
    """Seconds after which time alone changes the decision."""
