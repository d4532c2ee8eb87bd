"""What is computed again in the backward pass: as chosen, in every step, and the gradients stay the same."""

import pytest

pytestmark = pytest.mark.torch

torch = pytest.importorskip("torch")

from tests.unit.worker import step_trainers  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from colocated_runtime.worker import step  # noqa: E402

CHOICES = ("none", "selective", "half", "full")


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    return step_trainers.write_policy(tmp_path_factory.mktemp("models"))


def arithmetic(models, choice, steps, **options):
    """The trained trainer, and the floating-point operations of its matrix products and attention."""
    trainer = step_trainers.build(models, "grpo", own=True, recompute=choice, max_steps=steps, **options)
    with FlopCounterMode(display=False) as counter:
        trainer.train()
    return trainer, counter.get_total_flops()


@pytest.fixture(scope="module")
def runs(models):
    """By choice: of one step, and of two."""
    return {choice: [arithmetic(models, choice, steps) for steps in (1, 2)] for choice in CHOICES}


def second_step(run):
    return run[1][1] - run[0][1]


def test_the_same_gradients(runs):
    none = runs["none"][1][0]
    for choice in CHOICES[1:]:
        assert max(step_trainers.distances(none, runs[choice][1][0])) < 1e-5


def test_what_is_chosen_is_computed_again_and_nothing_else(runs):
    """In the second step: TRL has switched checkpointing off and on again in the rollout before it."""
    none, selective, half, full = (second_step(runs[choice]) for choice in CHOICES)
    assert none == selective < half < full
    assert full - none == pytest.approx(2 * (half - none), rel=1e-6)  # of the two layers, one


def test_trls_own_switch_undoes_a_choice_that_is_made_once(monkeypatch, models, runs):
    """The deliberate break: made before the first step only."""
    made = []
    monkeypatch.setattr(step, "set_recompute", lambda *choice: made or (set_once(*choice), made.append(choice)))
    first, both = (arithmetic(models, "half", steps) for steps in (1, 2))
    assert second_step([first, both]) != second_step(runs["half"])


set_once = step.set_recompute


def test_adapters(models):
    """LoRA: the embedding is frozen, yet gradients pass through recomputed layers."""
    from peft import LoraConfig

    gradients = []
    for choice in ("none", "full"):
        lora = LoraConfig(r=4, target_modules=["q_proj", "down_proj"], task_type="CAUSAL_LM")
        trainer = step_trainers.build(models, "grpo", own=True, recompute=choice, max_steps=2, peft_config=lora)
        trainer.train()
        gradients.append(trainer.seen.gradients)
    assert all(step_trainers.distance(*pair) < 1e-5 for pair in zip(*gradients, strict=True))
    hooks = trainer.model.get_input_embeddings()._forward_hooks
    assert len(hooks) <= 3
