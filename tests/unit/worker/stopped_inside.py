"""The worker, asked to leave in the middle of a rollout.

STOP_ROLLOUT: which rollout for training, from 1; STOP_STEP: after which of its engine steps. Only rank 0 looks for the
launcher's file, so that the others can know it from rank 0 alone. Each rank leaves behind how many engine steps the
last rollout took.
"""

import json
import os
import sys
from pathlib import Path

from colocated_runtime.worker import environment

environment.prepare(os.environ, "cpu")

from vllm.v1.engine.llm_engine import LLMEngine  # noqa: E402

from colocated_runtime.worker import stopping  # noqa: E402
from colocated_runtime.worker.__main__ import main  # noqa: E402
from colocated_runtime.worker.engine import Engine  # noqa: E402

WHEN = int(os.environ["STOP_ROLLOUT"]), int(os.environ["STOP_STEP"])
RANK = os.environ.get("RANK", "0")
counts = {"rollout": 0, "steps": 0}
generate, step, look = Engine.generate, LLMEngine.step, stopping.StopSignal._look


def counted_generate(self, *arguments, **named):
    counts["rollout"] += 1
    counts["steps"] = 0
    try:
        return generate(self, *arguments, **named)
    finally:
        (Path(os.environ["RECORDER_DIR"]) / f"steps-{RANK}.json").write_text(json.dumps(counts))


def counted_step(self):
    counts["steps"] += 1
    if RANK == "0" and (counts["rollout"], counts["steps"]) == WHEN:
        (Path(os.environ["COLOCATED_STATE_DIR"]) / "stop").touch()
    return step(self)


def blind(self):
    return False if self._stop_file.exists() and not stopping.ranks.was_told(stopping.WORD) else look(self)


Engine.generate, LLMEngine.step = counted_generate, counted_step
stopping.LOOK_SECONDS = 0.0
if RANK != "0":
    stopping.StopSignal._look = blind
sys.exit(main())
