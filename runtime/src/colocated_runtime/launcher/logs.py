"""Each rank writes to its own file beside the checkpoints; the launcher copies what they write to the pod's log."""

import shutil
import threading
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

KEPT_ATTEMPTS = 2
CHUNK = 1 << 20


class Tail:
    """Copies the growing end of the log files in a directory to `out`, line by line, so that none are interleaved."""

    def __init__(self, directory: Path, prefixes: dict[str, str], out: BinaryIO) -> None:
        """`prefixes`: name of each file, and what is put before each of its lines."""
        self._files = {directory / name: prefix.encode() for name, prefix in prefixes.items()}
        self._offsets = {path: size(path) for path in self._files}
        self._rests = dict.fromkeys(self._files, b"")
        self._out = out

    def pump(self, *, last: bool = False) -> None:
        """Copy all complete lines since the last call; with `last` an unfinished one too."""
        for path, prefix in self._files.items():
            while chunk := _read(path, self._offsets[path]):
                self._offsets[path] += len(chunk)
                *lines, self._rests[path] = (self._rests[path] + chunk).split(b"\n")
                self._out.writelines(prefix + line + b"\n" for line in lines)
            if last and self._rests[path]:
                self._out.write(prefix + self._rests[path] + b"\n")
        self._out.flush()


class Copier(threading.Thread):
    """Pumps a tail until it is told to finish. A thread of its own: storage that hangs must not hang the launcher."""

    def __init__(self, tail: Tail, seconds: float) -> None:
        """`seconds` between two looks."""
        super().__init__(daemon=True)
        self._tail = tail
        self._seconds = seconds
        self._told = threading.Event()

    def run(self) -> None:
        """Copy; what cannot be read now is read later."""
        while not self._told.wait(self._seconds):
            with suppress(OSError):
                self._tail.pump()
        with suppress(OSError):
            self._tail.pump(last=True)

    def finish(self, seconds: float) -> None:
        """Copy the rest and end; give it up after `seconds`."""
        self._told.set()
        self.join(seconds)


def size(path: Path) -> int:
    """Bytes of the file; 0 where there is none."""
    return path.stat().st_size if path.exists() else 0


def end_of(path: Path, limit: int = 8000, start: int = 0) -> str:
    """The last `limit` bytes of the file, nothing before byte `start`."""
    return _read(path, max(start, size(path) - limit)).decode(errors="replace").strip()


def drop_old(logs: Path, attempt: int) -> None:
    """Keep the logs of this attempt and of the one before it. `logs` is the directory of all attempts."""
    for directory in logs.glob("attempt-*"):
        number = directory.name.removeprefix("attempt-")
        if number.isdigit() and int(number) <= attempt - KEPT_ATTEMPTS:
            shutil.rmtree(directory, ignore_errors=True)


def _read(path: Path, offset: int) -> bytes:
    if not path.exists():
        return b""
    with path.open("rb") as file:
        file.seek(offset)
        return file.read(CHUNK)
