"""Operations that the mathematics of a model needs, for its utilisation of a device.

By PaLM's appendix B (arxiv.org/abs/2204.02311): two operations for each parameter and token forwards, four backwards,
and attention's products of queries, keys and values, which PaLM counts in full and we, being causal, by half. Nothing
that is computed a second time counts, nor padding; so the share of the peak says what a faster program could gain.
"""

from collections.abc import Sequence

from colocated_runtime.planner.shapes import Shape

FORWARD, BACKWARD = 2, 4
"""For each parameter and token. Where the weights are frozen, as under LoRA, the backward pass needs half of it."""


def training_flops(shape: Shape, lengths: Sequence[int], *, frozen: bool = False) -> float:
    """Forward and backward pass over sequences of `lengths` tokens.

    `frozen`: no gradients of the weights; the adapters' own are left out, being less than a hundredth.
    """
    by_parameter = FORWARD + (BACKWARD / 2 if frozen else BACKWARD)
    attended = sum(length * length for length in lengths) / 2
    return by_parameter * shape.active_parameters * sum(lengths) + 3 * _attention(shape, attended)


def generation_flops(shape: Shape, prompts: Sequence[int], completions: Sequence[int]) -> float:
    """Sampling of completions after prompts of so many tokens. The prompts' own pass, which the completions of one
    prompt share, is not counted."""
    attended = sum(
        completion * (prompt + completion / 2) for prompt, completion in zip(prompts, completions, strict=True)
    )
    return FORWARD * shape.active_parameters * sum(completions) + _attention(shape, attended)


def _attention(shape: Shape, attended: float) -> float:
    """Forwards, for so many pairs of a query and a key: a product with the key and one with the value."""
    return 4 * shape.num_hidden_layers * shape.query_size * attended
