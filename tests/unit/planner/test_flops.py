"""Operations of a model's mathematics, against PaLM's formula and against sums over every pair of tokens."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colocated_runtime.planner.flops import generation_flops, training_flops
from colocated_runtime.planner.models import QWEN2_5_7B, QWEN3_30B_A3B

SHAPES = st.sampled_from([QWEN2_5_7B, QWEN3_30B_A3B])
LENGTHS = st.lists(st.integers(1, 300), min_size=1, max_size=8)


def test_palms_formula() -> None:
    """6 N + 12 L H Q T for each token of a sequence of T, its attention halved; Qwen2.5-7B has 28 layers and heads of
    128, and 7.07 billion parameters beside the embedding."""
    tokens = 4096
    palm = 6 * 7_070_619_136 + 12 * 28 * 28 * 128 * tokens / 2
    assert training_flops(QWEN2_5_7B, [tokens]) / tokens == pytest.approx(palm, rel=1e-3)


def test_of_experts_only_those_that_work_count() -> None:
    assert training_flops(QWEN3_30B_A3B, [1]) == pytest.approx(6 * 3.0e9, rel=0.05)


def test_short_completions_are_two_operations_a_parameter() -> None:
    per_token = generation_flops(QWEN2_5_7B, [1] * 8, [8] * 8) / 64
    assert per_token == pytest.approx(2 * QWEN2_5_7B.active_parameters, rel=1e-3)


@given(SHAPES, LENGTHS)
def test_frozen_weights_need_two_thirds_of_it_but_for_attention(shape: object, lengths: list[int]) -> None:
    full, frozen = (training_flops(shape, lengths, frozen=kind) for kind in (False, True))  # type: ignore[arg-type]
    assert full - frozen == pytest.approx(2 * shape.active_parameters * sum(lengths))  # type: ignore[attr-defined]


@given(st.integers(1, 200), st.integers(1, 200))
def test_attention_is_a_sum_over_pairs(prompt: int, completion: int) -> None:
    """To within the half pair of each token that the formula takes for the diagonal."""
    pairs = sum(range(prompt, prompt + completion))
    layers, width = QWEN2_5_7B.num_hidden_layers, QWEN2_5_7B.query_size
    attention = generation_flops(QWEN2_5_7B, [prompt], [completion]) - 2 * QWEN2_5_7B.active_parameters * completion
    assert attention / (4 * layers * width) == pytest.approx(pairs + completion / 2)


@given(LENGTHS, LENGTHS)
def test_sequences_add_up(one: list[int], other: list[int]) -> None:
    parts = training_flops(QWEN2_5_7B, one) + training_flops(QWEN2_5_7B, other)
    assert training_flops(QWEN2_5_7B, one + other) == pytest.approx(parts)
