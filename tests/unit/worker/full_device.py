"""The worker on a device that, from the end of its first step on, is full at the moment that FULL names."""

import os
import sys

from colocated_runtime.worker import environment

environment.prepare(os.environ, "cpu")

import torch  # noqa: E402

from colocated_runtime.worker import engine, switch, trainers  # noqa: E402
from colocated_runtime.worker.__main__ import main  # noqa: E402

WHEN = os.environ["FULL"]
TORCH = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
VLLM = RuntimeError("CUDA Error: out of memory at /workspace/csrc/cumem_allocator.cpp:163")


steps = 0
remember = trainers.Colocated.remember


def counted(self):
    global steps
    steps += 1
    remember(self)


def fails(home, name, error, after, wanted=lambda *arguments: True):
    """Replace the method `name` of `home`: once `after` steps are done it raises `error`."""
    method = getattr(home, name)

    def full(*arguments, **named):
        if steps >= after and wanted(*arguments):
            raise error
        return method(*arguments, **named)

    setattr(home, name, full)


trainers.Colocated.remember = counted
if WHEN == "start":
    fails(engine, "LLM", TORCH, 0)
if WHEN == "wake-up":
    fails(switch.Switch, "wake", VLLM, 1, lambda self, part: part == "kv_cache")
if WHEN == "sync":
    fails(engine.Engine, "_weights", TORCH, 1)
if WHEN == "backward":
    fails(torch.Tensor, "backward", TORCH, 1)
if WHEN == "optimizer":
    fails(torch.optim.AdamW, "step", TORCH, 1)
if WHEN == "checkpoint":
    fails(trainers.Colocated, "_save_extra", TORCH, 2)
sys.exit(main())
