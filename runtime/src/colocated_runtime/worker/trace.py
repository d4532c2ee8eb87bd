"""A rank's time line: steps, phases, hand-overs of memory and counters, as a file that ui.perfetto.dev opens.

The array form of Chrome's trace events (docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU): one
event a line, all of them complete, so that any of them may be missing. The closing bracket is optional and Perfetto
passes over a torn last event, so that the file of a killed rank opens too.
"""

import errno
import json
import time
from collections.abc import Callable
from contextlib import suppress
from enum import IntEnum
from io import FileIO
from pathlib import Path
from typing import Any

from colocated_runtime.files import replace_text

LIMIT = 8 << 20
"""Bytes of the file: about 2500 steps. Then the first quarter and the newest half stay."""
RETRY_SECONDS = 60.0
"""After a write that failed nothing is tried for so long."""
LONGEST = 500
"""Characters of a name."""
SEPARATOR = ",\n"


class Track(IntEnum):
    """The lines that slices are drawn on, from top to bottom."""

    STEPS = 1
    PHASES = 2
    HANDOVERS = 3
    LEFT_OUT = 4


class Trace:
    """Takes events down and appends them to the file at `write`. Times are Unix seconds, so that ranks line up."""

    def __init__(
        self, path: Path, rank: int, on_failure: Callable[[OSError], None] = lambda error: None, limit: int = LIMIT
    ) -> None:
        """`on_failure` is told once that the file cannot be written, and again only after that was mended."""
        self._path = path
        self._rank = rank
        self._on_failure = on_failure
        self._limit = limit
        self._pending: list[str] = []
        self._file: FileIO | None = None
        self._size = 0
        """Of what was written in full."""
        self._head = 0
        """Bytes up to what was left out; 0 where nothing was."""
        self._retry = 0.0
        self._failing = False

    def slice(self, track: Track, name: str, began: float, ended: float, **arguments: float) -> None:
        """Something that went on from `began` to `ended`."""
        self._pending.append(self._slice(track, name, began, ended, **arguments))

    def mark(self, name: str, now: float) -> None:
        """Something that happened at once; drawn across all tracks."""
        self._pending.append(self._event("i", name, now, s="p"))

    def counter(self, name: str, now: float, **values: int) -> None:
        """What some values are from `now` on; a curve each."""
        self._pending.append(self._event("C", name, now, args=values))

    def write(self) -> None:
        """Append what has been noted. Where that fails it is dropped: a trace is not worth a job."""
        events, self._pending = self._pending, []
        if not events or time.monotonic() < self._retry:
            return
        try:
            self._append("".join(SEPARATOR + event for event in events))
            self._failing = False
        except OSError as error:
            self._retry = time.monotonic() + RETRY_SECONDS
            self._close()
            if not self._failing:
                self._failing = True
                self._on_failure(error)

    def finish(self) -> None:
        """Write the rest and the closing bracket."""
        self._retry = 0.0
        self.write()
        with suppress(OSError):
            if self._file is None:  # the last write failed, and may have left a part of itself
                self._open()
            self._put("\n]\n")
        self._close()

    def _slice(self, track: Track, name: str, began: float, ended: float, **arguments: float) -> str:
        length = max(0, round((ended - began) * 1e6))  # a clock may be set back
        return self._event("X", name, began, tid=int(track), dur=length, args=arguments)

    def _event(self, kind: str, name: str, now: float, **more: Any) -> str:
        event = {"ph": kind, "name": name[:LONGEST], "pid": self._rank, "ts": round(now * 1e6), **more}
        return json.dumps(event, separators=(",", ":"))

    def _append(self, text: str) -> None:
        if self._file is None:
            self._open()
        if self._size + len(text) > self._limit:
            self._shorten()
        self._put(text)

    def _put(self, text: str) -> None:
        assert self._file is not None
        written = self._file.write(text.encode("ascii"))
        if written != len(text):
            raise OSError(errno.ENOSPC, "written in part", str(self._path))
        self._size += written

    def _open(self) -> None:
        """To go on after what was written in full; with the first lines where that is nothing."""
        if self._size == 0:
            self._path.parent.mkdir(parents=True, exist_ok=True)
        self._file = FileIO(self._path, "a")
        if self._path.stat().st_size < self._size:  # somebody has taken it away
            self._size = self._head = 0
        self._file.truncate(self._size)
        if self._size == 0:
            labels = [("process_name", 0, f"rank {self._rank}")]
            labels += [("thread_name", int(track), track.name.lower().replace("_", " ")) for track in Track]
            self._put("[\n" + SEPARATOR.join(self._label(*label) for label in labels))

    def _label(self, kind: str, tid: int, name: str) -> str:
        return json.dumps({"ph": "M", "name": kind, "pid": self._rank, "tid": tid, "args": {"name": name}})

    def _shorten(self) -> None:
        """Leave out the middle, and say so where it was."""
        text = self._path.read_bytes()[: self._size].decode("ascii")
        self._head = head = self._head or text.rindex(SEPARATOR, 0, self._limit // 4)
        tail = text.index(SEPARATOR, len(text) - self._limit // 2)
        last, first = text[text.rindex("\n", 0, head) : head], text[tail + len(SEPARATOR) :].partition(SEPARATOR)[0]
        gap = self._slice(Track.LEFT_OUT, "left out", _time(last) or _time(first), _time(first))
        kept = text[:head] + SEPARATOR + gap + text[tail:]
        replace_text(self._path, kept)
        self._close()
        self._size = len(kept)
        self._open()

    def _close(self) -> None:
        if self._file is not None:
            with suppress(OSError):
                self._file.close()
        self._file = None


def _time(event: str) -> float:
    """Unix seconds; 0 of a label."""
    return float(json.loads(event).get("ts", 0)) / 1e6
