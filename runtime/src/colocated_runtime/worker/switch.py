"""Who has the device's memory: the engine, awake, or the trainer. The one place where it changes hands.

At level 2 a sleeping engine's weights are gone, at level 1 they are in host memory; its cache is gone at both.
"""

import gc
from collections.abc import Callable
from typing import Any, Literal, Protocol

import torch

from colocated_runtime.planner.devices import GIB
from colocated_runtime.planner.settings import EngineSettings
from colocated_runtime.worker.phases import Phases

Part = Literal["weights", "kv_cache"]
EFFECTIVE = 0.9
"""Of what the plan says that sleep frees; less is told."""


class Sleeper(Protocol):
    """What of vLLM's `LLM` is used."""

    def sleep(self, level: int) -> Any:
        """Unmap weights and cache."""

    def wake_up(self, tags: list[str]) -> Any:
        """Map what was unmapped."""


class Switch:
    """Wakes the engine part by part and lays it to sleep; does nothing at sleep level 0."""

    def __init__(self, llm: Sleeper, settings: EngineSettings, phases: Phases) -> None:
        self._llm = llm
        self._level = settings.sleep_level
        self._planned = settings.sleep_frees
        self._phases = phases
        self._awake = True
        self._asleep_bytes = 0
        """Of the device, which wake-ups will map."""
        self.spare: Callable[[], int] = lambda: 0
        """Has the trainer give back device memory that it can do without for now; returns the bytes."""

    def make_room(self) -> None:
        """Empty torch's cache for what is woken next; what was in it belongs to the present phase's peak.

        Where that does not suffice the trainer gives back what it can spare: vLLM 0.24 cannot repeat a wake-up that
        failed half-way.
        """
        if self._level == 0:
            return
        self._empty()
        missing = self._asleep_bytes - free_bytes()
        if missing > 0 and (spared := self.spare()):
            self._phases.pressure(
                f"the engine would lack {missing / GIB:.2f} GiB to wake; {spared / GIB:.2f} GiB of optimizer states are"
                " in host memory meanwhile"
            )
            self._empty()

    def wake(self, part: Part) -> None:
        """Map the memory of `part`: weights first, always; the cache alone would be woken over unmapped weights."""
        if self._level == 0 or (part == "weights" and self._awake):
            return
        with self._phases.handover(f"wake {part}") as moved:
            before = free_bytes()
            self._llm.wake_up(tags=[part])
            moved.bytes = before - free_bytes()
        self._asleep_bytes -= moved.bytes
        self._awake = True

    def sleep(self) -> bool:
        """Give the device's memory to the trainer. Returns whether the engine must be given its weights anew."""
        if self._level == 0:
            return False
        torch.cuda.synchronize()  # 0.24 unmaps without waiting for running kernels
        gc.collect()  # 0.24 does both of these as well, after it has unmapped: they must not count as unmapped
        self._empty()
        with self._phases.handover("sleep") as moved:
            before = free_bytes()
            self._llm.sleep(level=self._level)
            freed = moved.bytes = free_bytes() - before
        self._asleep_bytes = freed
        self._awake = False
        if freed < EFFECTIVE * self._planned:
            self._phases.pressure(
                f"the sleeping engine gave {freed / GIB:.2f} GiB back, {self._planned / GIB:.2f} GiB were planned",
                kind="Sleep",
            )
            self._planned = 0  # told once
        return True

    def _empty(self) -> None:
        """The phase's peak is taken after: `cuda_usage` adds what was given back since the last look."""
        with self._phases.handover("empty the cache") as moved:
            before = free_bytes()
            torch.cuda.empty_cache()
            moved.bytes = free_bytes() - before
        self._phases.sample()


def free_bytes() -> int:
    """Of the device, now."""
    return int(torch.cuda.mem_get_info()[0])
