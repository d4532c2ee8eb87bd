"""docs/memory.md explains every item of a plan; its tables and performance.md's are what the scripts print."""

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests.unit.planner.jobs import job, plan

ROOT = Path(__file__).parents[3]
DOCUMENT = ROOT / "docs" / "memory.md"


def script(name: str) -> ModuleType:
    """A file of benchmarks/ as a module."""
    found = importlib.util.spec_from_file_location(name, ROOT / "benchmarks" / f"{name}.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["plan_table", "performance_table"])
def test_the_tables_are_what_the_scripts_print(name: str) -> None:
    made = script(name)
    text = made.DOCUMENT.read_text(encoding="utf-8")
    assert made.written(text) == text


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"gpusPerNode": 2, "lora": {"r": 8}, "memory": {"sleepLevel": 1}},
        {"trainer": {"beta": 0.1, "optim": "adamw_torch"}, "memory": {"offload": "optimizer"}},
        {"rewards": [{"model": "hf://Qwen/Qwen2.5-72B"}], "evaluation": {"dataset": {"source": "hf://a/b"}}},
        {"gpusPerNode": 8, "parallelism": {"sharding": "zero3", "tensorParallel": 2}, "memory": {"sleepLevel": 0}},
        {"gpusPerNode": 8, "parallelism": {"sharding": "fsdp"}, "trainer": {"steps_per_generation": 1,
                                                                            "gradient_accumulation_steps": 4}},
    ],
)  # fmt: skip
def test_every_item_is_explained(fields: dict[str, Any]) -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    made = plan(job(**fields))
    names = {item.name for entry in made.phases for item in (*entry.device, *entry.host)}
    assert [name for name in sorted(names) if f"`{name}`" not in text] == []
