"""A volume without space: the writers' own exceptions are recognised as failed writes, and nothing else is."""

import resource
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

pytestmark = pytest.mark.torch

LIMIT = 10_000


@contextmanager
def small_files() -> Iterator[None]:
    """No file grows beyond LIMIT bytes, as on a volume that has no more.

    Not a fixture: pytest's own output, often a file too, is written before fixtures end.
    """
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def save_with_torch(path: Path) -> None:
    import torch

    torch.save({"a": torch.zeros(100_000)}, path)


def save_with_safetensors(path: Path) -> None:
    import torch
    from safetensors.torch import save_file

    save_file({"a": torch.zeros(100_000)}, path)


def save_in_parts(path: Path) -> None:
    import torch
    from torch.distributed import checkpoint

    checkpoint.save({"a": torch.zeros(100_000)}, storage_writer=checkpoint.FileSystemWriter(path), no_dist=True)


@pytest.mark.parametrize("save", [save_with_torch, save_with_safetensors, save_in_parts])
def test_failed_write_is_recognised(tmp_path: Path, save: Callable[[Path], None]) -> None:
    from colocated_runtime.worker.trainers import write_failure

    with pytest.raises(BaseException) as caught, small_files():  # noqa: PT011
        save(tmp_path / "file")
    assert isinstance(write_failure(caught.value, tmp_path), OSError)


def test_a_directory_that_is_gone_or_read_only_is_recognised(tmp_path: Path) -> None:
    from colocated_runtime.worker.trainers import write_failure

    for path in (tmp_path / "gone/file", Path("/proc/version")):
        with pytest.raises(Exception) as caught:  # noqa: PT011
            save_with_torch(path)
        assert isinstance(write_failure(caught.value, tmp_path), OSError)


def test_other_errors_are_not(tmp_path: Path) -> None:
    import torch

    from colocated_runtime.worker.trainers import write_failure

    assert write_failure(RuntimeError("NCCL error: unhandled system error"), tmp_path) is None
    assert write_failure(torch.OutOfMemoryError("CUDA out of memory"), tmp_path) is None


def test_a_full_volume_is_called_so(tmp_path: Path, monkeypatch) -> None:
    from colocated_runtime.worker import trainers

    error = RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 369280 vs 369168\n")
    assert str(trainers.write_failure(error, tmp_path)).startswith("[enforce fail")
    assert str(trainers.write_failure(error, tmp_path / "gone")).startswith("[enforce fail")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=4096))
    assert str(trainers.write_failure(error, tmp_path)).startswith(
        "checkpoint.storage: the volume is full, 4096 bytes are left: [enforce fail"
    )
