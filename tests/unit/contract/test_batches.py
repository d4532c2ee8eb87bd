"""TRL's batch arithmetic, as its own __post_init__ does it; a test marked torch compares the two."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from colocated_runtime.contract.batches import batches


def test_defaults_are_those_of_trl() -> None:
    made = batches({}, "grpo", 4)
    assert (made.generation_batch, made.num_generations, made.prompts, made.per_rank) == (32, 8, 4, 8)


def test_steps_per_generation_follows_accumulation() -> None:
    assert batches({"gradient_accumulation_steps": 4}, "grpo", 1).steps_per_generation == 4
    assert batches({"gradient_accumulation_steps": 4, "steps_per_generation": 2}, "grpo", 1).steps_per_generation == 2


def test_generation_batch_size_gives_steps() -> None:
    made = batches({"generation_batch_size": 64, "per_device_train_batch_size": 4}, "grpo", 2)
    assert (made.steps_per_generation, made.per_rank) == (8, 32)


def test_refusal_names_divisors() -> None:
    with pytest.raises(ValueError, match=r"num_generations: 7 .* use num_generations 6 or 8, or another batch size"):
        batches({"num_generations": 7, "per_device_train_batch_size": 24}, "grpo", 1)


def test_refusal_where_no_smaller_divisor_exists() -> None:
    with pytest.raises(ValueError, match="use num_generations 5, or"):
        batches({"num_generations": 4, "per_device_train_batch_size": 5}, "grpo", 1)


SIZES = st.integers(1, 12)
TRAINER = st.fixed_dictionaries(
    {},
    optional={
        "per_device_train_batch_size": SIZES,
        "gradient_accumulation_steps": SIZES,
        "steps_per_generation": SIZES,
        "generation_batch_size": st.integers(1, 96),
        "num_generations": st.integers(2, 16),
    },
)


@given(trainer=TRAINER, world_size=st.integers(1, 4))
def test_whatever_passes_is_whole(trainer: dict[str, Any], world_size: int) -> None:
    try:
        made = batches(trainer, "grpo", world_size)
    except ValueError:
        return  # the test marked torch shows that TRL refuses the same
    assert made.prompts * made.num_generations == made.generation_batch == made.per_rank * world_size


@pytest.mark.torch
@settings(deadline=None)  # the first call imports torch
@given(trainer=TRAINER)
def test_same_answer_as_trl(trainer: dict[str, Any]) -> None:
    from trl import GRPOConfig

    try:
        mine: Any = batches(trainer, "grpo", 1)
    except ValueError:
        mine = None
    try:
        theirs: Any = GRPOConfig(output_dir="unused", use_cpu=True, bf16=False, **trainer)
    except ValueError:
        theirs = None
    assert (mine is None) == (theirs is None)
    if mine:
        assert (mine.generation_batch, mine.steps_per_generation) == (
            theirs.generation_batch_size,
            theirs.steps_per_generation,
        )
