"""The pod's own volume, by which ranks and launcher talk, is full."""

import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.unit.fault_rows import record

from colocated_runtime.contract.outcome import Outcome
from colocated_runtime.files import STATE_VOLUME_FULL

pytestmark = [pytest.mark.torch, pytest.mark.timeout(240)]


@pytest.fixture
def volume(tmp_path: Path) -> Iterator[Path]:
    """Where `launch` puts the state: a volume of 1 MiB."""
    state = tmp_path / "state-0"
    state.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(state)]
    if subprocess.run(mount, stderr=subprocess.DEVNULL).returncode:
        pytest.skip("only root may mount a volume")
    yield state
    subprocess.run(["umount", "-l", str(state)], check=True)


def fill(volume: Path) -> Path:
    """Leave no byte; the file that takes them."""
    ballast = volume / "ballast"
    with suppress(OSError), ballast.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    return ballast


def test_from_the_start(launch, volume: Path) -> None:
    fill(volume)
    running = launch()
    final = running.finish()
    assert final.outcome is Outcome.TRANSIENT
    assert final.message.startswith(f"{STATE_VOLUME_FULL}: [Errno 28] No space left on device")


def test_for_a_while(launch, volume: Path, is_running) -> None:
    running = launch("--steps", "100", "--step-seconds", "0.1", watchdog={"stall_timeout_seconds": 20})
    running.wait_for(is_running)
    ballast = fill(volume)
    report = running.wait_for(lambda report: bool(report.message))
    assert report.message == STATE_VOLUME_FULL
    ballast.unlink()
    running.wait_for(lambda later: not later.message and later.progress.step > report.progress.step)
    assert running.finish().outcome is Outcome.COMPLETE
    record("the pod's state volume is full for a while", "a real file system", "nothing: the ranks go on")


def test_for_good(launch, volume: Path, is_running) -> None:
    """The ranks go on, but nobody can know."""
    running = launch("--steps", "1000", "--step-seconds", "0.1", watchdog={"stall_timeout_seconds": 10})
    running.wait_for(is_running)
    fill(volume)
    final = running.finish()
    assert final.outcome is Outcome.HUNG
    assert final.message.endswith(f"; {STATE_VOLUME_FULL}")
