"""`status` of a ColocatedRLJob. Written by the operator alone, once a pass."""

from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from colocated_runtime.contract.base import Message

Short = Annotated[str, StringConstraints(max_length=253)]
Long = Annotated[str, StringConstraints(max_length=4096)]
Time = Annotated[str, StringConstraints(max_length=40)]
"""RFC 3339, UTC."""

JobPhase = Literal["Pending", "Planning", "Starting", "Running", "Restarting", "Suspended", "Complete", "Failed"]


class Condition(Message):
    """As metav1.Condition."""

    type: Short
    status: Literal["True", "False", "Unknown"]
    reason: Short
    message: Long = ""
    last_transition_time: Time
    observed_generation: int = 0


class ProgressStatus(Message):
    step: int = 0
    total_steps: int = 0
    percent: int = 0
    eta_seconds: int | None = None


class PhasePeakStatus(Message):
    phase: Short
    device_bytes: int = 0
    host_bytes: int = 0


class MemoryStatus(Message):
    """The plan, and the peaks seen beside it. Bytes."""

    plan: dict[str, Any] = Field(default_factory=dict)
    peaks: list[PhasePeakStatus] = Field(default_factory=list, max_length=16)
    pressure_events: int = 0
    peak_device: Short = Field(default="", description="The largest device peak, e.g. 63.8Gi; printed as a column.")


class CheckpointStatus(Message):
    step: int
    uri: Long
    time: Time
    size_bytes: int = 0


class CheckpointsStatus(Message):
    latest: Long = ""
    step: int = 0
    time: Time = ""
    kept: list[CheckpointStatus] = Field(default_factory=list, max_length=1000)


class EvaluationStatus(Message):
    """Mean reward over held-out prompts with its 95 % confidence interval."""

    step: int
    mean: float
    low: float
    high: float
    prompts: int


class OutputStatus(Message):
    model: Long = Field(
        default="", description="URI of the final model directory; usable as another job's model.source."
    )


class RestartStatus(Message):
    attempt: int
    outcome: Short
    message: Long = ""
    exit_code: int | None = None
    counted: bool = True
    resumed_from_step: int | None = None
    time: Time = ""


class JobStatus(Message):
    """What the job does and how it went."""

    phase: JobPhase = "Pending"
    observed_generation: int = 0
    conditions: list[Condition] = Field(default_factory=list, max_length=32)
    attempt: int = 0
    restart_count: int = 0
    uncounted_restarts: int = 0
    start_time: Time | None = None
    completion_time: Time | None = None
    activity: Short = Field(default="", description="What the ranks do now, e.g. Rollout.")
    progress: ProgressStatus = Field(default_factory=ProgressStatus)
    metrics: dict[str, float] = Field(default_factory=dict, max_length=64)
    throughput: dict[str, float] = Field(default_factory=dict, max_length=16)
    memory: MemoryStatus = Field(default_factory=MemoryStatus)
    checkpoints: CheckpointsStatus = Field(default_factory=CheckpointsStatus)
    evaluations: list[EvaluationStatus] = Field(default_factory=list, max_length=200)
    output: OutputStatus = Field(default_factory=OutputStatus)
    resumed_from_step: int | None = None
    restarts: list[RestartStatus] = Field(default_factory=list, max_length=10)
    observed_at: Time = ""
