"""A frozen model that is on the device for its passes alone: the reference model, and each reward model.

Its weights stay in one pinned buffer of host memory. For a pass they are copied into one buffer of the device, which
is given back whole afterwards: one allocation, one copy, and no holes among the trainer's tensors.
"""

import itertools
import logging
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from colocated_runtime.worker.offload import aligned, finish_work, in_background, pin
from colocated_runtime.worker.phases import Handover

log = logging.getLogger(__name__)


class Guest:
    """Parameters and buffers of one model, and where they are. Nobody else may move them, or hold on to them."""

    def __init__(self, model: torch.nn.Module, device: torch.device, name: str, handover: Handover) -> None:
        """Takes the weights from wherever they are to host memory. `name` in the trace, e.g. "reference model"."""
        self._device = device
        self._name = name
        self._handover = handover
        self._tensors = list(itertools.chain(model.parameters(), model.buffers()))
        self._host = torch.empty(sum(aligned(tensor.nbytes) for tensor in self._tensors), dtype=torch.uint8)
        for tensor, kept in zip(self._tensors, self._views(self._host), strict=True):
            tensor.data = kept.copy_(tensor.detach())
        self._give_back()
        index = torch.cuda.current_device() if device.type == "cuda" else None
        self._pinned = in_background(pin, self._host, index)
        log.info("%s: %.1f GiB in host memory but for its passes", type(model).__name__, self._host.nbytes / 2**30)

    @contextmanager
    def here(self) -> Iterator[None]:
        """Has the model on the device, also where what is done there fails: then it is back in host memory too."""
        self._pinned.result()
        finish_work()
        with self._handover(f"{self._name} to the device") as moved:
            there = self._host.to(self._device, non_blocking=True, copy=True)
            finish_work()
            moved.bytes = there.nbytes
        self._put(there)
        try:
            yield
        finally:
            self._put(self._host)
            with self._handover(f"{self._name} leaves the device") as moved:
                moved.bytes = there.nbytes
                del there
                self._give_back()

    def _put(self, buffer: torch.Tensor) -> None:
        for tensor, view in zip(self._tensors, self._views(buffer), strict=True):
            tensor.data = view

    def _views(self, buffer: torch.Tensor) -> Iterator[torch.Tensor]:
        """The model's tensors, in order, as they lie in `buffer`."""
        place = 0
        for tensor in self._tensors:
            yield buffer[place : place + tensor.nbytes].view(tensor.dtype).view(tensor.shape)
            place += aligned(tensor.nbytes)

    def _give_back(self) -> None:
        """At once: whatever came to lie in the freed buffer would keep all of it from the engine."""
        if self._device.type == "cuda":
            torch.cuda.empty_cache()
