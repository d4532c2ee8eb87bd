"""Two ranks that share the trainer's states out (FSDP2), or TRL's own step on two ranks that do not.

torchrun --nproc-per-node 2 fsdp_ranks.py MODELS OUT fsdp|plain   (each rank writes OUT/<what>-<rank>.pt)
"""

import sys
from pathlib import Path

import torch
from peft import LoraConfig
from tests.unit.worker import step_trainers
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

from colocated_runtime.worker import sharding, step
from colocated_runtime.worker.weights import gathered

MODELS, OUT, KIND = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
CASES = {
    "clipped": ("grpo", {"beta": 0.0, "max_grad_norm": 0.01}),
    "reference": ("grpo", {"beta": 0.1, "gradient_checkpointing": True}),
    "rloo": ("rloo", {"beta": 0.0}),
    "adapter": ("grpo", {"beta": 0.1, "peft_config": LoraConfig(r=4, init_lora_weights=False)}),
}


def repeated(pieces, count):
    """What cut_further must not do."""
    return [*pieces, *pieces[: count - len(pieces)]]


def told(name: str) -> dict[str, object]:
    algorithm, options = CASES[name]
    own = KIND == "fsdp"
    trainer = step_trainers.build(
        MODELS, algorithm, own=own, ddp_backend="gloo", **options, **(sharding.OPTIONS if own else {})
    )
    before = sum(isinstance(parameter, DTensor) for parameter in trainer.model.parameters())
    trainer.train()
    parameters = dict(trainer.model.named_parameters())
    return {
        "wrapper": isinstance(trainer.model, FSDPModule),
        "shared out": [before, sum(isinstance(value, DTensor) for value in parameters.values()), len(parameters)],
        "gradients": trainer.seen.gradients,
        "logs": trainer.seen.logs,
        "parameters": {name: gathered(value.detach()) for name, value in parameters.items()},
        "pieces": pieces,
    }


cut, pieces = step.cut_further, []


def counted(found, count):
    """cut_further, and how many pieces it got and gave."""
    made = (repeated if "broken" in sys.argv else cut)(found, count)
    pieces.append((len(found), len(made)))
    return made


step.cut_further = counted
found = {name: told(name) for name in (CASES if "broken" not in sys.argv else ["rloo"])}
torch.save(found, OUT / f"{'-'.join(sys.argv[3:])}-{torch.distributed.get_rank()}.pt")
torch.distributed.destroy_process_group()
