"""The trace: whatever happens to rank or volume, the file opens, and stays within its bound."""

import errno
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from colocated_runtime.worker import trace as module
from colocated_runtime.worker.trace import Trace, Track

NOW = 1.8e9


def opened(text: str) -> list[dict[str, Any]]:
    """The events by Perfetto's rules: one object after another, commas and space between them passed over, up to the
    end of the array or of the text, where an object may be torn.

    src/trace_processor/importers/json/json_trace_tokenizer.cc
    """
    assert text[0] == "["
    decoder, place, events = json.JSONDecoder(), 1, []
    while True:
        while place < len(text) and text[place] in ", \n":
            place += 1
        if place == len(text) or text[place] == "]":
            return events
        try:
            event, place = decoder.raw_decode(text, place)
        except ValueError:
            assert "\n" not in text[place:].rstrip("\n"), "torn in the middle"
            return events
        events.append(event)


def a_step(trace: Trace, step: int) -> None:
    trace.slice(Track.HANDOVERS, "sleep", NOW + step, NOW + step + 0.1, seconds=0.1, bytes=1 << 36)
    trace.counter("used", NOW + step + 0.1, device=1 << 36, host=step)
    trace.slice(Track.PHASES, "Rollout", NOW + step, NOW + step + 0.5)
    trace.write()
    trace.slice(Track.PHASES, "Train", NOW + step + 0.5, NOW + step + 1)
    trace.slice(Track.STEPS, f"step {step}", NOW + step, NOW + step + 1)
    trace.write()


def steps_of(events: list[dict[str, Any]]) -> list[int]:
    return [int(event["name"].removeprefix("step ")) for event in events if event["name"].startswith("step ")]


def test_what_is_in_it(tmp_path: Path) -> None:
    trace = Trace(tmp_path / "logs" / "rank-3.trace.json", 3)
    a_step(trace, 7)
    trace.mark('MemoryPressure: "é\n', NOW + 9)
    trace.finish()
    events = json.loads((tmp_path / "logs" / "rank-3.trace.json").read_text())
    assert {event["pid"] for event in events} == {3}
    assert [event["args"]["name"] for event in events[:5]] == ["rank 3", "steps", "phases", "handovers", "left out"]
    assert events[5] == {
        "ph": "X", "name": "sleep", "pid": 3, "tid": 3, "ts": 1800000007000000, "dur": 100000,
        "args": {"seconds": 0.1, "bytes": 1 << 36},
    }  # fmt: skip
    assert events[6]["args"] == {"device": 1 << 36, "host": 7}
    assert events[-1]["name"] == 'MemoryPressure: "é\n'


def test_killed_at_any_byte_it_opens(tmp_path: Path) -> None:
    trace = Trace(tmp_path / "t.json", 0)
    for step in range(3):
        a_step(trace, step)
    text = (tmp_path / "t.json").read_text()
    whole = opened(text)
    assert steps_of(whole) == [0, 1, 2]
    for cut in range(1, len(text)):
        events = opened(text[:cut])
        assert events == whole[: len(events)]
        assert len(events) >= text[:cut].count("},\n")


@settings(max_examples=50, deadline=None)
@given(limit=st.integers(4000, 40_000), steps=st.integers(1, 400))
def test_it_is_bounded_and_keeps_first_and_newest(
    tmp_path_factory: pytest.TempPathFactory, limit: int, steps: int
) -> None:
    path = tmp_path_factory.mktemp("trace") / "t.json"
    trace = Trace(path, 0, limit=limit)
    for step in range(steps):
        a_step(trace, step)
        assert path.stat().st_size <= limit
    trace.finish()
    events = json.loads(path.read_text())
    found = steps_of(events)
    assert found[0] == 0
    assert found[-1] == steps - 1
    gaps = [event for event in events if event["name"] == "left out"]
    assert len(gaps) == (found != list(range(steps)))
    for track in Track:
        slices = sorted((e["ts"], e["ts"] + e["dur"]) for e in events if e["ph"] == "X" and e["tid"] == track)
        assert all(ended <= began for (_, ended), (began, _) in pairwise(slices)), "slices of a track overlap"


class Volume:
    """Fails when told to, after half of what it should write."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.full = False
        real = module.FileIO

        class File(real):  # type: ignore[misc, valid-type]
            def write(inner, data: bytes) -> int:  # noqa: N805
                if not self.full:
                    return super().write(data)
                super().write(data[: len(data) // 2])
                raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(module, "FileIO", File)
        monkeypatch.setattr(module.time, "monotonic", lambda: self.clock)
        self.clock = 1000.0


def test_a_full_volume_is_told_once_and_costs_events_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    volume, told = Volume(monkeypatch), []
    trace = Trace(tmp_path / "t.json", 0, told.append)
    a_step(trace, 0)
    volume.full = True
    for step in range(1, 200):
        volume.clock += 1
        a_step(trace, step)
    volume.full = False
    for step in range(200, 300):
        volume.clock += 1
        a_step(trace, step)
    trace.finish()
    assert [error.errno for error in told] == [errno.ENOSPC]
    found = steps_of(json.loads((tmp_path / "t.json").read_text()))
    assert found[0] == 0
    assert found[1] > 199
    assert found[-1] == 299


def test_it_is_whole_at_the_end_if_the_volume_is_well_by_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    volume = Volume(monkeypatch)
    trace = Trace(tmp_path / "t.json", 0)
    a_step(trace, 0)
    volume.full = True
    a_step(trace, 1)
    volume.full = False
    trace.finish()
    assert steps_of(json.loads((tmp_path / "t.json").read_text())) == [0]


def test_told_again_after_it_was_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    volume, told = Volume(monkeypatch), []
    trace = Trace(tmp_path / "t.json", 0, told.append)
    for full in (True, False, True):
        volume.full = full
        volume.clock += 100
        a_step(trace, 0)
    assert len(told) == 2


def test_a_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    told: list[OSError] = []
    trace = Trace(tmp_path / "file" / "t.json", 0, told.append)
    a_step(trace, 0)
    trace.finish()
    assert len(told) == 1


def test_the_same_attempt_once_more_begins_anew(tmp_path: Path) -> None:
    """A suspended Job goes on as the same attempt."""
    for _ in range(2):
        a_step(Trace(tmp_path / "t.json", 0), 1)
    assert steps_of(opened((tmp_path / "t.json").read_text())) == [1]


def test_a_file_that_is_taken_away_begins_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    volume = Volume(monkeypatch)
    trace = Trace(tmp_path / "t.json", 0)
    a_step(trace, 1)
    (tmp_path / "t.json").unlink()
    volume.full = True
    a_step(trace, 2)
    volume.full, volume.clock = False, volume.clock + 100
    a_step(trace, 3)
    assert steps_of(opened((tmp_path / "t.json").read_text())) == [3]
