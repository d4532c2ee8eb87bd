"""Which outcome an exception is."""

import socket
from contextlib import suppress
from pathlib import Path

import pytest

from colocated_runtime.contract.outcome import Outcome
from colocated_runtime.contract.phase import Phase
from colocated_runtime.worker import errors
from colocated_runtime.worker.errors import RewardError, UserError, WeightsStale, classify, storage, words
from colocated_runtime.worker.phases import Phases, no_device
from colocated_runtime.worker.state import StateFile


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
        (ValueError("No available memory for the cache blocks. Try …"), 0, Outcome.DEVICE_OUT_OF_MEMORY),
        (ValueError("… (9.0 GiB KV cache is needed, which is larger than the available KV cache memory (2.0 GiB)."), 0,
         Outcome.DEVICE_OUT_OF_MEMORY),
        (ValueError("Free memory on device cuda:0 … is less than desired GPU memory utilization (0.9, 70 GiB)"), 0,
         Outcome.DEVICE_OUT_OF_MEMORY),
        (AssertionError("Error in memory profiling. Initial free memory 82.94 GiB, current free memory 90.17 GiB."), 0,
         Outcome.TRANSIENT),
        (HfHubHTTPError("503"), 0, Outcome.TRANSIENT),
        (socket.gaierror("name or service not known"), 0, Outcome.TRANSIENT),
        (ConnectionResetError("peer"), 3, Outcome.TRANSIENT),
    ],
)  # fmt: skip
def test_classify(error: Exception, steps_done: int, outcome: Outcome) -> None:
    assert classify(error, steps_done) is outcome


def test_a_full_device_is_told_with_its_phase(tmp_path: Path) -> None:
    """The innermost one, also where a library wraps the error; what has been caught is forgotten."""
    phases = Phases(StateFile(tmp_path / "rank-0.json", 0), no_device)
    with suppress(RuntimeError), phases(Phase.TRAIN), phases(Phase.CHECKPOINT):
        raise RuntimeError("caught")
    cause, wrapped = OutOfMemoryError("tried to allocate 2 GiB"), RuntimeError("the engine died")
    with suppress(OutOfMemoryError), phases(Phase.ROLLOUT), phases(Phase.SYNC):
        raise cause
    with suppress(RuntimeError), phases(Phase.TRAIN):
        raise wrapped from cause
    expected = "the device's memory ran out in phase Sync: the engine died"
    assert words(wrapped, Outcome.DEVICE_OUT_OF_MEMORY) == expected
    assert words(OutOfMemoryError("x"), Outcome.DEVICE_OUT_OF_MEMORY) == "the device's memory ran out in phase Start: x"
    assert words(wrapped, Outcome.CRASH) == "the engine died"
    assert words(ValueError(), Outcome.CRASH) == "ValueError"
    assert words(SystemExit(3), Outcome.CRASH) == "a library called sys.exit(3)"


def test_the_cause_counts() -> None:
    wrapped = RuntimeError("engine failed")
    wrapped.__cause__ = OutOfMemoryError("tried to allocate")
    assert classify(wrapped, 3) is Outcome.DEVICE_OUT_OF_MEMORY


def test_a_circle_of_causes_ends() -> None:
    first, second = RuntimeError("a"), RuntimeError("b")
    first.__cause__, second.__cause__ = second, first
    assert classify(first, 0) is Outcome.CRASH


def test_a_volume_that_fails_is_told_from_whatever_followed(tmp_path: Path) -> None:
    gone = FileNotFoundError(2, "No such file or directory", str(tmp_path / "checkpoints"))
    followed = RuntimeError("the final model was not written")
    followed.__cause__ = gone
    for error in (gone, followed):
        assert storage(error, tmp_path).startswith("checkpoint.storage: a directory of the job is gone: ")
    assert storage(FileNotFoundError(2, "No such file or directory", "/rewards/data.json"), tmp_path) == ""


def caught(function) -> BaseException:
    try:
        function()
    except Exception as error:
        return error
    raise AssertionError


def test_of_a_reward_that_raised_only_the_users_part_is_shown() -> None:
    def reward() -> None:
        raise KeyError("boom")

    def ours() -> None:
        try:
            reward()
        except KeyError as error:
            raise RewardError("r:f raised") from error

    shown = errors.trace_of_cause(caught(ours))
    assert "in reward" in shown
    assert "RewardError" not in shown
    assert errors.trace_of_cause(RewardError("returned text")) == errors.trace_of_cause(UserError("a field")) == ""


def test_what_is_shown_has_an_end() -> None:
    def reward() -> None:
        raise ValueError("x" * 10_000_000 + "\ny" * 1_000_000)

    error = caught(reward)
    assert len(errors.trace(error)) < 100_000
    assert errors.trace(error).startswith("Traceback")
    assert len(errors.words(error, Outcome.CRASH)) < 10_000


def test_the_log_has_one_line_for_what_has_a_cause_in_words() -> None:
    assert errors.told(UserError("dataset: no rows")) == "UserError: dataset: no rows"
    lost = RuntimeError("gloo: Connection closed by peer [::1]\nmore")
    words = "another rank is lost, and the cause is in its log: RuntimeError: gloo: Connection closed by peer [::1]"
    assert errors.told(lost) == words
    assert errors.told(caught(lambda: [].pop())).startswith("Traceback")
