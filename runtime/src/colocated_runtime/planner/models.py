"""Shapes of well-known models, from their public config.json files. Parameter counts are checked by a test."""

from dataclasses import replace
from typing import Any

from colocated_runtime.planner.shapes import FAMILIES, Shape


def _shape(
    family: str, hidden: int, layers: int, heads: int, kv_heads: int, wide: int, vocab: int, **more: Any
) -> Shape:
    traits = FAMILIES[family]
    experts = more.get("num_experts", 0)
    fields: dict[str, Any] = {
        "head_dim": traits.head_dim or hidden // heads,
        "tie_word_embeddings": traits.tied,
        "intermediate_size": 0 if experts else wide,
        "moe_intermediate_size": wide if experts else 0,
        **more,
    }
    return Shape(
        family=family,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        vocab_size=vocab,
        qkv_bias=traits.qkv_bias,
        **fields,
    )


_QWEN2_SMALL, _QWEN2_LARGE, _LLAMA3 = 151_936, 152_064, 128_256
_TIED: dict[str, Any] = {"tie_word_embeddings": True}

QWEN2_5_0_5B = _shape("qwen2", 896, 24, 14, 2, 4864, _QWEN2_SMALL, **_TIED, max_position_embeddings=32_768)
QWEN2_5_1_5B = _shape("qwen2", 1536, 28, 12, 2, 8960, _QWEN2_SMALL, **_TIED, max_position_embeddings=32_768)
QWEN2_5_3B = _shape("qwen2", 2048, 36, 16, 2, 11_008, _QWEN2_SMALL, **_TIED, max_position_embeddings=32_768)
QWEN2_5_7B = _shape("qwen2", 3584, 28, 28, 4, 18_944, _QWEN2_LARGE, max_position_embeddings=32_768)
QWEN2_5_14B = _shape("qwen2", 5120, 48, 40, 8, 13_824, _QWEN2_LARGE, max_position_embeddings=32_768)
QWEN2_5_32B = _shape("qwen2", 5120, 64, 40, 8, 27_648, _QWEN2_LARGE, max_position_embeddings=32_768)
QWEN2_5_72B = _shape("qwen2", 8192, 80, 64, 8, 29_568, _QWEN2_LARGE, max_position_embeddings=32_768)
QWEN3_0_6B = _shape("qwen3", 1024, 28, 16, 8, 3072, _QWEN2_SMALL, **_TIED, max_position_embeddings=40_960)
QWEN3_1_7B = _shape("qwen3", 2048, 28, 16, 8, 6144, _QWEN2_SMALL, **_TIED, max_position_embeddings=40_960)
QWEN3_4B = _shape("qwen3", 2560, 36, 32, 8, 9728, _QWEN2_SMALL, **_TIED, max_position_embeddings=40_960)
QWEN3_8B = _shape("qwen3", 4096, 36, 32, 8, 12_288, _QWEN2_SMALL, max_position_embeddings=40_960)
QWEN3_14B = _shape("qwen3", 5120, 40, 40, 8, 17_408, _QWEN2_SMALL, max_position_embeddings=40_960)
QWEN3_32B = _shape("qwen3", 5120, 64, 64, 8, 25_600, _QWEN2_SMALL, max_position_embeddings=40_960)
QWEN3_30B_A3B = _shape(
    "qwen3_moe", 2048, 48, 32, 4, 768, _QWEN2_SMALL, head_dim=128, num_experts=128, num_experts_per_tok=8,
    max_position_embeddings=40_960,
)  # fmt: skip
LLAMA3_2_1B = _shape("llama", 2048, 16, 32, 8, 8192, _LLAMA3, **_TIED, max_position_embeddings=131_072)
LLAMA3_2_3B = _shape("llama", 3072, 28, 24, 8, 8192, _LLAMA3, **_TIED, max_position_embeddings=131_072)
LLAMA3_8B = _shape("llama", 4096, 32, 32, 8, 14_336, _LLAMA3, max_position_embeddings=131_072)
LLAMA3_70B = _shape("llama", 8192, 80, 64, 8, 28_672, _LLAMA3, max_position_embeddings=131_072)
MISTRAL_7B = _shape("mistral", 4096, 32, 32, 8, 14_336, 32_000, max_position_embeddings=32_768)
MISTRAL_7B_V0_3 = _shape("mistral", 4096, 32, 32, 8, 14_336, 32_768, max_position_embeddings=32_768)
MIXTRAL_8X7B = _shape(
    "mixtral", 4096, 32, 32, 8, 14_336, 32_000, num_experts=8, num_experts_per_tok=2, max_position_embeddings=32_768
)
GEMMA_2B = _shape("gemma", 2048, 18, 8, 1, 16_384, 256_000, max_position_embeddings=8192)
GEMMA_7B = _shape("gemma", 3072, 28, 16, 16, 24_576, 256_000, max_position_embeddings=8192)
GEMMA_2_2B = _shape("gemma2", 2304, 26, 8, 4, 9216, 256_000, max_position_embeddings=8192)
GEMMA_2_9B = _shape("gemma2", 3584, 42, 16, 8, 14_336, 256_000, max_position_embeddings=8192)
GEMMA_2_27B = _shape("gemma2", 4608, 46, 32, 16, 36_864, 256_000, head_dim=128, max_position_embeddings=8192)
GEMMA_3_1B = _shape("gemma3_text", 1152, 26, 4, 1, 6912, 262_144, max_position_embeddings=32_768)
SMOLLM2_135M = _shape("llama", 576, 30, 9, 3, 1536, 49_152, **_TIED, max_position_embeddings=8192)
SMOLLM2_360M = _shape("llama", 960, 32, 15, 5, 2560, 49_152, **_TIED, max_position_embeddings=8192)
SMOLLM2_1_7B = _shape("llama", 2048, 24, 32, 32, 8192, 49_152, **_TIED, max_position_embeddings=8192)


def _long(shape: Shape) -> Shape:
    return replace(shape, max_position_embeddings=131_072)


_NAMES: dict[str, Shape] = {
    **{
        f"Qwen/Qwen2.5-{size}{kind}": _long(shape) if kind == "" and size not in ("0.5B", "3B") else shape
        for size, shape in {
            "0.5B": QWEN2_5_0_5B, "1.5B": QWEN2_5_1_5B, "3B": QWEN2_5_3B, "7B": QWEN2_5_7B, "14B": QWEN2_5_14B,
            "32B": QWEN2_5_32B, "72B": QWEN2_5_72B,
        }.items()
        for kind in ("", "-Instruct")
    },
    **{
        f"Qwen/Qwen2.5-{line}-{size}{kind}": shape
        for line, sizes in {
            "Coder": {"0.5B": QWEN2_5_0_5B, "1.5B": QWEN2_5_1_5B, "3B": QWEN2_5_3B, "7B": QWEN2_5_7B,
                      "14B": QWEN2_5_14B, "32B": QWEN2_5_32B},
            "Math": {size: replace(shape, max_position_embeddings=4096) for size, shape in {
                         "1.5B": QWEN2_5_1_5B, "7B": QWEN2_5_7B, "72B": QWEN2_5_72B}.items()},
        }.items()
        for size, shape in sizes.items()
        for kind in ("", "-Instruct")
    },
    **{
        f"Qwen/Qwen3-{size}{kind}": replace(shape, max_position_embeddings=32_768) if kind else shape
        for size, shape in {
            "0.6B": QWEN3_0_6B, "1.7B": QWEN3_1_7B, "4B": QWEN3_4B, "8B": QWEN3_8B, "14B": QWEN3_14B,
            "30B-A3B": QWEN3_30B_A3B,
        }.items()
        for kind in ("", "-Base")
    },
    "Qwen/Qwen3-32B": QWEN3_32B,
    "Qwen/QwQ-32B": _long(QWEN2_5_32B),
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-14B": _long(QWEN2_5_14B),
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-32B": _long(QWEN2_5_32B),
    "deepseek-ai/DeepSeek-R1-Distill-Llama-8B": LLAMA3_8B,
    "deepseek-ai/DeepSeek-R1-Distill-Llama-70B": LLAMA3_70B,
    **{
        f"meta-llama/{name}{kind}": shape
        for name, shape in {
            "Llama-3.2-1B": LLAMA3_2_1B, "Llama-3.2-3B": LLAMA3_2_3B, "Llama-3.1-8B": LLAMA3_8B,
            "Llama-3.1-70B": LLAMA3_70B,
            "Meta-Llama-3-8B": replace(LLAMA3_8B, max_position_embeddings=8192),
            "Meta-Llama-3-70B": replace(LLAMA3_70B, max_position_embeddings=8192),
        }.items()
        for kind in ("", "-Instruct")
    },
    "meta-llama/Llama-3.3-70B-Instruct": LLAMA3_70B,
    "mistralai/Mistral-7B-v0.1": MISTRAL_7B,
    "mistralai/Mistral-7B-Instruct-v0.1": MISTRAL_7B,
    "mistralai/Mistral-7B-Instruct-v0.2": MISTRAL_7B,
    "mistralai/Mistral-7B-v0.3": MISTRAL_7B_V0_3,
    "mistralai/Mistral-7B-Instruct-v0.3": MISTRAL_7B_V0_3,
    "mistralai/Mixtral-8x7B-v0.1": MIXTRAL_8X7B,
    "mistralai/Mixtral-8x7B-Instruct-v0.1": MIXTRAL_8X7B,
    **{
        f"google/{name}{kind}": shape
        for name, shape in {
            "gemma-2b": GEMMA_2B, "gemma-7b": GEMMA_7B, "gemma-2-2b": GEMMA_2_2B, "gemma-2-9b": GEMMA_2_9B,
            "gemma-2-27b": GEMMA_2_27B,
        }.items()
        for kind in ("", "-it")
    },
    "google/gemma-3-1b-pt": GEMMA_3_1B,
    "google/gemma-3-1b-it": GEMMA_3_1B,
    **{
        f"HuggingFaceTB/SmolLM2-{size}{kind}": shape
        for size, shape in {"135M": SMOLLM2_135M, "360M": SMOLLM2_360M, "1.7B": SMOLLM2_1_7B}.items()
        for kind in ("", "-Instruct")
    },
}  # fmt: skip

SHAPES: dict[str, Shape] = {name.lower(): shape for name, shape in _NAMES.items()}
"""By the hub's name in lower case."""
