"""Stopped and resumed: what follows is bit for bit what follows in an uninterrupted run.

A rollout feeds two steps and an epoch has four, so that step 5 lies inside a rollout's window and past the first epoch.
"""

import functools
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
LORA = {"r": 4, "lora_alpha": 16}


def run(place, *, every_steps=3, keep=2, evaluation=True, lora=None, **options):
    spec = place.spec(
        trainer={"max_steps": STEPS, "steps_per_generation": 2},
        dataset={"source": f"file://{place.root}/train.jsonl", "promptColumn": "question", "maxSamples": 8},
        checkpoint={"everySteps": every_steps, "keep": keep},
        lora=lora,
        **({} if evaluation else {"evaluation": None}),
    )
    return place.run(spec, script=SCRIPT, torchrun=False, **options)


def steps(place, attempt=1):
    """What each step left: its number, learning rate, checksums of parameters and optimizer."""
    return [json.loads(line) for line in (place.root / f"attempt-{attempt}" / "steps.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def uninterrupted(make_workplace):
    """uninterrupted(lora): workplace and run of a job that saves every step; made once."""

    @functools.cache
    def made(lora):
        place = make_workplace()
        return place, run(place, every_steps=1, keep=STEPS, lora=LORA if lora else None, evaluation=not lora)

    return made


@pytest.fixture(scope="module")
def stopped_workplace(make_workplace):
    return make_workplace()


@pytest.fixture(scope="module")
def stopped(stopped_workplace):
    """The launcher asks for a stop while the rollout before step 5 runs."""
    return run(stopped_workplace, stop_at=STOPPED - 1)


def resume_from(step, whole, place, **options):
    """A second attempt that finds the checkpoint of `step` of the run `whole`."""
    name = f"checkpoints/checkpoint-{step}"
    shutil.copytree(whole.directory / name, place.storage / whole.directory.name / name)
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


def test_ten_more_steps_as_without_the_stop(uninterrupted, stopped_workplace, resumed):
    """Token ids, parameters, AdamW's states, learning rate."""
    workplace, whole = uninterrupted(lora=False)
    expected = whole.completions(held_out=False, first_step=STOPPED)
    assert len(expected) == 5
    assert resumed.completions(held_out=False) == expected
    assert steps(stopped_workplace, 2) == steps(workplace)[STOPPED:]
    first, second = (Path(run.directory / "model/model.safetensors").read_bytes() for run in (whole, resumed))
    assert first == second
    record("stopped inside a rollout's window, resumed", "stop file", "nothing: ten more steps are equal bit for bit")


@pytest.mark.parametrize(("lora", "step"), [(False, 4), (True, STOPPED)], ids=["all parameters", "LoRA"])
def test_ten_more_steps_from_a_checkpoint(make_workplace, uninterrupted, lora, step):
    """At the end of an epoch, and inside a rollout's window."""
    workplace, whole = uninterrupted(lora=lora)
    place = make_workplace()
    again = resume_from(step, whole, place, lora=LORA if lora else None)
    assert again.state.resumed_from_step == step, again.output[-3000:]
    assert again.completions(held_out=False) == whole.completions(held_out=False, first_step=step)
    assert steps(place, 2) == steps(workplace)[step:]
    assert len(steps(place, 2)) >= 10


PARTS = ["", "optimizer", "scheduler", "generators", "permutation", "window", "engine"]
FORGETTABLE = [*((False, part) for part in PARTS), (True, "optimizer"), (True, "generators")]


@pytest.mark.parametrize(("lora", "what"), FORGETTABLE)
def test_whatever_is_forgotten_shows(make_workplace, uninterrupted, lora, what):
    """Two steps on, from the middle of a rollout's window; the case of nothing forgotten shows that it is not noise."""
    workplace, whole = uninterrupted(lora=lora)
    place = make_workplace()
    again = resume_from(STOPPED, whole, place, stop_at=STOPPED + 1, FORGET=what, lora=LORA if lora else None)
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
