"""What the runtime can do today. The search chooses among these, so it grows by editing this one constant."""

from dataclasses import dataclass
from typing import Literal

Sharding = Literal["none", "zero1", "zero2", "zero3", "fsdp"]
Offload = Literal["none", "optimizer", "optimizerAndGradients"]
Checkpointing = Literal["none", "selective", "half", "full"]
"""Which activations are recomputed: none, all but those of matrix products and attention, half of the layers, all."""


@dataclass(frozen=True)
class Features:
    """Of the runtime's worker."""

    sharding: tuple[Sharding, ...] = ("none", "fsdp")
    offload: tuple[Offload, ...] = ("none", "optimizer")
    checkpointing: tuple[Checkpointing, ...] = ("none", "selective", "half", "full")
    sleep_levels: tuple[Literal[0, 1, 2], ...] = (0, 2)
    """Level 1 copies weights to the host that every rollout takes from the trainer anyway: only where a user asks."""
    pieces: bool = True
    """Whether an optimizer step runs in pieces of so many tokens, whatever TRL's micro-batches are: without padding
    where the model can, without a pass of its own for the old log-probabilities where that is exact."""
    guests: bool = True
    """Whether reference and reward models are on the device for their passes alone, and in host memory else."""
    experts: bool = False
    """Whether weights of a mixture of experts can be handed to the engine: transformers keeps those of a layer in two
    tensors, under names that no checkpoint has (worker/weights.py refuse_uncovered)."""
    shared_weights: bool = False
    """Whether trainer and engine use one copy of the weights where the layout allows."""


RUNTIME = Features()
