"""An engine whose weights are not the trainer's is noticed, by its log-probabilities, in both algorithms."""

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
