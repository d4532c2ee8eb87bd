"""The process's random generators, taken and put back as one value."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

RandomState = dict[str, Any]
"""States of Python's, NumPy's and torch's generators; plain values and tensors, so that torch.save can keep it."""


def capture() -> RandomState:
    """The present state of all generators."""
    kind, keys, *rest = np.random.get_state()
    state: RandomState = {
        "python": random.getstate(),
        "numpy": (kind, torch.from_numpy(np.asarray(keys).astype(np.int64)), *rest),
        "torch": torch.get_rng_state(),
    }
    if torch.cuda.is_initialized():
        state["cuda"] = torch.cuda.get_rng_state()
    return state


def restore(state: RandomState) -> None:
    """Make `state` the present one."""
    version, internal, gauss = state["python"]
    random.setstate((version, tuple(internal), gauss))
    kind, keys, *rest = state["numpy"]
    np.random.set_state((kind, keys.numpy().astype(np.uint32), *rest))
    torch.set_rng_state(state["torch"])
    if "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"])


def seeded(seed: int) -> RandomState:
    """The state after seeding all generators with `seed`; the present state stays."""
    with preserved():
        random.seed(seed)
        np.random.seed(seed % 2**32)
        torch.manual_seed(seed)
        return capture()


@contextmanager
def preserved() -> Iterator[None]:
    """Whatever happens inside leaves the process's generators as they were."""
    outside = capture()
    try:
        yield
    finally:
        restore(outside)


def on_cpu(state: RandomState) -> RandomState:
    """`state` with its tensors on the CPU, where every generator's state lives, the device's too."""
    kind, keys, *rest = state["numpy"]
    moved = {name: value.cpu() for name, value in state.items() if isinstance(value, torch.Tensor)}
    return {**state, **moved, "numpy": (kind, keys.cpu(), *rest)}
