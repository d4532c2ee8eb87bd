"""config.json as it should not be: one message for each flaw, whoever reads it."""

import json
from pathlib import Path

import pytest

from colocated_runtime.planner.config_file import NoConfig, read_config, read_shape

WAY_OUT = "give a model's config.json as transformers' save_pretrained writes it"


def said(path: Path, content: bytes | None) -> str:
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(NoConfig, match=str(path)) as raised:
        read_config(path)
    return str(raised.value).removeprefix(f"{path}: ")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "cannot be read: No such file or directory"),
        (b"", "is no JSON: Expecting value: line 1 column 1 (char 0)"),
        (b'{"a": 1,}', "is no JSON: "),
        (b"\xff\xfe{", "is no JSON: 'utf-8' codec"),
        (b"[" * 100_000, "is no JSON: maximum recursion depth exceeded"),
        (b"[1]", "holds list, no object"),
        (b"null", "holds NoneType, no object"),
    ],
)
def test_what_is_no_config(tmp_path: Path, content: bytes | None, words: str) -> None:
    message = said(tmp_path / "config.json", content)
    assert message.startswith(words)
    assert message.endswith(f"; {WAY_OUT}")


def test_a_directory_of_that_name(tmp_path: Path) -> None:
    assert said(tmp_path, None) == f"cannot be read: Is a directory; {WAY_OUT}"


@pytest.mark.parametrize("value", [-1, 0, "4096", 1.5, True])
@pytest.mark.parametrize("part", ["", "text_config"])
def test_a_length_that_is_none(tmp_path: Path, value: object, part: str) -> None:
    sizes = {"max_position_embeddings": value}
    content = json.dumps({part: sizes} if part else sizes)
    assert said(tmp_path / "config.json", content.encode()) == (
        f"max_position_embeddings: {value!r} is no number of tokens; write how many the model takes, or leave it out"
    )


def test_a_length_may_be_left_out(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"max_position_embeddings": null, "text_config": null}')
    assert read_config(tmp_path / "config.json") == {"max_position_embeddings": None, "text_config": None}


def test_sizes_that_are_missing_are_told_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text('{"model_type": "qwen2"}')
    with pytest.raises(ValueError, match=f"^{path}: config.json: hidden_size is missing"):
        read_shape(path)
