"""Colocated against split GPUs, on figures made up to be reckoned by head."""

from typing import Any

import pytest
from tests.unit.planner.test_document import script

placement = script("placement")


def run(completions: int, *, side: str = "ours", generation: float, training: float) -> dict[str, Any]:
    return {
        "case": {"shape": "7b", "completions": completions, "tokens": "512"}, "side": side,
        "median": {"decode": generation, "switch": 0.1, "sync": 0.2, "score": 0.5, "train": training - 0.5},
        "peak_gib": {"train": 100.0, "score": 60.0, "decode": 90.0},
    }  # fmt: skip


RUNS = [
    run(64, generation=3.0, training=3.0),
    run(128, generation=4.0, training=6.0),
    run(256, generation=6.0, training=12.0),
    run(64, side="trl", generation=3.5, training=5.0),
]


def by_name(gpus: int = 8) -> dict[str, Any]:
    return {layout.name: layout for layout in placement.layouts(RUNS, gpus, 64)}


def test_everywhere_the_same_completions() -> None:
    found = by_name()
    assert found["colocated"].cycle == pytest.approx(3 + 0.1 + 0.2 + 3)
    assert found["colocated, TRL"].cycle == pytest.approx(3.5 + 0.3 + 5)
    transfer = 0.2 + 7.6e9 * 2 / 300e9
    assert found["4 + 4 in turn"].cycle == pytest.approx(4 + 6 + transfer, abs=0.01)
    assert found["4 + 4 one step ahead"].cycle == pytest.approx(6 + transfer, abs=0.01)
    assert found["6 + 2 in turn"].cycle == pytest.approx(6 + 4.0 + transfer, abs=0.01)  # 85.3 completions a trainer


def test_what_was_not_measured_is_left_out() -> None:
    assert not [name for name in by_name() if name.startswith(("7 + 1", "1 + 7"))]  # 512 on one GPU


def test_waiting_gpus_and_unused_memory() -> None:
    found = by_name()
    assert found["colocated"].idle == 0
    four = found["4 + 4 in turn"]
    assert four.idle == pytest.approx(1 - (4 * 4 + 4 * 6) / (8 * four.cycle))
    needs = placement.generation_gib(128, "512")
    assert needs == pytest.approx(14.2 + 128 * 576 * 57344 / 2**30 + 3, abs=0.1)
    assert four.memory == pytest.approx((4 * 4 * needs + 4 * 6 * 100) / (8 * four.cycle * 139.8))
    assert found["colocated"].memory > four.memory


def test_the_table_compares_with_ours() -> None:
    lines = list(placement.table(placement.layouts(RUNS, 8, 64)))
    assert lines[2].startswith("| colocated | 6.30 | +0% | 0% |")
    assert len(lines) == 2 + 2 + 2 * len([s for s in range(1, 8) if 2 <= s <= 6])
