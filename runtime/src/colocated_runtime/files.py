"""Files of launcher and worker: those by which they talk, and how one is replaced whole."""

import errno
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from colocated_runtime.contract import names


@dataclass(frozen=True)
class SharedFiles:
    """What launcher and ranks of one pod tell each other by, below the pod's state directory."""

    attempt_file: Path
    """Of the ConfigMap: the attempt, for both."""
    state: Path

    @property
    def stop_file(self) -> Path:
        """By the launcher: the ranks shall save and leave."""
        return self.state / "stop"

    @property
    def sources_file(self) -> Path:
        """By the launcher: where each hf:// source lies."""
        return self.state / "sources.json"

    @property
    def plan_file(self) -> Path:
        """By the launcher: the memory plan; missing where there is none."""
        return self.state / names.PLAN_KEY

    def rank_file(self, rank: int) -> Path:
        """By each rank: its own state (`contract.report.RankState`)."""
        return self.state / f"rank-{rank}.json"


VOLUME_ERRORS = {
    errno.ENOSPC: "the volume is full",
    errno.EDQUOT: "its quota is used up",
    errno.EROFS: "the volume is read-only",
    errno.ESTALE: "the volume's server has lost it",
    errno.EIO: "the volume cannot be read or written",
    errno.ENOENT: "a directory of the job is gone",
}
"""Errors of a volume, and what they mean there."""


def volume_failure(error: BaseException, volume: Path) -> str:
    """What is wrong with the checkpoint volume, by `error`; empty if it tells of something else.

    `volume`: the job's own directory there.
    """
    if not isinstance(error, OSError) or error.errno not in VOLUME_ERRORS or error.filename is None:
        return ""
    path = Path(os.fsdecode(error.filename))
    if error.errno == errno.ENOENT and path.is_relative_to(volume / names.HUB):
        return ""  # a download that lacks a file is a mistake in the spec
    return f"checkpoint.storage: {VOLUME_ERRORS[error.errno]}: {error}" if path.is_relative_to(volume) else ""


STATE_VOLUME_FULL = "the pod's state volume is full: its node's disk, or the pod's ephemeral-storage, is used up"
LEAST_BYTES = 1 << 16
"""What the ranks' files take, at least."""


def free_bytes(directory: Path) -> int | None:
    """Of the volume that holds `directory`; None where nobody can tell."""
    try:
        return shutil.disk_usage(directory).free
    except OSError:
        return None


def state_volume_failure(state: Path) -> str:
    """Whether the pod's own volume, which holds the directory `state`, is full; empty if it is not."""
    free = free_bytes(state)
    return STATE_VOLUME_FULL if free is not None and free < LEAST_BYTES else ""


def replace_text(path: Path, text: str, *, durable: bool = False) -> None:
    """Write `text` aside, then rename it to `path`. With `durable` it is there after a power cut, too.

    Raise OSError where the directory is missing or full; the file at `path` is then what it was.
    """
    aside = path.with_name(f".{path.name}.tmp")
    aside.write_text(text)
    if durable:
        fsync(aside)
    aside.replace(path)
    if durable:
        fsync(path.parent)


def fsync(path: Path) -> None:
    """Have the disk hold what has been written to the file at `path`, or the names in the directory at `path`."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
