"""Stopped and resumed: the second attempt draws the completions that an uninterrupted one draws.

A rollout feeds two steps and an epoch has four, so that step 5 lies inside a rollout's window and past the first epoch.
"""

import hashlib
import json
import shutil
from pathlib import Path

import pytest

from colocated_runtime.contract.outcome import Outcome

pytestmark = pytest.mark.torch

STOPPED = 5
STEPS = 7


def spec(place):
    return place.spec(
        trainer={"max_steps": STEPS, "steps_per_generation": 2},
        dataset={"source": f"file://{place.root}/train.jsonl", "promptColumn": "question", "maxSamples": 8},
        checkpoint={"everySteps": 3, "keep": 2},
    )


@pytest.fixture(scope="module")
def uninterrupted(workplace):
    return workplace.run(spec(workplace), torchrun=False)


@pytest.fixture(scope="module")
def stopped_workplace(make_workplace):
    return make_workplace()


@pytest.fixture(scope="module")
def stopped(stopped_workplace):
    """The launcher asks for a stop while the rollout before step 5 runs."""
    return stopped_workplace.run(spec(stopped_workplace), stop_at=STOPPED - 1, torchrun=False)


@pytest.fixture(scope="module")
def forgetful(make_workplace, stopped):
    """As `resumed`, but the checkpoint's generators are others: the deliberate break."""
    import torch

    from colocated_runtime.worker import rng

    place = make_workplace()
    shutil.copytree(stopped.directory, place.storage / stopped.directory.name)
    file = place.storage / stopped.directory.name / f"checkpoints/checkpoint-{STOPPED}/colocated-rank-0.pt"
    extra = torch.load(file, weights_only=True)
    torch.save({**extra, "engine_random_state": rng.seeded(123)}, file)
    manifest = json.loads((file.parent / "manifest.json").read_text())
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    manifest["files"][file.name] = {"size": file.stat().st_size, "sha256": digest}
    (file.parent / "manifest.json").write_text(json.dumps(manifest))
    return place.run(spec(place), attempt=2, torchrun=False)


@pytest.fixture(scope="module")
def resumed(stopped_workplace, stopped, forgetful):
    """Beside the good checkpoint lie newer ones that are torn."""
    good = stopped.directory / f"checkpoints/checkpoint-{STOPPED}"
    unsealed, short = good.with_name("checkpoint-6"), good.with_name("checkpoint-7")
    shutil.copytree(good, unsealed)
    (unsealed / "manifest.json").unlink()
    shutil.copytree(good, short)
    with (short / "model.safetensors").open("r+b") as weights:
        weights.truncate(1000)
    return stopped_workplace.run(spec(stopped_workplace), attempt=2, torchrun=False)


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


def test_the_same_completions_as_without_the_stop(uninterrupted, resumed):
    expected = uninterrupted.completions(held_out=False, first_step=STOPPED)
    assert len(expected) == 1
    assert resumed.completions(held_out=False) == expected


def test_the_same_weights_as_without_the_stop(uninterrupted, resumed):
    first, second = (Path(run.directory / "model/model.safetensors").read_bytes() for run in (uninterrupted, resumed))
    assert first == second


@pytest.fixture(scope="module")
def again(stopped_workplace, resumed):
    """An attempt that finds the last step's checkpoint, as after a crash before the final model was written."""
    shutil.rmtree(resumed.directory / "model")
    (resumed.directory / "evaluation.jsonl").unlink()
    return stopped_workplace.run(spec(stopped_workplace), attempt=3, torchrun=False)


def test_nothing_is_trained_beyond_the_last_step(resumed, again):
    assert again.exit_code == 0, again.output[-3000:]
    assert again.state.outcome is Outcome.COMPLETE
    assert again.state.progress.step == STEPS
    assert again.completions(held_out=False) == []
    assert again.state.evaluations[-1].mean == resumed.state.evaluations[-1].mean
    assert again.state.model_uri == resumed.state.model_uri


def test_other_completions_where_the_generators_state_is_lost(uninterrupted, forgetful):
    assert forgetful.state.resumed_from_step == STOPPED
    expected = uninterrupted.completions(held_out=False, first_step=STOPPED)
    assert forgetful.completions(held_out=False) != expected
