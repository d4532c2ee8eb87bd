"""The policy's weights as the engine and the final model want them: checkpoint names, adapters merged into copies."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch.distributed.tensor import DTensor

from colocated_runtime.worker.errors import UserError

ADAPTER = "lora_"
BASE = ".base_layer"


def policy_weights(model: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Name and tensor of every weight, module by module. The trainer's own tensors, or merged copies under LoRA.

    Merging into copies leaves the trainer's base weights untouched: merged in place and subtracted again, they
    would drift by the rounding of every step. Weights without an adapter are given as well, each time: an engine that
    has slept has lost them, and handing them over costs far less than the merging. vLLM's own adapters would spare
    both, but compute W x + B (A x) in the sampler, where the exported model has W + B A, and in every decode step.

    Where ranks share the parameters out (FSDP2), each is gathered when its turn comes, never all of them: a
    collective, every rank must go through all weights.
    """
    if not hasattr(model, "peft_config"):
        for name, parameter in model.named_parameters():
            yield name, gathered(parameter.detach())
        return
    base = model.get_base_model()
    for name, parameter in base.named_parameters():
        if ADAPTER in name:
            continue
        if name.endswith(f"{BASE}.weight"):
            layer = base.get_submodule(name.removesuffix(f"{BASE}.weight"))
            yield name.replace(BASE, ""), _merged(layer, parameter)
        else:
            yield name.replace(BASE, ""), gathered(parameter.detach())


def adapter_weights(model: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Name and tensor of every weight of the adapter, as PEFT names them. Collective like `policy_weights`."""
    for name, parameter in model.named_parameters():
        if ADAPTER in name:
            yield name, gathered(parameter.detach())


def shared_out(model: Any) -> bool:
    """Whether each rank has a part of the weights alone, so that to gather one takes them all."""
    return any(isinstance(parameter, DTensor) for parameter in model.parameters())


def local(tensor: torch.Tensor) -> torch.Tensor:
    """This rank's part of `tensor`."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def gathered(tensor: torch.Tensor) -> torch.Tensor:
    """`tensor` in full, on every rank."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


@torch.no_grad()
def _merged(layer: Any, weight: torch.Tensor) -> torch.Tensor:
    merged = gathered(weight.detach()).float()
    for adapter in layer.active_adapters:
        merged = merged + gathered(layer.get_delta_weight(adapter)).float()
    return merged.to(weight.dtype)


def refuse_uncovered(model: Any, path: Path) -> None:
    """Raise UserError unless the trainer's weights cover every tensor of the checkpoint at `path`.

    The engine loads by checkpoint name and keeps the old value of what it is not given: it would sample from
    stale weights. Some architectures are laid out differently in memory than on disk.
    """
    stored = {key for file in path.glob("*.safetensors") for key in _keys(file)}
    given = {name for name, _ in policy_weights(model)}
    config = model.config.get_text_config()
    ignored = ("lm_head.weight",) if getattr(config, "tie_word_embeddings", False) else ()
    missing = {key for key in stored - given if not key.endswith("rotary_emb.inv_freq") and key not in ignored}
    if missing:
        raise UserError(
            f"model.source: {type(model).__name__} keeps its weights under other names than its checkpoint does"
            f" ({min(missing)} and {len(missing) - 1} more have no counterpart), so the engine cannot be"
            " given the trained weights; use an architecture such as Qwen2, Qwen3 or Llama"
        )


def _keys(file: Path) -> list[str]:
    with safe_open(file, framework="pt") as tensors:
        return list(tensors.keys())
