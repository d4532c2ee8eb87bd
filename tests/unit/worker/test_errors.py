"""Which outcome an exception is."""

import socket

import pytest

from colocated_runtime.contract.outcome import Outcome
from colocated_runtime.worker.errors import RewardError, UserError, WeightsStale, classify


class OutOfMemoryError(RuntimeError):
    """torch's own is told by its name."""


class HfHubHTTPError(OSError):
    """The hub's own is told by its name."""


@pytest.mark.parametrize(
    ("error", "steps_done", "outcome"),
    [
        (UserError("trainer.beta: …"), 7, Outcome.USER_ERROR),
        (WeightsStale("differ by 0.4 nats"), 0, Outcome.WEIGHTS_STALE),
        (RewardError("reward f raised KeyError: 'x'"), 0, Outcome.USER_ERROR),
        (RewardError("reward f raised TimeoutError: …"), 1, Outcome.CRASH),
        (ValueError("…"), 0, Outcome.USER_ERROR),
        (ValueError("…"), 1, Outcome.CRASH),
        (RuntimeError("NCCL error"), 0, Outcome.CRASH),
        (OutOfMemoryError("tried to allocate"), 0, Outcome.DEVICE_OUT_OF_MEMORY),
        (RuntimeError("CUDA Error: out of memory at cumem_allocator.cpp:163"), 5, Outcome.DEVICE_OUT_OF_MEMORY),
        (ValueError("the user's text says: out of memory"), 0, Outcome.USER_ERROR),
        (HfHubHTTPError("503"), 0, Outcome.TRANSIENT),
        (socket.gaierror("name or service not known"), 0, Outcome.TRANSIENT),
        (ConnectionResetError("peer"), 3, Outcome.TRANSIENT),
    ],
)
def test_classify(error: Exception, steps_done: int, outcome: Outcome) -> None:
    assert classify(error, steps_done) is outcome


def test_the_cause_counts() -> None:
    wrapped = RuntimeError("engine failed")
    wrapped.__cause__ = OutOfMemoryError("tried to allocate")
    assert classify(wrapped, 3) is Outcome.DEVICE_OUT_OF_MEMORY


def test_a_circle_of_causes_ends() -> None:
    first, second = RuntimeError("a"), RuntimeError("b")
    first.__cause__, second.__cause__ = second, first
    assert classify(first, 0) is Outcome.CRASH
