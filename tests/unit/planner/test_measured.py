"""Peaks that were measured on one H200 with TRL 1.16 and vLLM 0.24, against the plan: every one within 10 %."""

from typing import Any

import pytest
from tests.unit.planner.jobs import SHORT, gib, job, plan

from colocated_runtime.contract.plan import Plan
from colocated_runtime.contract.report import Phase
from colocated_runtime.planner.workload import Lengths

WITHIN = 0.10
SMALL, LARGE = "Qwen/Qwen2.5-1.5B", "Qwen/Qwen2.5-7B"
LONG = Lengths(prompt=64, completion=4096)


def measured(
    model: str, *, utilization: float, sleep: int, rows: int = 8, completions: int = 64, lengths: Lengths = SHORT
) -> Plan:
    trainer: dict[str, Any] = {
        "per_device_train_batch_size": rows,
        "gradient_accumulation_steps": completions // rows,
        "gradient_checkpointing": True,
        "max_completion_length": lengths.completion,
    }
    memory = {"policy": "Manual", "gpuMemoryUtilization": utilization, "sleepLevel": sleep}
    return plan(job(model, trainer=trainer, memory=memory), lengths)


@pytest.mark.parametrize(
    ("case", "train", "rollout"),
    [
        (measured(SMALL, utilization=0.3, sleep=0), 57.2, 57.2),
        (measured(SMALL, utilization=0.3, sleep=2), 16.3, 53.9),
        (measured(LARGE, utilization=0.5, sleep=0), 132.4, None),
        (measured(LARGE, utilization=0.5, sleep=2), 63.8, 116.0),
        (measured(LARGE, utilization=0.3, sleep=2, rows=32), 69.2, 96.6),
    ],
    ids=["1.5B awake", "1.5B asleep", "7B awake", "7B asleep", "7B micro-batch 32"],
)
def test_peaks_of_a_step(case: Plan, train: float, rollout: float | None) -> None:
    assert gib(case, Phase.TRAIN) == pytest.approx(train, rel=WITHIN)
    if rollout is not None:
        assert gib(case, Phase.ROLLOUT) == pytest.approx(rollout, rel=WITHIN)


def test_utilization_that_died_at_the_second_wake_up_is_refused() -> None:
    dead = measured(LARGE, utilization=0.75, sleep=2)
    assert not dead.fits
    assert dead.refusal.startswith("Rollout: ")
