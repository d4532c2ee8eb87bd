"""`status` of a ColocatedRLJob. Written by the operator alone, once a pass."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, StringConstraints

from colocated_runtime.contract.base import Message
from colocated_runtime.contract.plan import Plan

Short = Annotated[str, StringConstraints(max_length=253)]
Long = Annotated[str, StringConstraints(max_length=4096)]
Count = Annotated[int, Field(ge=0)]
Ordinal = Annotated[int, Field(ge=0, lt=10**9)]
"""Of an attempt: no job has more, and its objects' names and labels hold it."""


def _is_time(text: str) -> str:
    if text and datetime.fromisoformat(text).tzinfo is None:
        raise ValueError("a time needs its zone")
    return text


Time = Annotated[str, StringConstraints(max_length=40), AfterValidator(_is_time)]
"""RFC 3339, UTC."""

JobPhase = Literal[
    "Pending", "Starting", "Running", "Restarting", "Suspending", "Suspended", "Complete", "Failed"
]  # fmt: skip


class Condition(Message):
    """As metav1.Condition."""

    type: Short
    """Such as Complete, Failed, Running or MemoryPressure."""
    status: Literal["True", "False", "Unknown"]
    """Whether it holds."""
    reason: Short
    """One word for a program."""
    message: Long = ""
    """A sentence for a person: field, value and what to do."""
    last_transition_time: Time
    """When status last changed."""
    observed_generation: int = 0
    """metadata.generation that it speaks of."""


class ProgressStatus(Message):
    """How far training is; steps are optimizer steps, resumed ones included."""

    step: Count = 0
    """Steps done."""
    total_steps: Count = 0
    """Steps to do; 0 until known."""
    percent: Count = 0
    """Of all steps."""
    eta_seconds: Count | None = None
    """Expected time to the last step."""


class PhasePeakStatus(Message):
    """The largest use seen in one phase."""

    phase: Short
    """Such as Rollout or Train."""
    device_bytes: Count = 0
    """Of the most loaded device."""
    host_bytes: Count = 0
    """Of the most loaded pod."""


class MemoryStatus(Message):
    """The plan, and the peaks seen beside it. Bytes."""

    plan: Plan | None = None
    """Planned bytes by phase and line item, and the settings chosen."""
    peaks: list[PhasePeakStatus] = Field(default_factory=list, max_length=16)
    """Seen, by phase."""
    pressure_events: Count = 0
    """Times that memory came near its limit."""
    peak_device: Short = Field(default="", description="The largest device peak, e.g. 63.8Gi; printed as a column.")


class CheckpointStatus(Message):
    """One complete checkpoint."""

    step: Count
    """Optimizer steps done when it was saved."""
    uri: Long
    """Where it lies; usable as a model.source."""
    time: Time
    """When it was complete."""
    size_bytes: Count = 0
    """Of all its files."""


class CheckpointsStatus(Message):
    """Complete checkpoints; the next attempt resumes from the newest."""

    latest: Long = ""
    """URI of the newest."""
    step: Count = 0
    """Step of the newest."""
    time: Time = ""
    """When the newest was complete."""
    kept: list[CheckpointStatus] = Field(default_factory=list, max_length=1000)
    """All that are kept, oldest first."""


class EvaluationStatus(Message):
    """Mean reward over held-out prompts with its 95 % confidence interval."""

    step: Count
    """Optimizer steps done before it; 0 is before training."""
    mean: float
    """Mean reward."""
    low: float
    """Lower end of the interval."""
    high: float
    """Upper end of the interval."""
    prompts: Count
    """Number of prompts."""


class OutputStatus(Message):
    """What the job made."""

    model: Long = Field(
        default="", description="URI of the final model directory; usable as another job's model.source."
    )


class RestartStatus(Message):
    """The end of one attempt that was followed by another."""

    attempt: Ordinal
    """The attempt that ended."""
    outcome: Short
    """How it ended, e.g. Preempted or DeviceOutOfMemory."""
    message: Long = ""
    """Why, in words."""
    exit_code: int | None = None
    """Of the process that ended it."""
    counted: bool = True
    """Whether it counts against restart.maxRestarts."""
    resumed_from_step: Count | None = None
    """Where that attempt had begun."""
    time: Time = ""
    """When it ended."""


class WaitingStatus(Message):
    """What keeps the next or the present attempt from running; the condition Reconciling says it in words."""

    reason: Short
    """One word, e.g. Unschedulable or ConfigMapMissing."""
    since: Time
    """When it began."""


class JobStatus(Message):
    """What the job does and how it went."""

    phase: JobPhase = "Pending"
    """The job's state in one word."""
    observed_generation: Count = 0
    """metadata.generation that this status speaks of."""
    conditions: list[Condition] = Field(default_factory=list, max_length=32)
    """What holds now; Complete and Failed end the job, Stalled asks for a change of spec."""
    waiting: WaitingStatus | None = None
    attempt: Ordinal = 0
    """Number of the present attempt; 0 before the first."""
    restart_count: Ordinal = 0
    """Restarts that count against restart.maxRestarts."""
    uncounted_restarts: Count = 0
    """Restarts after preemption and lost nodes."""
    start_time: Time | None = None
    """When the first attempt was made."""
    completion_time: Time | None = None
    """When the job was Complete or Failed."""
    activity: Short = Field(default="", description="What the ranks do now, e.g. Rollout.")
    progress: ProgressStatus = Field(default_factory=ProgressStatus)
    metrics: dict[str, float] = Field(default_factory=dict, max_length=64)
    """The trainer's last values, under TRL's names."""
    throughput: dict[str, float] = Field(default_factory=dict, max_length=16)
    """Last rates, all GPUs together: tokens per second of a step, its rollout and its training; seconds of a step and
    of its phases; share of the GPUs' peak operations that the model's mathematics needs."""
    memory: MemoryStatus = Field(default_factory=MemoryStatus)
    checkpoints: CheckpointsStatus = Field(default_factory=CheckpointsStatus)
    evaluations: list[EvaluationStatus] = Field(default_factory=list, max_length=200)
    """Oldest first: the first of all, and the newest."""
    output: OutputStatus = Field(default_factory=OutputStatus)
    resumed_from_step: Count | None = None
    """The present attempt's first step came after this one."""
    restarts: list[RestartStatus] = Field(default_factory=list, max_length=10)
    """The last ten."""
    observed_at: Time = ""
    """When the pods last reported; alone it is written once a minute."""
