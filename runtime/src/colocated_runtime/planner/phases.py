"""The phases of a step: which items are on the device and on the host at the peak of each.

Engine and trainer take turns: what differs between the phases is whether the engine has its share of the device or only
its residual, and which of the trainer's parts are there.
"""

from dataclasses import dataclass, field
from typing import Literal

from colocated_runtime.contract.report import Phase
from colocated_runtime.planner.activations import Activations, activations, scoring
from colocated_runtime.planner.devices import GIB
from colocated_runtime.planner.engine import RESIDUAL, EngineNeeds, engine_needs, pinned_weights
from colocated_runtime.planner.features import Checkpointing, Offload
from colocated_runtime.planner.items import Item, billions, gib, total
from colocated_runtime.planner.states import MASTER_BYTES, States, allocated, offloaded, states
from colocated_runtime.planner.workload import Workload

CONTEXT = int(1.21 * GIB)
"""CUDA context with cuBLAS and the kernels of torch and vLLM; measured on an H200."""
COMMUNICATOR = int(0.5 * GIB)
"""NCCL's buffers of one group of ranks. Assumed: nobody has measured it here."""
PROCESS = 3 * GIB
"""Host memory of one rank's interpreter with torch, transformers and vLLM. Assumed."""
LAUNCHER = GIB // 4
"""Host memory of the pod's first process. Assumed."""
SHARED_MEMORY = GIB // 4
"""Of /dev/shm, for each rank, where a pod has several. Assumed."""
LARGEST_SHARD = 50_000_000_000
"""transformers' max_shard_size: a saved file is put together in host memory."""
BATCH_BYTES = 48
"""For each token of a rollout: ids, masks, and log-probabilities, as TRL buffers them."""


@dataclass(frozen=True)
class Choice:
    """The settings of one candidate plan."""

    utilization: float
    sleep_level: Literal[0, 1, 2]
    rows: int
    """Completions of one micro-batch."""
    checkpointing: Checkpointing
    offload: Offload = "none"


@dataclass(frozen=True)
class Use:
    """Of one phase, at its peak."""

    device: list[Item]
    host: list[Item] = field(default_factory=list)


@dataclass(frozen=True)
class Parts:
    """What the items of all phases are made of; none of it depends on utilisation or sleep level."""

    job: Workload
    states: States
    engine: EngineNeeds
    activations: Activations
    scoring: int
    rows: int

    @property
    def backward_peak(self) -> int:
        """Activations, or what the optimizer's step needs more than them."""
        return max(self.activations.bytes, self.states.temporary)


def parts(job: Workload, rows: int, checkpointing: Checkpointing) -> Parts:
    """For micro-batches of `rows` completions."""
    return Parts(
        job=job,
        states=states(job),
        engine=engine_needs(job),
        activations=activations(job, rows, checkpointing),
        scoring=scoring(job, rows),
        rows=rows,
    )


def phases(made: Parts, choice: Choice) -> dict[Phase, Use]:
    """Every phase of a job, in the order in which they come."""
    job = made.job
    share = int(choice.utilization * job.hardware.device_bytes)
    awake = engine_items(made, share)
    asleep = awake if choice.sleep_level == 0 else [Item("engineResidual", RESIDUAL, lambda: "measured")]
    woken = awake if choice.sleep_level == 0 else [*asleep, Item("engineWeights", made.engine.weights, lambda: "")]
    resident = _resident(made)
    between = [*resident, *_optimizer(made, choice), *_gradients_between(made, choice)]
    slack = _slack(made)
    return {
        Phase.START: Use([*resident, *awake], _host(made, choice, _loading(made))),
        Phase.ROLLOUT: Use([*between, *slack, *awake], _host(made, choice)),
        Phase.SCORE: Use(
            [*_trained(made, gradients=job.gradients_in_rollout), *_scoring(made), *asleep], _host(made, choice)
        ),
        Phase.TRAIN: Use([*_trained(made, gradients=True), *_backward(made), *asleep], _host(made, choice)),
        Phase.SYNC: Use([*between, *slack, *_staging(made), *woken], _host(made, choice)),
        Phase.CHECKPOINT: Use([*_trained(made, gradients=False), *slack, *asleep], _host(made, choice, _saving(made))),
    }


def engine_items(made: Parts, share: int) -> list[Item]:
    """The engine's whole share, by what is in it. The cache is what the rest leaves."""
    needs = made.engine
    fixed = [
        Item("engineWeights", needs.weights, lambda: _engine_weights_words(made)),
        Item("engineProfile", needs.profile, lambda: "activations and logits while generating"),
        Item("cudaGraphs", needs.fixed - needs.weights - needs.profile, lambda: "measured"),
    ]
    return [*fixed, Item("kvCache", max(0, share - total(fixed)), lambda: f"the rest of {gib(share)}")]


def cache_bytes(made: Parts, utilization: float) -> int:
    """What the engine has for keys and values; negative where its weights alone do not fit into its share."""
    return int(utilization * made.job.hardware.device_bytes) - made.engine.fixed


def _engine_weights_words(made: Parts) -> str:
    job = made.job
    return f"{billions(job.shape.parameters)} parameters x {job.dtype_bytes} B / tensor parallel {job.tensor_parallel}"


def _resident(made: Parts) -> list[Item]:
    """What never leaves the device."""
    job = made.job
    found = [Item("cudaContext", CONTEXT, lambda: "measured")]
    if job.hardware.used_bytes:
        found.insert(0, Item("otherProcesses", job.hardware.used_bytes, lambda: "held by others already"))
    groups = (job.world_size > 1) + (job.tensor_parallel > 1)
    if groups:
        found.append(Item("nccl", groups * COMMUNICATOR, lambda: f"{groups} groups x {gib(COMMUNICATOR)}"))
    found.append(made.states.weights)
    if job.reference:
        found.append(_reference(made))
    return found


def _reference(made: Parts) -> Item:
    job = made.job
    whole = allocated(job.shape, job.dtype_bytes)
    shards = job.shards if job.sharding in ("zero3", "fsdp") else 1
    size = -(-whole // shards)
    return Item("referenceWeights", size, lambda: f"{billions(job.shape.parameters)} parameters x {job.dtype_bytes} B")


def _optimizer(made: Parts, choice: Choice) -> list[Item]:
    return [made.states.optimizer] if choice.offload == "none" else []


def _gradients_between(made: Parts, choice: Choice) -> list[Item]:
    stay = made.job.gradients_in_rollout and choice.offload != "optimizerAndGradients"
    return [made.states.gradients] if stay else []


def _trained(made: Parts, *, gradients: bool) -> list[Item]:
    held = made.states
    found = [*_resident(made), held.optimizer]
    if gradients:
        found.append(held.gradients)
    if held.buckets:
        found.append(held.buckets)
    return found


def _backward(made: Parts) -> list[Item]:
    found = [made.activations.kept, made.activations.workspace, _batch(made)]
    missing = made.states.temporary - made.activations.bytes
    if missing > 0:
        found.append(Item("optimizerTemporary", missing, lambda: "of the optimizer's step, beyond the activations"))
    return found


def _scoring(made: Parts) -> list[Item]:
    job = made.job
    found = [_batch(made)]
    passes = job.scores_old or job.reference
    rewards = [allocated(shape, job.dtype_bytes) for shape in job.reward_shapes]
    # One reward model at a time is on the device, and not while the policy scores.
    model, scored = max(rewards, default=0), made.scoring if passes else 0
    if model > scored:
        found.append(Item("rewardModel", model, lambda: "the largest reward model"))
    else:
        found.append(Item("scoringActivations", scored, lambda: f"{made.rows} x {job.lengths.total} tokens, one layer"))
    return found


def _batch(made: Parts) -> Item:
    job = made.job
    rows = job.sizes.per_rank
    return Item(
        "rolloutBatch",
        rows * job.lengths.total * BATCH_BYTES,
        lambda: f"{rows} x {job.lengths.total} tokens x {BATCH_BYTES} B",
    )


def _slack(made: Parts) -> list[Item]:
    """Segments that the first backward pass took and the optimizer's states then moved into: they cannot be given back.

    At most as much as that pass needed, and as there are states.
    """
    size = min(made.activations.bytes, made.states.optimizer.bytes)
    return [Item("allocatorSlack", size, lambda: "segments of the first backward pass that hold optimizer states")]


def _staging(made: Parts) -> list[Item]:
    job = made.job
    largest = job.shape.largest_weight
    if job.lora:
        return [
            Item(
                "syncStaging",
                largest * (8 + job.dtype_bytes),
                lambda: "adapters merged into float32 copies, one matrix at a time",
            )
        ]
    if job.sharding in ("zero3", "fsdp"):
        size = MASTER_BYTES if job.sharding == "fsdp" else job.dtype_bytes
        return [Item("syncStaging", largest * size, lambda: "one gathered parameter")]
    return []


# Host memory of a pod


def _host(made: Parts, choice: Choice, more: list[Item] | None = None) -> list[Item]:
    job = made.job
    ranks = job.ranks_per_node
    found = [Item("processes", LAUNCHER + ranks * PROCESS, lambda: f"launcher and {ranks} x {gib(PROCESS)}")]
    if ranks > 1:
        found.append(Item("sharedMemory", ranks * SHARED_MEMORY, lambda: f"{ranks} ranks x {gib(SHARED_MEMORY)}"))
    if choice.sleep_level == 1:
        one = pinned_weights(job.shape, job.tensor_parallel, job.dtype_bytes)
        found.append(Item("sleepingWeights", ranks * one, lambda: f"pinned, {ranks} x {gib(one)}"))
    away = offloaded(job, made.states, choice.offload)
    if away:
        found.append(Item("offloadedStates", ranks * away, lambda: f"pinned, {ranks} x {gib(away)}"))
    rewards = sum(shape.parameters * job.dtype_bytes for shape in job.reward_shapes)
    if rewards:
        found.append(Item("rewardModels", ranks * rewards, lambda: "while they do not score"))
    return [*found, *(more or [])]


def _loading(made: Parts) -> list[Item]:
    job = made.job
    size = job.shape.parameters * job.dtype_bytes * job.ranks_per_node
    return [Item("loadedModel", size, lambda: "each rank reads the whole model before it goes to the device")]


def _saving(made: Parts) -> list[Item]:
    job = made.job
    size = min(LARGEST_SHARD, made.states.trainable * job.dtype_bytes)
    return [Item("savedModel", size, lambda: "one file of the model, put together in memory")]
