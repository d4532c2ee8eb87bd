"""The worker on a device that is full, from its second step on, at the moment that FULL names: nothing else fits."""

import os
import sys

from colocated_runtime.worker import environment

environment.prepare(os.environ, "cpu")

import torch  # noqa: E402

from colocated_runtime.worker import engine, trainers  # noqa: E402
from colocated_runtime.worker.__main__ import main  # noqa: E402

WHEN = os.environ["FULL"]
TORCH = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
VLLM = RuntimeError("CUDA Error: out of memory at /workspace/csrc/cumem_allocator.cpp:163")


def fails(home, name, error, calls=1, wanted=lambda *arguments: True):
    """Replace the method `name` of `home`: from the call after `calls` on it raises `error`."""
    method, count = getattr(home, name), [0]

    def full(*arguments, **named):
        count[0] += bool(wanted(*arguments))
        if count[0] > calls and wanted(*arguments):
            raise error
        return method(*arguments, **named)

    setattr(home, name, full)


if WHEN == "start":
    fails(engine, "LLM", TORCH, calls=0)
if WHEN == "wake-up":
    fails(engine.Engine, "_wake", VLLM, wanted=lambda self, part: part == "kv_cache")
if WHEN == "sync":
    fails(engine.Engine, "_weights", TORCH)
if WHEN == "backward":
    fails(torch.Tensor, "backward", TORCH)
if WHEN == "optimizer":
    fails(torch.optim.AdamW, "step", TORCH)
if WHEN == "checkpoint":
    fails(trainers.Colocated, "_save_extra", TORCH)
sys.exit(main())
