"""Prompt templates that no row could fill, or only with all of the memory."""

import pytest

from colocated_runtime.contract.template import flaw


@pytest.mark.parametrize(
    "template", ["", "Solve.", "{question}", "{{}} {a} {b!r:>80} {c:.3f}", "{meta[level]}", "{row.x}", "{q:10000}"]
)
def test_what_can_be_filled(template: str) -> None:
    assert flaw(template) == ""


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("{question:999999999}", "the format '999999999' of question is wider than 10000 characters"),
        ("{question:>10001}", "wider than 10000"),
        ("{x:.999999999f}", "wider than 10000"),
        ("{x:" + "9" * 4000 + "}", "wider than 10000"),
        ("{x:{width}}", "the format '{width}' of x holds a column; write a number"),
        ("{question", "expected '}' before end of string; write {column} for a column and {{ }} for braces"),
        ("a } b", "Single '}' encountered in format string; write {column}"),
        ("{} b", "{} names no column; write {column}"),
        ("{0}", "{0} names no column"),
        ("{[a]}", "{[a]} names no column"),
    ],
)
def test_what_cannot(template: str, words: str) -> None:
    assert words in flaw(template)
