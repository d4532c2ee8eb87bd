"""The tables of docs/memory.md, by the planner's formulas: measured peaks beside planned ones, and which large models
fit on how many devices.

    python benchmarks/plan_table.py            prints them
    python benchmarks/plan_table.py --write    puts them into docs/memory.md

Nothing runs: the measured figures are given, those of the worker by what `memory_peaks.py` left in benchmarks/results.
Of the ways to share states out the runtime has FSDP.
"""

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from colocated_runtime.contract.job import JobSpec, Lora
from colocated_runtime.contract.plan import Plan
from colocated_runtime.contract.report import Phase
from colocated_runtime.planner.devices import GIB, hardware_of
from colocated_runtime.planner.items import total
from colocated_runtime.planner.models import (
    LLAMA3_70B,
    QWEN2_5_1_5B,
    QWEN2_5_7B,
    QWEN2_5_32B,
    QWEN2_5_72B,
    QWEN3_30B_A3B,
)
from colocated_runtime.planner.search import Candidate, Given, best, given, search
from colocated_runtime.planner.shapes import Shape
from colocated_runtime.planner.workload import Lengths, Workload, workload

HERE = Path(__file__).parent
DOCUMENT = HERE.parent / "docs" / "memory.md"
sys.path.insert(0, str(HERE))

import memory_peaks  # noqa: E402
from document import main, with_tables  # noqa: E402


class Measured(NamedTuple):
    """Peaks in GiB of one H200; prompts of 64 tokens."""

    name: str
    shape: Shape
    memory: dict[str, Any]
    trainer: dict[str, Any]
    rollout: float
    train: float


def trained(rows: int) -> dict[str, Any]:
    return {"per_device_train_batch_size": rows, "gradient_accumulation_steps": 64 // rows}


MEASURED = [
    Measured("1.5 B, 0.3, awake", QWEN2_5_1_5B, {"gpuMemoryUtilization": 0.3, "sleepLevel": 0}, trained(8), 57.2, 57.2),
    Measured("1.5 B, 0.3, asleep", QWEN2_5_1_5B, {"gpuMemoryUtilization": 0.3}, trained(8), 53.9, 16.3),
    Measured("7 B, 0.5, awake", QWEN2_5_7B, {"gpuMemoryUtilization": 0.5, "sleepLevel": 0}, trained(8), 132.4, 132.4),
    Measured("7 B, 0.5, asleep", QWEN2_5_7B, {"gpuMemoryUtilization": 0.5}, trained(8), 116.0, 63.8),
    Measured("7 B, 0.3, asleep, micro-batch 32", QWEN2_5_7B, {"gpuMemoryUtilization": 0.3}, trained(32), 96.6, 69.2),
]

MODELS = {
    "Qwen3-30B-A3B": QWEN3_30B_A3B,
    "Qwen2.5-32B": QWEN2_5_32B,
    "Llama-3.1-70B": LLAMA3_70B,
    "Qwen2.5-72B": QWEN2_5_72B,
}
DEVICES = {
    "A100 40": "NVIDIA-A100-SXM4-40GB",
    "A100 80": "NVIDIA-A100-SXM4-80GB",
    "H100 80": "NVIDIA-H100-80GB-HBM3",
    "H200 141": "NVIDIA-H200",
    "MI300X 192": "AMD_Instinct_MI300X_OAM",
}
WAYS = ("FSDP", "ZeRO-3", "ZeRO-3, optimizer on the host", "LoRA r 16, FSDP")
LENGTHS = Lengths(prompt=512, completion=2048)
ROWS = 16
"""Completions of one device and step."""
FREE = Given(utilization=None, sleep_level=2, rows=None, checkpointing="full", offload="none", headroom=0.05)


def job(shape: Shape, product: str, lengths: Lengths, **fields: Any) -> tuple[JobSpec, Workload]:
    spec = JobSpec.model_validate({"device": {"product": product}, **fields})
    hardware = hardware_of(spec)
    assert hardware is not None
    return spec, workload(spec, shape, hardware, lengths)


def measured_table() -> Iterator[str]:
    """Lines of Markdown."""
    yield "| run | rollout measured | planned | training measured | planned |"
    yield "|---|---|---|---|---|"
    for case in MEASURED:
        memory = {"policy": "Manual", **case.memory}
        fields = {"gpusPerNode": 1, "memory": memory, "trainer": case.trainer}
        spec, made = job(case.shape, "NVIDIA-H200", Lengths(64, 512), **fields)
        found = best(search(made, given(spec, case.shape)))
        rollout, train = (total(found.device_items(phase)) / GIB for phase in (Phase.ROLLOUT, Phase.TRAIN))
        yield f"| {case.name} | {case.rollout} | {rollout:.1f} | {case.train} | {train:.1f} |"


def worker_table() -> Iterator[str]:
    """Lines of Markdown: the worker's own runs."""
    yield "| run | rollout measured | planned | training measured | planned |"
    yield "|---|---|---|---|---|"
    for text in (HERE / "results" / "memory_peaks.jsonl").read_text().splitlines():
        run = json.loads(text)
        plan = memory_peaks.planned(run["case"], HERE, run["deviceBytes"], run["device"].replace(" ", "-"))
        cells = [str(run["seen"][phase.value]) + f" | {gib(plan, phase):.1f}" for phase in (Phase.ROLLOUT, Phase.TRAIN)]
        yield f"| {run['case']} | {' | '.join(cells)} |"


def gib(plan: Plan, phase: Phase) -> float:
    found = plan.phase(phase)
    assert found is not None
    return found.device_bytes / GIB


def large_models_table() -> Iterator[str]:
    """Lines of Markdown."""
    yield f"| model | devices | {' | '.join(WAYS)} |"
    yield "|---" * (2 + len(WAYS)) + "|"
    for model, shape in MODELS.items():
        for devices in (4, 8):
            for device, product in DEVICES.items():
                cells = [cell(fastest(shape, product, devices, way)) for way in WAYS]
                yield f"| {model} | {devices} x {device} | {' | '.join(cells)} |"


def fastest(shape: Shape, product: str, devices: int, way: str) -> Candidate:
    """Of all tensor parallel sizes that divide devices and heads; the one that fails by least where none fits."""
    trainer = {"per_device_train_batch_size": ROWS}
    _, plain = job(shape, product, LENGTHS, gpusPerNode=devices, trainer=trainer)
    made = replace(
        plain,
        sharding="fsdp" if way.endswith("FSDP") else "zero3",
        lora=Lora() if way.startswith("LoRA") else None,
        optimizer_on_host="host" in way,
    )
    sizes = [size for size in range(1, devices + 1) if devices % size == 0 and shape.num_attention_heads % size == 0]
    return best([one for size in sizes for one in search(replace(made, tensor_parallel=size), FREE)])


def cell(found: Candidate) -> str:
    """Settings, or what is missing."""
    if not found.fits:
        return f"{found.excess / GIB:.0f} GiB short"
    words = f"**TP {found.job.tensor_parallel}, {found.utilization:.2f}, {found.made.rows}**"
    host = max(total(use.host) for use in found.uses.values())
    return f"{words}, host {host / GIB:.0f} GiB" if found.job.optimizer_on_host else words


TABLES = {"measured": measured_table, "worker": worker_table, "large models": large_models_table}


def written(document: str) -> str:
    """`document` with the tables in their places."""
    return with_tables(document, TABLES)


if __name__ == "__main__":
    main(__doc__, DOCUMENT, TABLES)
