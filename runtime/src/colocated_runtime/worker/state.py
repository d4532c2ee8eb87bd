"""The rank's own state file, which the launcher reads."""

import logging
import os
import time
from pathlib import Path
from typing import Any

from colocated_runtime.contract.report import Phase, RankState
from colocated_runtime.files import replace_text

log = logging.getLogger(__name__)


class StateFile:
    """Holds the rank's `RankState` and writes it at every change.

    A volume that is full does not end the training: what could not be written comes with the next change. The launcher
    says so meanwhile, and its watchdog ends a rank that stays silent.
    """

    def __init__(self, path: Path, rank: int) -> None:
        """Raise OSError where not even a first word can be written."""
        self._path = path
        self._behind = False
        now = time.time()
        self.state = RankState(rank=rank, pid=os.getpid(), updated=now, phase_since=now)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._write()

    def update(self, **changes: Any) -> None:
        """Replace fields of the state and write it."""
        self.state = self.state.model_copy(update={**changes, "updated": time.time()})
        try:
            self._write()
        except OSError as error:
            if not self._behind:
                log.warning("the rank's state is not written: %s", error)
            self._behind = True
        else:
            self._behind = False

    def enter(self, phase: Phase) -> None:
        """Write that `phase` begins now."""
        self.update(phase=phase, phase_since=time.time())

    def _write(self) -> None:
        replace_text(self._path, self.state.model_dump_json(by_alias=True))
