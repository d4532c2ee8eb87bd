"""What the trainer holds on a device: weights, gradients, optimizer states, under every kind of sharding.

Sources: PyTorch's CUDA caching allocator (rounding), torch.optim (states), DistributedDataParallel (buckets),
Rajbhandari et al. 2020 (ZeRO: 2 + 2 + 12 bytes a parameter, and what each stage divides), DeepSpeed's and accelerate's
defaults.
"""

import functools
import math
from dataclasses import dataclass

from colocated_runtime.planner.devices import MIB
from colocated_runtime.planner.features import Offload
from colocated_runtime.planner.items import Item, billions
from colocated_runtime.planner.shapes import Shape, Weight
from colocated_runtime.planner.workload import Workload

LARGE_ALLOCATION = 10 * MIB
"""From here on the allocator gives a tensor a segment of its own, in steps of ALLOCATION_STEP."""
ALLOCATION_STEP = 2 * MIB

OUTER = ("embed_tokens", "lm_head")
"""What PEFT's all-linear leaves out."""
EXPERTS = {
    **dict.fromkeys(("gate_proj", "up_proj", "w1", "w3", "gate_up_proj"), "experts.gate_up_proj"),
    **dict.fromkeys(("down_proj", "w2"), "experts.down_proj"),
    "gate": "router",
}
"""What PEFT adapts of experts that share a tensor, by the names of their modules
(peft/utils/transformers_weight_conversion.py)."""
LORA_BYTES = 4
"""PEFT keeps adapters in float32 beside 16-bit weights (autocast_adapter_dtype)."""
MASTER_BYTES = 4
"""DeepSpeed trains a float32 copy of 16-bit parameters; so would accelerate with FSDP under its own mixed precision."""
REDUCE_BUCKET = 500_000_000
"""Elements of DeepSpeed's reduce_bucket_size; two of them with overlap_comm."""
LIVE_PARAMETERS = 1_000_000_000
"""Elements of DeepSpeed's stage3_max_live_parameters: gathered at the same time."""


@dataclass(frozen=True)
class States:
    """Bytes on one device."""

    weights: Item
    gradients: Item
    buckets: Item | None
    """Communication buffers beside the gradients, and parameters gathered for the layer at work."""
    optimizer: Item
    temporary: int
    """Of the optimizer's step, at its peak."""
    trainable: int
    """Parameters that are trained."""


def states(job: Workload) -> States:
    """Of one rank; the same on every rank, up to rounding."""
    if job.sharding == "none":
        return _unsharded(job)
    if job.sharding == "fsdp":
        return _fsdp(job)
    return _zero(job)


def trainable_parameters(job: Workload) -> int:
    """All of the model's, or the adapters'."""
    return (
        job.shape.parameters if job.lora is None else adapter_parameters(job.shape, job.lora.r, job.lora.target_modules)
    )


def adapter_parameters(shape: Shape, rank: int, targets: list[str]) -> int:
    """r x (rows + columns) of each adapted matrix (Hu et al. 2021); all-linear leaves out embedding and head.

    Experts share a tensor, whose one adapter has PEFT's rank r x experts, twice that where gate and up share it too.
    """
    found = 0
    for weight in adapted(shape, targets):
        if weight.name.startswith("experts."):
            gated = 2 if weight.name == "experts.gate_up_proj" else 1
            found += weight.number * rank * gated * (weight.rows + shape.num_experts * weight.columns)
        else:
            found += weight.number * rank * (weight.rows + weight.columns)
    return found


def adapted(shape: Shape, targets: list[str]) -> list[Weight]:
    """The matrices that PEFT's `target_modules` name."""
    names = {EXPERTS.get(name, name) if shape.num_experts else name for name in _last(targets)}
    matrices = [weight for weight in shape.weights if weight.columns > 1 and weight.name not in OUTER]
    return [weight for weight in matrices if targets == ["all-linear"] or weight.name in names]


def _last(targets: list[str]) -> set[str]:
    return {name.rpartition(".")[2] for name in targets}


@functools.lru_cache(maxsize=256)
def allocated(shape: Shape, element_bytes: int) -> int:
    """Bytes that the allocator takes for one copy of the parameters: large tensors are rounded up to 2 MiB."""
    taken = 0
    for weight in shape.weights:
        size = weight.rows * weight.columns * element_bytes
        rounded = -(-size // ALLOCATION_STEP) * ALLOCATION_STEP if size > LARGE_ALLOCATION else size
        taken += weight.number * rounded
    return taken


def offloaded(job: Workload, parts: States, offload: Offload) -> int:
    """Bytes that leave the device for pinned host memory while the engine generates."""
    if offload == "none":
        return 0
    held = parts.gradients.bytes if offload == "optimizerAndGradients" and job.gradients_in_rollout else 0
    return parts.optimizer.bytes + held


def host_optimizer(job: Workload) -> int:
    """Of one rank, where the host updates: master copy, two states and the gradient, all in float32 (ZeRO-Offload)."""
    return -(-trainable_parameters(job) * 16 // job.world_size) if job.optimizer_on_host else 0


def _unsharded(job: Workload) -> States:
    shape, size = job.shape, job.dtype_bytes
    trainable = trainable_parameters(job)
    whole = allocated(shape, size)
    own = LORA_BYTES if job.lora and size == 2 else size
    adapters = trainable * own if job.lora else 0
    one = adapters if job.lora else whole
    per_parameter = job.optimizer.bytes_per_parameter(own)
    optimizer = (
        int(one * job.optimizer.states) if job.optimizer.state_bytes is None else math.ceil(trainable * per_parameter)
    )
    more = 0 if job.lora or job.optimizer.embedding_bytes is None else job.optimizer.embedding_bytes - per_parameter
    embedding = shape.vocab_size * shape.hidden_size
    optimizer += math.ceil(embedding * more)
    copies = "adapters" if job.lora else "parameters"
    return States(
        weights=Item(
            "trainerWeights",
            whole + adapters,
            lambda: (
                f"{billions(shape.parameters)} parameters x {size} B"
                + (f" + {billions(trainable)} of adapters x {own} B" if job.lora else "")
            ),
        ),
        gradients=Item("gradients", one, lambda: f"{billions(trainable)} {copies} x {own} B"),
        buckets=Item("gradientBuckets", one, lambda: "DistributedDataParallel's copy of the gradients")
        if job.world_size > 1 and not job.pieces
        else None,
        optimizer=Item(
            "optimizerStates",
            optimizer,
            lambda: (
                f"{billions(trainable)} {copies} x {per_parameter:g} B"
                + (f" + the embedding's {billions(embedding)} x {more:g} B" if more else "")
            ),
        ),
        temporary=int(one * job.optimizer.temporary),
        trainable=trainable,
    )


def _zero(job: Workload) -> States:
    shape, size, ranks = job.shape, job.dtype_bytes, job.world_size
    trainable = trainable_parameters(job)
    stage = int(job.sharding[-1])
    kept = shape.parameters * size
    weights = -(-kept // ranks) if stage == 3 else kept
    gathered = min(LIVE_PARAMETERS * size, kept - weights)
    gradients = trainable * size if stage == 1 else -(-trainable * size // ranks)
    bucket = 2 * min(REDUCE_BUCKET, trainable) * size
    optimizer = 0 if job.optimizer_on_host else -(-trainable * (MASTER_BYTES + 8) // ranks)
    return States(
        weights=Item(
            "trainerWeights", weights,
            lambda: f"{billions(shape.parameters)} parameters x {size} B" + (f" / {ranks} ranks" if stage == 3 else ""),
        ),
        gradients=Item(
            "gradients", gradients,
            lambda: f"{billions(trainable)} x {size} B" + (f" / {ranks} ranks" if stage > 1 else ""),
        ),
        buckets=Item(
            "gradientBuckets", bucket + gathered,
            lambda: f"2 reduce buckets of {billions(REDUCE_BUCKET)}"
            + (f" + at most {billions(LIVE_PARAMETERS)} gathered parameters" if stage == 3 else ""),
        ),
        optimizer=Item("optimizerStates", optimizer, lambda: f"{billions(trainable)} x 12 B / {ranks} ranks"),
        temporary=0,
        trainable=trainable,
    )  # fmt: skip


def _fsdp(job: Workload) -> States:
    shape, ranks = job.shape, job.world_size
    trainable = trainable_parameters(job)
    size, adapter = job.dtype_bytes, LORA_BYTES if job.lora and job.dtype_bytes == 2 else job.dtype_bytes
    weights = -(-(shape.parameters * size + (trainable * adapter if job.lora else 0)) // ranks)
    per_parameter = job.optimizer.bytes_per_parameter(adapter)
    one = -(-trainable * adapter // ranks)
    # Gathered: the layer at work and the next one; their gradients until they are shared out; embedding and head.
    layer, outer = shape.layer_parameters, shape.vocab_size * shape.hidden_size
    gathered = min(4 * layer + (2 if shape.tie_word_embeddings else 3) * outer, 2 * shape.parameters) * size
    return States(
        weights=Item("trainerWeights", weights, lambda: f"{billions(shape.parameters)} x {size} B / {ranks} ranks"),
        gradients=Item("gradients", one, lambda: f"{billions(trainable)} x {adapter} B / {ranks} ranks"),
        buckets=Item(
            "gradientBuckets", gathered, lambda: "two layers, embedding and head, gathered, and their gradients"
        ),
        optimizer=Item(
            "optimizerStates",
            math.ceil(trainable * per_parameter / ranks),
            lambda: f"{billions(trainable)} x {per_parameter:g} B / {ranks} ranks",
        ),
        temporary=int(one * job.optimizer.temporary),
        trainable=trainable,
    )
