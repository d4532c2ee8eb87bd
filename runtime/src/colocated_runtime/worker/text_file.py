"""Why a file of text cannot be read as rows: readers tell neither file nor line, and pass over some mistakes."""

import csv
import json
import re
import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

TEXT = (".json", ".jsonl", ".csv")
END = "\0end of the file"
"""A line behind the last one."""
KEY = 100
"""Characters of a name that are told."""
BOM = b"\xef\xbb\xbf"


def silent_flaw(path: Path) -> str:
    """As `text_flaw`, but only of files that are read in spite of a flaw.

    pandas fills up short rows of CSV, takes the first column of longer ones for an index, renames equal columns, and
    takes the last of equal keys in an array.
    """
    return text_flaw(path) if path.suffix == ".csv" or (path.suffix in TEXT and _is_array(path)) else ""


def text_flaw(path: Path) -> str:
    """The first line of `path` that is wrong, and how; empty where nothing is found, or it is no file of text."""
    if path.suffix not in TEXT or not path.is_file():
        return ""
    if not path.stat().st_size:
        return "is empty; give a file with rows"
    found = _encoding_flaw(path)
    if found:
        return found
    if path.suffix == ".csv":
        return _csv_flaw(path)
    return _array_flaw(path) if _is_array(path) else _lines_flaw(path)


def _encoding_flaw(path: Path) -> str:
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                line.decode()
            except UnicodeDecodeError as error:
                byte, column = line[error.start], error.start + 1
                return f"line {number} is no UTF-8 (byte 0x{byte:02x} at column {column}); save the file as UTF-8"
    return ""


def _csv_flaw(path: Path) -> str:
    csv.field_size_limit(sys.maxsize)
    header, named, number = 0, 0, 1
    with path.open(encoding="utf-8-sig", newline="") as text:
        rows = csv.reader(chain(text, [END]))
        for row in rows:
            if row and row[-1].endswith(END):
                unclosed = row != [END]  # a quote has swallowed the rest of the file
                return f"line {number} opens a double quote that no line closes; close it" if unclosed else ""
            if row and not named:
                header, named = number, len(row)
                if twice := [name for name in row if row.count(name) > 1]:
                    return f"line {number} names the column {twice[0][:KEY]!r} twice; name each column once"
            elif row and len(row) != named:
                return f"line {number} {_ragged(len(row), header, named)}"
            number = rows.line_num + 1
    return ""


def _ragged(found: int, header: int, named: int) -> str:
    columns = "1 column" if found == 1 else f"{found} columns"
    return f"has {columns}, and line {header} names {named}; put text that holds commas or line breaks in double quotes"


def _is_array(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(1024).removeprefix(BOM).lstrip().startswith(b"[")


class _Twice(Exception):
    """An object has a key twice."""

    start = 0
    """Where its row begins."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise _Twice(f"has the key {key[:KEY]!r} twice; name each key once")
        found[key] = value
    return found


DECODER = json.JSONDecoder(object_pairs_hook=_once)
SPACE = re.compile(r"[ \t\n\r]*")


def _lines_flaw(path: Path) -> str:
    """Of one object a line; or, as a .json file may be, of one object over all lines."""
    with path.open(encoding="utf-8-sig") as lines:
        for number, line in enumerate(lines, start=1):
            if line.strip() and (found := _row_flaw(line)):
                spread = number == 1 and path.suffix == ".json" and line.strip().startswith("{")
                return _object_flaw(path) if spread else f"line {number} {found}"
    return ""


def _row_flaw(text: str) -> str:
    try:
        value = DECODER.decode(text)
    except _Twice as error:
        return str(error)
    except (ValueError, RecursionError) as error:
        return f"is no JSON: {error}; give one object a line"
    return "" if isinstance(value, dict) else _no_object(value)


def _no_object(value: Any) -> str:
    return f"holds {type(value).__name__}; give one object a row"


def _object_flaw(path: Path) -> str:
    try:
        DECODER.decode(path.read_text(encoding="utf-8-sig"))
    except json.JSONDecodeError as error:
        return _no_json(error)
    except _Twice as error:
        return f"line 1 {error}"
    return ""


def _array_flaw(path: Path) -> str:
    text = path.read_text(encoding="utf-8-sig")
    start = 0
    try:
        for start, row in _elements(text):
            if not isinstance(row, dict):
                return f"line {_line(text, start)} {_no_object(row)}"
    except _Twice as error:
        return f"line {_line(text, error.start)} {error}"
    except json.JSONDecodeError as error:
        return _no_json(error)
    except RecursionError:
        return f"line {_line(text, start)} is no JSON that can be read: it is nested too deep"
    return ""


def _elements(text: str) -> Iterator[tuple[int, Any]]:
    """Each element of the array, and where it begins; json alone tells no place of a key."""
    end = text.index("[")
    while text[end : end + 1] != "]":
        if text[end : end + 1] not in ("[", ","):
            raise json.JSONDecodeError("Expecting ',' delimiter", text, end)
        start = _skip(text, end + 1)
        if text[start : start + 1] == "]":
            return
        try:
            row, end = DECODER.raw_decode(text, start)
        except _Twice as error:
            error.start = start
            raise
        yield start, row
        end = _skip(text, end)


def _skip(text: str, position: int) -> int:
    blank = SPACE.match(text, position)
    return blank.end() if blank else position


def _line(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


def _no_json(error: json.JSONDecodeError) -> str:
    return f"line {error.lineno} is no JSON: {error.msg} (column {error.colno})"
