"""Directories that are no model, or half a one."""

import json
from pathlib import Path

import pytest

pytestmark = pytest.mark.torch


def model(directory: Path, *shards: str, index: object = None) -> Path:
    import torch
    from safetensors.torch import save_file

    (directory / "config.json").write_text("{}")
    for shard in shards:
        save_file({shard: torch.zeros(1000)}, directory / shard)
    if index is not None:
        (directory / "model.safetensors.index.json").write_text(json.dumps(index))
    return directory


def said(path: Path) -> str:
    from colocated_runtime.worker.errors import UserError
    from colocated_runtime.worker.model_files import refuse_incomplete

    try:
        refuse_incomplete(path, "model.source", "file:///m")
    except UserError as error:
        return str(error)
    return ""


TWO = {"weight_map": {"a": "a.safetensors", "b": "b.safetensors"}}


def test_whole_models(tmp_path: Path) -> None:
    assert said(model(tmp_path, "a.safetensors")) == ""
    assert said(model(tmp_path, "a.safetensors", "b.safetensors", index=TWO)) == ""


def test_old_weights(tmp_path: Path) -> None:
    (model(tmp_path) / "pytorch_model.bin").write_bytes(b"")
    assert said(tmp_path) == ""


def test_no_weights(tmp_path: Path) -> None:
    assert said(model(tmp_path)).startswith("model.source: file:///m has no weights, neither *.safetensors nor *.bin;")


def test_no_model(tmp_path: Path) -> None:
    assert "has no config.json" in said(tmp_path)
    (tmp_path / "adapter_config.json").write_text("{}")
    assert "has an adapter without its model" in said(tmp_path)
    assert "is no directory" in said(tmp_path / "adapter_config.json")


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ("{", "config.json: is no JSON: "),
        ("[]", "config.json: holds list, no object"),
        ('{"max_position_embeddings": -1}', "config.json: max_position_embeddings: -1 is no number of tokens; "),
    ],
)
def test_a_configuration_that_is_none(tmp_path: Path, config: str, words: str) -> None:
    (model(tmp_path, "a.safetensors") / "config.json").write_text(config)
    assert said(tmp_path).startswith(f"model.source: file:///m: {tmp_path}/{words}")


def test_a_missing_shard(tmp_path: Path) -> None:
    assert "lacks b.safetensors" in said(model(tmp_path, "a.safetensors", index=TWO))


@pytest.mark.parametrize("keep", [0, 4, 500])
def test_a_file_that_is_cut_off(tmp_path: Path, keep: int) -> None:
    file = model(tmp_path, "a.safetensors") / "a.safetensors"
    file.write_bytes(file.read_bytes()[:keep])
    assert "a.safetensors is cut off or damaged" in said(tmp_path)


@pytest.mark.parametrize("index", [[], {"weight_map": 3}, {}])
def test_a_damaged_index(tmp_path: Path, index: object) -> None:
    assert "is damaged" in said(model(tmp_path, "a.safetensors", index=index))
