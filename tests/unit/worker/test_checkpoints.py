"""Checkpoints: complete or not there, and owned by one attempt."""

import itertools
import json
import os
import shutil
import signal
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.unit.fault_rows import record

from colocated_runtime.worker.checkpoints import CheckpointStore, defect
from colocated_runtime.worker.errors import Fenced


def write(store: CheckpointStore, step: int) -> None:
    directory = store.incoming / f"checkpoint-{step}"
    (directory / "nested").mkdir(parents=True)
    (directory / "weights").write_bytes(b"w" * 1000)
    (directory / "nested" / "rng").write_bytes(bytes([step]))


def save(store: CheckpointStore, step: int) -> Path:
    write(store, step)
    return store.commit(step).path


def steps(store: CheckpointStore) -> list[int]:
    return [saved.step for saved in store.scan()[0]]


def later(store: CheckpointStore, attempt: int = 2, keep: int = 2) -> CheckpointStore:
    """The next attempt's, which has taken the directory."""
    made = CheckpointStore(store.directory, attempt, keep)
    made.take()
    return made


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


def test_copies_by_other_names_are_neither_taken_nor_deleted(store: CheckpointStore) -> None:
    copies = [store.checkpoints / name for name in ("checkpoint-9-backup", "checkpoint-backup-9", "checkpoint-99")]
    first = save(store, 9)
    for copy in copies:
        shutil.copytree(first, copy)
    for step in (10, 11, 12):
        save(store, step)
    complete, torn = store.scan()
    assert [saved.path.name for saved in complete] == ["checkpoint-11", "checkpoint-12"]
    assert torn == ["checkpoint-99: its manifest is of step 9"]
    assert all((copy / "weights").exists() for copy in copies)


def test_the_same_step_again_replaces(store: CheckpointStore) -> None:
    save(store, 5)
    (store.checkpoints / "checkpoint-5" / "stale").touch()
    save(store, 5)
    assert not (store.checkpoints / "checkpoint-5" / "stale").exists()
    assert os.listdir(store.checkpoints) == ["checkpoint-5"]
    assert sorted(os.listdir(store.directory)) == ["checkpoints", "fence-1"]


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda path: (path / "manifest.json").unlink(), "no manifest.json"),
        (lambda path: (path / "manifest.json").write_text("{"), "unreadable manifest.json"),
        (lambda path: (path / "manifest.json").write_text("[]"), "unreadable manifest.json"),
        (lambda path: (path / "manifest.json").write_text('{"step": 2, "attempt": 1, "files": {"weights": 3}}'),
         "unreadable manifest.json"),
        (lambda path: (path / "weights").unlink(), "weights is missing"),
        (lambda path: (path / "weights").write_bytes(b"w" * 999), "weights has 999 bytes instead of 1000"),
    ],
)  # fmt: skip
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


def test_cut_off_at_any_byte_it_is_passed_over(store: CheckpointStore) -> None:
    """Each file of the newest checkpoint cut off at many lengths: never resumed from, always named."""
    save(store, 1)
    newest, tried = save(store, 2), 0
    for file in (path for path in newest.rglob("*") if path.is_file()):
        whole = file.read_bytes()
        for length in range(0, len(whole), 1 if file.name == "manifest.json" else 10):
            file.write_bytes(whole[:length])
            saved, passed_over = store.newest()
            assert saved
            assert saved.step == 1
            assert passed_over[0].startswith("checkpoint-2: ")
            tried += 1
        file.write_bytes(whole)
    record("a checkpoint cut off", "each file, at many lengths", "its own steps: the one before is taken", times=tried)
    saved, passed_over = store.newest()
    assert saved
    assert (saved.step, passed_over) == (2, [])


def test_other_contents_of_the_same_size_are_noticed(store: CheckpointStore) -> None:
    save(store, 1)
    (save(store, 2) / "weights").write_bytes(b"w" * 999 + b"x")
    saved, passed_over = store.newest()
    assert saved
    assert saved.step == 1
    assert passed_over == ["checkpoint-2: weights has not the contents that were written"]


def test_once_found_corrupt_it_is_reported_no_more_and_takes_no_place(store: CheckpointStore) -> None:
    save(store, 1)
    corrupt = save(store, 9)
    (corrupt / "weights").write_bytes(b"w" * 999 + b"x")
    store.newest()
    assert store.scan()[1] == ["checkpoint-9: its contents are not what was written"]
    for step in (2, 3):
        save(store, step)
    assert [saved.step for saved in store.scan()[0]] == [2, 3]
    assert (corrupt / "weights").exists()
    assert save(store, 9).exists()  # the step is trained again
    assert [saved.step for saved in store.scan()[0]] == [3, 9]


def test_an_unreadable_directory_is_no_empty_one(store: CheckpointStore) -> None:
    save(store, 1)
    store.checkpoints.rename(store.checkpoints.with_name("elsewhere"))
    store.checkpoints.touch()
    with pytest.raises(OSError, match="checkpoints"):
        store.newest()


def test_nothing_to_resume_from(store: CheckpointStore) -> None:
    assert store.newest() == (None, [])
    (save(store, 1) / "weights").write_bytes(b"x" * 1000)
    assert store.newest()[0] is None


@pytest.mark.parametrize("keep", [1, 3])
def test_the_only_good_one_is_never_deleted(tmp_path: Path, keep: int) -> None:
    store = CheckpointStore(tmp_path, attempt=1, keep=keep)
    store.take()
    save(store, 1)
    for step in range(2, 7):
        write(store, step)
        with pytest.raises(OSError, match="disk full"), failing("disk full"):
            store.commit(step)
        assert 1 in steps(store)
        later(store, attempt=1, keep=keep)
        assert 1 in steps(store)


@contextmanager
def failing(words: str) -> Iterator[None]:
    """No file can be synchronised."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(words)))
        yield


def test_an_older_attempt_writes_nothing_more(store: CheckpointStore) -> None:
    write(store, 1)
    later(store)
    with pytest.raises(Fenced, match="attempt 2 owns"):
        store.commit(1)
    for action in (store.take, store.discard, lambda: store.write("evaluation.jsonl", "old")):
        with pytest.raises(Fenced):
            action()
    assert sorted(path.name for path in store.directory.glob("fence-*")) == ["fence-1", "fence-2"]


def test_a_new_attempt_removes_what_was_half_done(store: CheckpointStore) -> None:
    write(store, 1)
    later(store)
    assert sorted(os.listdir(store.directory)) == ["checkpoints", "fence-1", "fence-2"]


def test_what_was_about_to_be_replaced_gets_its_name_back(store: CheckpointStore) -> None:
    """Killed between the two renames of a replacement."""
    path = save(store, 5)
    store.incoming.mkdir()
    path.rename(store.incoming / f".replaced-{path.name}")
    assert steps(later(store)) == [5]


OPERATIONS = ("open", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.listdir", "os.scandir", "shutil.rmtree")


def act(directory: Path, attempt: int, *acts: str) -> None:
    store = CheckpointStore(directory, attempt, keep=1)
    for name in acts:
        if name == "take":
            store.take()
        elif name == "evaluation":
            store.write("evaluation.jsonl", f"of attempt {attempt}")
        else:
            path = store.incoming / ("model" if name == "model" else f"checkpoint-{name}")
            try:
                path.mkdir(parents=True, exist_ok=True)
                (path / "weights").write_text(f"of attempt {attempt}" + "w" * 1000)
            except OSError:  # as the trainer does
                store.discard()
            store.commit_model(1) if name == "model" else store.commit(int(name))


def signalled(directory: Path, number: signal.Signals, call: int, *acts: str) -> int:
    """A process of attempt 1 that carries out `acts` and gets the signal at its file operation `call`; its pid.

    Its exit code is 0, or 1 if it was fenced.
    """
    pid = os.fork()
    if pid:
        return pid
    calls = itertools.count(1)
    sys.addaudithook(
        lambda event, _: os.kill(os.getpid(), number) if event in OPERATIONS and next(calls) == call else None
    )
    try:
        act(directory, 1, *acts)
    except Fenced:
        os._exit(1)
    except BaseException:
        traceback.print_exc()
        os._exit(2)
    os._exit(0)


@pytest.fixture
def no_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal does not lose what was written, a power cut would: waiting for the disk shows nothing here."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


def code_of(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.parametrize("acts", [("2",), ("1",), ("model",), ("evaluation",)], ids=" ".join)
def test_killed_anywhere_leaves_all_or_nothing(tmp_path: Path, no_fsync: None, acts: tuple[str, ...]) -> None:
    """The process is killed before its first file operation, its second, … until one gets through.

    Before it lay a good checkpoint of step 1 and a model; with keep=1 the first is deleted once step 2 is there.
    """
    for call in range(1, 200):
        directory = tmp_path / str(call)
        act(directory, 1, "take", "1", "model", "evaluation")
        code = code_of(signalled(directory, signal.SIGKILL, call, *acts))
        saved, passed_over = later(CheckpointStore(directory, 1, keep=1)).newest()
        assert saved
        assert passed_over == []
        assert defect(directory / "model") == ""
        assert (directory / "evaluation.jsonl").read_text() == "of attempt 1"
        if code == 0:
            break
        assert code == -signal.SIGKILL
    assert 5 < call < 199
    what = "a save" if acts[0].isdigit() else f"writing the {acts[0]}"
    record(f"killed in {what}", "SIGKILL before each file operation", "nothing that was complete", times=call - 1)
    assert saved.step == (2 if acts == ("2",) else 1)


@pytest.mark.parametrize("acts", [("2",), ("1",), ("model",), ("evaluation",), ("take",)], ids=" ".join)
def test_an_attempt_that_was_paused_anywhere_writes_nothing_more(
    tmp_path: Path, no_fsync: None, acts: tuple[str, ...]
) -> None:
    """Stopped before its first file operation, its second, …; a newer attempt takes over; the old one goes on."""
    fenced = 0
    for call in range(1, 200):
        directory = tmp_path / str(call)
        act(directory, 1, "take", "1", "model", "evaluation")
        old = signalled(directory, signal.SIGSTOP, call, *acts)
        if not os.WIFSTOPPED(os.waitpid(old, os.WUNTRACED)[1]):
            break
        act(directory, 2, "take", "3", "evaluation")
        before = contents(directory)
        os.kill(old, signal.SIGCONT)
        code = code_of(old)
        assert code in (0, 1)
        fenced += code
        assert contents(directory) == before
    assert 5 < call < 199
    assert fenced > 0
    record(
        "an old attempt that comes back", "SIGSTOP before each file operation; SIGCONT once a newer attempt has saved",
        "nothing: it changes no file", times=call - 1,
    )  # fmt: skip


def contents(directory: Path) -> dict[str, bytes]:
    """Of all files but those that an attempt has aside."""
    files = {str(path.relative_to(directory)): path for path in directory.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in files.items() if not name.startswith(".")}


def test_a_model_replaces_that_of_an_earlier_attempt(store: CheckpointStore) -> None:
    for attempt, content in enumerate(("old", "new"), start=1):
        owner = later(store, attempt)
        (owner.incoming / "model").mkdir(parents=True)
        (owner.incoming / "model" / "config.json").write_text(content)
        owner.commit_model(3)
    assert (store.directory / "model" / "config.json").read_text() == "new"
    assert "model" in os.listdir(store.directory)
    assert not [name for name in os.listdir(store.directory) if name.startswith(".")]
