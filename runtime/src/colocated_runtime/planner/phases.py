"""The phases of a step: which items are on the device and on the host at the peak of each.

Engine and trainer take turns: what differs between the phases is whether the engine has its share of the device or only
what it keeps asleep, and which of the trainer's parts are there.
"""

from dataclasses import dataclass, replace
from typing import Literal

from colocated_runtime.contract.report import Phase
from colocated_runtime.planner.activations import Activations, activations, scoring
from colocated_runtime.planner.devices import GIB
from colocated_runtime.planner.engine import GRAPHS, RESIDUAL, EngineNeeds, engine_needs
from colocated_runtime.planner.features import Checkpointing, Offload
from colocated_runtime.planner.host import host_items, loading, saving
from colocated_runtime.planner.items import Item, billions, gib, total
from colocated_runtime.planner.shapes import Shape
from colocated_runtime.planner.states import States, adapted, allocated, states
from colocated_runtime.planner.workload import Workload

CONTEXT = int(1.21 * GIB)
"""CUDA context with cuBLAS and the kernels of torch and vLLM; measured on an H200."""
COMMUNICATOR = int(0.5 * GIB)
"""NCCL's buffers of one group of ranks. Assumed: nobody has measured it here."""
BATCH_BYTES = 48
"""For each token of a rollout: ids, masks, and log-probabilities, as TRL buffers them."""

REWARD_ROWS = 8
"""Sequences that a reward model scores in one pass."""

SLACK = 0.4
"""Most of the optimizer's states that slack was seen to add: 0.37 of 7 B's, with and without checkpointing."""

FRAGMENTED = 0.1
"""Of the activations of pieces, what the allocator holds beyond them. Measured: 0.03 to 0.14, with mixed lengths."""

SleepLevel = Literal[0, 1, 2]


@dataclass(frozen=True)
class Use:
    """Of one phase, at its peak, but for the engine's cache: its size is chosen when all else is known."""

    device: list[Item]
    host: list[Item]
    cached: bool
    """Whether the engine's cache is on the device too."""


@dataclass(frozen=True)
class Fixed:
    """What no choice of the plan changes."""

    job: Workload
    states: States
    engine: EngineNeeds
    resident: list[Item]
    """On the device in every phase."""


@dataclass(frozen=True)
class Parts:
    """What the items of all phases are made of, for one size of the micro-batch."""

    fixed: Fixed
    activations: Activations
    scoring: int
    rows: int
    """Completions of one micro-batch."""
    checkpointing: Checkpointing


def fixed(job: Workload) -> Fixed:
    """For all candidates of a job."""
    held = states(job)
    return Fixed(job, held, engine_needs(job), _resident(job, held))


def parts(made: Fixed, rows: int, checkpointing: Checkpointing) -> Parts:
    """For micro-batches of `rows` completions."""
    job = made.job
    return Parts(made, activations(job, rows, checkpointing), scoring(job, rows), rows, checkpointing)


def phases(made: Parts, sleep_level: SleepLevel, offload: Offload) -> dict[Phase, Use]:
    """Every phase of a job, in the order in which they come."""
    base = made.fixed
    job, held = base.job, base.states
    weights = _engine_weights(base)
    awake = [*([] if job.shares_weights else weights), *_engine_workspace(base)]
    sleeps = sleep_level > 0
    asleep = [Item("engineResidual", RESIDUAL, lambda: "measured")] if sleeps else awake
    woken = [*asleep, *([] if job.shares_weights else weights)] if sleeps else awake
    optimizer, slack = ([held.optimizer], _slack(made)) if offload == "none" else ([], [])
    stay = job.gradients_in_rollout and offload != "optimizerAndGradients"
    between = [*base.resident, *optimizer, *([held.gradients] if stay else []), *slack]
    trained = [*base.resident, *optimizer, *([held.buckets] if held.buckets else [])]
    scored = [*trained, held.gradients] if job.gradients_in_rollout else trained
    host = host_items(job, held, sleep_level, offload)
    stays = not sleeps
    rollout = Use([*between, *awake], host, cached=True)
    found = {
        Phase.START: Use(
            [*base.resident, *weights, *_engine_workspace(base)], [*host, *loading(job, held)], cached=True
        ),
        Phase.ROLLOUT: rollout,
        Phase.SCORE: Use([*scored, *_scoring(made), *asleep], host, cached=stays),
        Phase.TRAIN: Use(_training(made, [*trained, held.gradients, *asleep], offload), host, cached=stays),
        Phase.SYNC: Use([*between, *_staging(job), *woken], host, cached=stays),
        Phase.CHECKPOINT: Use([*trained, *asleep], [*host, *saving(job, held)], cached=stays),
    }
    if job.evaluates:
        found[Phase.EVALUATE] = rollout
    return found if sleeps else _kept_reserve(found)


def _kept_reserve(found: dict[Phase, Use]) -> dict[Phase, Use]:
    """Without sleep nothing makes torch give back what training took: it stays reserved in all other phases."""
    most = total(found[Phase.TRAIN].device)

    def kept(use: Use) -> Use:
        size = most - total(use.device)
        reserve = Item("allocatorReserve", size, lambda: "what training took, and torch keeps while nothing sleeps")
        return Use([*use.device, reserve], use.host, use.cached) if size > 0 else use

    return {phase: use if phase == Phase.START else kept(use) for phase, use in found.items()}


def _resident(job: Workload, held: States) -> list[Item]:
    found = [Item("cudaContext", CONTEXT, lambda: "measured")]
    if job.hardware.used_bytes:
        found.insert(0, Item("otherProcesses", job.hardware.used_bytes, lambda: "held by others already"))
    groups = (job.world_size > 1) + (job.tensor_parallel > 1)
    if groups:
        found.append(Item("nccl", groups * COMMUNICATOR, lambda: f"{groups} groups x {gib(COMMUNICATOR)}"))
    found.append(held.weights)
    if job.reference and not job.reference_leaves:
        found.append(_reference(job))
    if not job.features.guests:
        found += [_reward_model(job, shape) for shape in job.reward_shapes]
    return found


def _reference(job: Workload) -> Item:
    shards = job.world_size if job.sharding in ("zero3", "fsdp") else 1
    size = -(-allocated(job.shape, job.dtype_bytes) // shards)
    return Item("referenceWeights", size, lambda: f"{billions(job.shape.parameters)} parameters x {job.dtype_bytes} B")


def _gathered_reference(job: Workload) -> list[Item]:
    """TRL shares a reference model out as one piece, and a pass has all of it."""
    if not job.reference or job.sharding != "fsdp":
        return []
    words = f"{billions(job.shape.parameters)} parameters x {job.dtype_bytes} B"
    return [Item("gatheredReference", allocated(job.shape, job.dtype_bytes), lambda: words)]


def _reward_model(job: Workload, shape: Shape) -> Item:
    words = f"{billions(shape.parameters)} parameters x {job.dtype_bytes} B"
    return Item("rewardModel", allocated(shape, job.dtype_bytes), lambda: words)


def _engine_weights(base: Fixed) -> list[Item]:
    job, size = base.job, base.engine.weights
    return [
        Item(
            "engineWeights",
            size,
            lambda: f"{billions(job.shape.parameters)} parameters x {job.dtype_bytes} B / {job.tensor_parallel} ranks",
        )
    ]


def _engine_workspace(base: Fixed) -> list[Item]:
    job, size = base.job, base.engine.profile
    return [
        Item("engineActivations", size, lambda: f"vLLM's profile with {job.max_num_seqs} sequences"),
        Item("cudaGraphs", GRAPHS, lambda: "measured"),
    ]


def _training(made: Parts, there: list[Item], offload: Offload) -> list[Item]:
    """At the peak of a window. States that live on the host come for the update, when the activations are gone."""
    if offload == "none":
        return [*there, *_backward(made, offload)]
    held = made.fixed.states
    temporary = Item("optimizerTemporary", held.temporary, lambda: "of the optimizer's step")
    update = [*there, held.optimizer, *([temporary] if held.temporary else [])]
    return max([*there, *_backward(made, offload)], update, key=total)


def _backward(made: Parts, offload: Offload) -> list[Item]:
    found = [made.activations.kept, made.activations.workspace, _batch(made.fixed.job)]
    if made.fixed.job.pieces:
        lost = int(FRAGMENTED * made.activations.bytes)
        found.append(
            Item("fragmentation", lost, lambda: f"{FRAGMENTED:.0%} of the activations: pieces differ in length")
        )
    missing = 0 if offload != "none" else made.fixed.states.temporary - made.activations.bytes
    if missing > 0:
        found.append(Item("optimizerTemporary", missing, lambda: "of the optimizer's step, beyond the activations"))
    return found


def _scoring(made: Parts) -> list[Item]:
    """The most that is there at once: policy, reference and each reward model score one after the other."""
    job = made.fixed.job
    scored = made.scoring if job.scores_old or job.reference else 0
    words = f"{made.rows} x {job.lengths.total} tokens, one layer at a time"
    own = Item("scoringActivations", scored, lambda: words)
    passes = [[*([_reference(job)] if job.reference_leaves else []), *_gathered_reference(job), own]]
    for shape in job.reward_shapes:
        model = [_reward_model(job, shape)] if job.features.guests else []
        passes.append([*model, _reward_activations(job, shape)])
    return [_batch(job), *max(passes, key=total)]


def _reward_activations(job: Workload, shape: Shape) -> Item:
    scorer = replace(job, shape=shape, lora=None, flash_attention=False)
    words = f"{REWARD_ROWS} x {job.lengths.total} tokens, one layer at a time"
    return Item("rewardActivations", scoring(scorer, REWARD_ROWS), lambda: words)


def _batch(job: Workload) -> Item:
    rows, length = job.sizes.per_rank, job.lengths.total
    return Item("rolloutBatch", rows * length * BATCH_BYTES, lambda: f"{rows} x {length} tokens x {BATCH_BYTES} B")


def _slack(made: Parts) -> list[Item]:
    """Segments that the first backward pass took and the optimizer's states then moved into: they cannot be given back.

    At most as much as that pass needed, and a share of the states: what they leave over of the segments.
    """
    size = min(made.activations.bytes, int(SLACK * made.fixed.states.optimizer.bytes))
    return [Item("allocatorSlack", size, lambda: "of the first backward pass, shared with optimizer states")]


def _staging(job: Workload) -> list[Item]:
    largest = job.shape.largest_weight
    if job.lora:
        merged = max((w.rows * w.columns for w in adapted(job.shape, job.lora.target_modules)), default=0)
        return [Item("syncStaging", merged * (8 + job.dtype_bytes), lambda: "one matrix merged in float32")]
    if job.sharding in ("zero3", "fsdp"):
        away = job.shape.parameters * (job.world_size - 1) // job.world_size
        return [Item("syncStaging", min(largest, away) * job.dtype_bytes, lambda: "one gathered parameter")]
    return []


def cache_item(size: int, utilization: float) -> Item:
    """The engine's keys and values: what its share leaves."""
    return Item("kvCache", max(0, size), lambda: f"the rest of the engine's share of {utilization:g}")


def device_items(use: Use, cache: Item) -> list[Item]:
    """All of a phase, the cache included where it is there."""
    return [*use.device, cache] if use.cached else use.device


def device_total(use: Use, cache: int) -> int:
    """Bytes of `device_items`."""
    return total(use.device) + (max(0, cache) if use.cached else 0)
