"""What TRL, transformers or vLLM would refuse in spec.trainer: in a pod, minutes later, or after the first rollout."""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from colocated_runtime.contract import options
from colocated_runtime.contract.batches import batches
from colocated_runtime.contract.job import JobSpec

Options = Mapping[str, Any]

MODEL_KEYS = {
    "dtype": "set model.dtype",
    "torch_dtype": "set model.dtype",
    "device_map": "leave it out; a rank has one device",
    "revision": "set model.revision",
    "trust_remote_code": "set model.trustRemoteCode",
    "quantization_config": "leave it out; the engine takes the trainer's weights unquantized",
    "load_in_8bit": "leave it out; the engine takes the trainer's weights unquantized",
    "load_in_4bit": "leave it out; the engine takes the trainer's weights unquantized",
}
"""Keys of trainer.model_init_kwargs that are not the user's."""

SAMPLING_KEYS = {
    **{name: f"set trainer.{name}" for name in ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")},
    "max_tokens": "set trainer.max_completion_length",
    "max_new_tokens": "set trainer.max_completion_length",
    "n": "set trainer.num_generations",
    "seed": "set trainer.seed",
    **dict.fromkeys(("logprobs", "flat_logprobs", "detokenize", "output_kind"), "leave it out; the engine sets it"),
}
"""Keys of trainer.generation_kwargs that are not the user's."""


def _each(package: str, *names: str) -> dict[str, str]:
    return dict.fromkeys(names, package)


OPTIMIZER_PACKAGES = {
    **_each(
        "bitsandbytes",
        "adamw_8bit", "adamw_bnb_8bit", "paged_adamw_32bit", "paged_adamw_8bit", "ademamix", "ademamix_8bit",
        "paged_ademamix_32bit", "paged_ademamix_8bit", "lion_32bit", "lion_8bit", "paged_lion_32bit", "paged_lion_8bit",
        "rmsprop_bnb", "rmsprop_bnb_8bit", "rmsprop_bnb_32bit",
    ),
    **_each("torchao", "adamw_torch_4bit", "adamw_torch_8bit"),
    **_each(
        "galore-torch",
        "galore_adamw", "galore_adamw_8bit", "galore_adafactor", "galore_adamw_layerwise",
        "galore_adamw_8bit_layerwise", "galore_adafactor_layerwise",
    ),
    **_each("apollo-torch", "apollo_adamw", "apollo_adamw_layerwise"),
    **_each("schedulefree", "schedule_free_radam", "schedule_free_adamw", "schedule_free_sgd"),
    **_each("lomo-optim", "lomo", "adalomo"),
    "grokadamw": "grokadamw",
    "stable_adamw": "torch-optimi",
    "adamw_anyprecision": "torchdistx",
    "adamw_torch_xla": "torch_xla",
    "adamw_torch_npu_fused": "torch_npu",
}  # fmt: skip
"""What transformers imports for values of trainer.optim, none of which the operator's image has."""

LONGEST = 10_000_000
"""Tokens: beyond what any model takes."""

RANGES: dict[str, tuple[Callable[[float], bool], str]] = {
    "temperature": (lambda value: 0 < value < math.inf, "above 0"),
    "top_p": (lambda value: 0 < value <= 1, "above 0 and at most 1"),
    "min_p": (lambda value: 0 <= value <= 1, "between 0 and 1"),
    "top_k": (lambda value: value >= -1, "at least 1, or 0 for all tokens"),
    "repetition_penalty": (lambda value: value > 0, "above 0"),
    "max_steps": (lambda value: value > 0 or value == -1, "above 0, or leave it out to train num_train_epochs"),
    "warmup_steps": (lambda value: value >= 0, "at least 0"),
    "top_entropy_quantile": (lambda value: 0 <= value <= 1, "between 0 and 1"),
    "learning_rate": (lambda value: 0 <= value < math.inf, "at least 0"),
    "weight_decay": (lambda value: 0 <= value < math.inf, "at least 0"),
    "beta": (lambda value: 0 <= value < math.inf, "at least 0"),
    "seed": (lambda value: 0 <= value < 2**32, "between 0 and 2^32 - 1"),
    "max_completion_length": (lambda value: 1 <= value <= LONGEST, f"between 1 and {LONGEST} tokens"),
    "vllm_max_model_length": (lambda value: 2 <= value <= LONGEST, f"between 2 and {LONGEST} tokens"),
}
"""What vLLM would refuse at the first rollout, and transformers or numpy in the pod; or what trains nothing but NaN."""


def refusals(spec: JobSpec) -> Iterator[str]:
    """Everything wrong with spec.trainer. Values are looked at only where all of them have their types."""
    trainer, algorithm = spec.trainer, spec.algorithm
    for name in trainer:
        if name in options.OWNED:
            yield f"trainer.{name}: does not belong here: {options.OWNED[name]}"
    if spec.runtime.image is None:  # another image may carry another TRL; its worker looks by itself
        yield from options.unknown(trainer, algorithm)
    wrong = options.wrong_values(trainer, algorithm)
    if wrong:
        yield from wrong
        return
    known = options.options(algorithm)
    values = {name: option.default for name, option in known.items()} | dict(trainer)
    if spec.runtime.image is None:
        yield from _packages(trainer)
    yield from _keys(trainer)
    yield from _sizes(spec)
    yield from _ranges(trainer)
    yield from _schedule(values)
    yield from _reference(spec, values)
    if algorithm == "grpo":
        yield from _importance_sampling(values)


def _packages(trainer: Options) -> Iterator[str]:
    """What needs a package that the operator's image has not; another image may have it."""
    instead = "which the operator's image has not; set runtime.image to one that has it, or"
    optimizer = str(trainer.get("optim"))
    if optimizer in OPTIMIZER_PACKAGES:
        yield (
            f"trainer.optim: {optimizer} needs {OPTIMIZER_PACKAGES[optimizer]}, {instead} use adamw_torch_fused, with"
            " memory.offload: optimizer where memory is short"
        )
    if trainer.get("use_liger_kernel"):
        yield f"trainer.use_liger_kernel: true needs liger-kernel, {instead} leave it out"
    given = trainer.get("model_init_kwargs")
    model = given if isinstance(given, Mapping) else {}
    if model.get("use_kernels"):
        yield f"trainer.model_init_kwargs.use_kernels: true needs kernels, {instead} leave it out"
    attention = str(model.get("attn_implementation", ""))
    if attention.startswith("flash_attention") or "/" in attention:
        package = "kernels" if "/" in attention else "flash-attn"
        yield (
            f"trainer.model_init_kwargs.attn_implementation: {attention} needs {package}, {instead} leave it out: rows"
            " are packed, without padding, where the model's attention allows it"
        )


def _sizes(spec: JobSpec) -> Iterator[str]:
    trainer = spec.trainer
    try:
        batches(trainer, spec.algorithm, spec.world_size)
    except ValueError as error:
        yield str(error)
    if trainer.get("max_completion_length", 0) is None:
        yield "trainer.max_completion_length: null sets no end, and memory is kept for the longest; give a number"
    completion = options.number(trainer, spec.algorithm, "max_completion_length")
    length = trainer.get("vllm_max_model_length")
    if length is not None and completion >= length:
        yield (
            f"trainer.vllm_max_model_length: {length} holds prompt + completion, and max_completion_length is"
            f" {completion}: no room for a prompt; raise it, or lower max_completion_length"
        )


def _keys(trainer: Options) -> Iterator[str]:
    for option, keys in (("model_init_kwargs", MODEL_KEYS), ("generation_kwargs", SAMPLING_KEYS)):
        given = trainer.get(option) or {}
        if isinstance(given, str):
            yield f"trainer.{option}: {given!r} is text; write it as a map"
            continue
        yield from (f"trainer.{option}.{key}: does not belong here: {keys[key]}" for key in given if key in keys)
    checkpointing = trainer.get("gradient_checkpointing_kwargs")
    if isinstance(checkpointing, Mapping) and "every_n_layers" in checkpointing:
        yield "trainer.gradient_checkpointing_kwargs.every_n_layers: TRL fails on it after a rollout; leave it out"
    if (trainer.get("liger_kernel_config") or {}).get("fused_linear_cross_entropy"):
        yield "trainer.liger_kernel_config.fused_linear_cross_entropy: breaks TRL's fused head; leave it out"


def _ranges(trainer: Options) -> Iterator[str]:
    for name, (fits, words) in RANGES.items():
        value = trainer.get(name)
        if isinstance(value, int | float) and not fits(value):
            yield f"trainer.{name}: {value} is out of range; use a value {words}"


def _schedule(values: Options) -> Iterator[str]:
    if values["max_steps"] <= 0 and values["num_train_epochs"] <= 0:
        yield f"trainer.num_train_epochs: {values['num_train_epochs']} trains nothing; set it above 0, or set max_steps"
    if values["lr_scheduler_type"] in ("reduce_lr_on_plateau", "greedy"):
        yield (
            f"trainer.lr_scheduler_type: {values['lr_scheduler_type']} needs transformers' own evaluation, which a job"
            " does not use; use e.g. cosine, linear or constant"
        )
    steps = values["logging_steps"]
    if values["logging_strategy"] == "steps" and (steps <= 0 or (steps > 1 and steps % 1)):
        yield f"trainer.logging_steps: {steps} is no number of steps; use a whole number, at least 1"


def _reference(spec: JobSpec, values: Options) -> Iterator[str]:
    if values["sync_ref_model"]:
        yield (
            "trainer.sync_ref_model: true is not supported: checkpoints do not hold the reference that it moves, so a"
            " restart would go on with another one; leave it out"
        )
    if spec.lora and spec.lora.lora_dropout and spec.trainer.get("disable_dropout", True):
        yield (
            f"lora.lora_dropout: {spec.lora.lora_dropout} would have no effect, since dropout is off; set"
            " trainer.disable_dropout to false, and the policy that is trained differs from the one that samples; or"
            " leave it out"
        )
    shape = spec.model.shape if spec.model else None
    if values["router_aux_loss_coef"] and shape and not shape.num_experts:
        yield (
            f"trainer.router_aux_loss_coef: {values['router_aux_loss_coef']}, but model.shape has no experts; leave it"
            " out"
        )


def _importance_sampling(values: Options) -> Iterator[str]:
    low, high = values["vllm_importance_sampling_clip_min"], values["vllm_importance_sampling_clip_max"]
    mode = values["vllm_importance_sampling_mode"]
    if low is not None and high is not None and low >= high:
        yield (
            f"trainer.vllm_importance_sampling_clip_min: {low} is not below vllm_importance_sampling_clip_max {high};"
            " lower it, or raise the other"
        )
    if not values["vllm_importance_sampling_correction"]:
        return
    if mode.endswith("_truncate") and low is None and high is None:
        yield (
            f"trainer.vllm_importance_sampling_mode: {mode} needs a bound; set vllm_importance_sampling_clip_max or"
            " vllm_importance_sampling_clip_min"
        )
    if values["loss_type"] == "vespo" and mode not in ("token_truncate", "token_mask"):
        yield (
            f"trainer.loss_type: vespo needs vllm_importance_sampling_mode token_truncate or token_mask, not {mode};"
            " set one of these"
        )
