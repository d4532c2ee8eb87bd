"""RLOO with a reference model (beta > 0) and a reward model beside the policy."""

import pytest

from colocated_runtime.contract.outcome import Outcome

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def run(workplace):
    rewards = [workplace.recorder, {"model": f"file://{workplace.models}/reward", "weight": 0.5}]
    return workplace.run(workplace.spec(algorithm="rloo", rewards=rewards, trainer={"beta": 0.1}))


def test_complete(run):
    assert run.exit_code == 0, run.output[-3000:]
    assert run.state.outcome is Outcome.COMPLETE


def test_both_rewards_count(run):
    function, model = (run.state.metrics[f"rewards/{name}/mean"] for name in ("record", "reward"))
    assert model != 0
    assert run.state.metrics["reward"] == pytest.approx(function + 0.5 * model, abs=1e-4)


def test_the_reference_is_another_policy(run):
    assert run.state.metrics["kl"] > 0


def test_log_probabilities_are_compared_though_rloo_needs_none(run):
    assert run.state.weights.in_sync
    assert 0 < run.state.weights.log_probability_difference < 1e-5
