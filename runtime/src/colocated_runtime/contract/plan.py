"""The memory plan of a job as status, report and terminal show it: bytes by phase, settings chosen, or what is missing.

All sizes are bytes of one device, the most loaded one, or of one pod's host memory.
"""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from colocated_runtime.contract.base import Message
from colocated_runtime.contract.phase import Phase

Words = Annotated[str, StringConstraints(max_length=1024)]
Bytes = Annotated[int, Field(ge=0, lt=2**53)]
Count = Annotated[int, Field(ge=1, lt=2**31)]
Seconds = Annotated[float, Field(ge=0, lt=4e9, allow_inf_nan=False)]


class PlanItem(Message):
    """One named use of memory."""

    name: Annotated[str, StringConstraints(max_length=63)]
    """Such as trainerWeights or kvCache; docs/memory.md has its formula and source."""
    bytes: Bytes
    """At the phase's peak."""
    formula: Words = ""
    """The formula with this job's numbers in it."""


class PhasePlan(Message):
    """What one phase needs at its peak."""

    phase: Phase
    device: list[PlanItem] = Field(default_factory=list, max_length=32)
    """On the most loaded device."""
    host: list[PlanItem] = Field(default_factory=list, max_length=32)
    """In one pod's host memory."""
    seconds: Seconds = 0.0
    """Predicted length of the phase in one step; 0 where it is no part of a step."""

    @property
    def device_bytes(self) -> int:
        """Sum of the device's items."""
        return sum(item.bytes for item in self.device)

    @property
    def host_bytes(self) -> int:
        """Sum of the host's items."""
        return sum(item.bytes for item in self.host)


class PlannedSettings(Message):
    """What the plan chose, or found set. Under `Manual` and where the user set a value, it is the user's."""

    gpu_memory_utilization: Annotated[float, Field(ge=0, le=1)]
    """The engine's share of the device."""
    kv_cache_bytes: Bytes
    """Of one engine on one device."""
    sleep_level: Literal[0, 1, 2]
    """0: the engine keeps its memory while training. 1: weights go to the host. 2: weights are dropped."""
    tensor_parallel: Count
    """Devices of one engine."""
    per_device_train_batch_size: Count
    """Completions of one micro-batch."""
    gradient_accumulation_steps: Count
    """Micro-batches of one optimizer step."""
    steps_per_generation: Count
    """Micro-batches that one rollout feeds."""
    gradient_checkpointing: bool
    """Whether activations are recomputed in the backward pass."""
    recompute: Literal["none", "selective", "half", "full"] | None = None
    """Which of them: all but those of matrix products and attention, those of every second layer, or all. Null: as
    gradientCheckpointing says."""
    tokens_at_once: Bytes = 0
    """Tokens that go through the trainer's model at once. 0: TRL's micro-batches."""
    offload: Literal["none", "optimizer", "optimizerAndGradients"]
    """What goes to host memory while the engine generates."""


class Plan(Message):
    """Predicted before anything runs. The same input gives the same bytes."""

    fits: bool
    """Whether every phase fits on device and host."""
    verified: bool = True
    """False where the model's architecture is not one of those whose formulas are tested."""
    device_bytes: Bytes
    """Of one device."""
    budget_bytes: Bytes
    """Of one device, without the headroom."""
    host_limit_bytes: Bytes | None = None
    """The pod's memory limit; null where it has none."""
    settings: PlannedSettings
    phases: list[PhasePlan] = Field(default_factory=list, max_length=8)
    """In the order in which a step passes them."""
    step_seconds: Seconds = 0.0
    """Predicted time of one step, all phases together."""
    why: Words = ""
    """Why these settings and no others."""
    refusal: Annotated[str, StringConstraints(max_length=4096)] = ""
    """Where it does not fit: the phase, its largest items, what is missing in GiB, the nearest setting that fits."""
    advice: list[Words] = Field(default_factory=list, max_length=8)
    """What to know beside the figures: colocation the wrong choice, an unverified architecture, a guessed length."""

    def phase(self, phase: Phase) -> PhasePlan | None:
        """The plan of one phase."""
        return next((entry for entry in self.phases if entry.phase is phase), None)
