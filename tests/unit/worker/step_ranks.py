"""Two ranks under torchrun: TRL's step, ours, and ours where one rank alone runs out of memory.

torchrun --nproc-per-node 2 step_ranks.py MODELS OUT   (each rank writes OUT/<rank>.json)
"""

import gc
import json
import sys
from pathlib import Path

import torch
from tests.unit.worker import step_trainers
from torch.nn.parallel import DistributedDataParallel

from colocated_runtime.worker import step

MODELS, OUT = map(Path, sys.argv[1:])
OPTIONS = {"beta": 0.0, "ddp_backend": "gloo", "max_steps": 2}


def short_of_memory(on_rank: int, rows: int):
    """score_packed that fails on one rank wherever a piece has more than so many rows."""
    score = step.score_packed

    def scored(model, ids, *args, **kwargs):
        if torch.distributed.get_rank() == on_rank and len(ids) > rows:
            raise torch.OutOfMemoryError("full")
        return score(model, ids, *args, **kwargs)

    return scored


def wrapped(trainer) -> list[bool]:
    """Whether the trainer's model is wrapped, and whether any wrapper is left."""
    gc.collect()
    left = any(isinstance(found, DistributedDataParallel) for found in gc.get_objects())
    return [trainer.model_wrapped is not trainer.model, left]


def main() -> None:
    own = step_trainers.train(MODELS, "grpo", own=True, **OPTIONS)
    buckets = {"own": wrapped(own)}
    plain = step_trainers.train(MODELS, "grpo", own=False, **OPTIONS)
    buckets["plain"] = wrapped(plain)
    step.score_packed = short_of_memory(1, 1)
    pressed = step_trainers.train(MODELS, "grpo", own=True, **OPTIONS)
    step.score_packed, ended = short_of_memory(1, 0), ""
    try:
        step_trainers.train(MODELS, "grpo", own=True, **OPTIONS)
    except torch.OutOfMemoryError as error:
        ended = str(error)
    told = {
        "own": step_trainers.distances(plain, own),
        "pressed": step_trainers.distances(plain, pressed),
        "events": len(pressed.phases.pressed),
        "ended": ended,
        "buckets": buckets,
        "loss": [[log["loss"] for log in run.seen.logs] for run in (plain, own, pressed)],
    }
    rank = torch.distributed.get_rank()
    (OUT / f"{rank}.json").write_text(json.dumps(told))


main()
