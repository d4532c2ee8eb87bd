"""Reference and reward models: the same results as if they stayed, and nothing of them on the device in between."""

import pytest

pytestmark = pytest.mark.torch

torch = pytest.importorskip("torch")

from tests.unit.worker import step_trainers, tiny_model  # noqa: E402
from torch.multiprocessing.reductions import StorageWeakRef  # noqa: E402

from colocated_runtime.worker.errors import RewardError  # noqa: E402
from colocated_runtime.worker.guest import Guest  # noqa: E402
from colocated_runtime.worker.rewards.model import RewardModel  # noqa: E402

Phases = step_trainers.Phases
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    return step_trainers.write_policy(tmp_path_factory.mktemp("models"))


@pytest.fixture
def visits(monkeypatch):
    """The device's memory of each pass: a reference that tells whether it is still there."""
    seen, put = [], Guest._put

    def watched(self, buffer):
        if buffer is not self._host:
            seen.append(StorageWeakRef(buffer.untyped_storage()))
        put(self, buffer)

    monkeypatch.setattr(Guest, "_put", watched)
    return seen


def mixed() -> torch.nn.Module:
    """Two types of number, tied weights, a buffer, an empty parameter and a scalar."""
    torch.manual_seed(3)
    model = torch.nn.Module()
    model.first, model.second = torch.nn.Linear(5, 3), torch.nn.Linear(5, 3, dtype=torch.bfloat16)
    model.tied = torch.nn.Linear(5, 3, bias=False)
    model.tied.weight = model.first.weight
    model.register_buffer("counts", torch.arange(7))
    model.nothing, model.scale = torch.nn.Parameter(torch.empty(0, 4)), torch.nn.Parameter(torch.tensor(2.5))
    return model


def inside(tensor, buffer):
    return buffer.data_ptr() <= tensor.data_ptr() < buffer.data_ptr() + buffer.nbytes


def test_the_same_bits_here_and_away(visits):
    model, before = mixed(), {name: value.clone() for name, value in mixed().state_dict().items()}
    guest = Guest(model, CPU, "reference model", Phases().handover)

    def check(*, away):
        for name, value in model.state_dict().items():
            assert torch.equal(value, before[name])
            assert not value.numel() or inside(value, guest._host) is away
        assert model.tied.weight is model.first.weight

    check(away=True)
    for _ in range(2):
        with guest.here():
            check(away=False)
        check(away=True)
    assert [visit.expired() for visit in visits] == [True, True]


def test_each_visit_tells_its_bytes(visits):
    phases = Phases()
    guest = Guest(mixed(), CPU, "reference model", phases.handover)
    with guest.here():
        assert phases.moved == [("reference model to the device", guest._host.nbytes)]
    assert phases.moved[1:] == [("reference model leaves the device", guest._host.nbytes)]


def test_it_leaves_where_its_pass_fails(visits):
    model = mixed()
    guest = Guest(model, CPU, "reference model", Phases().handover)
    with pytest.raises(torch.OutOfMemoryError), guest.here():
        raise torch.OutOfMemoryError
    assert [visit.expired() for visit in visits] == [True]
    assert inside(model.first.weight, guest._host)
    with guest.here():
        assert not inside(model.first.weight, guest._host)


@pytest.mark.parametrize("algorithm", ["grpo", "rloo"])
def test_a_reference_model_that_moves_gives_the_same_gradients(models, visits, monkeypatch, algorithm):
    options = {"own": True, "beta": 0.1}
    moved = step_trainers.train(models, algorithm, **options)
    assert inside(next(moved.ref_model.parameters()), moved._reference._host)
    assert visits
    assert all(visit.expired() for visit in visits)
    monkeypatch.setattr(step_trainers.TRAINERS[algorithm], "_reference_moves", lambda self: False)
    stayed = step_trainers.train(models, algorithm, **options)
    assert stayed.seen.gradients[0]
    for one, other in zip(moved.seen.gradients, stayed.seen.gradients, strict=True):
        assert all(torch.equal(one[name], other[name]) for name in one)


def test_a_reward_model_that_moves_gives_the_same_scores(tmp_path, visits):
    path = tiny_model.write("reward", tmp_path / "reward")
    model = RewardModel(path, "rewards[0].model", dtype="float32", device="cpu", handover=Phases().handover)
    chats = [[{"role": "user", "content": f"say {number}"}] for number in range(3)]
    answers = [[{"role": "assistant", "content": "yes" * number}] for number in range(1, 4)]
    scores = model(chats, answers)
    resident = model._score([model._text(chat, answer) for chat, answer in zip(chats, answers, strict=True)])
    assert scores == resident
    assert len(set(scores)) == 3
    assert [visit.expired() for visit in visits] == [True]


def test_a_score_that_is_no_number_is_the_reward_models(tmp_path):
    path = tiny_model.write("reward", tmp_path / "reward")
    model = RewardModel(path, "rewards[0].model", dtype="float32", device="cpu", handover=Phases().handover)
    model._model.score.weight.data.fill_(float("nan"))
    with pytest.raises(RewardError, match=r"^rewards\[0\].model: the model scored a completion as nan"):
        model(["a"], ["b"])
