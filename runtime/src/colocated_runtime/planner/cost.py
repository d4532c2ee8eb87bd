"""How long a step takes with given settings: what orders the choices that fit.

A roofline with two measured efficiencies and two measured overheads. It compares settings of one job; docs/memory.md
has its error against measured steps.
"""

from dataclasses import dataclass

from colocated_runtime.contract.report import Phase
from colocated_runtime.planner.features import Checkpointing
from colocated_runtime.planner.phases import Choice, Parts, cache_bytes

MATRIX_EFFICIENCY = 0.5
"""Share of the peak that TRL's passes reach: 10 x 7.6e9 operations x 69.6 k tokens in 10.6 s on an H200."""
MEMORY_EFFICIENCY = 0.9
"""Share of the bandwidth that decoding reaches: 4.3 of 4.8 TB/s."""
LAYER_SECONDS = 0.0013
"""Of each layer in each micro-batch, whatever its size: (11.5 - 10.6 s) / (24 more micro-batches x 28 layers)."""
TOKEN_SECONDS = 0.002
"""Of each decode step, beyond reading weights and cache: sampling, scheduling."""
SLEEP_SECONDS = 0.15
"""To unmap and map the engine's memory, without copies."""
SYNC_SECONDS = 0.05
RECOMPUTED: dict[Checkpointing, float] = {"none": 0.0, "selective": 0.3, "half": 1.0, "full": 2.0}
"""Operations for each parameter and token that are done a second time."""


@dataclass(frozen=True)
class Seconds:
    """Of one rollout and the training on it, by phase."""

    phases: dict[Phase, float]

    @property
    def step(self) -> float:
        """All phases together."""
        return sum(self.phases.values())


def seconds(made: Parts, choice: Choice) -> Seconds:
    """Predicted for one optimizer step."""
    job, hardware = made.job, made.job.hardware
    rows, tokens = job.sizes.per_rank, job.sizes.per_rank * job.lengths.total
    pass_seconds = 2 * job.shape.active_parameters * tokens / (hardware.flops * MATRIX_EFFICIENCY)
    micro_batches = -(-rows // choice.rows)
    passes = job.scores_old + job.reference
    layers = job.shape.num_hidden_layers
    overhead = micro_batches * layers * LAYER_SECONDS
    states = made.states
    update = (2 * states.weights.bytes + 2 * states.optimizer.bytes + states.gradients.bytes) / hardware.bandwidth
    updates = max(1, job.sizes.steps_per_generation * job.num_iterations // job.sizes.gradient_accumulation_steps)
    train = (
        job.num_iterations * (pass_seconds * (3 + RECOMPUTED[choice.checkpointing] / 2) + overhead) + updates * update
    )
    if job.world_size > 1:
        train += updates * 2 * states.gradients.bytes / hardware.peer_bandwidth
    sync = SYNC_SECONDS + 2 * made.engine.weights / hardware.bandwidth
    if choice.sleep_level == 1:
        sync += 2 * made.engine.weights / hardware.host_bandwidth
    per_step = 1 / updates
    found = {
        Phase.ROLLOUT: (rollout_seconds(made, choice) + _switching(made, choice)) * per_step,
        Phase.SCORE: passes * (pass_seconds + overhead / 3) * per_step,
        Phase.TRAIN: train * per_step,
        Phase.SYNC: sync * per_step,
    }
    return Seconds(found)


def rollout_seconds(made: Parts, choice: Choice) -> float:
    """One rollout: each decode step reads the weights and the cache; what does not fit into the cache waits."""
    job, needs = made.job, made.engine
    cache = cache_bytes(made, choice.utilization)
    together = max(1, min(job.max_num_seqs, cache // max(1, needs.sequence)))
    waves = job.max_num_seqs / together
    mean = job.lengths.prompt + job.lengths.completion / 2
    step = (needs.weights + together * mean * needs.token) / (job.hardware.bandwidth * MEMORY_EFFICIENCY)
    if job.tensor_parallel > 1:  # two all-reduces a layer, bound by latency
        step += 2 * job.shape.num_hidden_layers * 15e-6
    return waves * job.lengths.completion * (step + TOKEN_SECONDS)


def _switching(made: Parts, choice: Choice) -> float:
    found = 0.0 if choice.sleep_level == 0 else SLEEP_SECONDS
    if choice.offload != "none":
        found += 2 * made.states.optimizer.bytes / made.job.hardware.host_bandwidth
    return found
