"""Checkpoints: complete or not there, and owned by one attempt."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from colocated_runtime.worker.checkpoints import CheckpointStore, publish
from colocated_runtime.worker.errors import Fenced


def save(store: CheckpointStore, step: int) -> Path:
    directory = store.incoming / f"checkpoint-{step}"
    (directory / "nested").mkdir(parents=True)
    (directory / "weights").write_bytes(b"w" * 1000)
    (directory / "nested" / "rng").write_bytes(bytes([step]))
    return store.commit(step).path


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    made = CheckpointStore(tmp_path, attempt=1, keep=2)
    made.take()
    return made


def test_a_commit_is_sealed_and_named(store: CheckpointStore) -> None:
    path = save(store, 5)
    manifest = json.loads((path / "manifest.json").read_text())
    assert (manifest["step"], manifest["attempt"]) == (5, 1)
    assert set(manifest["files"]) == {"weights", "nested/rng"}
    (saved,), torn = store.scan()
    assert (saved.step, saved.size_bytes, torn) == (5, 1001, [])


def test_the_newest_are_kept(store: CheckpointStore) -> None:
    for step in (2, 10, 9):
        save(store, step)
    assert [saved.step for saved in store.scan()[0]] == [9, 10]


def test_the_same_step_again_replaces(store: CheckpointStore) -> None:
    save(store, 5)
    (store.checkpoints / "checkpoint-5" / "stale").touch()
    save(store, 5)
    assert not (store.checkpoints / "checkpoint-5" / "stale").exists()
    assert os.listdir(store.checkpoints / ".incoming") == []


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda path: (path / "manifest.json").unlink(), "no manifest.json"),
        (lambda path: (path / "manifest.json").write_text("{"), "unreadable manifest.json"),
        (lambda path: (path / "manifest.json").write_text("[]"), "unreadable manifest.json"),
        (lambda path: (path / "weights").unlink(), "weights is missing"),
        (lambda path: (path / "weights").write_bytes(b"w" * 999), "weights has 999 bytes instead of 1000"),
    ],
)
def test_a_torn_one_is_passed_over(store: CheckpointStore, damage: object, reason: str) -> None:
    save(store, 1)
    damage(save(store, 2))
    complete, torn = store.scan()
    assert [saved.step for saved in complete] == [1]
    assert torn == [f"checkpoint-2: {reason}"]


def test_torn_ones_do_not_push_good_ones_out(store: CheckpointStore) -> None:
    save(store, 1)
    for step in (2, 3):
        (save(store, step) / "manifest.json").unlink()
    assert [saved.step for saved in store.scan()[0]] == [1]
    save(store, 4)
    assert [saved.step for saved in store.scan()[0]] == [1, 4]


def test_an_older_attempt_writes_nothing_more(store: CheckpointStore) -> None:
    directory = store.incoming / "checkpoint-1"
    directory.mkdir(parents=True)
    CheckpointStore(store.directory, attempt=2, keep=2).take()
    with pytest.raises(Fenced, match="attempt 2 owns"):
        store.commit(1)
    with pytest.raises(Fenced):
        store.take()
    assert (store.directory / "fence").read_text() == "2"


def test_a_new_attempt_removes_what_was_half_done(store: CheckpointStore) -> None:
    (store.incoming / "checkpoint-1").mkdir(parents=True)
    CheckpointStore(store.directory, attempt=2, keep=2).take()
    assert not store.incoming.exists()


KILLED = """
import os, signal, sys
from pathlib import Path
from colocated_runtime.worker import checkpoints

aside, target, deadly = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
calls = 0

def count(event, args):
    global calls
    if event in ("os.rename", "open", "shutil.rmtree"):
        calls += 1
        if calls == deadly:
            os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(count)
checkpoints.publish(aside, target, {"step": 1})
"""


def test_killed_anywhere_leaves_all_or_nothing(tmp_path: Path) -> None:
    """The process is killed before its first file operation, its second, … until one gets through."""
    for deadly in range(1, 100):
        store = CheckpointStore(tmp_path / str(deadly), attempt=1, keep=2)
        store.take()
        aside, target = store.incoming / "checkpoint-1", store.checkpoints / "checkpoint-1"
        aside.mkdir(parents=True)
        (aside / "weights").write_bytes(b"w" * 1000)
        script = [sys.executable, "-c", KILLED, str(aside), str(target), str(deadly)]
        code = subprocess.run(script, check=False, env=os.environ).returncode
        complete, torn = store.scan()
        assert torn == []
        if code == 0:
            break
        assert code == -signal.SIGKILL
        assert not complete or target.is_dir()
    assert deadly > 5
    assert [saved.step for saved in complete] == [1]


def test_a_model_replaces_that_of_an_earlier_attempt(tmp_path: Path) -> None:
    target = tmp_path / "model"
    for content in ("old", "new"):
        aside = tmp_path / ".incoming-model"
        aside.mkdir()
        (aside / "config.json").write_text(content)
        publish(aside, target, {"step": 3})
    assert (target / "config.json").read_text() == "new"
    assert sorted(os.listdir(tmp_path)) == ["model"]
