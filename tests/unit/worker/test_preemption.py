"""Asked to leave inside a rollout: it is broken off on all ranks, and the last completed step is saved."""

import json
from pathlib import Path

import pytest
from tests.unit.fault_rows import record

from colocated_runtime.contract.outcome import Outcome

pytestmark = pytest.mark.torch

SCRIPT = str(Path(__file__).with_name("stopped_inside.py"))
LENGTH = 60
"""Tokens of a completion, so many engine steps has a rollout."""


def run(place, *, rollout, step, attempt=1, **spec):
    trainer = {"max_steps": 5, "max_completion_length": LENGTH, **spec.pop("trainer", {})}
    described = place.spec(trainer=trainer, evaluation=None, checkpoint={"everySteps": 100}, **spec)
    stop = {"STOP_ROLLOUT": str(rollout), "STOP_STEP": str(step)}
    return place.run(described, attempt=attempt, script=SCRIPT, torchrun=False, **stop)


def engine_steps(place, ranks):
    files = [place.root / "attempt-1" / f"steps-{rank}.json" for rank in range(ranks)]
    return [json.loads(file.read_text())["steps"] for file in files]


@pytest.fixture(scope="module", params=[1, 2], ids=["a rollout a step", "a rollout in two pieces"])
def options(request):
    """With two pieces of accumulation to a step and one rollout to a piece, the stop falls between the two."""
    pieces = {"gradient_accumulation_steps": 2, "steps_per_generation": 1, "per_device_train_batch_size": 4}
    return {} if request.param == 1 else pieces


def test_resumed_as_if_never_stopped(make_workplace, options):
    """Stopped inside step 4; the same rollouts and weights as without."""
    rollout = 4 if not options else 8
    whole, place = make_workplace(), make_workplace()
    expected = run(whole, rollout=0, step=0, trainer=options)
    assert expected.state.outcome is Outcome.COMPLETE, expected.output[-3000:]
    stopped = run(place, rollout=rollout, step=20, trainer=options)
    assert stopped.exit_code == 0, stopped.output[-3000:]
    assert stopped.state.outcome is Outcome.PREEMPTED
    assert stopped.state.message == "stopped as asked after 3 of 5 steps"
    assert [saved.step for saved in stopped.state.checkpoints] == [3]
    (steps,) = engine_steps(place, 1)
    assert 20 <= steps <= 20 + 17
    resumed = run(place, rollout=0, step=0, attempt=2, trainer=options)
    assert resumed.state.outcome is Outcome.COMPLETE, resumed.output[-3000:]
    assert resumed.state.resumed_from_step == 3
    assert resumed.completions(held_out=False) == expected.completions(held_out=False, first_step=3)
    assert weights(resumed) == weights(expected)
    record(
        "preempted in a rollout", "the launcher's stop file, after 20 engine steps", "the step that had begun",
        seconds=[leaving(place, stopped)],
    )  # fmt: skip


def leaving(place, run):
    """Seconds from the wish to leave to the last word, with the save."""
    return run.state.updated - (place.root / "attempt-1/state/stop").stat().st_mtime


def weights(run):
    return (run.directory / "model/model.safetensors").read_bytes()


def test_before_the_first_step_there_is_nothing_to_save(make_workplace):
    stopped = run(make_workplace(), rollout=1, step=20)
    assert stopped.state.outcome is Outcome.PREEMPTED, stopped.output[-3000:]
    assert stopped.state.message == "stopped as asked after 0 of 5 steps"
    assert stopped.state.checkpoints == []


@pytest.mark.parametrize(
    ("tensor_parallel", "sharding"), [(2, "none"), (1, "none"), (1, "fsdp")],
    ids=["one shared engine", "two engines", "states shared out"],
)  # fmt: skip
def test_all_ranks_break_the_same_rollout_off(make_workplace, tensor_parallel, sharding):
    place = make_workplace()
    parallelism = {"tensorParallel": tensor_parallel, "sharding": sharding}
    stopped = run(place, rollout=3, step=20, processesPerNode=2, parallelism=parallelism)
    assert stopped.exit_code == 0, stopped.output[-3000:]
    assert [state.outcome for state in stopped.states] == [Outcome.PREEMPTED] * 2
    assert [saved.step for saved in stopped.state.checkpoints] == [2]
    files = {path.name for path in (stopped.directory / "checkpoints/checkpoint-2").iterdir()}
    assert {"colocated-rank-0.pt", "colocated-rank-1.pt", "rng_state_0.pth", "rng_state_1.pth"} <= files
    first, second = engine_steps(place, 2)
    assert first < LENGTH
    if tensor_parallel == 2:
        assert first == second
    record(
        "preempted in a rollout of two ranks", "known to one rank only", "the step that had begun",
        seconds=[leaving(place, stopped)],
    )  # fmt: skip
