"""Two ranks that share a model out (FSDP2): what a sync would give the engine, as is and with an adapter.

torchrun --nproc-per-node 2 sharded_ranks.py MODELS OUT   (each rank writes OUT/<rank>.json)
"""

import json
import sys
from pathlib import Path

import torch
from peft import LoraConfig, get_peft_model
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor
from torch.multiprocessing.reductions import StorageWeakRef
from transformers import Qwen2ForCausalLM

from colocated_runtime.worker.weights import policy_weights

MODELS, OUT = map(Path, sys.argv[1:])


def model(*, adapter: bool):
    """The same on every rank."""
    made = Qwen2ForCausalLM.from_pretrained(MODELS / "policy")
    if not adapter:
        return made
    torch.manual_seed(4)
    return get_peft_model(made, LoraConfig(r=4, target_modules="all-linear", init_lora_weights=False))


def shared_out(made):
    for layer in made.get_submodule(
        "base_model.model.model.layers" if hasattr(made, "peft_config") else "model.layers"
    ):
        fully_shard(layer)
    return fully_shard(made)


def told(*, adapter: bool) -> dict[str, object]:
    whole = dict(policy_weights(model(adapter=adapter)))
    sharded = shared_out(model(adapter=adapter))
    largest, given, kept = 0.0, 0, []
    for name, tensor in policy_weights(sharded):
        kept = [ref for ref in kept if not ref.expired()]
        assert len(kept) <= 1, "all but the last have been dropped"
        assert type(tensor) is torch.Tensor
        largest = max(largest, (tensor - whole[name]).abs().max().item())
        given += 1
        kept.append(StorageWeakRef(tensor.untyped_storage()))
    return {
        "wrapper": isinstance(sharded, FSDPModule),
        "shared out": sum(isinstance(parameter, DTensor) for parameter in sharded.parameters()),
        "parameters": len(list(sharded.parameters())),
        "given": given,
        "all": len(whole),
        "difference": largest,
    }


torch.distributed.init_process_group("gloo")
found = [told(adapter=adapter) for adapter in (False, True)]
(OUT / f"{torch.distributed.get_rank()}.json").write_text(json.dumps(found))
torch.distributed.destroy_process_group()
