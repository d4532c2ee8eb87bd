"""Whether the engine holds the trainer's weights: sums over their bits, which are the same in any layout.

The engine fuses matrices (query, key and value lie in one tensor), pads vocabularies with zeros and gives each rank of
a tensor-parallel group a part; the sum of all elements' bits, taken as integers, is that of the pieces. Another value
anywhere changes it, but for chance; another place within a tensor does not.

What can be compared is found out after the first sync: what sums up to the same then must do so before every rollout.
Tensors that the engine packs for its kernels, as all matrices on CPUs, are left to the comparison of log-probabilities,
as is what that sync itself left out.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch

from colocated_runtime.worker import ranks
from colocated_runtime.worker.weights import local, policy_weights

Parts = tuple[str, ...]
"""A tensor of the engine by the trainer's names of what is fused in it."""
INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""By bytes of an element."""


def bit_sum(tensor: torch.Tensor) -> torch.Tensor:
    """Sum of the elements' bits as integers, modulo 2^64; a scalar on the tensor's device."""
    return tensor.detach().view(INTEGERS[tensor.element_size()]).sum(dtype=torch.int64)


def of_trainer(model: Any) -> dict[str, torch.Tensor]:
    """The sum of each weight that a sync gives the engine. It merges all adapters, as the sync does: see `noted`."""
    return {name: bit_sum(tensor) for name, tensor in policy_weights(model)}


def noted(
    weights: Iterable[tuple[str, torch.Tensor]], sums: dict[str, torch.Tensor]
) -> Iterator[tuple[str, torch.Tensor]]:
    """`weights`, their sums written into `sums` as they go by: an adapter is merged once, for both."""
    for name, tensor in weights:
        sums[name] = bit_sum(tensor)
        yield name, tensor


def of_trained(model: Any) -> list[int]:
    """The sums of what the optimizer changes, as it is: one pass, no merging. They tell whether there was a step.

    Of this rank's part, where the ranks share the weights out.
    """
    sums = [bit_sum(local(parameter)) for parameter in model.parameters() if parameter.requires_grad]
    return torch.stack(sums).tolist() if sums else []


def of_engine(model: torch.nn.Module) -> dict[Parts, torch.Tensor]:
    """The sum of each parameter of vLLM's model."""
    fused: Mapping[str, list[str]] = getattr(model, "packed_modules_mapping", {})
    sums = {}
    for name, parameter in model.named_parameters():
        path, _, kind = name.rpartition(".")
        parent, dot, module = path.rpartition(".")
        sums[tuple(f"{parent}{dot}{part}.{kind}" for part in fused.get(module, [module]))] = bit_sum(parameter)
    return sums


def comparable(
    engine: Mapping[Parts, torch.Tensor], trainer: Mapping[str, torch.Tensor], group: ranks.Group = None
) -> set[Parts]:
    """What is `equal` after the first sync, but for zeros: they are so in any layout."""
    return {parts for parts in equal(engine, trainer, group) if all(trainer[part] for part in parts)}


def equal(
    engine: Mapping[Parts, torch.Tensor], trainer: Mapping[str, torch.Tensor], group: ranks.Group = None
) -> set[Parts]:
    """The engine's tensors that sum up to the same as the trainer's: on this rank, or over all ranks of `group`.

    A collective of `group`, unless that is None.
    """
    shared = [parts for parts in engine if all(part in trainer for part in parts)]
    if not shared:
        return set()
    wanted = torch.stack([_total(trainer[part] for part in parts) for parts in shared])
    found = torch.stack([engine[parts] for parts in shared]).to(wanted.device)
    same = found == wanted
    if group is not None:
        torch.distributed.all_reduce(found, group=group)
        same |= found == wanted
    return {parts for parts, is_same in zip(shared, same.tolist(), strict=True) if is_same}


def _total(sums: Iterable[torch.Tensor]) -> torch.Tensor:
    return torch.stack(list(sums)).sum()
