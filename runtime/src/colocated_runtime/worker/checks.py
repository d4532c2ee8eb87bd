"""What is checked before the engine starts: minutes later TRL or vLLM would say the same less clearly, or nothing."""

from collections.abc import Iterable, Mapping
from typing import Any

from colocated_runtime.contract.batches import Batches
from colocated_runtime.contract.job import JobSpec, Lora
from colocated_runtime.contract.refusals import SHARDING_VARIABLES, WAYS_OUT, refusals, sharding_variables
from colocated_runtime.worker.errors import UserError

EMBEDDINGS = ("embed_tokens", "lm_head", "wte")
"""Names of a language model's first and last layer."""


def refuse(spec: JobSpec) -> None:
    """Raise UserError for what cannot run; the operator has said so, but an attempt can be started without one."""
    found = refusals(spec)
    if found:
        raise UserError("; ".join(found))


def environment(env: Mapping[str, str]) -> None:
    """Raise UserError where accelerate would spread the model over the ranks: the spec shows no variables of Secrets,
    ConfigMaps and the image."""
    for name in sharding_variables(env):
        raise UserError(f"runtime.envFrom: {name} is set: {SHARDING_VARIABLES[name]}; {WAYS_OUT}")


def chat_template(tokenizer: Any, field: str, prompts: Iterable[Any]) -> None:
    """Raise UserError if prompts are chats and the tokenizer cannot render them."""
    if tokenizer.chat_template is None and any(not isinstance(prompt, str) for prompt in prompts):
        raise UserError(
            f"{field}.conversational: the tokenizer of model.source has no chat template; set it to false and use a"
            " text prompt"
        )


def prompt_lengths(tokenizer: Any, field: str, prompts: list[Any], options: dict[str, Any] | None = None) -> list[int]:
    """Length in tokens of each prompt of the dataset in `field`, rendered as TRL does.

    Raise UserError where the chat template refuses them.
    """
    if isinstance(prompts[0], str):
        ids = tokenizer(text=prompts)["input_ids"]
        return [len(row) for row in ids]
    from jinja2 import TemplateError  # comes with transformers

    try:
        ids = tokenizer.apply_chat_template(
            prompts, add_generation_prompt=True, tokenize=True, return_dict=True, **(options or {})
        )["input_ids"]
    except TemplateError as error:
        raise UserError(
            f"{field}: the chat template of model.source refuses a prompt: {error}; leave out systemPrompt, or give"
            " turns that it takes"
        ) from None
    return [len(row) for row in ids]


def engine_length(longest: int, completion: int, wanted: int | None, limit: int) -> int:
    """Tokens that the engine must hold: `wanted`, else what the longest prompt needs. Raise UserError if too short."""
    needed = longest + completion
    if wanted and wanted > limit:
        raise UserError(
            f"trainer.vllm_max_model_length: {wanted} is over the model's max_position_embeddings = {limit}; use at"
            " most that, or leave it out"
        )
    available, name = (
        (wanted, "trainer.vllm_max_model_length") if wanted else (limit, "the model's max_position_embeddings")
    )
    if needed > available:
        room = available - longest
        way_out = f"Use at most {room}, or shorter prompts" if room > 0 else "Use shorter prompts"
        raise UserError(
            f"trainer.max_completion_length: the longest prompt has {longest} tokens; with {completion} of completion"
            f" that is {needed}, over {name} = {available}. {way_out}" + (f", or a larger {name}" if wanted else "")
        )
    return wanted or needed


def adapters(lora: Lora | None, *, tied: bool) -> None:
    """Raise UserError where an adapter on one of two tied layers would train one policy and sample from another."""
    found = [name for name in lora.target_modules if name.endswith(EMBEDDINGS)] if lora and tied else []
    if found:
        raise UserError(
            f"lora.target_modules: {', '.join(found)} shares its weights with the model's other end, which the adapter"
            " does not reach; leave it out"
        )


def prompt_count(prompts: int, args: Any) -> None:
    """Raise UserError if one rollout needs more different prompts than there are. `args`: TRL's configuration."""
    few = Batches(
        per_device=args.per_device_train_batch_size,
        world_size=args.world_size,
        gradient_accumulation_steps=args.gradient_accumulation_steps,
        steps_per_generation=args.steps_per_generation,
        num_generations=args.num_generations,
    ).too_few(prompts)
    if few:
        raise UserError(few)
