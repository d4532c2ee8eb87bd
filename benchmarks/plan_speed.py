"""How long the memory planner takes: a check of given settings, a whole Auto search, and a refusal with its way out.

    python benchmarks/plan_speed.py [--rounds 200]

Milliseconds of one core, median and fastest of the rounds; the aims are 1 ms for a check and 10 ms for a search.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

from colocated_runtime.contract.job import JobSpec
from colocated_runtime.contract.plan import Plan
from colocated_runtime.planner.devices import hardware_of
from colocated_runtime.planner.plan import make_plan
from colocated_runtime.planner.shapes import shape_of

SET = {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 8, "gradient_checkpointing": True}
JOBS: dict[str, dict[str, Any]] = {
    "check, one GPU": {
        "trainer": SET,
        "memory": {"policy": "Manual", "gpuMemoryUtilization": 0.5, "sleepLevel": 2},
    },
    "check, 16 GPUs": {
        "trainer": SET, "nodes": 2, "gpusPerNode": 8,
        "memory": {"policy": "Manual", "gpuMemoryUtilization": 0.3, "sleepLevel": 2},
    },
    "search, one GPU": {"trainer": {"generation_batch_size": 128}},
    "search, 16 GPUs": {"trainer": {"generation_batch_size": 2048}, "nodes": 2, "gpusPerNode": 8},
    "refusal, utilisation too high": {
        "trainer": SET, "memory": {"policy": "Manual", "gpuMemoryUtilization": 0.75, "sleepLevel": 2},
    },
    "refusal, only adapters fit": {
        "model": {"source": "hf://Qwen/Qwen2.5-32B-Instruct"}, "gpusPerNode": 4,
        "trainer": {"generation_batch_size": 128, "max_completion_length": 8192},
    },
}  # fmt: skip


def planning(fields: dict[str, Any]) -> Callable[[], Plan]:
    base = {
        "model": {"source": "hf://Qwen/Qwen2.5-7B-Instruct"},
        "gpusPerNode": 1,
        "device": {"product": "NVIDIA-H200"},
    }
    spec = JobSpec.model_validate(base | fields)
    assert spec.model is not None
    shape, hardware = shape_of(spec.model), hardware_of(spec)
    assert shape is not None
    assert hardware is not None
    return lambda: make_plan(spec, shape, hardware)


def milliseconds(work: Callable[[], object], rounds: int) -> list[float]:
    """CPU time of each call, so that a busy machine does not count."""
    taken = []
    for _ in range(rounds):
        began = time.thread_time()
        work()
        taken.append((time.thread_time() - began) * 1e3)
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=200)
    rounds = parser.parse_args().rounds
    print(f"{'':32}{'median':>10}{'fastest':>10}")
    for name, fields in JOBS.items():
        plan = planning(fields)
        taken = milliseconds(plan, rounds)
        said = "fits" if plan().fits else "refused"
        print(f"{name:32}{statistics.median(taken):>7.2f} ms{min(taken):>7.2f} ms  {said}")


if __name__ == "__main__":
    main()
