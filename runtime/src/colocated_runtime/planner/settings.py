"""The plan's settings as engine and trainer take them; the spec's own, and defaults, where there is no plan."""

from dataclasses import dataclass
from typing import Any

from colocated_runtime.contract.batches import batches
from colocated_runtime.contract.job import JobSpec
from colocated_runtime.contract.plan import Plan
from colocated_runtime.contract.report import Phase
from colocated_runtime.planner.features import Checkpointing
from colocated_runtime.planner.search import DEFAULT_SLEEP_LEVEL, DEFAULT_UTILIZATION

CACHE_STEP = 1 << 24
"""The engine's cache is a multiple of so many bytes: vLLM 0.24 compiles anew for another size, however little other."""


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
    kv_cache_bytes: int = 0
    """Of the device; 0: what is left of the share when the engine has measured itself, which takes seconds."""
    sleep_frees: int = 0
    """Bytes of the device that sleep gives back, by the plan; 0 without one."""


@dataclass(frozen=True)
class StepSettings:
    """How the training step runs."""

    own_step: bool
    """False: TRL's training step as it is."""
    tokens: int
    """Of prompts and completions, without padding: as many go through the model at once."""
    recompute: Checkpointing | None = None
    """None: as TRL's gradient_checkpointing options say."""
    offload: bool = False
    """Whether the optimizer's states are on the device for its updates alone."""


def step_settings(spec: JobSpec, rows: int, longest: int, plan: Plan | None = None) -> StepSettings:
    """The plan's settings, or without one those for micro-batches of `rows` with at most `longest` tokens a completion.

    Then as many tokens go at once as TRL's own micro-batch has at most, so that no more memory is used than by it.
    """
    chosen = plan.settings if plan else None
    return StepSettings(
        own_step=spec.memory.policy == "Auto",
        tokens=(chosen.tokens_at_once if chosen else 0) or rows * longest,
        recompute=chosen.recompute if chosen else None,
        offload=(chosen.offload if chosen else spec.memory.offload) == "optimizer",
    )


def engine_settings(spec: JobSpec, plan: Plan | None = None) -> EngineSettings:
    """The plan's settings, or without one those of `spec`.

    Sleep level 2 is the default: dropping the weights costs nothing, every rollout takes them from the trainer anyway.
    """
    sizes = batches(spec.trainer, spec.algorithm, spec.world_size)
    utilization, level = spec.memory.gpu_memory_utilization, spec.memory.sleep_level
    if plan:
        utilization, level = plan.settings.gpu_memory_utilization, plan.settings.sleep_level
    sleeping = DEFAULT_SLEEP_LEVEL if level is None else level
    return EngineSettings(
        gpu_memory_utilization=utilization or DEFAULT_UTILIZATION,
        sleep_level=0 if spec.backend == "cpu" else sleeping,
        max_model_len=spec.trainer.get("vllm_max_model_length"),
        max_num_seqs=sizes.per_rank * spec.parallelism.tensor_parallel,
        kv_cache_bytes=plan.settings.kv_cache_bytes // CACHE_STEP * CACHE_STEP if plan else 0,
        sleep_frees=_mapped(plan) if plan else 0,
    )


def _mapped(plan: Plan) -> int:
    """Bytes of the engine's weights and cache: what sleep unmaps."""
    rollout = plan.phase(Phase.ROLLOUT)
    items = rollout.device if rollout else []
    return sum(item.bytes for item in items if item.name in ("engineWeights", "kvCache"))


def trainer_settings(spec: JobSpec, plan: Plan | None = None) -> dict[str, Any]:
    """TRL's options that the plan decides, under TRL's names; nothing without a plan.

    The sizes of rollout and optimizer step are the user's: only their cut into micro-batches changes.
    """
    if plan is None:
        return {}
    chosen = plan.settings
    found = {
        "per_device_train_batch_size": chosen.per_device_train_batch_size,
        "gradient_accumulation_steps": chosen.gradient_accumulation_steps,
        "gradient_checkpointing": chosen.gradient_checkpointing,
    }
    # TRL takes only one of the two.
    if spec.trainer.get("generation_batch_size") is None:
        found["steps_per_generation"] = chosen.steps_per_generation
    return found
