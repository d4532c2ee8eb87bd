"""Attention over packed sequences: they lie in one row, one after the other, and none sees another.

Padding-free: transformers' own `sdpa` would build a mask of all tokens by all tokens. Registered through
transformers' public `AttentionInterface`; a name of which its mask functions know nothing gets no mask.
"""

import functools
import inspect
import itertools
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from transformers import AttentionInterface

NAME = "colocated_varlen"
FLASH_HEAD_DIM = 256
"""The flash kernel's largest head."""


def why_not(model: Any) -> str:
    """Why `model`'s attention cannot run packed; empty where it can."""
    config = model.config.get_text_config()
    chosen = config._attn_implementation
    layers = getattr(config, "layer_types", None) or ()
    if config is not model.config or set(layers) - {"full_attention", "sliding_attention"}:
        return "the model has more than text and attention"
    if "flash" in chosen:  # transformers' own kernels for packed rows, windows and caps included
        return ""
    if chosen not in ("sdpa", NAME):
        return f"the attention is {chosen}, as model_init_kwargs say"
    if not getattr(model, "_supports_attention_backend", False):
        return f"{type(model).__name__} does not use transformers' attention interface"
    if "sliding_attention" in layers or (not layers and getattr(config, "sliding_window", None)):
        return "some layers attend to a window"
    if getattr(config, "attn_logit_softcapping", None) or getattr(config, "attention_dropout", 0.0):
        return "the model caps its attention's logits or drops some"
    return ""


def pack(model: Any) -> None:
    """Have `model` take packed rows alone from now on."""
    if "flash" not in model.config.get_text_config()._attn_implementation:
        model.set_attn_implementation(NAME)


def varlen_attention(
    _module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    _attention_mask: torch.Tensor | None,
    *,
    cu_seq_lens_q: torch.Tensor | None = None,
    max_length_q: int = 0,
    scaling: float | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """Causal attention within each sequence.

    `query` [1, heads, tokens, width], `key` and `value` with as many heads or fewer; `cu_seq_lens_q` int32, where
    each sequence begins, and the number of tokens; `max_length_q` the longest. Returns [1, tokens, heads, width].
    """
    if cu_seq_lens_q is None:
        raise ValueError(f"attention {NAME} takes packed sequences only: cu_seq_lens_q is missing")
    query, key, value = (states[0].transpose(0, 1) for states in (query, key, value))  # [tokens, heads, width]
    half = query.dtype in (torch.bfloat16, torch.float16)
    if query.is_cuda and half and query.shape[-1] == value.shape[-1] <= FLASH_HEAD_DIM:
        output = _flash(query, key, value, cu_seq_lens_q, max_length_q, scaling)
    else:
        output = _one_by_one(query, key, value, cu_seq_lens_q.tolist(), scaling)
    return output[None], None


def _flash(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, bounds: torch.Tensor, longest: int, scale: float | None
) -> torch.Tensor:
    from torch.nn.attention.varlen import varlen_attn

    return varlen_attn(query, key, value, bounds, bounds, longest, longest, scale=scale, **_causal())


@functools.cache
def _causal() -> dict[str, Any]:
    """How torch's varlen_attn is told that attention is causal and heads are grouped: its words differ by version."""
    from torch.nn.attention.varlen import varlen_attn

    known = inspect.signature(varlen_attn).parameters
    causal: dict[str, Any] = {"window_size": (-1, 0)} if "window_size" in known else {"is_causal": True}
    return causal | ({"enable_gqa": True} if "enable_gqa" in known else {})


def _one_by_one(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, bounds: list[int], scale: float | None
) -> torch.Tensor:
    """One call a sequence: on CPUs nothing is lost, and float32 on a GPU has no varlen kernel."""
    grouped = query.shape[1] != key.shape[1]
    outputs = []
    for first, last in itertools.pairwise(bounds):
        # [1, heads, tokens, width]: with three dimensions torch would take its slow way
        one = (states[first:last].transpose(0, 1)[None] for states in (query, key, value))
        found = F.scaled_dot_product_attention(*one, is_causal=True, scale=scale, enable_gqa=grouped)
        outputs.append(found[0].transpose(0, 1))
    return torch.cat(outputs)


AttentionInterface.register(NAME, varlen_attention)
