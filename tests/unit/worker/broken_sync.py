"""The worker with a weight sync that a test has broken: BREAK=skip leaves all but the first out, BREAK=once the second
alone, BREAK=corrupt adds noise to one matrix, BREAK=drop keeps one tensor back in every sync from the second on, and
BREAK=drop-once in the second alone."""

import os
import sys

from colocated_runtime.worker import environment

environment.prepare(os.environ, "cpu")

import torch  # noqa: E402

from colocated_runtime.worker.__main__ import main  # noqa: E402
from colocated_runtime.worker.engine import Engine  # noqa: E402

sync_weights, weights = Engine.sync_weights, Engine._weights
syncs = 0


def skip(self):
    if not self._fresh:
        sync_weights(self)


def once(self):
    global syncs
    syncs += 1
    if syncs != 2:
        sync_weights(self)


def corrupt(self):
    for name, tensor in weights(self):
        spoilt = name == "model.layers.1.mlp.down_proj.weight"
        yield name, tensor + 0.1 * torch.randn_like(tensor) if spoilt else tensor


def drop(self):
    global syncs
    syncs += 1
    kept_back = syncs > 1 if os.environ["BREAK"] == "drop" else syncs == 2
    for name, tensor in weights(self):
        if not kept_back or name != "model.layers.0.post_attention_layernorm.weight":
            yield name, tensor


if os.environ["BREAK"] == "corrupt":
    Engine._weights = corrupt
elif os.environ["BREAK"].startswith("drop"):
    Engine._weights = drop
else:
    Engine.sync_weights = {"skip": skip, "once": once}[os.environ["BREAK"]]
sys.exit(main())
