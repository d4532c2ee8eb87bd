"""When a rank learns that it shall leave, and how long it may go on before it looks."""

from pathlib import Path

import pytest

pytestmark = pytest.mark.torch


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def signal(tmp_path: Path, clock: Clock):
    import torch

    from colocated_runtime.worker.stopping import StopSignal

    return StopSignal(tmp_path / "stop", torch.device("cpu"), clock)


def test_the_file_is_looked_for_once_a_second(signal, clock, tmp_path) -> None:
    assert not signal.seen()
    (tmp_path / "stop").touch()
    clock.now = 0.9
    assert not signal.seen()
    clock.now = 1.1
    assert signal.seen()
    assert signal.agreed()
    (tmp_path / "stop").unlink()
    clock.now = 5.0
    assert signal.seen()


def test_between_steps_it_is_looked_for_at_once(signal, tmp_path) -> None:
    assert not signal.seen()
    (tmp_path / "stop").touch()
    assert not signal.agreed()
    signal.look_at_once()
    assert signal.agreed()


def test_the_longest_time_between_two_questions(signal, clock) -> None:
    for clock.now in (3.0, 5.0, 9.0):
        signal.seen()
    assert signal.longest_seconds == 4.0
    clock.now = 100.0
    signal.count_from_now()
    clock.now = 101.0
    signal.agreed()
    assert signal.longest_seconds == 4.0
