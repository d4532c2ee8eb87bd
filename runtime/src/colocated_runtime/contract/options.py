"""TRL's options: which there are (options/*.json, written by tools/trl_options.py), and which are not the user's."""

import difflib
import functools
import json
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Any

FILES = Path(__file__).with_name("options")
CONFIGS = {"grpo": "GRPOConfig", "rloo": "RLOOConfig"}

_STATUS = "leave it out; progress and metrics are in status and in the pod's log"
_EVALUATION = "set evaluation; it generates with the same engine"
_ENGINE = "leave it out; vLLM generates, in the trainer's own process"
_SERVER = "leave it out; there is no vLLM server beside the trainer"
_DTYPE = "set model.dtype"
_SHARDING = "set parallelism.sharding"
_KEPT = "leave it out; the model stays on the checkpoint volume, status.output.model names it"
_RESUME = "leave it out; every attempt goes on from the newest complete checkpoint"

OWNED: dict[str, str] = {
    "output_dir": "set checkpoint.storage; the job has its own directory there",
    "use_vllm": _ENGINE,
    "vllm_mode": _ENGINE,
    "vllm_model_impl": _ENGINE,
    "vllm_enable_sleep_mode": "set memory.sleepLevel",
    "vllm_gpu_memory_utilization": "set memory.gpuMemoryUtilization",
    "vllm_tensor_parallel_size": "set parallelism.tensorParallel",
    "vllm_structured_outputs_regex": "set generation_kwargs: {structured_outputs: {regex: …}}",
    "vllm_server_base_url": _SERVER,
    "vllm_server_host": _SERVER,
    "vllm_server_port": _SERVER,
    "vllm_server_timeout": _SERVER,
    "vllm_group_port": _SERVER,
    "use_transformers_continuous_batching": _ENGINE,
    "use_transformers_paged": _ENGINE,
    "transformers_continuous_batching_config": _ENGINE,
    "cache_implementation": _ENGINE,
    "reward_weights": "set rewards[].weight",
    "bf16": _DTYPE,
    "fp16": _DTYPE,
    "bf16_full_eval": _DTYPE,
    "fp16_full_eval": _DTYPE,
    "trust_remote_code": "set model.trustRemoteCode",
    "use_cpu": "set device.backend, or gpusPerNode to 0",
    "ddp_backend": "leave it out; it follows from the device",
    "local_rank": "leave it out; torchrun sets it",
    "deepspeed": _SHARDING,
    "fsdp": _SHARDING,
    "fsdp_config": _SHARDING,
    "parallelism_config": "set parallelism; context and sequence parallelism are not possible here",
    "auto_find_batch_size": "leave it out; groups would be torn apart. Lower per_device_train_batch_size",
    "save_steps": "set checkpoint.everySteps",
    "save_strategy": "set checkpoint.everySteps",
    "save_total_limit": "set checkpoint.keep",
    "save_only_model": "leave it out; without the optimizer a checkpoint cannot be resumed from",
    "save_on_each_node": "leave it out; the nodes share one checkpoint.storage",
    "enable_jit_checkpoint": "leave it out; a job that is told to stop saves by itself, all ranks together",
    "resume_from_checkpoint": _RESUME,
    "load_best_model_at_end": "leave it out; the last model is the result, earlier ones are kept by checkpoint.keep",
    "report_to": _STATUS,
    "do_train": "leave it out; the job trains",
    "do_predict": _EVALUATION,
    "do_eval": _EVALUATION,
    "eval_strategy": "set evaluation.everySteps",
    "eval_steps": "set evaluation.everySteps",
    "eval_delay": _EVALUATION,
    "eval_on_start": "leave it out; evaluation, where set, is made before and after training",
    "push_to_hub": _KEPT,
    "hub_model_id": _KEPT,
    "hub_token": "leave it out, it would be readable in the job; give HF_TOKEN by runtime.env with a secretKeyRef",
    "log_completions_hub_repo": "leave it out; set log_completions to see completions in the log",
}
"""Options that another field of the spec, or the worker itself, decides; and what to do instead."""

_PROMPTS = (
    "prompts are not cut; take rows with long ones out of the dataset, and set vllm_max_model_length to the longest"
    " prompt + max_completion_length"
)
GONE: dict[str, str] = {
    "max_prompt_length": _PROMPTS,
    "evaluation_strategy": "set evaluation.everySteps",
    "vllm_max_model_len": "set vllm_max_model_length",
    "vllm_guided_decoding_regex": "set generation_kwargs: {structured_outputs: {regex: …}}",
    "vllm_device": _ENGINE,
    "vllm_dtype": _DTYPE,
    "vllm_enable_prefix_caching": _ENGINE,
    "vllm_init_kwargs": _ENGINE,
    "use_liger_loss": "leave it out; the loss is fused anyway",
    "warmup_ratio": "set warmup_steps; below 1 it is a share of all steps",
    "no_cuda": "set device.backend, or gpusPerNode to 0",
}
"""Options of earlier TRL and transformers, and what to do instead; none of them is an option today."""

MINIMUM: dict[str, int] = {
    "num_generations": 2,
    "max_completion_length": 1,
    "per_device_train_batch_size": 1,
    "gradient_accumulation_steps": 1,
    "generation_batch_size": 1,
    "steps_per_generation": 1,
    "num_iterations": 1,
    "vllm_max_model_length": 2,
    "learning_rate": 0,
}
"""Least value of options."""

CHOICES: dict[str, tuple[str, ...]] = {
    "loss_type": ("grpo", "bnpo", "dr_grpo", "dapo", "cispo", "sapo", "luspo", "vespo"),
    "importance_sampling_level": ("token", "sequence"),
    "scale_rewards": ("group", "batch", "none"),
    "multi_objective_aggregation": ("sum_then_normalize", "normalize_then_sum"),
    "vllm_importance_sampling_mode": ("token_truncate", "token_mask", "sequence_truncate", "sequence_mask"),
}
"""Values that TRL looks at only after the first rollout; those of real enumerations are in the JSON files."""

TYPES: dict[str, tuple[type, ...]] = {
    "int": (int,),
    "float": (int, float),
    "bool": (bool,),
    "Literal": (bool,),
    "str": (str,),
    "dict": (dict,),
    "list": (list,),
    "tuple": (list,),
    "None": (NoneType,),
}


@dataclass(frozen=True)
class Option:
    """One field of TRL's configuration class."""

    name: str
    annotation: str
    """Types as text, joined by ' | ', e.g. `int | None`."""
    help: str
    choices: tuple[str, ...] = ()
    default: Any = None

    @property
    def types(self) -> tuple[str, ...]:
        """Names of the types without their arguments, e.g. ('list', 'str', 'None')."""
        return tuple(member.partition("[")[0] for member in self.annotation.split(" | "))

    @property
    def summary(self) -> str:
        """The help's first sentence."""
        return self.help.split(". ")[0].rstrip(".") + "." if self.help else ""


@functools.cache
def options(algorithm: str) -> Mapping[str, Option]:
    """All options of TRL's configuration class for `algorithm`, by name."""
    entries = json.loads((FILES / f"{algorithm}.json").read_text(encoding="utf-8"))
    return {entry["name"]: _option(entry) for entry in entries}


def unknown(trainer: Mapping[str, Any], algorithm: str, known: Collection[str] | None = None) -> list[str]:
    """One message for each name in `trainer` that TRL's configuration class has not: `known`, or as in our list."""
    names = options(algorithm) if known is None else known
    return [_unknown(name, algorithm, names) for name in trainer if name not in names]


def wrong_values(trainer: Mapping[str, Any], algorithm: str) -> list[str]:
    """One message for each known option in `trainer` with a value of another type, below its least, or no choice."""
    known = options(algorithm)
    found = [_wrong(known[name], value) for name, value in trainer.items() if name in known and name not in OWNED]
    return [message for message in found if message]


def number(trainer: Mapping[str, Any], algorithm: str, name: str) -> int:
    """The whole number that option `name` has in `trainer`, else TRL's default; wrong types give the default too."""
    value = trainer.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else int(options(algorithm)[name].default)


def _option(entry: Mapping[str, Any]) -> Option:
    name, annotation = entry["name"], entry["annotation"]
    if name == "scale_rewards":  # TRL takes true and false too, and does not annotate it
        annotation += " | bool"
    choices = tuple(entry.get("choices", ())) or CHOICES.get(name, ())
    return Option(name, annotation, entry["help"], choices, entry.get("default"))


def _unknown(name: str, algorithm: str, known: Collection[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {close[0]}?" if close else "leave it out, or set runtime.image to one with a TRL that has it"
    hint = GONE.get(name, hint)
    return f"trainer.{name}: no option of TRL's {CONFIGS[algorithm]}; {hint}"


def _wrong(option: Option, value: Any) -> str | None:
    name = option.name
    if isinstance(value, float) and not math.isfinite(value):
        return f"trainer.{name}: {value} is no number to train with; use a finite one"
    if not _fits(option, value):
        return f"trainer.{name}: {value!r} is not {_wanted(option)}{_hint(option, value)}"
    if option.choices and isinstance(value, str) and value not in option.choices:
        return f"trainer.{name}: {value!r} is none of {', '.join(option.choices)}; use one of these"
    least = MINIMUM.get(name)
    if least is not None and value is not None and value < least:
        return f"trainer.{name}: {value} is too small; use at least {least}"
    return None


def _fits(option: Option, value: Any) -> bool:
    accepted = tuple(kind for name in option.types for kind in TYPES.get(name, (object,)))
    if isinstance(value, bool):
        return bool in accepted or object in accepted
    return isinstance(value, accepted)


def _wanted(option: Option) -> str:
    words = {"int": "a whole number", "float": "a number", "bool": "true or false", "Literal": "false", "str": "text",
             "dict": "a map", "list": "a list", "tuple": "a list", "None": "null"}  # fmt: skip
    return " or ".join(words.get(name, name) for name in option.types)


def _hint(option: Option, value: Any) -> str:
    """YAML's own traps: 1e-6 without a point is text for many parsers, and 8.0 is no whole number."""
    if isinstance(value, str) and {"int", "float"} & set(option.types):
        try:
            return f"; write {json.dumps(float(value) if 'float' in option.types else int(value))}, without quotes"
        except ValueError:
            return ""
    if isinstance(value, float) and value.is_integer() and "int" in option.types:
        return f"; write {int(value)}"
    return ""
