"""GRPO from start to end on one rank: what the launcher reads, and the model that is left."""

import pytest

from colocated_runtime.contract.outcome import Outcome
from colocated_runtime.contract.report import Phase

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def run(workplace):
    return workplace.run(workplace.spec())


def test_the_state_tells_the_end(run):
    assert run.exit_code == 0, run.output[-3000:]
    assert run.state.outcome is Outcome.COMPLETE
    assert run.state.message == "trained 3 of 3 steps"
    assert (run.state.progress.step, run.state.progress.total_steps) == (3, 3)
    assert run.state.metrics["reward"] > 0
    assert run.state.throughput["tokensPerSecond"] > 0
    assert set(run.state.peaks) == set(Phase)
    assert run.state.model_uri == "pvc://claim/tiny-01234/model"
    assert [saved.uri for saved in run.state.checkpoints] == ["pvc://claim/tiny-01234/checkpoints/checkpoint-3"]


def test_the_output_is_the_users(run):
    """What a reward prints is in the log; nothing there looks like an error."""
    assert "the reward speaks" in run.output
    assert "Traceback" not in run.output


def test_the_engine_samples_from_the_trained_weights(run):
    """Tied embeddings included: their head is packed apart on CPU."""
    assert run.state.weights.in_sync
    assert run.state.weights.step == 3
    assert run.state.weights.log_probability_difference < 1e-5


def test_evaluation_before_and_after(run):
    assert [evaluation.step for evaluation in run.state.evaluations] == [0, 3]
    before, after = run.completions(held_out=True)
    assert before != after
    for evaluation, completions in zip(run.state.evaluations, (before, after), strict=True):
        rewards = [sum(token % 2 for token in ids) / len(ids) for ids in completions]
        assert evaluation.mean == pytest.approx(sum(rewards) / len(rewards))
        assert evaluation.low < evaluation.mean < evaluation.high


def test_the_saved_model_gives_the_engines_tokens(run, greedy):
    _, after = run.completions(held_out=True)
    assert greedy(run.directory / "model", run.records[-1]["prompts"], len(after[0])) == after
