"""From the spec to TRL's own configuration object."""

import dataclasses
from pathlib import Path
from typing import Any

from trl import GRPOConfig, RLOOConfig

from colocated_runtime.contract import options
from colocated_runtime.contract.job import JobSpec
from colocated_runtime.contract.plan import Plan
from colocated_runtime.planner.settings import trainer_settings
from colocated_runtime.worker import sharding
from colocated_runtime.worker.errors import UserError

CONFIGS = {"grpo": GRPOConfig, "rloo": RLOOConfig}

DEFAULTS: dict[str, Any] = {
    # Dropout would make the policy that is scored another one than the policy that generated.
    "disable_dropout": True,
    # The unfused optimizers need a second copy of the states at their peak.
    "optim": "adamw_torch_fused",
    "logging_steps": 1,
}


def training_config(spec: JobSpec, directory: Path, plan: Plan | None = None) -> GRPOConfig | RLOOConfig:
    """TRL's configuration for `spec`, with output below `directory` and micro-batches as `plan` cuts them.

    Raise UserError for what TRL refuses.
    """
    config_class = CONFIGS[spec.algorithm]
    known = {field.name for field in dataclasses.fields(config_class) if field.init}
    strange = options.unknown(spec.trainer, spec.algorithm, known)
    if strange:  # the image's TRL may be another than the one whose options the contract lists
        raise UserError("; ".join(strange))
    arguments = DEFAULTS | spec.trainer | trainer_settings(spec, plan) | owned(spec, directory)
    try:
        return config_class(**arguments)
    except (ValueError, TypeError) as error:
        raise UserError(f"trainer: {error}") from error


def owned(spec: JobSpec, directory: Path) -> dict[str, Any]:
    """Options that other fields of the spec, or the worker itself, decide."""
    assert spec.model is not None
    on_cpu = spec.backend == "cpu"
    sharded = spec.parallelism.sharding == "fsdp"
    return {
        **(sharding.OPTIONS if sharded else {}),
        "output_dir": str(directory),
        # Our own engine takes this place after construction.
        "use_vllm": False,
        "vllm_mode": "colocate",
        "vllm_tensor_parallel_size": spec.parallelism.tensor_parallel,
        "model_init_kwargs": {
            **(spec.trainer.get("model_init_kwargs") or {}),
            "dtype": spec.model.dtype,
            # One device a rank; TRL's own default would spread a lone rank's model over all devices it sees.
            "device_map": None,
        },
        "trust_remote_code": spec.model.trust_remote_code,
        "reward_weights": [reward.weight for reward in spec.rewards],
        # Sharded weights stay what they are without it: see `sharding`.
        "bf16": spec.model.dtype == "bfloat16" and not sharded,
        "fp16": spec.model.dtype == "float16",
        "use_cpu": on_cpu,
        "ddp_backend": "gloo" if on_cpu and spec.world_size > 1 else None,
        "report_to": "none",
        "eval_strategy": "no",
        "save_strategy": "steps",
        "save_steps": spec.checkpoint.every_steps,
        # `checkpoints` deletes old ones; transformers would count torn ones among those it keeps.
        "save_total_limit": None,
        "push_to_hub": False,
    }


HARMLESS = frozenset({"stop", "stop_token_ids", "include_stop_str_in_output", "min_tokens", "max_tokens", "ignore_eos",
                      "seed", "detokenize", "skip_special_tokens", "spaces_between_special_tokens"})  # fmt: skip
"""Of vLLM's SamplingParams: they end a completion, or say how it is written."""


def changes_distribution(args: Any) -> bool:
    """Whether the engine draws from another distribution than the model's, so that their log-probabilities differ."""
    if args.top_p != 1.0 or (args.top_k or 0) > 0 or args.min_p or args.repetition_penalty != 1.0:
        return True
    return not HARMLESS.issuperset(args.generation_kwargs or {})


def peft_config(spec: JobSpec) -> Any:
    """PEFT's configuration, or None for full fine-tuning."""
    if spec.lora is None:
        return None
    from peft import LoraConfig

    targets = spec.lora.target_modules
    return LoraConfig(
        r=spec.lora.r,
        lora_alpha=spec.lora.lora_alpha,
        lora_dropout=spec.lora.lora_dropout,
        target_modules="all-linear" if targets == ["all-linear"] else targets,
        task_type="CAUSAL_LM",
    )
