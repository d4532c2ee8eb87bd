"""What the phases leave in trace, history and state."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from colocated_runtime.contract.report import Phase
from colocated_runtime.worker.phases import Phases, Usage
from colocated_runtime.worker.state import StateFile
from colocated_runtime.worker.trace import Trace, Track


class Device:
    """Tells what it is told."""

    def __init__(self) -> None:
        self.usage = Usage(1, 1)

    def __call__(self) -> Usage:
        return self.usage


def a_run(directory: Path) -> tuple[Phases, list[dict[str, Any]]]:
    """A step whose training takes 70 bytes of the device, 50 of them at its end."""
    device = Device()
    phases = Phases(StateFile(directory / "rank-0.json", 0), device, 100, Trace(directory / "t.json", 0))
    with phases(Phase.TRAIN):
        phases.step_begins()
        with phases(Phase.SCORE), phases(Phase.ROLLOUT):
            with phases.handover("wake weights") as moved:
                moved.bytes = 14
            device.usage = Usage(50, 60)
            phases.sample()
        with phases(Phase.TRAIN):
            device.usage = Usage(50, 70)
            phases.sample()
        device.usage = Usage(50, 55)
        phases.pressure("short of memory")
        phases.step_ends(1)
    phases.finish()
    return phases, json.loads((directory / "t.json").read_text())


def on(track: Track, events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [event for event in events if event["ph"] == "X" and event["tid"] == track]


def test_phases_follow_one_another(tmp_path: Path) -> None:
    """A phase within another one ends the outer one's slice; one within itself does not."""
    _, events = a_run(tmp_path)
    slices = on(Track.PHASES, events)
    assert [entry["name"] for entry in slices] == ["Start", "Train", "Score", "Rollout", "Score", "Train", "Start"]
    for before, after in pairwise(slices):
        assert before["ts"] + before["dur"] == pytest.approx(after["ts"], abs=2)
    assert [entry["args"]["devicePeakBytes"] for entry in slices if entry["name"] == "Train"] == [1, 70]


def test_hand_overs_and_pressure_and_steps(tmp_path: Path) -> None:
    phases, events = a_run(tmp_path)
    (handover,), (step,) = on(Track.HANDOVERS, events), on(Track.STEPS, events)
    assert handover["args"]["bytes"] == phases.moved.bytes == 14
    assert handover["args"]["seconds"] == pytest.approx(phases.moved.seconds, abs=1e-6)
    assert step["name"] == "step 1"
    assert [event["name"] for event in events if event["ph"] == "i"] == ["MemoryPressure: short of memory"]


def test_memory_is_counted_as_it_is_and_at_its_peak(tmp_path: Path) -> None:
    _, events = a_run(tmp_path)
    used = [event["args"]["device"] for event in events if event["name"] == "used"]
    assert used[0] == 1
    assert used[-1] == 50
    peaks = [event["args"]["device"] for event in events if event["name"] == "peak of the phase"]
    assert peaks == [1, 1, 1, 60, 60, 70, 55]
    assert all(event["args"]["host"] > 2**20 for event in events if event["ph"] == "C")


def test_the_history_has_each_phases_peak_of_the_step(tmp_path: Path) -> None:
    phases, _ = a_run(tmp_path)
    ((step, peaks),) = phases.history.rows
    assert step == 1
    assert {phase: peak.device_bytes for phase, peak in peaks.items()} == {
        Phase.START: 55, Phase.TRAIN: 70, Phase.SCORE: 60, Phase.ROLLOUT: 60,
    }  # fmt: skip


def test_seconds_are_those_of_the_phases(tmp_path: Path) -> None:
    state = StateFile(tmp_path / "rank-0.json", 0)
    phases = Phases(state, Device(), 100)
    with phases(Phase.ROLLOUT):
        before = phases.seconds()[Phase.ROLLOUT]
        assert phases.seconds()[Phase.ROLLOUT] > before
    assert phases.seconds()[Phase.ROLLOUT] == phases.seconds()[Phase.ROLLOUT]
    assert phases.seconds()[Phase.SYNC] == 0
