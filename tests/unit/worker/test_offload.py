"""Optimizer states in host memory: the same updates, and nothing of them on the device in between."""

import pytest

pytestmark = pytest.mark.torch

torch = pytest.importorskip("torch")

from tests.unit.worker import step_trainers  # noqa: E402
from transformers import TrainerCallback  # noqa: E402

from colocated_runtime.host_memory import HostMemory  # noqa: E402
from colocated_runtime.worker import offload  # noqa: E402
from colocated_runtime.worker.offload import OptimizerStates  # noqa: E402

OPTIONS = {"own": True, "max_steps": 3, "optim": "adamw_torch_fused", "learning_rate": 1e-3}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    return step_trainers.write_policy(tmp_path_factory.mktemp("models"))


@pytest.fixture(autouse=True)
def _no_state_is_too_small(monkeypatch):
    monkeypatch.setattr(offload, "SMALL", 0)


class Watch(TrainerCallback):
    """Where the states are at each step's end, and once the next one's gradients are there."""

    def __init__(self, states):
        self.states, self.away = states, []

    def on_step_end(self, *args, **kwargs):
        self.away.append(in_buffer(self.states))


def in_buffer(states):
    """Whether all of the optimizer's states lie in the buffers."""
    buffers = [future.result() for future in states._pinned.values()]
    values = [value for state in states._optimizer().state.values() for value in state.values()]
    return bool(values) and all(
        any(buffer.data_ptr() <= value.data_ptr() < buffer.data_ptr() + buffer.numel() for buffer in buffers)
        for value in values
    )


def trained(models, **options):
    trainer = step_trainers.build(models, "grpo", **OPTIONS, **options)
    trainer.add_callback(watch := Watch(trainer.optimizer_states))
    trainer.train()
    return trainer, watch


def parameters(trainer):
    return {name: parameter.detach().clone() for name, parameter in trainer.model.named_parameters()}


def equal(one, other):
    return all(torch.equal(one[name], other[name]) for name in one)


def test_the_same_parameters_to_the_bit(models):
    there, _ = trained(models)
    away, watch = trained(models, offload=True)
    assert watch.away == [True] * OPTIONS["max_steps"]
    assert equal(parameters(there), parameters(away))


def test_other_parameters_if_the_states_came_back_as_something_else(models, monkeypatch):
    there, _ = trained(models)
    come_back = OptimizerStates.come_back

    def forgetful(self):
        found = [(state, name) for state, name, _ in self._away]
        come_back(self)
        for state, name in found:
            if name == "exp_avg":
                state[name].zero_()

    monkeypatch.setattr(OptimizerStates, "come_back", forgetful)
    away, _ = trained(models, offload=True)
    assert not equal(parameters(there), parameters(away))


def test_under_pressure_they_leave_and_from_then_on_after_every_update(models):
    there, _ = trained(models)
    trainer = step_trainers.build(models, "grpo", **OPTIONS)
    states, freed = trainer.optimizer_states, []
    generate = trainer.vllm_generation.generate

    def short_of_memory(*args, **kwargs):
        freed.append(trainer.vllm_generation.spare())
        assert trainer.vllm_generation.spare() == 0, "nothing is left to give"
        assert in_buffer(states) == (len(freed) > 1)
        return generate(*args, **kwargs)

    trainer.vllm_generation.generate = short_of_memory
    trainer.add_callback(watch := Watch(states))
    trainer.train()
    assert freed[0] == 0, "there are none before the first update"
    assert freed[1]
    assert freed[2] == 0, "they have left before"
    assert watch.away == [False, True, True]
    assert trainer._extra()["offload"]
    assert equal(parameters(there), parameters(trainer))


def test_they_stay_where_the_container_has_no_room_for_them(models, monkeypatch):
    trainer, _ = trained(models)
    tight = HostMemory(used=2**30, limit=2**30 + 1, peak=None, oom_kills=0)
    monkeypatch.setattr(offload.host_memory, "read", lambda: tight)
    assert trainer.optimizer_states.spare() == 0
    assert not in_buffer(trainer.optimizer_states)


def test_states_of_several_types_are_saved_and_come_back(tmp_path):
    """As 8-bit optimizers have them."""
    first, second = torch.arange(64.0), torch.arange(64, dtype=torch.uint8)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))])
    optimizer.state[0] = {"exp_avg": first.clone(), "quantised": second.clone()}
    phases = step_trainers.Phases()
    states = OptimizerStates(lambda: optimizer, phases.handover, always=True)
    assert states.leave() == 2 * offload.ALIGNMENT
    torch.save(dict(optimizer.state[0]), tmp_path / "states.pt")
    states.come_back()
    states.come_back()
    assert phases.moved == [
        ("optimizer states to the host", 2 * offload.ALIGNMENT),
        ("optimizer states to the device", first.nbytes + second.nbytes),
    ]
    for found in (torch.load(tmp_path / "states.pt"), optimizer.state[0]):
        assert torch.equal(found["exp_avg"], first)
        assert torch.equal(found["quantised"], second)


def test_what_is_saved_can_be_loaded(models, tmp_path):
    trainer, _ = trained(models, offload=True)
    torch.save(trainer.optimizer.state_dict(), tmp_path / "optimizer.pt")
    there, _ = trained(models)
    saved, kept = torch.load(tmp_path / "optimizer.pt")["state"], there.optimizer.state_dict()["state"]
    assert saved.keys() == kept.keys()
    assert all(equal(saved[number], kept[number]) for number in kept)
