"""Shapes: parameter counts as published, config.json files good and bad."""

from dataclasses import replace
from typing import Any

import pytest

from colocated_runtime.contract.job import Model
from colocated_runtime.planner.devices import GIB
from colocated_runtime.planner.engine import cache_bytes_per_token
from colocated_runtime.planner.models import SHAPES
from colocated_runtime.planner.shapes import known_shape, shape_of, shape_of_config

PUBLISHED = {
    "Qwen/Qwen2.5-0.5B": 494_032_768,
    "Qwen/Qwen2.5-1.5B": 1_543_714_304,
    "Qwen/Qwen2.5-3B": 3_085_938_688,
    "Qwen/Qwen2.5-7B": 7_615_616_512,
    "Qwen/Qwen2.5-14B": 14_770_033_664,
    "Qwen/Qwen2.5-32B": 32_763_876_352,
    "Qwen/Qwen2.5-72B": 72_706_203_648,
    "Qwen/Qwen3-0.6B": 596_049_920,
    "Qwen/Qwen3-1.7B": 1_720_574_976,
    "Qwen/Qwen3-4B": 4_022_468_096,
    "Qwen/Qwen3-8B": 8_190_735_360,
    "Qwen/Qwen3-14B": 14_768_307_200,
    "Qwen/Qwen3-32B": 32_762_123_264,
    "Qwen/Qwen3-30B-A3B": 30_532_122_624,
    "meta-llama/Llama-3.2-1B": 1_235_814_400,
    "meta-llama/Llama-3.2-3B": 3_212_749_824,
    "meta-llama/Llama-3.1-8B": 8_030_261_248,
    "meta-llama/Llama-3.1-70B": 70_553_706_496,
    "mistralai/Mistral-7B-v0.1": 7_241_732_096,
    "mistralai/Mistral-7B-v0.3": 7_248_023_552,
    "mistralai/Mixtral-8x7B-v0.1": 46_702_792_704,
    "google/gemma-2b": 2_506_172_416,
    "google/gemma-7b": 8_537_680_896,
    "google/gemma-2-2b": 2_614_341_888,
    "google/gemma-2-9b": 9_241_705_984,
    "google/gemma-2-27b": 27_227_128_320,
    "google/gemma-3-1b-it": 999_885_952,
    "HuggingFaceTB/SmolLM2-135M": 134_515_008,
    "HuggingFaceTB/SmolLM2-360M": 361_821_120,
    "HuggingFaceTB/SmolLM2-1.7B": 1_711_376_384,
}
"""As the hub shows them; tied output layers, which some files store twice, counted once."""

CACHE_BYTES = {
    "Qwen/Qwen2.5-0.5B": 12_288,
    "Qwen/Qwen2.5-7B": 57_344,
    "Qwen/Qwen2.5-72B": 327_680,
    "Qwen/Qwen3-0.6B": 114_688,
    "Qwen/Qwen3-30B-A3B": 98_304,
}

QWEN_7B: dict[str, Any] = {
    "model_type": "qwen2",
    "hidden_size": 3584,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "intermediate_size": 18_944,
    "vocab_size": 152_064,
    "tie_word_embeddings": False,
    "max_position_embeddings": 32_768,
}


@pytest.mark.parametrize(("name", "parameters"), PUBLISHED.items())
def test_parameters_are_those_published(name: str, parameters: int) -> None:
    found = known_shape(f"hf://{name}")
    assert found is not None
    assert found.parameters == parameters


def test_every_shape_of_the_table_is_checked() -> None:
    checked = {known_shape(name) for name in PUBLISHED}
    assert {replace(shape, max_position_embeddings=None) for shape in SHAPES.values()} == {
        replace(shape, max_position_embeddings=None) for shape in checked if shape
    }


@pytest.mark.parametrize(
    ("name", "tokens"),
    [
        ("Qwen/Qwen2.5-7B", 131_072),
        ("Qwen/Qwen2.5-7B-Instruct", 32_768),
        ("Qwen/Qwen2.5-3B", 32_768),
        ("Qwen/Qwen2.5-Math-7B", 4096),
        ("Qwen/Qwen3-4B-Base", 32_768),
        ("Qwen/Qwen3-4B", 40_960),
        ("meta-llama/Meta-Llama-3-8B", 8192),
        ("meta-llama/Llama-3.1-8B", 131_072),
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-14B", 131_072),
    ],
)
def test_the_longest_sequence_of_models_of_one_shape(name: str, tokens: int) -> None:
    found = known_shape(name)
    assert found is not None
    assert found.max_position_embeddings == tokens


def test_scaled_positions_are_not_guessed() -> None:
    for scaling in ({"type": "yarn", "factor": 4.0}, {"rope_type": "dynamic", "factor": 2.0}):
        assert shape_of_config({**QWEN_7B, "rope_scaling": scaling}).max_position_embeddings is None
    assert shape_of_config({**QWEN_7B, "rope_parameters": {"rope_type": "default"}}).max_position_embeddings == 32_768


@pytest.mark.parametrize(("name", "size"), CACHE_BYTES.items())
def test_cache_of_a_token(name: str, size: int) -> None:
    found = known_shape(name)
    assert found is not None
    assert cache_bytes_per_token(found, 1, 2) == size


def test_config_json_gives_the_same_as_the_table() -> None:
    assert shape_of_config(QWEN_7B) == known_shape("hf://Qwen/Qwen2.5-7B-Instruct")
    assert shape_of_config(QWEN_7B).parameters * 2 / GIB == pytest.approx(14.19, abs=0.01)


def test_a_vision_model_is_planned_by_its_text_part_and_marked() -> None:
    found = shape_of_config({"model_type": "qwen2_5_vl", "text_config": {**QWEN_7B, "model_type": "qwen2_5_vl_text"}})
    assert found.hidden_size == 3584
    assert not found.verified
    assert found.multimodal


@pytest.mark.parametrize("part", ["vision_config", "audio_config"])
def test_images_and_sound_are_marked_also_beside_a_known_text_part(part: str) -> None:
    found = shape_of_config({"model_type": "gemma3", "text_config": QWEN_7B, part: {"hidden_size": 1152}})
    assert (found.verified, found.multimodal) == (False, True)
    assert not shape_of_config({**QWEN_7B, part: {}}).verified


def test_quantised_weights_are_marked_with_their_method() -> None:
    found = shape_of_config({**QWEN_7B, "quantization_config": {"quant_method": "gptq", "bits": 4}})
    assert (found.verified, found.quantization) == (False, "gptq")
    nested = shape_of_config({"text_config": QWEN_7B, "quantization_config": {"load_in_4bit": True}})
    assert nested.quantization == "unnamed"
    assert shape_of_config({**QWEN_7B, "quantization_config": None}).quantization == ""


def test_a_tied_output_layer_may_be_told_outside_the_text_part() -> None:
    assert shape_of_config(
        {"tie_word_embeddings": True, "text_config": {**QWEN_7B, "tie_word_embeddings": None}}
    ).tie_word_embeddings


@pytest.mark.parametrize("name", ["tie_word_embeddings", "attention_bias", "mlp_bias"])
@pytest.mark.parametrize("value", ["false", "true", 0, []])
def test_a_boolean_is_true_or_false(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"config.json: {name}: .* is neither true nor false"):
        shape_of_config({**QWEN_7B, name: value})


def test_heads_of_their_own_width_need_not_divide_the_hidden_size() -> None:
    found = shape_of_config({**QWEN_7B, "num_attention_heads": 27, "num_key_value_heads": 9, "head_dim": 128})
    assert found.query_size == 27 * 128


def test_an_unknown_architecture_is_marked() -> None:
    assert not shape_of_config({**QWEN_7B, "model_type": "brandnew"}).verified
    assert shape_of_config(QWEN_7B).verified


def test_experts_between_dense_layers_are_marked() -> None:
    experts = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 768}
    moe = {**QWEN_7B, "model_type": "qwen3_moe", **experts}
    assert shape_of_config(moe).verified
    assert not shape_of_config({**moe, "decoder_sparse_step": 2}).verified


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_key_value_heads": 5}, "num_key_value_heads: 5 does not divide num_attention_heads 28"),
        ({"num_attention_heads": 27, "num_key_value_heads": 27}, "hidden_size: 3584 is no multiple"),
        ({"hidden_size": 0}, "hidden_size: 0"),
        ({"num_hidden_layers": -1}, "num_hidden_layers: -1"),
        ({"vocab_size": 10**12}, "vocab_size: 1000000000000"),
        ({"hidden_size": "wide"}, "hidden_size: 'wide' is no whole number"),
        ({"hidden_size": None}, "hidden_size is missing"),
        ({"num_experts": 4, "num_experts_per_tok": 8}, "num_experts_per_tok: 8 is not between 1 and num_experts 4"),
        ({"head_dim": 0}, "head_dim: 0"),
    ],
)
def test_impossible_sizes_are_refused_by_name(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        shape_of_config({**QWEN_7B, **changes})


def given(source: str, **shape: Any) -> Model:
    sizes = {name: value for name, value in QWEN_7B.items() if name not in ("model_type", "max_position_embeddings")}
    return Model.model_validate({"source": source, "shape": {**sizes, **shape}})


def test_model_shape_of_a_known_model_is_exact() -> None:
    found = shape_of(given("hf://Qwen/Qwen2.5-7B"))
    assert found is not None
    assert found.verified
    assert found.parameters == PUBLISHED["Qwen/Qwen2.5-7B"]


def test_model_shape_wins_over_the_table() -> None:
    found = shape_of(given("hf://Qwen/Qwen2.5-7B", num_hidden_layers=2))
    assert found is not None
    assert (found.num_hidden_layers, found.verified) == (2, False)


def test_model_shape_that_contradicts_itself_is_refused() -> None:
    with pytest.raises(ValueError, match="num_key_value_heads: 3"):
        shape_of(given("pvc://models/mine", num_key_value_heads=3))


def test_without_shape_and_name_nothing_is_known() -> None:
    assert shape_of(Model.model_validate({"source": "pvc://models/mine"})) is None
