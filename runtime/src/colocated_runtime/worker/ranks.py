"""Agreement between the ranks; each function is a no-op for a lone rank."""

from typing import Any

import torch
import torch.distributed as dist


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


def any_true(mine: bool, device: torch.device) -> bool:
    """Whether `mine` is true on some rank."""
    if alone():
        return mine
    flag = torch.tensor(float(mine), device=device)
    dist.all_reduce(flag, op=dist.ReduceOp.MAX)
    return bool(flag.item())


def from_first(value: Any) -> Any:
    """Rank 0's `value`."""
    if alone():
        return value
    box = [value]
    dist.broadcast_object_list(box, src=0)
    return box[0]
