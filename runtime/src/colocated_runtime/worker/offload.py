"""The optimizer's states in host memory whenever no update runs: the device's memory is the engine's, then the
activations'.

For every update where the plan says so (`memory.offload: optimizer`), else only when the engine would not find the room
to wake.
"""

import logging
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import torch
from transformers import TrainerCallback

ALIGNMENT = 512
"""Bytes; where a state begins in the buffer."""
SMALL = 2**20
"""Bytes of a state that is not worth moving: step counters, quantisation maps."""
log = logging.getLogger(__name__)


class OptimizerStates:
    """Moves the states of one rank's optimizer between its device and one pinned buffer."""

    def __init__(self, optimizer: Callable[[], Any], *, always: bool, expected: int = 0) -> None:
        """`optimizer` returns it, or None before training. `always`: the states are on the device for updates alone.

        Memory for `expected` bytes is pinned in the background: that takes a second for each GiB.
        """
        self.always = always
        self._optimizer = optimizer
        self._away: list[tuple[dict[str, Any], str, torch.device]] = []
        self._pinned: Future[torch.Tensor] | None = None
        if always and expected:
            self._pin(expected)

    def leave(self) -> int:
        """Move the states to the host; the bytes that are free on the device then, 0 where none were there."""
        found = [] if self._away else list(self._states())
        size = sum(_aligned(state[name].nbytes) for state, name in found)
        if not size:
            return 0
        buffer, place = self._buffer(size), 0
        for state, name in found:
            value = state[name]
            end = place + value.nbytes
            kept = buffer[place:end].view(value.dtype).view(value.shape)
            kept.copy_(value, non_blocking=True)
            self._away.append((state, name, value.device))
            state[name] = kept
            place += _aligned(value.nbytes)
        if torch.cuda.is_available():
            torch.cuda.synchronize()  # the host may read them, to save them
        return size

    def come_back(self) -> None:
        """Move the states to where they were, in time for the next work on that device."""
        for state, name, device in self._away:
            state[name] = state[name].to(device, non_blocking=True, copy=True)
        self._away.clear()

    def _states(self) -> Iterator[tuple[dict[str, Any], str]]:
        optimizer = self._optimizer()
        for state in optimizer.state.values() if optimizer is not None else ():
            for name, value in state.items():
                if isinstance(value, torch.Tensor) and value.nbytes >= SMALL and value.is_contiguous():
                    yield state, name

    def _buffer(self, size: int) -> torch.Tensor:
        if self._pinned is None or self._pinned.result().numel() < size:
            self._pin(size)
        assert self._pinned is not None
        return self._pinned.result()

    def _pin(self, size: int) -> None:
        worker = ThreadPoolExecutor(1, "pin")
        device = torch.cuda.current_device() if torch.cuda.is_available() else None
        self._pinned = worker.submit(pinned, size, device)
        worker.shutdown(wait=False)


class Update(TrainerCallback):
    """Has the states on the device while the optimizer needs them."""

    def __init__(self, states: OptimizerStates) -> None:
        self._states = states

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """A resumed run has read them onto the device."""
        if self._states.always:
            self._states.leave()

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The activations are gone by now."""
        self._states.come_back()

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """They are what they will be until the next update."""
        if self._states.always:
            self._states.leave()


def pinned(size: int, device: int | None) -> torch.Tensor:
    """A buffer of `size` bytes, page-locked for `device` where there is one.

    Registered with the driver instead of allocated pinned: torch's allocator of pinned memory rounds up to a power of
    two. Where the driver refuses, copies are slower.
    """
    buffer = torch.empty(size, dtype=torch.uint8)
    if device is not None:
        began = time.monotonic()
        torch.cuda.set_device(device)
        refused = int(torch.cuda.cudart().cudaHostRegister(buffer.data_ptr(), size, 0))
        seconds = time.monotonic() - began
        log.info("%s %.1f GiB of host memory in %.1f s", "not pinned:" if refused else "pinned", size / 2**30, seconds)
    return buffer


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
