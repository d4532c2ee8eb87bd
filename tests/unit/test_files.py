"""Files that are replaced whole, by launcher and worker."""

import errno
import os
from pathlib import Path

import pytest

from colocated_runtime.files import replace_text, volume_failure


@pytest.mark.parametrize("durable", [False, True])
def test_a_reader_sees_the_old_text_or_the_new_one(tmp_path: Path, durable: bool) -> None:
    path = tmp_path / "fence"
    replace_text(path, "1" * 100_000, durable=durable)
    with path.open() as old:
        replace_text(path, "2", durable=durable)
        assert old.read() == "1" * 100_000
    assert path.read_text() == "2"
    assert os.listdir(tmp_path) == ["fence"]


def test_what_is_durable_reaches_the_disk_before_its_name_does(tmp_path: Path, monkeypatch) -> None:
    path, synced = tmp_path / "fence", []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        synced.append((Path(os.readlink(f"/proc/self/fd/{descriptor}")).name, path.exists()))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    replace_text(path, "1", durable=True)
    assert synced == [(".fence.tmp", False), (tmp_path.name, True)]


def test_a_full_disk_leaves_the_old_text(tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "fence"
    replace_text(path, "1")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        replace_text(path, "2", durable=True)
    assert path.read_text() == "1"


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOSPC, "the volume is full"),
        (errno.EROFS, "the volume is read-only"),
        (errno.ESTALE, "the volume's server has lost it"),
        (errno.ENOENT, "a directory of the job is gone"),
    ],
)
def test_what_is_wrong_with_a_volume(tmp_path: Path, number: int, words: str) -> None:
    error = OSError(number, os.strerror(number), str(tmp_path / "job/checkpoints"))
    assert volume_failure(error, tmp_path / "job").startswith(f"checkpoint.storage: {words}: [Errno {number}]")
    assert volume_failure(error, tmp_path / "other") == ""


def test_what_tells_of_no_volume(tmp_path: Path) -> None:
    for error in (
        OSError(errno.ENOSPC, "full"),
        OSError(errno.EPERM, "no", str(tmp_path)),
        FileNotFoundError(errno.ENOENT, "no", str(tmp_path / "hub/node-0/data.jsonl")),
        OSError("a wish"),
        KeyError(1),
    ):
        assert volume_failure(error, tmp_path) == ""
