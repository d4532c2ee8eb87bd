"""GRPO from start to end."""

import pytest
from colocated_runtime.contract.outcome import Outcome

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def run(workplace):
    return workplace.run(workplace.spec())


def test_complete(run):
    assert run.exit_code == 0, run.output[-3000:]
    assert run.state.outcome is Outcome.COMPLETE


def test_the_engine_samples_from_the_trained_weights(run):
    """Tied embeddings included: their head is packed apart on CPU."""
    assert run.state.weights.in_sync
    assert run.state.weights.step == 3
    assert run.state.weights.log_probability_difference < 1e-4
