"""An engine whose weights are not the trainer's is noticed: by checksums after a sync, and by log-probabilities."""

from pathlib import Path

import pytest

from colocated_runtime.contract.outcome import Outcome

pytestmark = pytest.mark.torch

BROKEN = str(Path(__file__).with_name("broken_sync.py"))


def broken(make_workplace, algorithm):
    place = make_workplace()
    return place.run(place.spec(algorithm=algorithm, evaluation=None, trainer={"learning_rate": 1e-2}), script=BROKEN)


@pytest.mark.parametrize(("algorithm", "how"), [("grpo", "corrupt"), ("rloo", "skip")])
def test_a_broken_sync_ends_the_job(make_workplace, monkeypatch, algorithm, how):
    monkeypatch.setenv("BREAK", how)
    run = broken(make_workplace, algorithm)
    assert run.exit_code != 0
    assert run.state.outcome is Outcome.WEIGHTS_STALE
    assert "engine and trainer differ by" in run.state.message
    assert "also after one more sync" in run.state.message
    assert not run.state.weights.in_sync


def test_a_sync_that_fails_once_is_made_good(make_workplace, monkeypatch):
    monkeypatch.setenv("BREAK", "once")
    run = broken(make_workplace, "grpo")
    assert run.exit_code == 0, run.output[-3000:]
    assert run.state.outcome is Outcome.COMPLETE
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
    first = (
        "1 of the engine's tensors are not the trainer's after a sync, model.layers.0.post_attention_layernorm.weight"
    )
    assert run.state.message.startswith(f"{first} first, also after one more sync")
    assert not run.state.weights.in_sync


def test_one_tensor_that_is_kept_back_once_is_made_good(make_workplace):
    place = make_workplace()
    run = place.run(place.spec(evaluation=None), script=BROKEN, torchrun=False, BREAK="drop-once")
    assert run.state.outcome is Outcome.COMPLETE, run.output[-3000:]
    assert "not the trainer's after a sync" in run.output
    assert run.state.weights.in_sync
