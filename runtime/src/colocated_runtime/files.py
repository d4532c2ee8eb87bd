"""Files that are replaced whole: no reader ever sees a part, whenever the writer dies. For launcher and worker."""

import os
from pathlib import Path


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
