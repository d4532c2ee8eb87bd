"""How long a step takes with given settings: what orders the choices that fit.

A roofline with two measured efficiencies and a few measured overheads. It compares settings of one job; docs/memory.md
has its error against measured steps.
"""

from dataclasses import dataclass

from colocated_runtime.contract.report import Phase
from colocated_runtime.planner.features import Checkpointing, Offload
from colocated_runtime.planner.phases import Fixed, Parts
from colocated_runtime.planner.workload import Workload

MATRIX_EFFICIENCY = 0.46
"""Share of the peak that the trainer's passes reach. Measured on an H200 with 7 B parameters and 69.6 k tokens."""
MEMORY_EFFICIENCY = 0.9
"""Share of the bandwidth that decoding reaches: 4.3 of 4.8 TB/s."""
LAYER_SECONDS = 0.0013
"""Of each layer in each micro-batch, whatever its size: (11.5 - 10.6 s) / (24 more micro-batches x 28 layers)."""
DECODE_SECONDS = 0.0003
"""Of each decode step, beyond reading weights and cache."""
SEQUENCE_SECONDS = 17e-6
"""Of each sequence in each decode step: sampling, scheduling. 7.0 ms for 128 sequences where 4.5 ms are read."""
ALL_REDUCE_SECONDS = 15e-6
"""Of one small all-reduce between the devices of a node; two of them a layer and decode step."""
SLEEP_SECONDS = 0.15
"""To unmap and map the engine's memory, without copies."""
SYNC_SECONDS = 0.05
"""Of one batched hand-over of the weights, beyond moving them."""
RECOMPUTED: dict[Checkpointing, float] = {"none": 0.0, "selective": 0.35, "half": 0.8, "full": 1.6}
"""Operations for each parameter and token done a second time, beside six. Measured: 6.82, 7.22, 7.78 and 8.43 s."""


@dataclass(frozen=True)
class Seconds:
    """Of one optimizer step and its share of a rollout."""

    rollout: float
    score: float
    train: float
    sync: float

    @property
    def step(self) -> float:
        """All together."""
        return self.rollout + self.score + self.train + self.sync

    @property
    def phases(self) -> dict[Phase, float]:
        """By phase; those that are no part of a step are left out."""
        return {
            Phase.ROLLOUT: self.rollout, Phase.SCORE: self.score, Phase.TRAIN: self.train, Phase.SYNC: self.sync
        }  # fmt: skip


def seconds(made: Parts, *, cache: int, sleep_level: int, offload: Offload) -> Seconds:
    """Predicted for one optimizer step; `cache` in bytes of one device."""
    base, job = made.fixed, made.fixed.job
    updates = max(1.0, job.sizes.steps_per_generation * job.num_iterations / job.sizes.gradient_accumulation_steps)
    one_pass, overhead = _pass_seconds(made)
    sync = 0.0 if job.shares_weights else SYNC_SECONDS + 2 * base.engine.weights / job.hardware.bandwidth
    switching = 0.0 if sleep_level == 0 else SLEEP_SECONDS
    if sleep_level == 1:
        switching += 2 * base.engine.weights / job.hardware.host_bandwidth
    moved = 0.0 if offload == "none" else 2 * base.states.optimizer.bytes / job.hardware.host_bandwidth
    passes = job.scores_old + job.reference
    visits = guest_bytes(job) / job.hardware.host_bandwidth
    recomputed = RECOMPUTED[made.checkpointing] / 2
    gather = _gather_seconds(made)
    train = job.num_iterations * max(one_pass * (3 + recomputed) + overhead * (1 + recomputed / 3), 3 * gather)
    return Seconds(
        rollout=(rollout_seconds(base, cache) + switching) / updates,
        score=(passes * max(one_pass + overhead / 3, gather) + visits) / updates,
        train=train / updates + _update_seconds(base) + moved,
        sync=sync / updates,
    )


def guest_bytes(job: Workload) -> int:
    """What comes to the device for one rollout's scores: copied in, and dropped afterwards."""
    if not job.features.guests:
        return 0
    models = [*job.reward_shapes, *([job.shape] if job.reference_leaves else [])]
    return sum(shape.parameters for shape in models) * job.dtype_bytes


def rollout_seconds(base: Fixed, cache: int) -> float:
    """One rollout: each decode step reads the weights and the cache; what does not fit into the cache waits."""
    job, needs = base.job, base.engine
    most = max(1, needs.rollout // job.max_num_seqs)
    together = max(1, min(job.max_num_seqs, cache // most))
    return job.max_num_seqs / together * decode_seconds(base, together)


def decode_seconds(base: Fixed, together: float) -> float:
    """Of the longest completion, with `together` sequences in one engine."""
    job, needs = base.job, base.engine
    mean = job.lengths.prompt + job.lengths.completion / 2
    read = needs.weights + together * mean * needs.token
    step = read / (job.hardware.bandwidth * MEMORY_EFFICIENCY) + DECODE_SECONDS + together * SEQUENCE_SECONDS
    if job.tensor_parallel > 1:
        step += 2 * job.shape.num_hidden_layers * ALL_REDUCE_SECONDS
    return job.lengths.completion * step


def _pass_seconds(made: Parts) -> tuple[float, float]:
    """Of one forward pass over a rank's share of a rollout, and the overhead of its micro-batches."""
    job = made.fixed.job
    rows = job.sizes.per_rank
    operations = 2 * job.shape.active_parameters * rows * job.lengths.total
    overhead = -(-rows // made.rows) * job.shape.num_hidden_layers * LAYER_SECONDS
    return operations / (job.hardware.flops * MATRIX_EFFICIENCY), overhead * 3 / 4


def _gather_seconds(made: Parts) -> float:
    """To gather all weights once for each of a rank's pieces; FSDP does so twice, and shares out as many gradients,
    while the device computes."""
    job = made.fixed.job
    if job.sharding != "fsdp":
        return 0.0
    moved = job.shape.parameters * job.dtype_bytes * (job.world_size - 1) / job.world_size
    return -(-job.sizes.per_rank // made.rows) * moved / _link(job)


def _link(job: Workload) -> float:
    """Bytes a second between two ranks."""
    return job.hardware.peer_bandwidth if job.world_size == job.ranks_per_node else job.hardware.host_bandwidth


def _update_seconds(base: Fixed) -> float:
    """The optimizer reads and writes everything once; gradients go round the ring of ranks."""
    job, held = base.job, base.states
    moved = 2 * held.weights.bytes + 2 * held.optimizer.bytes + held.gradients.bytes
    found = moved / job.hardware.bandwidth
    if job.world_size > 1:
        found += 2 * held.gradients.bytes / _link(job)
    return found
