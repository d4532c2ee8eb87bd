"""The worker with a weight sync that a test has broken, from the second sync on, or with BREAK=…-once in it alone.

BREAK=skip leaves it out, BREAK=corrupt adds noise to one matrix that checksums do not see on CPUs, BREAK=drop keeps one
tensor back.
"""

import os
import sys

from colocated_runtime.worker import environment

environment.prepare(os.environ, "cpu")

import torch  # noqa: E402

from colocated_runtime.worker.__main__ import main  # noqa: E402
from colocated_runtime.worker.engine import Engine  # noqa: E402

sync_weights, weights = Engine.sync_weights, Engine._weights
how, _, once = os.environ["BREAK"].partition("-")
syncs = 0 if how == "skip" else -1  # the engine's start hands weights over, too


def broken():
    global syncs
    syncs += 1
    return syncs == 2 if once else syncs > 1


def skip(self):
    if not broken():
        sync_weights(self)


def corrupt(self):
    now = broken()
    for name, tensor in weights(self):
        spoilt = now and name == "model.layers.1.mlp.down_proj.weight"
        yield name, tensor + 0.1 * torch.randn_like(tensor) if spoilt else tensor


def drop(self):
    now = broken()
    for name, tensor in weights(self):
        if not now or name != "model.layers.0.post_attention_layernorm.weight":
            yield name, tensor


if how == "skip":
    Engine.sync_weights = skip
else:
    Engine._weights = {"corrupt": corrupt, "drop": drop}[how]
sys.exit(main())
