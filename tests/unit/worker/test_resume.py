"""Stopped and resumed: what follows is bit for bit what follows in an uninterrupted run.

A rollout feeds two steps and an epoch has four, so that step 5 lies inside a rollout's window and past the first epoch.
"""

import json
import shutil
from pathlib import Path

import pytest
from tests.unit.fault_rows import record

from colocated_runtime.contract.outcome import Outcome

pytestmark = pytest.mark.torch

SCRIPT = str(Path(__file__).with_name("recorded.py"))
STOPPED = 5
STEPS = 15


def run(place, *, every_steps=3, keep=2, evaluation=True, **options):
    spec = place.spec(
        trainer={"max_steps": STEPS, "steps_per_generation": 2},
        dataset={"source": f"file://{place.root}/train.jsonl", "promptColumn": "question", "maxSamples": 8},
        checkpoint={"everySteps": every_steps, "keep": keep},
        **({} if evaluation else {"evaluation": None}),
    )
    return place.run(spec, script=SCRIPT, torchrun=False, **options)


def steps(place, attempt=1):
    """What each step left: its number, learning rate, checksums of parameters and optimizer."""
    return [json.loads(line) for line in (place.root / f"attempt-{attempt}" / "steps.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def uninterrupted(workplace):
    """Saves every step."""
    return run(workplace, every_steps=1, keep=STEPS)


@pytest.fixture(scope="module")
def stopped_workplace(make_workplace):
    return make_workplace()


@pytest.fixture(scope="module")
def stopped(stopped_workplace):
    """The launcher asks for a stop while the rollout before step 5 runs."""
    return run(stopped_workplace, stop_at=STOPPED - 1)


def resume_from(step, uninterrupted, place, **options):
    """A second attempt that finds the uninterrupted run's checkpoint of `step`."""
    name = f"checkpoints/checkpoint-{step}"
    shutil.copytree(uninterrupted.directory / name, place.storage / uninterrupted.directory.name / name)
    return run(place, attempt=2, evaluation=False, **options)


@pytest.fixture(scope="module")
def resumed(stopped_workplace, stopped):
    """Beside the good checkpoint lie newer ones that are torn."""
    good = stopped.directory / f"checkpoints/checkpoint-{STOPPED}"
    unsealed, short = good.with_name("checkpoint-6"), good.with_name("checkpoint-7")
    shutil.copytree(good, unsealed)
    (unsealed / "manifest.json").unlink()
    shutil.copytree(good, short)
    with (short / "model.safetensors").open("r+b") as weights:
        weights.truncate(1000)
    return run(stopped_workplace, attempt=2)


def test_a_stop_saves_the_last_step(stopped):
    assert stopped.exit_code == 0, stopped.output[-3000:]
    assert stopped.state.outcome is Outcome.PREEMPTED
    assert stopped.state.message == f"stopped as asked after {STOPPED} of {STEPS} steps"
    assert [saved.step for saved in stopped.state.checkpoints] == [3, STOPPED]
    assert not stopped.state.model_uri


def test_resumes_from_the_newest_complete_checkpoint(resumed):
    assert resumed.exit_code == 0, resumed.output[-3000:]
    assert resumed.state.outcome is Outcome.COMPLETE
    assert resumed.state.resumed_from_step == STOPPED
    assert resumed.state.progress.step == STEPS
    assert "not resumed from: checkpoint-6: no manifest.json" in resumed.output
    assert "not resumed from: checkpoint-7: model.safetensors has 1000 bytes instead of" in resumed.output


def test_the_second_attempt_owns_the_directory(resumed):
    assert sorted(path.name for path in resumed.directory.glob("fence-*")) == ["fence-1", "fence-2"]


def test_evaluations_of_the_first_attempt_are_kept(resumed):
    assert [entry.step for entry in resumed.state.evaluations] == [0, STEPS]


def test_ten_more_steps_as_without_the_stop(uninterrupted, workplace, stopped_workplace, resumed):
    """Token ids, parameters, AdamW's states, learning rate."""
    expected = uninterrupted.completions(held_out=False, first_step=STOPPED)
    assert len(expected) == 5
    assert resumed.completions(held_out=False) == expected
    assert steps(stopped_workplace, 2) == steps(workplace)[STOPPED:]
    first, second = (Path(run.directory / "model/model.safetensors").read_bytes() for run in (uninterrupted, resumed))
    assert first == second
    record("stopped inside a rollout's window, resumed", "stop file", "nothing: ten more steps are equal bit for bit")


def test_ten_more_steps_from_the_end_of_an_epoch(make_workplace, workplace, uninterrupted):
    place = make_workplace()
    again = resume_from(4, uninterrupted, place)
    assert again.state.resumed_from_step == 4, again.output[-3000:]
    assert again.completions(held_out=False) == uninterrupted.completions(held_out=False, first_step=4)
    assert steps(place, 2) == steps(workplace)[4:]


FORGETTABLE = ["", "optimizer", "scheduler", "generators", "permutation", "window", "engine"]


@pytest.mark.parametrize("what", FORGETTABLE, ids=lambda what: what or "nothing")
def test_whatever_is_forgotten_shows(make_workplace, workplace, uninterrupted, what):
    """Two steps on, from the middle of a rollout's window; the case of nothing forgotten shows that it is not noise."""
    place = make_workplace()
    again = resume_from(STOPPED, uninterrupted, place, stop_at=STOPPED + 1, FORGET=what)
    assert again.state.outcome is Outcome.PREEMPTED, again.output[-3000:]
    same = steps(place, 2)[:2] == steps(workplace)[STOPPED : STOPPED + 2]
    assert same is (what == "")


@pytest.fixture(scope="module")
def again(stopped_workplace, resumed):
    """An attempt that finds the last step's checkpoint, as after a crash before the final model was written."""
    shutil.rmtree(resumed.directory / "model")
    (resumed.directory / "evaluation.jsonl").unlink()
    return run(stopped_workplace, attempt=3)


def test_nothing_is_trained_beyond_the_last_step(resumed, again):
    assert again.exit_code == 0, again.output[-3000:]
    assert again.state.outcome is Outcome.COMPLETE
    assert again.state.progress.step == STEPS
    assert again.state.message == f"trained {STEPS} of {STEPS} steps"
    assert again.completions(held_out=False) == []
    assert again.state.evaluations[-1].mean == resumed.state.evaluations[-1].mean
    assert again.state.model_uri == resumed.state.model_uri
