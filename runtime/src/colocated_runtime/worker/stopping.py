"""The launcher's wish that the ranks save and leave: seen by each rank, acted upon by all of them together."""

import time
from collections.abc import Callable
from pathlib import Path

import torch

from colocated_runtime.worker import ranks

LOOK_SECONDS = 1.0
"""Between two looks: the engine asks many times a second."""
WORD = "colocated/stop"
"""Key of the process group's store under which a rank passes the wish on to the other nodes' ranks."""


class StopSignal:
    """Once seen, it stays."""

    def __init__(self, stop_file: Path, device: torch.device, clock: Callable[[], float] = time.monotonic) -> None:
        self._stop_file = stop_file
        self._device = device
        self._clock = clock
        self._next_look = 0.0
        self._seen = False
        self._asked = clock()
        self.longest_seconds = 0.0
        """Longest time between two questions: so long the ranks may go on after the launcher's word."""

    def seen(self) -> bool:
        """Whether this rank knows: by its launcher's file, or from a rank of another node."""
        self.longest_seconds = max(self.longest_seconds, self._clock() - self._asked)
        self.count_from_now()
        if not self._seen and self._clock() >= self._next_look:
            self._next_look = self._clock() + LOOK_SECONDS
            self._seen = self._look()
        return self._seen

    def count_from_now(self) -> None:
        """Leave the time since the last question out of `longest_seconds`."""
        self._asked = self._clock()

    def look_at_once(self) -> None:
        """Have the next question look, however short ago the last look was: between steps there is time for it."""
        self._next_look = 0.0

    def agreed(self, group: ranks.Group = None) -> bool:
        """Whether some rank knows. A collective: every rank of `group`, None for all, must call it."""
        self._seen = ranks.any_true(self.seen(), self._device, group)
        return self._seen

    def _look(self) -> bool:
        if self._stop_file.exists():
            ranks.tell_all(WORD)
            return True
        return ranks.was_told(WORD)
