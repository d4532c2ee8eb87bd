"""The line of a file of rows that cannot be read."""

from pathlib import Path

import pytest

from colocated_runtime.worker.text_file import text_flaw


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.jsonl", b"", "is empty; give a file with rows"),
        ("a.csv", b"", "is empty"),
        (
            "a.jsonl",
            b'{"a": 1}\n{"a": "caf\xe9"}\n',
            "line 2 is no UTF-8 (byte 0xe9 at column 11); save the file as UTF-8",
        ),
        ("a.csv", b"prompt\ncaf\xe9\n", "line 2 is no UTF-8"),
        ("a.json", b"[\n{},\n\xff\xfe]", "line 3 is no UTF-8"),
        ("a.jsonl", b"\x00\x01\x02", "line 1 is no JSON: Expecting value"),
        ("a.jsonl", b'{"a": 1}\n\n{"a": \n', "line 3 is no JSON"),
        ("a.jsonl", b'{"a": 1}\n[1]\n', "line 2 holds list; give one object a line"),
        ("a.jsonl", b"[" * 100_000, "line 1 is no JSON"),
    ],
)
def test_the_first_wrong_line(tmp_path: Path, name: str, content: bytes, words: str) -> None:
    (tmp_path / name).write_bytes(content)
    assert text_flaw(tmp_path / name).startswith(words)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.jsonl", '{"a": "é"}\n\n{"a": 2}'.encode()),
        ("a.json", b'[\n{"a": 1}\n]'),
        ("a.csv", b"a,b\n1,2"),
        ("a.parquet", b"\xff"),
    ],
)
def test_nothing_is_wrong(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    assert text_flaw(tmp_path / name) == ""
    assert text_flaw(tmp_path) == text_flaw(tmp_path / "gone.jsonl") == ""
