"""Completions without padding: how they are cut into pieces of so many tokens, and scored in one row.

A row of TRL's batches is a prompt, padded on its left, and a completion, padded on its right.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812

Piece = list[int]
"""Indices of the rows that go through the model together."""


def packed_pieces(lengths: Sequence[int], tokens: int) -> list[Piece]:
    """Rows in their order, `tokens` a piece at most; a longer row is a piece of its own. `lengths` in tokens.

    Without padding a long row costs its neighbours nothing, so nothing is gained by sorting.
    """
    return _cut(range(len(lengths)), lengths, tokens, padded=False)


def padded_pieces(lengths: Sequence[int], tokens: int) -> list[Piece]:
    """Rows from the longest to the shortest; a piece has `tokens` at most, counting all its rows as long as its first.

    For models that cannot run packed: rows of like length share a piece, so that little of it is padding.
    """
    order = sorted(range(len(lengths)), key=lambda row: -lengths[row])
    return _cut(order, lengths, tokens, padded=True)


def _cut(order: Sequence[int], lengths: Sequence[int], tokens: int, *, padded: bool) -> list[Piece]:
    pieces: list[Piece] = []
    used = 0
    for row in order:
        size = lengths[pieces[-1][0]] if padded and pieces else lengths[row]
        if pieces and used + size <= tokens:
            pieces[-1].append(row)
            used += size
        else:
            pieces.append([row])
            used = lengths[row]
    return pieces


def cut_further(pieces: Sequence[Piece], count: int) -> list[Piece]:
    """At least `count` pieces of the same rows: those of most rows are cut in two. There must be as many rows."""
    found = list(pieces)
    while len(found) < count:
        largest = max(range(len(found)), key=lambda index: len(found[index]))
        rows = found[largest]
        found[largest : largest + 1] = [rows[: len(rows) // 2], rows[len(rows) // 2 :]]
    return found


def score_packed(
    model: Any, ids: torch.Tensor, mask: torch.Tensor, completion: int, *, autocast: AbstractContextManager[Any]
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Log-probability and entropy (None if the model's head gives none) of each completion token, 0 elsewhere.

    `ids` and `mask` [rows, prompt + completion]; the result is [rows, completion], as TRL's own scoring has it. TRL's
    fused head computes the logits in tiles, so that those of all tokens never exist at once.
    """
    real = mask.bool()
    labels = ids.masked_fill(~real, -100)
    labels[:, :-completion] = -100
    labels = F.pad(labels[:, 1:], (0, 1), value=-100)[real][None]
    position = (real.cumsum(1) - 1)[real][None]
    lengths = real.sum(1)
    bounds = F.pad(lengths.cumsum(0), (1, 0)).to(torch.int32)
    longest = int(lengths.max())
    with autocast:
        output = model(
            input_ids=ids[real][None], position_ids=position, shift_labels=labels, fused_lm_head=True,
            cu_seq_lens_q=bounds, cu_seq_lens_k=bounds, max_length_q=longest, max_length_k=longest,
        )  # fmt: skip
    scored, wanted = labels != -100, real[:, -completion:]

    def unpacked(values: torch.Tensor) -> torch.Tensor:
        return values.new_zeros(wanted.shape).masked_scatter(wanted, values[scored])

    return unpacked(output.log_probs), None if output.entropy is None else unpacked(output.entropy)
