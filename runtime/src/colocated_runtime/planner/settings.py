"""The engine's settings, chosen from the job's spec alone."""

from dataclasses import dataclass

from colocated_runtime.contract.batches import batches
from colocated_runtime.contract.job import JobSpec

DEFAULT_UTILIZATION = 0.3
"""TRL's own default for an engine that shares its device with the trainer."""


@dataclass(frozen=True)
class EngineSettings:
    """What the engine is started with."""

    gpu_memory_utilization: float
    """Share of the device."""
    sleep_level: int
    """0: the engine keeps its memory between rollouts. 1: weights go to host memory. 2: weights are dropped."""
    max_model_len: int | None
    """Tokens of prompt + completion; None: as long as the longest prompt needs."""
    max_num_seqs: int
    """Sequences generated at the same time by one engine."""


def engine_settings(spec: JobSpec) -> EngineSettings:
    """Settings for `spec`. Dropping the weights costs nothing: every rollout takes them from the trainer anyway."""
    sleeps = spec.backend != "cpu"
    sizes = batches(spec.trainer, spec.algorithm, spec.world_size)
    return EngineSettings(
        gpu_memory_utilization=spec.memory.gpu_memory_utilization or DEFAULT_UTILIZATION,
        sleep_level=(2 if spec.memory.sleep_level is None else spec.memory.sleep_level) if sleeps else 0,
        max_model_len=spec.trainer.get("vllm_max_model_length"),
        max_num_seqs=sizes.per_rank * spec.parallelism.tensor_parallel,
    )
