"""A user's reward that does harm where FAULT says so: "hang@2" in the rewards of the step after step 2.

When it did is noted in the file FAULT_FILE. The harm comes from the last rank, or from the first where only that one
saves.
"""

import os
import signal
import time
from pathlib import Path

from colocated_runtime.worker import checkpoints

FAULT, _, STEP = os.environ["FAULT"].partition("@")
RANK = "0" if FAULT == "torn" else "1"


def reward(completions, trainer_state, **columns):
    if FAULT in FAULTS and trainer_state.global_step == int(STEP) and os.environ["RANK"] == RANK:
        FAULTS[FAULT]()
    return [float(len(str(completion)) % 7) for completion in completions]


def now():
    Path(os.environ["FAULT_FILE"]).write_text(str(time.time()))


def hang(*arguments, **named):
    now()
    time.sleep(1000)


def hang_engine():
    """From the next rollout on."""
    from vllm.v1.executor.uniproc_executor import UniProcExecutor

    UniProcExecutor.execute_model = hang


def die(*arguments, **named):
    now()
    os.kill(os.getpid(), signal.SIGKILL)


def die_in_save():
    """The files are written, the manifest is not."""
    checkpoints.publish = die


FAULTS = {"hang": hang, "engine": hang_engine, "kill": die, "torn": die_in_save}
