"""How far the sampler's log-probabilities are from the trainer's: TRL's correction for it, and its metrics.

TRL computes both in the rollout, from a pass of its own over all completions. Where that pass is skipped they come
from the training step's log-probabilities, which are the same: no weight has changed in between.
"""

import math

import torch


def importance_ratio(
    trainer: torch.Tensor,
    sampler: torch.Tensor,
    mask: torch.Tensor,
    *,
    mode: str,
    low: float | None,
    high: float | None,
) -> torch.Tensor:
    """TRL's `vllm_importance_sampling_ratio`: [rows, tokens], or [rows, 1] in the sequence modes.

    exp(trainer - sampler), bounded or, beyond the bounds, zero. Tokens that the sampler could not score (NaN) count
    as equal. The formula of `GRPOTrainer._generate_and_score_completions`, TRL 1.16.
    """
    difference = torch.nan_to_num((trainer - sampler) * mask, nan=0.0)
    if mode.startswith("sequence"):
        difference = difference.sum(dim=-1, keepdim=True)
    ratio = torch.exp(difference)
    if mode.endswith("truncate"):
        return torch.clamp(ratio, min=low, max=high)
    outside = (ratio < (-math.inf if low is None else low)) | (ratio > (math.inf if high is None else high))
    return ratio.masked_fill(outside, 0.0)


def differences(trainer: torch.Tensor, sampler: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """|trainer - sampler| of the tokens under `mask` that the sampler could score."""
    delta = (trainer - sampler).abs()
    return delta[mask.bool() & ~torch.isnan(delta)]


def joined(values: list[torch.Tensor]) -> torch.Tensor:
    """All of them in one row; a zero where there is none, since an empty row has no mean."""
    row = torch.cat([value.flatten() for value in values])
    return row if row.numel() else row.new_zeros(1)
