"""A pod that asked for GPUs and does not see them: torch is played by an object, but for one real rank without any."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.unit.contract.bad_jobs import GOOD
from tests.unit.worker.rank import run_rank

from colocated_runtime.contract.outcome import Outcome
from colocated_runtime.worker import devices
from colocated_runtime.worker.errors import DevicesMissing, UserError, classify, trace_of_cause

NO_DRIVER = "Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU"
Torch = Callable[..., None]


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Torch:
    """Sets how many GPUs torch sees, and what it says as it looks."""

    def see(count: int, says: str = "", cuda: str | None = "13.0") -> None:
        def init() -> None:
            if says:
                raise RuntimeError(says)

        fake = SimpleNamespace(
            version=SimpleNamespace(cuda=cuda, hip=None),
            cuda=SimpleNamespace(init=init, device_count=lambda: count),
        )
        monkeypatch.setitem(sys.modules, "torch", fake)

    return see


def test_all_are_seen(torch: Torch) -> None:
    torch(2)
    devices.require(1)
    devices.require(2)


@pytest.mark.parametrize(
    ("count", "says", "words"),
    [
        (2, "", "this pod asked for 4 GPUs and sees 2: another node may show them; if"),
        (0, NO_DRIVER, f"this pod asked for 4 GPUs and sees 0: {NO_DRIVER}; another node"),
        (4, "CUDA unknown error\nmore", "this pod asked for 4 GPUs and sees 4 but can use none: CUDA unknown error; "),
    ],
)
def test_fewer_may_be_mended_by_another_node(torch: Torch, count: int, says: str, words: str) -> None:
    torch(count, says)
    with pytest.raises(DevicesMissing) as caught:
        devices.require(4)
    assert str(caught.value).startswith(words)
    assert str(caught.value).endswith("driver, device plugin and container runtime")
    assert "\n" not in str(caught.value)
    assert classify(caught.value, 0) is Outcome.TRANSIENT
    assert trace_of_cause(caught.value) == ""


def test_a_torch_for_cpus_is_no_matter_of_the_node(torch: Torch) -> None:
    torch(0, "Torch not compiled with CUDA enabled", cuda=None)
    with pytest.raises(UserError, match=r"^runtime.image: its torch is built without CUDA or ROCm, and gpusPerNode is"):
        devices.require(1)


@pytest.mark.torch
def test_a_real_rank_without_a_device(tmp_path: Path) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    rank = run_rank(tmp_path, {**GOOD, "gpusPerNode": 1})
    assert rank.state.outcome is Outcome.TRANSIENT
    assert rank.state.message.startswith("this pod asked for 1 GPU and sees 0: Found no NVIDIA driver")
    assert rank.state.traceback == ""
    assert "Traceback" not in rank.output
    assert "this pod asked for 1 GPU" in rank.output
