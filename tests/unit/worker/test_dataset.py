"""Prompts from every kind of source; needs the datasets library, which comes with the runtime."""

import json
from pathlib import Path
from typing import Any

import pytest

from colocated_runtime.contract.job import Dataset
from colocated_runtime.worker.errors import UserError
from colocated_runtime.worker.sources import Sources

pytestmark = pytest.mark.torch

ROWS = [{"question": f"{n} + 1?", "answer": str(n + 1)} for n in range(4)]


def load(directory: Path, *, limit: int | None = None, **fields: Any) -> Any:
    from colocated_runtime.worker.dataset import load_prompts

    spec = Dataset.model_validate({"source": f"file://{directory}/rows.jsonl", **fields})
    return load_prompts(spec, Sources(directory / "sources.json"), "dataset", limit=limit)


@pytest.fixture(autouse=True)
def rows(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))


def test_a_column_becomes_a_chat_and_the_others_stay(tmp_path: Path) -> None:
    row = load(tmp_path, promptColumn="question", systemPrompt="Be brief.")[1]
    assert row["prompt"] == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "1 + 1?"}]
    assert (row["question"], row["answer"]) == ("1 + 1?", "2")


def test_columns_by_the_names_of_what_rewards_are_given(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"prompts": "a", "completions": "x", "answer": "1"}\n')
    with pytest.raises(UserError, match=r"^dataset.source: .* has a column 'completions', a name under which rewards"):
        load(tmp_path, promptColumn="prompts")
    (tmp_path / "rows.jsonl").write_text('{"prompts": "a", "answer": "1"}\n')
    found = load(tmp_path, promptColumn="prompts", conversational=False)
    assert sorted(found.column_names) == ["answer", "prompt"]
    with pytest.raises(UserError, match="has a column 'prompts'"):
        load(tmp_path, promptTemplate="{answer}?", conversational=False)


def test_a_lone_column_of_prompts(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"prompts": "a"}\n{"prompts": "b"}\n')
    found = load(tmp_path, promptColumn="prompts", conversational=False)
    assert (found.column_names, found["prompt"][1]) == (["prompt"], "b")


def test_prompts_alone_are_enough(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"prompt": "a"}\n{"prompt": "b"}\n')
    found = load(tmp_path, conversational=False)
    assert (len(found), found["prompt"][1]) == (2, "b")


def test_a_template_makes_text(tmp_path: Path) -> None:
    assert load(tmp_path, promptTemplate="Q: {question} A:", conversational=False)["prompt"][0] == "Q: 0 + 1? A:"


def test_the_smaller_limit_counts(tmp_path: Path) -> None:
    assert len(load(tmp_path, promptColumn="question", maxSamples=3)) == 3
    assert len(load(tmp_path, promptColumn="question", maxSamples=3, limit=2)) == 2


def test_a_saved_dataset_and_its_split(tmp_path: Path) -> None:
    import datasets

    datasets.DatasetDict({"test": datasets.Dataset.from_list(ROWS)}).save_to_disk(tmp_path / "saved")
    source = f"file://{tmp_path}/saved"
    assert len(load(tmp_path, source=source, split="test", promptColumn="question")) == 4
    with pytest.raises(UserError, match=r"^dataset.split: no 'train' in the saved dataset; it has test$"):
        load(tmp_path, source=source, promptColumn="question")


def test_reasoning_gym(tmp_path: Path) -> None:
    row = load(tmp_path, source="reasoning-gym://chain_sum?size=3&seed=1&max_terms=2")[0]
    assert row["question"] == row["prompt"][0]["content"]
    assert row["reasoning_gym_index"] == 0


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "^dataset.promptColumn: no column 'prompt' in file://.*; it has question, answer. Name one of these"),
        ({"promptTemplate": "{task}"}, "^dataset.promptTemplate: no column 'task' in .*; it has question, answer$"),
        ({"promptTemplate": "{question"}, "^dataset.promptTemplate: .*write {column} for a column"),
        ({"promptTemplate": "{question:d}"}, "^dataset.promptTemplate: row 0: .*write {column} for a column"),
        ({"promptTemplate": "{question[a]}"}, "^dataset.promptTemplate: row 0: string indices"),
        ({"promptTemplate": " "}, "^dataset: the prompt of row 0 is empty$"),
        ({"promptColumn": "question", "split": "test"}, "^dataset: cannot read file://.*, split 'test': "),
        ({"source": "file:///etc/hostname"}, "^dataset.source: file:///etc/hostname is none of .json, .jsonl"),
        ({"source": "reasoning-gym://no_such_task"}, "^dataset.source: .*reasoning-gym refuses it: "),
        ({"source": "reasoning-gym://gcd?sise=3"}, "^dataset.source: .*reasoning-gym refuses it: .*sise"),
        (
            {"promptColumn": "question", "conversational": False, "systemPrompt": "x"},
            "^dataset.systemPrompt needs a chat: set conversational: true",
        ),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        load(tmp_path, **fields)


@pytest.mark.parametrize(
    ("turns", "words"),
    [
        ([{"role": "user"}], "row 0, turn 0: .* has no content of text; a chat message is"),
        ([{"role": "user", "content": "a"}, {"content": "b"}], "row 0, turn 1: .* has no role of text"),
        ([{"role": "user", "content": None}], "row 0, turn 0: .* has no content of text"),
        (["hello"], "row 0, turn 0: 'hello' has no role of text"),
        ([3], "row 0, turn 0: 3 has no role of text"),
    ],
)
def test_a_turn_that_is_no_chat_message(tmp_path: Path, turns: list[Any], words: str) -> None:
    (tmp_path / "rows.jsonl").write_text(json.dumps({"prompt": turns}) + "\n")
    with pytest.raises(UserError, match=f"^dataset.promptColumn: {words}"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        ('{"prompt": "a"}\n{"prompt": "caf\xe9"}\n'.encode("latin-1"), "line 2 is no UTF-8"),
        (b"\x00\x01\xff\xfe" * 100, "line 1 is no UTF-8"),
        (b'{"prompt": "a"}\n{"prompt": \n', "line 2 is no JSON"),
    ],
)
def test_a_file_that_cannot_be_read_is_named_with_its_line(tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / "rows.jsonl").write_bytes(content)
    with pytest.raises(UserError, match=f"^dataset.source: file://.*/rows.jsonl: {words}"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("rows.csv", b"prompt,answer\na,1\nb\n", "line 3 has 1 column, and line 1 names 2"),
        ("rows.csv", b"prompt,answer\na,1,2\nb,3,4\n", "line 2 has 3 columns, and line 1 names 2"),
        ("rows.csv", b"prompt,answer\na,1\nb,3,4\n", "line 3 has 3 columns, and line 1 names 2"),
        ("rows.json", b'[{"prompt": "a"},\n{"prompt": "b", "prompt": "c"}]', "line 2 has the key 'prompt' twice"),
        ("rows.jsonl", b'{"prompt": "a"}\n{"prompt": "b", "prompt": "c"}\n', "line 2 has the key 'prompt' twice"),
    ],
)
@pytest.mark.parametrize("kind", ["file", "directory"])
def test_what_readers_pass_over_is_named_with_file_and_line(
    tmp_path: Path, kind: str, name: str, content: bytes, words: str
) -> None:
    """pandas fills up short rows, takes the first column of longer ones for an index, and the last of equal keys."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / name).write_bytes(content)
    source = tmp_path / "data" if kind == "directory" else tmp_path / "data" / name
    with pytest.raises(UserError, match=f"^dataset.source: file://.*/data.*{name}: {words}") as caught:
        load(tmp_path, source=f"file://{source}")
    assert "\n" not in str(caught.value)


def test_a_broken_parquet_file_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "rows.parquet").write_bytes(b"no such thing")
    with pytest.raises(UserError, match=r"^dataset: cannot read .*, split 'train': Parquet magic bytes") as caught:
        load(tmp_path, source=f"file://{tmp_path}/rows.parquet")
    assert "\n" not in str(caught.value)
