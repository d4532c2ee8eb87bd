"""Memory plans as values: what status, terminal and picture are tested with. The figures are not a prediction."""

from typing import Any

from colocated_runtime.contract.phase import Phase
from colocated_runtime.contract.plan import PhasePlan, Plan, PlanItem, PlannedSettings

GIB = 2**30
SETTINGS = PlannedSettings(
    gpu_memory_utilization=0.6,
    kv_cache_bytes=50 * GIB,
    sleep_level=2,
    tensor_parallel=1,
    per_device_train_batch_size=8,
    gradient_accumulation_steps=16,
    steps_per_generation=16,
    gradient_checkpointing=True,
    offload="none",
)


def items(**gibibytes: float) -> list[PlanItem]:
    """Items of so many GiB each."""
    return [PlanItem(name=name, bytes=round(size * GIB)) for name, size in gibibytes.items()]


def plan(**changes: Any) -> Plan:
    """A plan that fits: 7B, in full, on a device of 139 GiB."""
    values: dict[str, Any] = {
        "fits": True,
        "device_bytes": 139 * GIB,
        "budget_bytes": 132 * GIB,
        "host_limit_bytes": 128 * GIB,
        "settings": SETTINGS,
        "phases": [
            PhasePlan(
                phase=Phase.ROLLOUT,
                device=items(context=1.25, trainerWeights=14.25, engineWeights=14.25, kvCache=50, optimizer=28.5),
                host=items(process=6),
                seconds=3.5,
            ),
            PhasePlan(
                phase=Phase.TRAIN,
                device=items(context=1.25, trainerWeights=14.25, gradients=14.25, optimizer=28.5, activations=4.75),
                host=items(process=6, pinned=2),
                seconds=4.5,
            ),
        ],
        "step_seconds": 8.0,
        "why": "the largest KV cache that leaves room for training",
    }
    return Plan(**(values | changes))


def bad_plan(**changes: Any) -> Plan:
    """A plan that does not fit."""
    return plan(
        fits=False,
        budget_bytes=60 * GIB,
        device_bytes=64 * GIB,
        refusal="Train needs 63.0 GiB of 60.0 GiB: optimizer 28.5 GiB, trainerWeights 14.2 GiB; use lora",
        **changes,
    )
