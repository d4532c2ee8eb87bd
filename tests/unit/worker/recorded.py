"""The worker, writing down what each step left: checksums of parameters and of the optimizer's state.

FORGET: what a resumed run is made to forget.
"""

import copy
import hashlib
import json
import os
import sys
from pathlib import Path

from colocated_runtime.worker import environment

environment.prepare(os.environ, "cpu")

import torch  # noqa: E402

from colocated_runtime.worker import rng  # noqa: E402
from colocated_runtime.worker.__main__ import main  # noqa: E402
from colocated_runtime.worker.trainers import Colocated  # noqa: E402
from colocated_runtime.worker.weights import local  # noqa: E402

FORGET = os.environ.get("FORGET", "")
remember, load = Colocated.remember, Colocated._load_optimizer_and_scheduler


def checksum(tensors):
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(local(tensor.detach()).contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def recorded(self):
    remember(self)
    parameters = [parameter for group in self.optimizer.param_groups for parameter in group["params"]]
    states = [self.optimizer.state[parameter] for parameter in parameters]
    facts = {
        "step": self.state.global_step,
        "learning_rate": self.optimizer.param_groups[0]["lr"],
        "parameters": checksum(parameters),
        "optimizer": checksum(local(state[name]).reshape(-1) for state in states for name in sorted(state)),
    }
    with (Path(os.environ["RECORDER_DIR"]) / "steps.jsonl").open("a") as file:
        file.write(json.dumps(facts) + "\n")


def forgetful(self, checkpoint):
    fresh = copy.deepcopy(self.lr_scheduler.state_dict())
    load(self, checkpoint)
    if checkpoint is None:
        return
    if FORGET == "optimizer":
        self.optimizer.optimizer.state.clear()
    if FORGET == "scheduler":
        self.lr_scheduler.load_state_dict(fresh)
    if FORGET == "window":
        self._step, self._buffered_inputs = 0, None
    if FORGET == "engine":
        self.vllm_generation.random_state = rng.seeded(123)


Colocated.remember, Colocated._load_optimizer_and_scheduler = recorded, forgetful
if FORGET == "generators":
    Colocated._load_rng_state = lambda self, checkpoint: None
if FORGET == "permutation":
    Colocated.skip_epochs = lambda self, epochs: None
sys.exit(main())
