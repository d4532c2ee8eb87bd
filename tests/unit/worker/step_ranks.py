"""Two ranks under torchrun: TRL's step, ours, and ours where one rank alone runs out of memory.

torchrun --nproc-per-node 2 step_ranks.py MODELS OUT   (each rank writes OUT/<rank>.json)
"""

import json
import sys
from pathlib import Path

import torch
from tests.unit.worker import step_trainers

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


def main() -> None:
    plain = step_trainers.train(MODELS, "grpo", own=False, **OPTIONS)
    own = step_trainers.train(MODELS, "grpo", own=True, **OPTIONS)
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
        "loss": [[log["loss"] for log in run.seen.logs] for run in (plain, own, pressed)],
    }
    rank = torch.distributed.get_rank()
    (OUT / f"{rank}.json").write_text(json.dumps(told))


main()
