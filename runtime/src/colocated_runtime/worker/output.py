"""Standard output that never fails: the log lies on the checkpoint volume, and a full one must not end the training."""

import io
from typing import TextIO


class Lenient(io.FileIO):
    """Drops what cannot be written."""

    def write(self, data: object) -> int:
        """As FileIO's, but for the OSError."""
        try:
            return super().write(data)  # type: ignore[arg-type]
        except OSError:
            return memoryview(data).nbytes  # type: ignore[arg-type]


def unfailing(stream: TextIO) -> TextIO:
    """A stream to the same file as `stream`, line by line."""
    raw = Lenient(stream.fileno(), "w", closefd=False)
    return io.TextIOWrapper(
        io.BufferedWriter(raw), encoding="utf-8", errors="backslashreplace", line_buffering=True, write_through=True
    )
