"""The training step in pieces has TRL's gradients, losses and metrics; each proof fails once something is broken."""

import pytest

pytestmark = pytest.mark.torch

torch = pytest.importorskip("torch")

from tests.unit.worker import step_trainers  # noqa: E402

from colocated_runtime.worker import packing, step, trainers  # noqa: E402
from colocated_runtime.worker.window import Window  # noqa: E402

NEAR = 1e-5
"""Relative; float32's rounding leaves about 3e-6 between two ways through the same model."""


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    return step_trainers.write_policy(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def plain(models):
    """plain(algorithm, options): TRL's own trainer after its run, each trained once."""
    done = {}

    def trained(algorithm, **options):
        key = (algorithm, repr(sorted(options.items())))
        if key not in done:
            done[key] = step_trainers.train(models, algorithm, own=False, **options)
        return done[key]

    return trained


@pytest.fixture
def own(models):
    return lambda algorithm, **options: step_trainers.train(models, algorithm, own=True, **options)


def same(plain, own):
    return max(step_trainers.distances(plain, own)) < NEAR


LOSSES = [
    {"loss_type": "grpo"}, {"loss_type": "bnpo"}, {"loss_type": "dr_grpo"}, {"loss_type": "dapo"},
    {"loss_type": "cispo"}, {"loss_type": "sapo"}, {"loss_type": "luspo", "importance_sampling_level": "sequence"},
    {"loss_type": "vespo", "vllm_importance_sampling_mode": "token_truncate"},
]  # fmt: skip


@pytest.mark.parametrize("options", LOSSES, ids=lambda options: options["loss_type"])
@pytest.mark.parametrize("beta", [0.0, 0.1])
def test_every_loss_of_grpo(plain, own, options, beta):
    options = {**options, "beta": beta, "max_steps": 1}
    assert same(plain("grpo", **options), own("grpo", **options))


CASES = {
    "two rollouts a step": {"gradient_accumulation_steps": 4, "steps_per_generation": 2, "loss_type": "dapo"},
    "two rollouts a step, bnpo": {"gradient_accumulation_steps": 4, "steps_per_generation": 2, "loss_type": "bnpo"},
    "a rollout for two steps": {"gradient_accumulation_steps": 1, "steps_per_generation": 2},
    "twice through a rollout": {"num_iterations": 2, "gradient_accumulation_steps": 2, "steps_per_generation": 2},
    "twice within one step": {"num_iterations": 2, "gradient_accumulation_steps": 4, "steps_per_generation": 2},
    "sequence ratios": {"importance_sampling_level": "sequence", "loss_type": "grpo"},
    "no correction for the sampler": {"vllm_importance_sampling_correction": False},
    "a fixed entropy bonus": {"entropy_coef": 0.1},
    "off-policy rows masked": {"off_policy_mask_threshold": 0.001, "loss_type": "grpo"},
    "truncated completions masked": {"mask_truncated_completions": True},
    "gradient checkpointing": {"gradient_checkpointing": True},
}


@pytest.mark.parametrize("options", CASES.values(), ids=CASES)
def test_grpo(plain, own, options):
    assert same(plain("grpo", **options), own("grpo", **options))


@pytest.mark.parametrize("options", [{"beta": 0.0}, {"beta": 0.1}], ids=["beta = 0", "beta > 0"])
def test_rloo(plain, own, options):
    assert same(plain("rloo", **options), own("rloo", **options))


def test_rloo_with_a_rollout_for_two_steps(plain, own):
    """In the second step the weight of a sequence is e to a sum over its tokens: that sum's rounding, not a token's."""
    options = {"beta": 0.0, "gradient_accumulation_steps": 1, "steps_per_generation": 2}
    first, second = step_trainers.distances(plain("rloo", **options), own("rloo", **options))
    assert first < NEAR
    assert second < 5 * NEAR


def padded(monkeypatch):
    """As for a model whose attention cannot run packed."""
    monkeypatch.setattr(step.attention, "why_not", lambda model: "its attention is another")


@pytest.mark.parametrize("algorithm", ["grpo", "rloo"])
def test_padded_pieces(monkeypatch, plain, own, algorithm):
    padded(monkeypatch)
    assert same(plain(algorithm, beta=0.1), own(algorithm, beta=0.1))


@pytest.mark.parametrize("tokens", [1, 30, 10_000])
def test_any_size_of_a_piece(plain, own, tokens):
    assert same(plain("grpo", beta=0.1), own("grpo", beta=0.1, tokens=tokens))


# What is logged


@pytest.mark.parametrize(
    ("algorithm", "options"),
    [
        ("grpo", {"beta": 0.1}),
        ("grpo", {"gradient_accumulation_steps": 4, "steps_per_generation": 2, "loss_type": "bnpo"}),
        ("grpo", {"num_iterations": 2, "gradient_accumulation_steps": 4, "steps_per_generation": 2}),
        ("rloo", {"beta": 0.1}),
        ("rloo", {"beta": 0.0}),
    ],
)
def test_the_log_is_trls(plain, own, algorithm, options):
    wanted, found = plain(algorithm, **options).seen.logs, own(algorithm, **options).seen.logs
    assert len(wanted) == len(found) > 0
    for one, other in zip(wanted, found, strict=True):
        assert one.keys() == other.keys() - ({"sampling/sampling_logp_difference/mean"} - one.keys())
        timed = {"step_time"}
        assert {name: one[name] for name in one.keys() - timed} == pytest.approx(
            {name: other[name] for name in one.keys() - timed}, rel=1e-4, abs=1e-5
        )


@pytest.mark.parametrize("skipped", [True, False], ids=["with the skip", "without"])
def test_rloo_compares_sampler_and_trainer(own, skipped):
    run = own("rloo", beta=0.0 if skipped else 0.1)
    assert run._skips_old is skipped
    assert all(0 < log["sampling/sampling_logp_difference/mean"] < 0.2 for log in run.seen.logs)


# Which pass is skipped


def passes(monkeypatch, models, algorithm, **options):
    """How many rows go through the model without gradients."""
    rows = []
    score = packing.score_packed

    def counted(model, ids, *args, **kwargs):
        rows.append(0 if torch.is_grad_enabled() else len(ids))
        return score(model, ids, *args, **kwargs)

    monkeypatch.setattr(step, "score_packed", counted)
    step_trainers.train(models, algorithm, own=True, max_steps=1, **options)
    return sum(rows)


@pytest.mark.parametrize(
    ("algorithm", "options", "rows"),
    [
        ("grpo", {}, 0),
        ("grpo", {"beta": 0.1}, 8),  # the reference model's
        ("grpo", {"steps_per_generation": 4}, 16),
        ("rloo", {"beta": 0.0}, 0),
        ("rloo", {"beta": 0.1}, 16),
    ],
)
def test_the_old_policys_pass_is_skipped_only_where_it_gives_the_same(monkeypatch, models, algorithm, options, rows):
    assert passes(monkeypatch, models, algorithm, **options) == rows


def test_dropout_asks_for_the_old_policys_pass(tmp_path):
    """The two passes would drop different parts."""
    models = step_trainers.write_policy(tmp_path, attention_dropout=0.1)
    assert "dropout" in step_trainers.build(models, "grpo", own=True)._old_log_probs_needed()


INEXACT = {
    "top_entropy_quantile": {"top_entropy_quantile": 0.5},
    "adaptive entropy": {"use_adaptive_entropy": True},
}


@pytest.mark.parametrize("options", INEXACT.values(), ids=INEXACT)
def test_what_is_not_exact_stays_trls_own(plain, own, options):
    run = own("grpo", **options)
    assert not run._own
    assert same(plain("grpo", **options), run)


# The deliberate breaks


def test_broken_positions_are_found(monkeypatch, plain, own):
    score = packing.score_packed

    def shifted(model, *args, **kwargs):
        def forward(**inputs):
            inputs["position_ids"] = torch.arange(inputs["input_ids"].shape[1])[None] * 3
            return model(**inputs)

        return score(forward, *args, **kwargs)

    monkeypatch.setattr(step, "score_packed", shifted)
    assert not same(plain("grpo"), own("grpo"))


def test_sequences_that_see_each_other_are_found(monkeypatch, plain, own):
    score = packing.score_packed

    def joined(model, *args, **kwargs):
        def forward(**inputs):
            whole = torch.tensor([0, inputs["input_ids"].shape[1]], dtype=torch.int32)
            return model(**{**inputs, "cu_seq_lens_q": whole})

        return score(forward, *args, **kwargs)

    monkeypatch.setattr(step, "score_packed", joined)
    assert not same(plain("grpo"), own("grpo"))


@pytest.mark.parametrize("loss", ["grpo", "bnpo", "dapo"])
def test_a_piece_that_is_weighed_by_itself_is_found(monkeypatch, plain, own, loss):
    """The mean of pieces of different size is not the mean of their rows."""
    fill = Window.fill

    def by_itself(self, piece, *args):
        return fill(self, piece, *args) * sum(map(len, [piece])) / 3

    monkeypatch.setattr(Window, "fill", by_itself)
    assert not same(
        plain("grpo", loss_type=loss, max_steps=1, beta=0.0), own("grpo", loss_type=loss, max_steps=1, beta=0.0)
    )


def test_a_lost_importance_ratio_is_found(monkeypatch, plain, own):
    monkeypatch.setattr(trainers, "importance_ratio", lambda log_probs, *args, **kwargs: torch.ones_like(log_probs))
    assert not same(plain("grpo"), own("grpo"))


@pytest.mark.parametrize(
    ("algorithm", "options"),
    [("rloo", {"beta": 0.1}), ("rloo", {"gradient_accumulation_steps": 1, "steps_per_generation": 2, "beta": 0.0})],
)
def test_a_skip_where_it_is_not_exact_is_found(monkeypatch, plain, own, algorithm, options):
    monkeypatch.setattr(trainers.ColocatedRLOOTrainer, "_old_log_probs_needed", lambda self: "")
    assert not same(plain(algorithm, **options), own(algorithm, **options))
