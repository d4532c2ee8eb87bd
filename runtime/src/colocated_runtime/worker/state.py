"""The rank's own state file, which the launcher reads."""

import os
import time
from pathlib import Path
from typing import Any

from colocated_runtime.contract.report import Phase, RankState
from colocated_runtime.files import replace_text


class StateFile:
    """Holds the rank's `RankState` and writes it at every change."""

    def __init__(self, path: Path, rank: int) -> None:
        self._path = path
        now = time.time()
        self.state = RankState(rank=rank, pid=os.getpid(), updated=now, phase_since=now)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._write()

    def update(self, **changes: Any) -> None:
        """Replace fields of the state and write it."""
        self.state = self.state.model_copy(update={**changes, "updated": time.time()})
        self._write()

    def enter(self, phase: Phase) -> None:
        """Write that `phase` begins now."""
        self.update(phase=phase, phase_since=time.time())

    def _write(self) -> None:
        replace_text(self._path, self.state.model_dump_json(by_alias=True))
