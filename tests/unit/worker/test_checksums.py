"""Checksums of the engine's and the trainer's weights: the same in any layout, another after any change of values."""

import random

import pytest

pytestmark = pytest.mark.torch

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from colocated_runtime.worker import checksums  # noqa: E402

WIDTHS = {"q_proj": 8, "k_proj": 4, "v_proj": 4, "o_proj": 8}


def trainer(dtype):
    torch.manual_seed(1)
    model = nn.Module()
    model.embed_tokens = nn.Embedding(50, 8)
    model.attention = nn.ModuleDict({name: nn.Linear(8, width) for name, width in WIDTHS.items()})
    model.norm = nn.LayerNorm(8)
    return model.to(dtype)


def engine(model):
    """As vLLM holds it: query, key and value fused, the vocabulary padded, one matrix packed for the kernels."""
    made = nn.Module()
    made.packed_modules_mapping = {"qkv_proj": ["q_proj", "k_proj", "v_proj"]}
    fused, dtype = nn.Linear(8, 16), model.norm.weight.dtype
    made.attention = nn.ModuleDict({"qkv_proj": fused, "o_proj": nn.Linear(8, 8)})
    made.embed_tokens, made.norm = nn.Embedding(64, 8), nn.LayerNorm(8)
    made.to(dtype)
    load(made, model)
    return made


@torch.no_grad()
def load(made, model, leave_out=""):
    parts = model.attention
    for kind in ("weight", "bias"):
        fused = [getattr(parts[name], kind) for name in ("q_proj", "k_proj", "v_proj")]
        getattr(made.attention["qkv_proj"], kind).copy_(torch.cat(fused))
        if leave_out != "norm":
            getattr(made.norm, kind).copy_(getattr(model.norm, kind))
    made.attention["o_proj"].weight.copy_(3 * parts["o_proj"].weight)
    made.attention["o_proj"].bias.copy_(parts["o_proj"].bias)
    made.embed_tokens.weight.zero_()
    made.embed_tokens.weight[:50] = model.embed_tokens.weight


def comparable(made, model):
    return checksums.comparable(checksums.of_engine(made), checksums.of_trainer(model))


def equal(made, model):
    return checksums.equal(checksums.of_engine(made), checksums.of_trainer(model))


@pytest.fixture(params=[torch.bfloat16, torch.float32], ids=["bfloat16", "float32"])
def pair(request):
    model = trainer(request.param)
    return engine(model), model


def test_any_layout_but_a_packed_one(pair):
    """Nor what is all zeros, as the norm's bias: that says nothing of a layout, and raised false alarms."""
    fused = {tuple(f"attention.{part}_proj.{kind}" for part in "qkv") for kind in ("weight", "bias")}
    single = {"embed_tokens.weight", "norm.weight", "attention.o_proj.bias"}
    assert comparable(*pair) == fused | {(name,) for name in single}


def test_a_hundred_changes_of_one_number_are_found(pair):
    made, model = pair
    known = comparable(made, model)
    draw = random.Random(3)
    for _ in range(100):
        parts = draw.choice(sorted(known))
        values = dict(model.named_parameters())[draw.choice(parts)].detach().view(-1)
        place = draw.randrange(len(values))
        before = values[place].clone()
        values[place] += before.abs() / 64 + 1e-3
        assert known - equal(made, model) == {parts}
        values[place] = before


def test_a_thousand_good_syncs_raise_no_alarm_and_one_left_out_tensor_does(pair):
    made, model = pair
    known = comparable(made, model)
    for step in range(1000):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += 1e-2 * torch.randn_like(parameter)
        load(made, model, leave_out="norm" if step == 999 else "")
        assert len(known - equal(made, model)) == (step == 999)


def test_nothing_in_common(pair):
    assert checksums.equal({}, checksums.of_trainer(pair[1])) == set()
