"""An engine whose weights are not the trainer's is noticed: by checksums before a rollout, and by log-probabilities."""

from pathlib import Path

import pytest

from colocated_runtime.contract.outcome import Outcome

pytestmark = pytest.mark.torch

BROKEN = str(Path(__file__).with_name("broken_sync.py"))


def broken(make_workplace, algorithm):
    place = make_workplace()
    return place.run(place.spec(algorithm=algorithm, evaluation=None, trainer={"learning_rate": 1e-2}), script=BROKEN)


@pytest.mark.parametrize("algorithm", ["grpo", "rloo"])
def test_a_broken_sync_ends_the_job(make_workplace, monkeypatch, algorithm):
    monkeypatch.setenv("BREAK", "corrupt")
    run = broken(make_workplace, algorithm)
    assert run.exit_code != 0
    assert run.state.outcome is Outcome.WEIGHTS_STALE
    assert "engine and trainer differ by" in run.state.message
    assert "also after one more sync" in run.state.message
    assert not run.state.weights.in_sync


def test_a_sync_that_fails_once_is_made_good(make_workplace, monkeypatch):
    monkeypatch.setenv("BREAK", "corrupt-once")
    run = broken(make_workplace, "grpo")
    assert run.exit_code == 0, run.output[-3000:]
    assert run.state.outcome is Outcome.COMPLETE
    assert run.state.weights.in_sync


def test_a_sync_that_is_left_out_is_made_up_for(make_workplace):
    """However short the step was."""
    place = make_workplace()
    spec = place.spec(evaluation=None, trainer={"learning_rate": 1e-7})
    run = place.run(spec, script=BROKEN, torchrun=False, BREAK="skip")
    assert run.state.outcome is Outcome.COMPLETE, run.output[-3000:]
    assert run.output.count("the trainer's weights have changed since the engine was given them; once more") == 2
    assert run.state.weights.in_sync


@pytest.mark.parametrize("ranks", [1, 2], ids=["one rank", "a tensor-parallel engine"])
def test_one_tensor_that_is_kept_back_ends_the_job(make_workplace, ranks):
    """One norm of 64 numbers, far too little for the log-probabilities to tell."""
    place = make_workplace()
    spec = place.spec(
        evaluation=None, trainer={"learning_rate": 1e-4}, processesPerNode=ranks, parallelism={"tensorParallel": ranks}
    )
    run = place.run(spec, script=BROKEN, torchrun=False, BREAK="drop")
    assert run.exit_code != 0
    assert run.state.outcome is Outcome.WEIGHTS_STALE, run.output[-3000:]
    assert run.state.progress.step == 1
    first = "1 of the engine's tensors are not the trainer's, model.layers.0.post_attention_layernorm.weight"
    assert run.state.message.startswith(f"{first} first, also after one more sync")
    assert not run.state.weights.in_sync


def test_one_tensor_that_is_kept_back_once_is_made_good(make_workplace):
    place = make_workplace()
    run = place.run(place.spec(evaluation=None), script=BROKEN, torchrun=False, BREAK="drop-once")
    assert run.state.outcome is Outcome.COMPLETE, run.output[-3000:]
    assert "tensors are not the trainer's, model" in run.output
    assert run.state.weights.in_sync
