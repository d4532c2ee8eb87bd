"""From a URI to a place on this machine."""

import json
from pathlib import Path

import pytest

from colocated_runtime.worker.errors import UserError
from colocated_runtime.worker.sources import Sources


@pytest.fixture
def sources(tmp_path: Path) -> Sources:
    fetched = {
        "model hf://a/b": "/scratch/b",
        "model hf://a/b@v1": "/scratch/b-v1",
        "dataset hf://a/b": "/scratch/data",
    }
    (tmp_path / "sources.json").write_text(json.dumps(fetched))
    return Sources(tmp_path / "sources.json")


def test_a_path(sources: Sources, tmp_path: Path) -> None:
    assert sources.local("model", f"file://{tmp_path}", "model.source") == tmp_path


def test_what_the_launcher_fetched(sources: Sources) -> None:
    assert sources.local("model", "hf://a/b", "model.source") == Path("/scratch/b")
    assert sources.local("model", "hf://a/b", "model.source", "v1") == Path("/scratch/b-v1")
    assert sources.local("dataset", "hf://a/b", "dataset.source") == Path("/scratch/data")


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("hf://a/c", r"^model.source: hf://a/c was not downloaded; the launcher fetched \['dataset hf://a/b'"),
        ("file:///no/such", "^model.source: file:///no/such is not there: /no/such does not exist"),
        ("pvc://claim/m", r"^model.source: pvc://claim/m is not there: .*\(claim 'claim' is mounted at /volumes/claim"),
        ("reasoning-gym://gcd", "^model.source: reasoning-gym://gcd is no file or directory"),
        ("s3://bucket/m", "^model.source: "),
    ],
)
def test_what_is_nowhere_is_named(sources: Sources, uri: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        sources.local("model", uri, "model.source")


def test_without_the_launchers_map(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="the launcher fetched nothing"):
        Sources(tmp_path / "none.json").local("model", "hf://a/b", "model.source")
