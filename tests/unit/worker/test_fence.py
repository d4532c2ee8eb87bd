"""A worker that was paused while a newer attempt took its place goes on, and writes nothing more."""

import os
import signal
import time
from pathlib import Path

import pytest
from tests.unit.fault_rows import record

from colocated_runtime.contract.report import RankState

pytestmark = pytest.mark.torch

SCRIPT = str(Path(__file__).with_name("paused.py"))


def contents(directory: Path) -> dict[str, bytes]:
    """Of all files but the first attempt's own trace and picture."""
    files = {str(file.relative_to(directory)): file for file in directory.rglob("*") if file.is_file()}
    return {name: file.read_bytes() for name, file in files.items() if not name.startswith("logs/attempt-1/")}


def last_word(place, seconds: float = 60.0) -> RankState:
    """Of the first attempt's rank, once it has ended."""
    file, deadline = place.root / "attempt-1/state/rank-0.json", time.monotonic() + seconds
    while time.monotonic() < deadline:
        state = RankState.model_validate_json(file.read_text())
        if state.outcome:
            return state
        time.sleep(0.1)
    raise AssertionError((place.root / "attempt-1/output").read_text()[-3000:])


def test_a_paused_attempt_that_goes_on(make_workplace):
    """It would save its own step 2, over that of the newer attempt."""
    place = make_workplace()
    spec = place.spec(evaluation=None, checkpoint={"everySteps": 1, "keep": 3})
    old = place.run(spec, script=SCRIPT, torchrun=False)
    assert old.exit_code == 128 + signal.SIGSTOP, old.output[-3000:]
    new = place.run(spec, attempt=2, torchrun=False)
    assert new.exit_code == 0, new.output[-3000:]
    assert new.state.resumed_from_step == 1
    before = contents(new.directory)
    os.kill(old.state.pid, signal.SIGCONT)
    ended = last_word(place)
    assert "attempt 2 owns" in ended.message
    assert contents(new.directory) == before
    record(
        "an old attempt that comes back, real worker", "SIGSTOP before a save; SIGCONT once the next attempt is done",
        "nothing: it changes no file but its own log",
    )  # fmt: skip
