"""A device that is full, and stays so, ends the rank with the outcome and the phase by which the next plan is made."""

from pathlib import Path

import pytest
from tests.unit.fault_rows import record

from colocated_runtime.contract.outcome import Outcome
from colocated_runtime.contract.phase import Phase

pytestmark = pytest.mark.torch

SCRIPT = str(Path(__file__).with_name("full_device.py"))


@pytest.mark.parametrize(
    ("when", "phase", "step"),
    [
        ("start", Phase.START, 0),
        ("wake-up", Phase.ROLLOUT, 1),
        ("sync", Phase.SYNC, 1),
        ("backward", Phase.TRAIN, 1),
        ("optimizer", Phase.TRAIN, 1),
        ("checkpoint", Phase.CHECKPOINT, 2),
    ],
)
def test_a_full_device(make_workplace, when, phase, step):
    place = make_workplace()
    spec = place.spec(evaluation=None, checkpoint={"everySteps": 1}, trainer={"max_steps": 3})
    run = place.run(spec, script=SCRIPT, torchrun=False, FULL=when)
    assert run.exit_code != 0
    assert run.state.outcome is Outcome.DEVICE_OUT_OF_MEMORY, run.output[-3000:]
    assert run.state.phase is phase
    assert run.state.message.startswith(f"the device's memory ran out in phase {phase}: ")
    assert run.state.progress.step == step
    # What was saved before is there and complete.
    assert [saved.step for saved in run.state.checkpoints] == ([1] if step else [])
    record("a device that is full, for good", f"raised in {when}", "steps since the last checkpoint")
