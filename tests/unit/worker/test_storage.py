"""A volume that takes nothing more, while the job trains: it says so, and trains to the end."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.fault_rows import record

from colocated_runtime.contract.outcome import Outcome

pytestmark = pytest.mark.torch

SCRIPT = str(Path(__file__).with_name("bad_storage.py"))


@pytest.fixture
def small(make_workplace) -> Iterator[object]:
    """A workplace whose storage is a volume of 32 MiB."""
    place = make_workplace()
    mount = ["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", str(place.storage)]
    if subprocess.run(mount, stderr=subprocess.DEVNULL).returncode:
        pytest.skip("only root may mount a volume")
    yield place
    subprocess.run(["umount", str(place.storage)], check=True)


SHARED_OUT = {"processesPerNode": 2, "parallelism": {"sharding": "fsdp"}}


@pytest.mark.parametrize(
    ("how", "words", "ranks"),
    [
        ("full", "No space left", {}),
        ("read-only", "Read-only file system", {}),
        ("gone", "No such file or directory", {}),
        ("full", "No space left", SHARED_OUT),
    ],
    ids=["full", "read-only", "gone", "full, for two ranks that write their parts"],
)
def test_training_goes_on(small, how, words, ranks):
    """The volume takes nothing at the ends of steps 1 and 2, neither checkpoints nor evaluations."""
    spec = small.spec(checkpoint={"everySteps": 1, "keep": 1}, trainer={"max_steps": 4}, **ranks)
    spec["evaluation"]["everySteps"] = 1
    run = small.run(spec, script=SCRIPT, torchrun=False, STORAGE=how)
    assert run.exit_code == 0, run.output[-3000:]
    assert run.state.outcome is Outcome.COMPLETE
    for what in ("step 1", "step 2", "evaluation.jsonl"):
        assert f"not written: {what}: " in run.output
    assert words in run.output
    trace = json.loads((run.directory / "logs/attempt-1/rank-0.trace.json").read_text())
    assert "load weights" in {event["name"] for event in trace}, "whole, whatever was torn meanwhile"
    assert [saved.step for saved in run.state.checkpoints] == [4]
    assert run.state.checkpoint_error == ""
    assert [entry.step for entry in run.state.evaluations] == [0, 1, 2, 3, 4]
    record(f"a volume that is {how} while two steps end", "a real file system", "two checkpoints; the job trains on")


def test_a_slow_volume_is_waited_for(make_workplace):
    place = make_workplace()
    spec = place.spec(checkpoint={"everySteps": 2}, evaluation=None, trainer={"max_steps": 2})
    run = place.run(spec, script=SCRIPT, torchrun=False, STORAGE="slow")
    assert run.state.outcome is Outcome.COMPLETE, run.output[-3000:]
    assert run.state.throughput["secondsToLeave"] > 1.5
