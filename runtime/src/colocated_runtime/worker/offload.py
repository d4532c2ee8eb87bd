"""The optimizer's states in host memory but for its updates: the device is left to the engine, then to activations.

From the first update on where the plan says so (`memory.offload: optimizer`), else once the engine would not find the
room to wake.
"""

import logging
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import torch
from transformers import TrainerCallback

from colocated_runtime import host_memory
from colocated_runtime.worker.phases import Handover

ALIGNMENT = 512
"""Bytes; where a state begins in the buffer."""
SMALL = 2**16
"""Bytes of a state that is not worth moving: step counters, quantisation maps."""
T = TypeVar("T")
log = logging.getLogger(__name__)


class OptimizerStates:
    """Moves the states of one rank's optimizer between its device and pinned buffers, one for each type of number:
    torch.save refuses views of one storage as several types."""

    def __init__(self, optimizer: Callable[[], Any], handover: Handover, *, always: bool) -> None:
        """`optimizer` returns it, or None before training. `always`: the states are on the device for updates alone."""
        self.always = always
        self._handover = handover
        self._optimizer = optimizer
        self._away: list[tuple[dict[str, Any], str, torch.device]] = []
        self._pinned: dict[torch.dtype, Future[torch.Tensor]] = {}

    def expect(self, dtype: torch.dtype, size: int) -> None:
        """Pin `size` bytes for states of `dtype`, in the background."""
        device = torch.cuda.current_device() if torch.cuda.is_available() else None
        self._pinned[dtype] = in_background(pinned, size, device)

    def spare(self) -> int:
        """Leave, from now on after every update; the bytes that are free on the device, 0 where nothing was there.

        Nobody has planned host memory for it: where the container has too little of it, nothing is done.
        """
        size = 0 if self._away else sum(state[name].nbytes for state, name in self._states())
        memory = host_memory.read()
        if memory and memory.limit and memory.limit - memory.used < size:
            log.warning("%.1f GiB of optimizer states would not fit into the container's memory", size / 2**30)
            return 0
        freed = self.leave()
        self.always = self.always or freed > 0
        return freed

    def leave(self) -> int:
        """Move the states to the host; the bytes that are free on the device then, 0 where none were there."""
        found = [] if self._away else list(self._states())
        if not found:
            return 0
        finish_work()
        with self._handover("optimizer states to the host") as moved:
            for dtype in dict.fromkeys(state[name].dtype for state, name in found):
                moved.bytes += self._move(dtype, [(state, name) for state, name in found if state[name].dtype == dtype])
            finish_work()  # the host may read them, to save them
        return moved.bytes

    def come_back(self) -> None:
        """Move the states to where they were."""
        if not self._away:
            return
        finish_work()
        with self._handover("optimizer states to the device") as moved:
            for state, name, device in self._away:
                moved.bytes += state[name].nbytes
                state[name] = state[name].to(device, non_blocking=True, copy=True)
            finish_work()
        self._away.clear()

    def _move(self, dtype: torch.dtype, found: list[tuple[dict[str, Any], str]]) -> int:
        size = sum(aligned(state[name].nbytes) for state, name in found)
        buffer, place = self._buffer(dtype, size), 0
        for state, name in found:
            value = state[name]
            kept = buffer[place : place + value.nbytes].view(dtype).view(value.shape)
            kept.copy_(value, non_blocking=True)
            self._away.append((state, name, value.device))
            state[name] = kept
            place += aligned(value.nbytes)
        return size

    def _states(self) -> Iterator[tuple[dict[str, Any], str]]:
        """Plain tensors alone: a quantised state's own class would be lost."""
        optimizer = self._optimizer()
        for state in optimizer.state.values() if optimizer is not None else ():
            for name, value in state.items():
                if type(value) is torch.Tensor and value.nbytes >= SMALL and value.is_contiguous():
                    yield state, name

    def _buffer(self, dtype: torch.dtype, size: int) -> torch.Tensor:
        known = self._pinned.get(dtype)
        if known is None or known.result().numel() < size:
            if known is not None:
                unpin(known.result())
            self.expect(dtype, size)
        return self._pinned[dtype].result()


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


def in_background(pin: Callable[..., T], *arguments: Any) -> Future[T]:
    """Have `pin` work in a thread of its own: it takes a second for each GiB."""
    worker = ThreadPoolExecutor(1, "pin")
    done = worker.submit(pin, *arguments)
    worker.shutdown(wait=False)
    return done


def pinned(size: int, device: int | None) -> torch.Tensor:
    """A buffer of `size` bytes, page-locked for `device` where there is one."""
    buffer = torch.empty(size, dtype=torch.uint8)
    pin(buffer, device)
    return buffer


def pin(buffer: torch.Tensor, device: int | None) -> None:
    """Page-lock `buffer` for `device`, unless that is None.

    Registered with the driver instead of allocated pinned: torch's allocator of pinned memory rounds up to a power of
    two. Where the driver refuses, copies are slower.
    """
    if device is None:
        return
    began, size = time.monotonic(), buffer.nbytes
    torch.cuda.set_device(device)
    refused = int(torch.cuda.cudart().cudaHostRegister(buffer.data_ptr(), size, 0))
    seconds = time.monotonic() - began
    log.info("%s %.1f GiB of host memory in %.1f s", "not pinned:" if refused else "pinned", size / 2**30, seconds)


def unpin(buffer: torch.Tensor) -> None:
    """Before it is freed: the driver would take whatever comes to lie there for pinned."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
        torch.cuda.cudart().cudaHostUnregister(buffer.data_ptr())


def finish_work() -> None:
    """Wait for what the device has to do, so that each has its own seconds."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def aligned(size: int) -> int:
    """Bytes that a state of `size` bytes takes in a buffer."""
    return -(-size // ALIGNMENT) * ALIGNMENT
