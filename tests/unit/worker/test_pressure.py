"""An OutOfMemoryError in any piece, forward or backward: all again in smaller pieces, with the same gradients."""

import pytest

pytestmark = pytest.mark.torch

torch = pytest.importorskip("torch")

from tests.unit.worker import step_trainers  # noqa: E402

from colocated_runtime.worker import rng, step  # noqa: E402
from colocated_runtime.worker.packing import packed_pieces  # noqa: E402
from colocated_runtime.worker.pressure import TokenBudget  # noqa: E402

PIECES = 3
"""Of the first window, at 80 tokens each."""


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    return step_trainers.write_policy(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def unpressed(models):
    return {name: step_trainers.train(models, name, own=True, max_steps=1, beta=0.0) for name in ("grpo", "rloo")}


class Device:
    """Has no memory for the piece of number `at`, counted from 0: in its forward pass, or half-way through its backward
    pass, after the gradients of the last layers have been added."""

    def __init__(self, monkeypatch, at, where):
        self.at, self.where, self.count = at, where, 0
        self.score = step.score_packed
        monkeypatch.setattr(step, "score_packed", self)

    def __call__(self, model, *args, **kwargs):
        here, self.count = self.count == self.at, self.count + 1
        if here and self.where == "forward":
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        if not here:
            return self.score(model, *args, **kwargs)
        first, last = model.get_submodule("model.layers.0"), model.get_parameter("model.norm.weight")

        def fail(*_):
            assert last.grad is not None  # some gradients are there already
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")

        handle = first.register_full_backward_pre_hook(fail)
        found = self.score(model, *args, **kwargs)
        handle.remove()
        return found


@pytest.mark.parametrize("algorithm", ["grpo", "rloo"])
@pytest.mark.parametrize("where", ["forward", "backward"])
@pytest.mark.parametrize("at", range(PIECES))
def test_the_same_gradients_as_without_pressure(monkeypatch, models, unpressed, algorithm, at, where):
    Device(monkeypatch, at, where)
    run = step_trainers.train(models, algorithm, own=True, max_steps=1, beta=0.0)
    assert max(step_trainers.distances(unpressed[algorithm], run)) < 1e-5
    assert len(run.phases.pressed) == 1
    assert "tokens at once did not fit; done again with" in run.phases.pressed[0]
    assert run._budget.tokens <= 40
    logged, wanted = run.seen.logs[0], unpressed[algorithm].seen.logs[0]
    assert {name: logged[name] for name in ("loss", "reward", "entropy")} == pytest.approx(
        {name: wanted[name] for name in ("loss", "reward", "entropy")}, rel=1e-5
    )


def test_gradients_that_are_not_discarded_are_found(monkeypatch, models, unpressed):
    """The deliberate break: what the failed pass has added stays."""
    Device(monkeypatch, 1, "backward")
    trainer = step_trainers.build(models, "grpo", own=True, max_steps=1, beta=0.0)
    run = trainer._budget.run
    trainer._budget.run = lambda lengths, cut, work, discard, lighten: run(lengths, cut, work, lambda: None)
    trainer.train()
    assert max(step_trainers.distances(unpressed["grpo"], trainer)) > 1e-3


@pytest.mark.parametrize("at", range(2))
def test_scoring_is_done_again_too(monkeypatch, models, at):
    """With beta > 0 RLOO scores old and reference log-probabilities first."""
    wanted = step_trainers.train(models, "rloo", own=True, max_steps=1, beta=0.1)
    Device(monkeypatch, at, "forward")
    run = step_trainers.train(models, "rloo", own=True, max_steps=1, beta=0.1)
    assert max(step_trainers.distances(wanted, run)) < 1e-5
    assert len(run.phases.pressed) == 1


def test_what_was_learned_stays(monkeypatch, models):
    device = Device(monkeypatch, 0, "forward")
    run = step_trainers.train(models, "grpo", own=True, max_steps=2, beta=0.0)
    assert len(run.phases.pressed) == 1
    assert run._budget.shrunk
    assert device.count > 2 * PIECES  # both steps in smaller pieces


def with_room_for_recomputation_alone(monkeypatch):
    """A device on which no pass fits that keeps every layer's activations; the number of those that did not."""
    score, failed = step.score_packed, []

    def scored(model, *args, **kwargs):
        if torch.is_grad_enabled() and not all(layer.gradient_checkpointing for layer in model.model.layers):
            failed.append(model)
            raise torch.OutOfMemoryError("full")
        return score(model, *args, **kwargs)

    monkeypatch.setattr(step, "score_packed", scored)
    return failed


@pytest.mark.parametrize("algorithm", ["grpo", "rloo"])
@pytest.mark.parametrize("before", [None, "none", "half"])
def test_a_row_that_does_not_fit_alone_is_recomputed_layer_by_layer(monkeypatch, models, algorithm, before):
    """With the same gradients, in this step and in the next, which does not try anything else first."""
    options = {"own": True, "max_steps": 2, "beta": 0.0, "recompute": before}
    wanted = step_trainers.train(models, algorithm, **options)
    failed = with_room_for_recomputation_alone(monkeypatch)
    run = step_trainers.train(models, algorithm, **options)
    assert max(step_trainers.distances(wanted, run)) < 1e-5
    assert run.phases.pressed[-1].endswith("tokens did not fit; done again with every layer recomputed")
    assert len(failed) == len(run.phases.pressed)


def test_a_resumed_run_recomputes_from_the_start(monkeypatch, models):
    options = {"own": True, "max_steps": 1, "beta": 0.0, "recompute": "none"}
    with_room_for_recomputation_alone(monkeypatch)
    learned = step_trainers.train(models, "grpo", **options)._extra()
    again = step_trainers.build(models, "grpo", **options)
    again._take_up(learned | {"engine_random_state": rng.capture()})
    assert again._settings.recompute == "full"
    assert again._extra()["recompute_all"]
    assert again._extra()["token_budget"] == learned["token_budget"]


def test_a_row_that_does_not_fit_alone_ends_it(monkeypatch, models):
    """The attempt ends with DeviceOutOfMemory; nothing can be cut, and recomputing does not help."""
    monkeypatch.setattr(
        step, "score_packed", lambda *args, **kwargs: (_ for _ in ()).throw(torch.OutOfMemoryError("full"))
    )
    with pytest.raises(torch.OutOfMemoryError, match=r"a single row of at most .* tokens does not fit: full"):
        step_trainers.train(models, "grpo", own=True, max_steps=1)


def test_halves_until_every_piece_is_one_row():
    said, done = [], []
    budget = TokenBudget(64, said.append)

    def work(piece):
        if len(piece) > 1:
            raise torch.OutOfMemoryError("full")
        done.append(piece)

    budget.run([8] * 8, packed_pieces, work, done.clear)
    assert done == [[row] for row in range(8)]
    assert budget.tokens == 8
    assert len(said) == 3


def test_the_activations_of_the_failed_piece_are_free_before_the_next_try():
    """The error's frames would hold them."""
    import weakref

    held, alive = [], []

    def work(piece):
        if held:
            alive.append(held[0]())
            return
        activations = torch.zeros(10)
        held.append(weakref.ref(activations))
        raise torch.OutOfMemoryError("full")

    TokenBudget(8, lambda message: None).run([4, 4], packed_pieces, work, lambda: None)
    assert alive == [None, None]


def test_what_other_ranks_take_part_in_is_not_done_again():
    told, done = [], []

    def work(piece):
        done.append(piece)
        raise torch.OutOfMemoryError("full")

    with pytest.raises(torch.OutOfMemoryError, match="full"):
        TokenBudget(8, told.append, again=False).run([4, 4, 4], packed_pieces, work, told.clear)
    assert (done, told) == ([[0, 1]], [])
