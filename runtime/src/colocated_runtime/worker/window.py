"""The micro-batches of one optimizer step, taken through the model in pieces that need not be TRL's micro-batches.

The loss stays TRL's own: it is asked for each micro-batch's loss of given log-probabilities, and its derivative goes
backwards through the pieces. That is exact where a row's derivative depends on that row and on constants of its
micro-batch alone (its number of rows or tokens, the length limits): all of TRL's loss types, whatever they divide by.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812

from colocated_runtime.worker.packing import Piece

MicroBatch = dict[str, Any]
"""What TRL's `_compute_loss` takes: `prompt_ids`, `completion_ids` and their masks [rows, tokens], and the rest."""
Loss = Callable[[MicroBatch, torch.Tensor, torch.Tensor], torch.Tensor]
"""TRL's loss of a micro-batch whose completions have these log-probabilities and entropies [rows, tokens]."""


@dataclass(frozen=True)
class Part:
    """One micro-batch's place in the window: its rows, and how long its completions are padded."""

    inputs: MicroBatch
    rows: slice
    tokens: int


class Window:
    """All rows of the micro-batches, one below the other; what the policy gives them is filled in piece by piece."""

    def __init__(self, micro_batches: list[MicroBatch]) -> None:
        self.ids = _stacked(micro_batches, "ids")
        self.mask = _stacked(micro_batches, "mask")
        self.completion = max(batch["completion_ids"].shape[1] for batch in micro_batches)
        self.parts: list[Part] = []
        first = 0
        for batch in micro_batches:
            rows, tokens = batch["completion_ids"].shape
            self.parts.append(Part(batch, slice(first, first + rows), tokens))
            first += rows
        self.lengths: list[int] = self.mask.sum(dim=1).tolist()
        """Tokens of each row, prompt and completion."""
        shape, device = (first, self.completion), self.ids.device
        self._log_probs = torch.zeros(shape, device=device)
        self._entropies = torch.zeros(shape, device=device)

    def log_probs(self, part: Part) -> torch.Tensor:
        """[rows, tokens] of one micro-batch; zero where no piece has been there yet."""
        return self._log_probs[part.rows, : part.tokens]

    def entropies(self, part: Part) -> torch.Tensor:
        """Likewise."""
        return self._entropies[part.rows, : part.tokens]

    def fill(self, piece: Piece, log_probs: torch.Tensor, entropies: torch.Tensor, loss: Loss) -> torch.Tensor:
        """Note what the model gives the rows of `piece`, [rows, completion] with its graph.

        Returns a scalar whose backward pass is that of the piece's share of the loss.
        """
        self._log_probs[piece] = log_probs.detach()
        self._entropies[piece] = entropies.detach()
        slopes = [torch.zeros_like(self._log_probs), torch.zeros_like(self._entropies)]
        rows, bonus = set(piece), False
        for part in self.parts:
            if rows.isdisjoint(range(part.rows.start, part.rows.stop)):
                continue
            leaves = [values(part).clone().requires_grad_() for values in (self.log_probs, self.entropies)]
            with torch.enable_grad():
                value = loss(part.inputs, *leaves)
            found = torch.autograd.grad(value, leaves, allow_unused=True)
            slopes[0][part.rows, : part.tokens] = found[0]
            if found[1] is not None:
                slopes[1][part.rows, : part.tokens], bonus = found[1], True
        backwards = (log_probs * slopes[0][piece]).sum()
        # Without an entropy bonus the head's backward pass has less to do.
        return backwards + (entropies * slopes[1][piece]).sum() if bonus else backwards

    @torch.no_grad()
    def loss(self, loss: Loss) -> torch.Tensor:
        """The sum over all micro-batches, once all rows are filled."""
        return torch.stack([loss(part.inputs, self.log_probs(part), self.entropies(part)) for part in self.parts]).sum()


def _stacked(micro_batches: list[MicroBatch], kind: str) -> torch.Tensor:
    """Prompts and completions of all micro-batches, [rows, tokens]; those of several rollouts differ in width."""
    prompt, completion = (
        max(batch[f"{side}_ids"].shape[1] for batch in micro_batches) for side in ("prompt", "completion")
    )
    return torch.cat(
        [
            torch.cat(
                [
                    F.pad(batch[f"prompt_{kind}"], (prompt - batch[f"prompt_{kind}"].shape[1], 0)),
                    F.pad(batch[f"completion_{kind}"], (0, completion - batch[f"completion_{kind}"].shape[1])),
                ],
                dim=1,
            )
            for batch in micro_batches
        ]
    )


def completion_mask(inputs: MicroBatch) -> torch.Tensor:
    """The tokens of a micro-batch that count, [rows, tokens]: what tools said does not."""
    mask: torch.Tensor = inputs["completion_mask"]
    return mask * inputs["tool_mask"] if "tool_mask" in inputs else mask
