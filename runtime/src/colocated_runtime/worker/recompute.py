"""How much of the forward pass is kept for the backward pass, and how much is computed again.

TRL switches gradient checkpointing off around scoring and on again with the options that it was given, so a choice
that those cannot express is made anew before every optimizer step.
"""

import functools
from typing import Any

import torch
from torch.utils.checkpoint import create_selective_checkpoint_contexts

from colocated_runtime.planner.features import Checkpointing

KEPT = (
    "aten.mm.default",
    "aten.addmm.default",
    "aten._scaled_dot_product_flash_attention.default",
    "aten._scaled_dot_product_flash_attention_for_cpu.default",
    "aten._scaled_dot_product_efficient_attention.default",
    "aten._scaled_dot_product_cudnn_attention.default",
    "aten._flash_attention_forward.default",
    "torch_attn._varlen_attn.default",
)
"""Operations whose results selective checkpointing keeps: nearly all of a layer's arithmetic."""


def set_recompute(model: Any, choice: Checkpointing, options: dict[str, Any] | None) -> None:
    """Make `choice` the model's. `options` are TRL's `gradient_checkpointing_kwargs`."""
    if choice == "none":
        model.gradient_checkpointing_disable()
        return
    model.disable_input_require_grads()  # switching on adds a hook each time
    if choice == "selective":
        contexts = functools.partial(create_selective_checkpoint_contexts, kept_operations())
        model.gradient_checkpointing_enable({"use_reentrant": False, "context_fn": contexts})
    else:
        model.gradient_checkpointing_enable(options, every_n_layers=2 if choice == "half" else 1)


@functools.cache
def kept_operations() -> list[Any]:
    """Those of KEPT that this torch has."""
    from torch.nn.attention import varlen  # registers its operation

    assert varlen
    found = []
    for name in KEPT:
        space, operation, overload = name.split(".")
        packet = getattr(getattr(torch.ops, space), operation, None)
        if packet is not None:
            found.append(getattr(packet, overload))
    return found
