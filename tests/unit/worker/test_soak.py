"""The soak in its short form; `python benchmarks/soak.py` is the long one."""

import importlib.util
import sys
from pathlib import Path

import pytest

FILE = Path(__file__).parents[3] / "benchmarks" / "soak.py"
spec = importlib.util.spec_from_file_location("soak", FILE)
assert spec
assert spec.loader
soak = importlib.util.module_from_spec(spec)
sys.modules["soak"] = soak
spec.loader.exec_module(soak)

LEAKING = """
import os

kept = []

def reward(completions, **columns):
    if os.environ.get("LEAK"):
        kept.append((open(os.devnull), bytearray(os.urandom(1024) * 2048)))
    return [float(len(str(completion)) % 7) for completion in completions]
"""
"""Keeps, where it is asked to, an open file and 2 MiB of each step."""


def test_what_grows_has_a_slope() -> None:
    samples = [soak.Sample(step, {"open files": 40.0 + 0.3 * max(step, 20)}) for step in range(1, 101)]
    assert soak.growth(samples)["open files"] == pytest.approx(30.0)


@pytest.mark.torch
@pytest.mark.parametrize("leak", ["", "yes"], ids=["flat", "a reward that leaks"])
def test_memory_and_files(tmp_path: Path, models: Path, monkeypatch: pytest.MonkeyPatch, leak: str) -> None:
    (tmp_path / "rewards/soak").mkdir(parents=True)
    (tmp_path / "rewards/soak/leaking.py").write_text(LEAKING)
    (tmp_path / "model").symlink_to(models / "policy")
    monkeypatch.setenv("LEAK", leak)
    samples = soak.run(
        tmp_path, 40, 10, cuda=False, reward={"function": "leaking:reward", "configMap": "soak"},
        rewards=tmp_path / "rewards",
    )  # fmt: skip
    assert samples[-1].step == 40
    grown = soak.growth(samples)
    assert (grown["open files"] > 50) is bool(leak)
    assert (grown["host MiB"] > 150) is bool(leak)
