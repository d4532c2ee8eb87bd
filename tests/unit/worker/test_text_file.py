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
        ("a.jsonl", b'{"a": 1}\n[1]\n', "line 2 holds list; give one object a row"),
        ("a.jsonl", b"[" * 100_000, "line 1 is no JSON"),
        ("a.jsonl", b'{"a": 1}\n{"a": 1, "a": 2}\n', "line 2 has the key 'a' twice; name each key once"),
        ("a.jsonl", b'{"a": 1}\n{"a": {"b": 1, "b": 2}}\n', "line 2 has the key 'b' twice"),
        ("a.json", b'{"a": 1}\n{"a": 1, "a": 2}\n', "line 2 has the key 'a' twice"),
        ("a.json", b'[\n{"a": 1},\n{"a": 1,\n"a": 2}]', "line 3 has the key 'a' twice"),
        ("a.json", b'[\n{"a": 1},\n{"a":]\n', "line 3 is no JSON: Expecting value (column 6)"),
        ("a.json", b'[\n{"a": 1}\n{"a": 1}]\n', "line 3 is no JSON: Expecting ',' delimiter (column 1)"),
        ("a.json", b'[\n{"a": 1},\n[2]]\n', "line 3 holds list; give one object a row"),
        ("a.json", b'[\n{"a": 1},\n', "line 3 is no JSON: Expecting value"),
        ("a.csv", b"a,b\n1,2\n\n3\n", "line 4 has 1 column, and line 1 names 2; put text that holds commas or line"),
        ("a.csv", b'a,b\n"1\n1",2\n3,4,5\n', "line 4 has 3 columns, and line 1 names 2"),
        ("a.csv", b"a,b,a\n1,2,3\n", "line 1 names the column 'a' twice; name each column once"),
        ("a.csv", b'a,b\n1,"2\n4,5\n', "line 2 opens a double quote that no line closes"),
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
        ("a.csv", b'a,b\r\n1,"2,\n3"\r\n\r\n"4 ""x""",5'),
        ("a.csv", b"a\n" + b"x" * 200_000),
        ("a.csv", b"\xef\xbb\xbfa,b\n1,2"),
        ("a.jsonl", b'\xef\xbb\xbf{"a": 1}\n'),
        ("a.jsonl", b'[{"a": 1},\n{"a": 1}]'),
        ("a.json", b'{"a": 1,\n"b": 2}\n'),
        ("a.json", b"[]"),
        ("a.parquet", b"\xff"),
    ],
)
def test_nothing_is_wrong(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    assert text_flaw(tmp_path / name) == ""
    assert text_flaw(tmp_path) == text_flaw(tmp_path / "gone.jsonl") == ""
