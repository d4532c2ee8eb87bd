"""An engine whose weights are not the trainer's is noticed, by its log-probabilities, in both algorithms."""

from pathlib import Path

import pytest

pytestmark = pytest.mark.torch

BROKEN = str(Path(__file__).with_name("broken_sync.py"))


@pytest.mark.parametrize(("algorithm", "how"), [("grpo", "corrupt"), ("rloo", "skip")])
def test_a_broken_sync_is_noticed(make_workplace, monkeypatch, algorithm, how):
    monkeypatch.setenv("BREAK", how)
    place = make_workplace()
    run = place.run(place.spec(algorithm=algorithm, evaluation=None, trainer={"learning_rate": 1e-2}), script=BROKEN)
    assert run.exit_code == 0, run.output[-3000:]
    assert not run.state.weights.in_sync
    assert "engine and trainer differ by" in run.state.weights.message
