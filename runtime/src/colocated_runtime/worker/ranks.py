"""Agreement between the ranks; each function is a no-op for a lone rank."""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
import torch.distributed as dist

Group = Any
"""A process group; None: all ranks."""


def join() -> None:
    """Be in a process group, which vLLM needs even for one rank. accelerate has made it where there are several.

    A lone rank's group has a store of its own: torchrun's variables would send it to one that only several ranks share.
    """
    if not dist.is_initialized():
        backend = "nccl" if torch.cuda.is_available() else "gloo"
        dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)


def alone() -> bool:
    """Whether this rank is the only one."""
    return not dist.is_initialized() or dist.get_world_size() == 1


def barrier() -> None:
    """Wait for all ranks."""
    if not alone():
        dist.barrier()


def all_succeeded(mine: bool, device: torch.device) -> bool:
    """Whether `mine` is true on every rank."""
    return not any_true(not mine, device)


def any_true(mine: bool, device: torch.device, group: Group = None) -> bool:
    """Whether `mine` is true on some rank of `group`, None for all."""
    if alone():
        return mine
    flag = torch.tensor(float(mine), device=device)
    dist.all_reduce(flag, op=dist.ReduceOp.MAX, group=group)
    return bool(flag.item())


def largest(mine: int, device: torch.device) -> int:
    """The largest of the ranks' values."""
    if alone():
        return mine
    value = torch.tensor(mine, device=device)
    dist.all_reduce(value, op=dist.ReduceOp.MAX)
    return int(value.item())


def total(mine: Sequence[float], device: torch.device) -> tuple[list[float], int]:
    """The sum of each of the ranks' values, to seven digits, and how many ranks there are."""
    if alone():
        return list(mine), 1
    values = torch.tensor(mine, device=device)
    dist.all_reduce(values)
    summed: list[float] = values.tolist()
    return summed, dist.get_world_size()


def average_gradients(parameters: Iterable[Any]) -> None:
    """Replace each gradient by its mean over the ranks, as data parallelism does."""
    if alone():
        return
    pending = []
    for parameter in parameters:
        if parameter.requires_grad:
            if parameter.grad is None:  # all ranks must take part, whatever each of them had to do
                parameter.grad = torch.zeros_like(parameter)
            parameter.grad /= dist.get_world_size()
            pending.append(dist.all_reduce(parameter.grad, async_op=True))
    for work in pending:
        work.wait()


def tell_all(word: str) -> None:
    """Leave `word` where every rank can look for it at any time."""
    if not alone():
        _store().set(word, "")


def was_told(word: str) -> bool:
    """Whether some rank has left `word`. No collective: it asks the process group's store, and waits for nobody."""
    return not alone() and bool(_store().check([word]))


def _store() -> Any:
    return dist.distributed_c10d._get_default_store()


def from_first(value: Any) -> Any:
    """Rank 0's `value`."""
    if alone():
        return value
    box = [value]
    dist.broadcast_object_list(box, src=0)
    return box[0]
