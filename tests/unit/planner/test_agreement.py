"""What a model cannot have on any device."""

from typing import Any

import pytest
from tests.unit.planner.jobs import job

from colocated_runtime.contract.job import Model
from colocated_runtime.planner.agreement import disagreements
from colocated_runtime.planner.shapes import shape_of, shape_of_config


def said(model: str = "Qwen/Qwen2.5-7B-Instruct", **fields: Any) -> list[str]:
    spec = job(model, **fields)
    assert spec.model is not None
    shape = shape_of(spec.model)
    assert shape is not None
    return disagreements(spec, shape)


def divided(model: str, ranks: int, gpus: int) -> list[str]:
    return said(model, gpusPerNode=gpus, parallelism={"tensorParallel": ranks})


def test_what_goes_together() -> None:
    assert said(trainer={"max_completion_length": 32_000}) == []
    assert said(trainer={"max_completion_length": 512, "vllm_max_model_length": 32_768}) == []
    assert divided("Qwen/Qwen2.5-7B", 4, 8) == []
    assert divided("Qwen/Qwen2.5-0.5B", 2, 2) == []
    assert divided("Qwen/Qwen2.5-1.5B", 4, 4) == []  # two key heads: each is copied to two ranks


@pytest.mark.parametrize(
    ("model", "ranks", "gpus", "words"),
    [
        ("Qwen/Qwen2.5-0.5B", 4, 4, "4 does not divide the model's 14 attention heads; use 1 or 2"),
        ("Qwen/Qwen2.5-7B", 8, 8, "8 does not divide the model's 28 attention heads; use 1 or 2 or 4"),
        ("meta-llama/Llama-3.2-3B", 6, 6, "6 does not divide the model's 8 key and value heads, nor is it a multiple"),
        ("Qwen/Qwen2.5-1.5B", 3, 3, "3 does not divide the model's 2 key and value heads"),
        ("Qwen/Qwen2.5-1.5B", 12, 12, "12 does not divide the model's intermediate_size 8960; use 1 or 2 or 4"),
    ],
)
def test_tensor_parallel_divides_heads_and_width(model: str, ranks: int, gpus: int, words: str) -> None:
    (message,) = divided(model, ranks, gpus)
    assert message.startswith(f"parallelism.tensorParallel: {words}")


@pytest.mark.parametrize(
    ("trainer", "words"),
    [
        (
            {"max_completion_length": 40_000},
            "trainer.max_completion_length: 40000 leaves no room for a prompt in the model's max_position_embeddings"
            " 32768; use at most 32768 less the longest prompt",
        ),
        (
            {"vllm_max_model_length": 40_000},
            "trainer.vllm_max_model_length: 40000 is more than the model's max_position_embeddings 32768; use at most"
            " 32768",
        ),
    ],
)
def test_sequences_are_no_longer_than_the_models_positions(trainer: dict[str, Any], words: str) -> None:
    assert said(trainer=trainer) == [words]


def test_quantised_weights_are_not_trained() -> None:
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128,
             "vocab_size": 1000}  # fmt: skip
    shape = shape_of_config({**sizes, "model_type": "llama", "quantization_config": {"quant_method": "awq"}})
    (message,) = disagreements(job(), shape)
    assert message.startswith("model.source: hf://Qwen/Qwen2.5-7B has quantised weights (quantization_config: awq)")


def test_the_shape_in_the_spec_counts_more_than_the_name() -> None:
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 6, "num_key_value_heads": 2,
             "head_dim": 16, "intermediate_size": 128, "vocab_size": 1000, "max_position_embeddings": 300}  # fmt: skip
    model = Model.model_validate({"source": "hf://Qwen/Qwen2.5-7B", "shape": sizes})
    shape = shape_of(model)
    assert shape is not None
    (message,) = disagreements(job(trainer={"max_completion_length": 300}), shape)
    assert "max_position_embeddings 300" in message


@pytest.mark.parametrize(
    ("model", "names", "words"),
    [
        (
            "Qwen/Qwen2.5-7B",
            ["q_porj", "v_proj"],
            "q_porj: the model has no module q_porj; did you mean q_proj? There are q_proj, k_proj",
        ),
        ("Qwen/Qwen2.5-7B", ["c_attn"], "no module c_attn; there are q_proj, k_proj, v_proj, o_proj, gate_proj, up_"),
        (
            "Qwen/Qwen2.5-7B",
            ["self_atn.q_proj"],
            "self_atn.q_proj: the model has no module self_atn; did you mean self_",
        ),
        ("google/gemma-2b", ["qkv_proj"], "down_proj, or leave it out for all linear layers"),
    ],
)
def test_modules_that_adapters_would_pass_over(model: str, names: list[str], words: str) -> None:
    (message,) = said(model, lora={"target_modules": names})
    assert message.startswith("lora.target_modules: ")
    assert words in message


def test_modules_that_there_are() -> None:
    assert said(lora={}) == []
    assert said(lora={"target_modules": ["q_proj", "mlp.down_proj", "model.layers.3.self_attn.o_proj"]}) == []
    unverified = shape_of_config({"model_type": "gpt_neox", "hidden_size": 64, "num_hidden_layers": 2,
                                  "num_attention_heads": 4, "intermediate_size": 64, "vocab_size": 99})  # fmt: skip
    assert disagreements(job(lora={"target_modules": ["query_key_value"]}), unverified) == []


@pytest.mark.parametrize("model", ["Qwen/Qwen3-30B-A3B", "mistralai/Mixtral-8x7B-v0.1"])
def test_a_mixture_of_experts_is_told_before_it_is_downloaded(model: str) -> None:
    (message,) = said(model, lora={"target_modules": ["w1"]})
    assert message.startswith(f"model.source: hf://{model} is a mixture of ")
    assert message.endswith("use a dense model")
