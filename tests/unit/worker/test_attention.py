"""Packed attention gives each sequence what it gets alone; models whose attention is another are told apart."""

import pytest

pytestmark = pytest.mark.torch

torch = pytest.importorskip("torch")

from transformers import (  # noqa: E402
    AutoModelForCausalLM,
    Gemma2Config,
    LlamaConfig,
    MistralConfig,
    Qwen2Config,
    Qwen3Config,
)

from colocated_runtime.worker import attention  # noqa: E402

LENGTHS = [3, 1, 7]
SMALL = {
    "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 1, "head_dim": 16, "vocab_size": 64,
}  # fmt: skip


def states():
    torch.manual_seed(3)
    return [torch.randn(1, heads, sum(LENGTHS), 16) for heads in (4, 2, 2)]


def eager(query, key, value):
    """Softmax of masked products, written out."""
    key, value = (one.repeat_interleave(2, dim=0) for one in (key, value))
    scores = query @ key.transpose(1, 2) / 16**0.5
    hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    return scores.masked_fill(hidden, -torch.inf).softmax(-1) @ value


def test_each_sequence_by_itself():
    query, key, value = states()
    bounds = torch.tensor([0, 3, 4, 11], dtype=torch.int32)
    packed, _ = attention.varlen_attention(None, query, key, value, None, cu_seq_lens_q=bounds, max_length_q=7)
    assert packed.shape == (1, 11, 4, 16)
    first = 0
    for length in LENGTHS:
        alone = eager(*(one[0, :, first : first + length] for one in (query, key, value)))
        torch.testing.assert_close(packed[0, first : first + length].transpose(0, 1), alone)
        first += length


def test_rows_that_are_not_packed_are_refused():
    with pytest.raises(ValueError, match="cu_seq_lens_q is missing"):
        attention.varlen_attention(None, *states(), None)


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (Qwen2Config(**SMALL), ""),
        (Qwen3Config(**SMALL), ""),
        (LlamaConfig(**SMALL), ""),
        (Qwen2Config(**SMALL, use_sliding_window=True, sliding_window=4, max_window_layers=1), "window"),
        (MistralConfig(**SMALL, sliding_window=4), "window"),
        (Gemma2Config(**SMALL, layer_types=["full_attention"] * 2), "caps its attention"),
        (Qwen2Config(**SMALL, attention_dropout=0.1), "drops some"),
    ],
    ids=["qwen2", "qwen3", "llama", "qwen2 with a window", "mistral", "gemma2", "dropout"],
)
def test_which_models_run_packed(config, reason):
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    told = attention.why_not(model)
    assert reason in told
    assert bool(told) == bool(reason)


def test_a_users_own_attention_stays():
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(Qwen2Config(**SMALL), attn_implementation="eager")
    assert attention.why_not(model) == "the attention is eager, as model_init_kwargs say"
    # As where flash-attn is installed, which takes packed rows by itself.
    model.config._attn_implementation_internal = "flash_attention_2"
    assert attention.why_not(model) == ""
    attention.pack(model)
    assert model.config._attn_implementation == "flash_attention_2"


def test_the_saved_model_says_nothing_of_it(tmp_path):
    model = AutoModelForCausalLM.from_config(Qwen2Config(**SMALL))
    model.set_attn_implementation(attention.NAME)
    model.save_pretrained(tmp_path)
    assert attention.NAME not in (tmp_path / "config.json").read_text()
