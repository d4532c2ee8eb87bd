"""Fifty steps on completions that the policy itself draws: rewards rise, TRL's and ours together.

By plain gradient descent: AdamW blows rounding up to the learning rate where a gradient is nearly zero, and one token
that falls otherwise makes another run.
"""

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.timeout(600)]

torch = pytest.importorskip("torch")

from tests.unit.worker import step_trainers  # noqa: E402

from colocated_runtime.worker.window import Window  # noqa: E402

STEPS = 50


def odd(completions, completion_ids, **kwargs):
    """The share of odd tokens: half of them, at random."""
    return [sum(token % 2 for token in ids) / len(ids) for ids in completion_ids]


@pytest.fixture(scope="module")
def curve(tmp_path_factory):
    models = step_trainers.write_policy(tmp_path_factory.mktemp("models"))

    def rewards(algorithm, *, own):
        run = step_trainers.train(
            models, algorithm, own=own, engine=step_trainers.Sampler, reward=odd, max_steps=STEPS, beta=0.0,
            max_completion_length=step_trainers.SAMPLED,
        )  # fmt: skip
        return torch.tensor([log["reward"] for log in run.seen.logs])

    return rewards


@pytest.fixture(scope="module", params=["grpo", "rloo"])
def plain(request, curve):
    return request.param, curve(request.param, own=False)


def apart(one, other):
    """The mean distance of two curves."""
    assert len(one) == len(other) == STEPS
    return (one - other).abs().mean().item()


def test_the_curves_lie_together(plain, curve):
    algorithm, wanted = plain
    assert wanted[-10:].mean() > wanted[:10].mean() + 0.2
    assert apart(curve(algorithm, own=True), wanted) < 0.02


def test_a_step_on_other_rows_lies_elsewhere(monkeypatch, plain, curve):
    """The deliberate break: each row gets its neighbour's derivative."""
    algorithm, wanted = plain
    fill = Window.fill

    def shifted(self, piece, log_probs, entropies, loss):
        return fill(self, piece, log_probs.roll(1, 0), entropies, loss)

    monkeypatch.setattr(Window, "fill", shifted)
    assert apart(curve(algorithm, own=True), wanted) > 0.1
