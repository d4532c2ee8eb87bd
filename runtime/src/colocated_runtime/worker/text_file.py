"""Why a file of text cannot be read as rows: readers tell neither file nor line."""

import json
from pathlib import Path

TEXT = (".json", ".jsonl", ".csv")


def text_flaw(path: Path) -> str:
    """The first line of `path` that is wrong, and how; empty where nothing is found, or it is no file of text."""
    if path.suffix not in TEXT or not path.is_file():
        return ""
    if not path.stat().st_size:
        return "is empty; give a file with rows"
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            found = _line_flaw(line, rows=path.suffix == ".jsonl")
            if found:
                return f"line {number} {found}"
    return ""


def _line_flaw(line: bytes, *, rows: bool) -> str:
    """`rows`: the line is a whole JSON object."""
    try:
        text = line.decode()
    except UnicodeDecodeError as error:
        return f"is no UTF-8 (byte 0x{line[error.start]:02x} at column {error.start + 1}); save the file as UTF-8"
    if not rows or not text.strip():
        return ""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        return f"is no JSON: {error}; give one object a line"
    return "" if isinstance(value, dict) else f"holds {type(value).__name__}; give one object a line"
