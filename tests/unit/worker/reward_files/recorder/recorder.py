"""A user's reward that writes down each call, and asks the launcher's way for a stop where a test wants one."""

import json
import os
from pathlib import Path


def record(prompts, completion_ids, trainer_state, **columns):
    rank = os.environ.get("RANK", "0")
    step = trainer_state.global_step
    call = {
        "rank": rank,
        "step": step,
        "held_out": "held-out" in str(prompts[0]),
        "prompts": prompts,
        "completion_ids": completion_ids,
    }
    with (Path(os.environ["RECORDER_DIR"]) / f"recorder-{rank}.jsonl").open("a") as file:
        file.write(json.dumps(call) + "\n")
    stop_at = os.environ["RECORDER_STOP_AT"]
    if stop_at and step >= int(stop_at) and not call["held_out"]:
        (Path(os.environ["COLOCATED_STATE_DIR"]) / "stop").touch()
    print("the reward speaks")
    return [sum(token % 2 for token in ids) / len(ids) for ids in completion_ids]
