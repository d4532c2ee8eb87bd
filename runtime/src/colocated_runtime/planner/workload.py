"""A job's sizes, gathered once: what the formulas read instead of the spec."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from colocated_runtime.contract.batches import Batches, batches
from colocated_runtime.contract.job import JobSpec, Lora
from colocated_runtime.contract.options import options
from colocated_runtime.planner.devices import Hardware
from colocated_runtime.planner.features import RUNTIME, Features, Sharding
from colocated_runtime.planner.shapes import Shape, known_shape

GUESSED_PROMPT = 512
"""Tokens of the longest prompt where nobody has looked at the data."""
GUESSED_COMPLETION = 256
"""TRL's max_completion_length may be null: then the model decides."""

BYTES = {"bfloat16": 2, "float16": 2, "float32": 4}


@dataclass(frozen=True)
class Lengths:
    """Of prompts and completions, in tokens."""

    prompt: int
    """The longest."""
    completion: int
    """The longest: max_completion_length, whatever a model answers on average."""
    guessed: bool = False
    """Whether the prompts' length is a guess."""

    @property
    def total(self) -> int:
        """Of the longest sequence."""
        return self.prompt + self.completion


@dataclass(frozen=True)
class Optimizer:
    """What one parameter costs, relative to its own size."""

    states: float
    """State beside the parameter, in bytes for each byte of it where `state_bytes` is None."""
    temporary: float = 0.0
    """Copies of all parameters at the peak of a step."""
    state_bytes: float | None = None
    """Bytes of state for each parameter where they do not follow the parameter's type."""
    embedding_bytes: float | None = None
    """The same for those of the embedding, where they are others."""

    def bytes_per_parameter(self, parameter_bytes: int) -> float:
        """State of one parameter."""
        return self.states * parameter_bytes if self.state_bytes is None else self.state_bytes


ADAMW = Optimizer(states=2)
OPTIMIZERS: dict[str, Optimizer] = {
    "adamw_torch_fused": ADAMW,
    # Measured: the unfused step needed 37 GiB more for 7.6 B parameters, three copies.
    "adamw_torch": Optimizer(states=2, temporary=3),
    "adamw_torch_8bit": Optimizer(states=0, state_bytes=2.03),
    "adamw_torch_4bit": Optimizer(states=0, state_bytes=1.06),
    "sgd": Optimizer(states=0),
    "adagrad": Optimizer(states=1, temporary=2),
    "rmsprop": Optimizer(states=1, temporary=1),
    "adafactor": Optimizer(states=0, state_bytes=0.01),
    "adalomo": Optimizer(states=0, state_bytes=0.01),
    "lomo": Optimizer(states=0),
    "schedule_free_sgd": Optimizer(states=1),
    **dict.fromkeys(("grokadamw", "stable_adamw", "adamw_anyprecision"), Optimizer(states=3)),
    # bitsandbytes keeps 32-bit states in float32 whatever the weights are, and those of the embedding always.
    **dict.fromkeys(
        ("adamw_8bit", "adamw_bnb_8bit", "paged_adamw_8bit"), Optimizer(0, state_bytes=2.03, embedding_bytes=8)
    ),
    **dict.fromkeys(("ademamix_8bit", "paged_ademamix_8bit"), Optimizer(0, state_bytes=3.05, embedding_bytes=12)),
    **dict.fromkeys(
        ("lion_8bit", "paged_lion_8bit", "rmsprop_bnb_8bit"), Optimizer(0, state_bytes=1.02, embedding_bytes=4)
    ),
    "paged_adamw_32bit": Optimizer(0, state_bytes=8),
    **dict.fromkeys(("ademamix", "paged_ademamix_32bit"), Optimizer(0, state_bytes=12)),
    **dict.fromkeys(
        ("lion_32bit", "paged_lion_32bit", "rmsprop_bnb", "rmsprop_bnb_32bit"), Optimizer(0, state_bytes=4)
    ),
}
"""Others are planned as AdamW. 8 bits: one byte for each state, and a float for each block of 256 values. Paged states
may leave the device under pressure: planned as if they stayed."""


@dataclass(frozen=True)
class Workload:
    """One job on one kind of machine. Lengths in tokens, sizes in completions of one rank."""

    shape: Shape
    hardware: Hardware
    lengths: Lengths
    sizes: Batches
    algorithm: str
    world_size: int
    ranks_per_node: int
    tensor_parallel: int
    dtype_bytes: int
    num_iterations: int
    lora: Lora | None
    reference: bool
    """Whether a second copy of the model holds the reference policy."""
    reward_shapes: tuple[Shape, ...]
    unknown_rewards: tuple[str, ...]
    """Sources of reward models whose size nobody knows."""
    optimizer: Optimizer
    sharding: Sharding
    flash_attention: bool
    pieces: bool
    """Whether the step runs in pieces of so many tokens instead of TRL's micro-batches."""
    scores_old: bool
    """Whether the old log-probabilities take a forward pass of their own."""
    sorts_vocabulary: bool
    """Whether sampling sorts the logits (top_p, top_k)."""
    max_model_len: int
    evaluates: bool
    optimizer_on_host: bool = False
    """DeepSpeed's offload_optimizer: states and the update stay on the host. Formulas only."""
    features: Features = RUNTIME

    @property
    def max_num_seqs(self) -> int:
        """Sequences that one engine generates at the same time."""
        return self.sizes.per_rank * self.tensor_parallel

    @property
    def gradients_in_rollout(self) -> bool:
        """Whether a rollout falls between the micro-batches of one optimizer step."""
        every = self.sizes.steps_per_generation * self.num_iterations
        return every % self.sizes.gradient_accumulation_steps != 0

    @property
    def reference_leaves(self) -> bool:
        """Whether the reference model is on the device for its passes alone: where a rank has all of it."""
        return self.reference and self.features.guests and self.sharding == "none"

    @property
    def shares_weights(self) -> bool:
        """Whether trainer and engine use one copy of the weights: dense, in full, neither divided nor sharded."""
        whole = self.tensor_parallel == 1 and self.sharding == "none" and self.lora is None
        return self.features.shared_weights and whole and not self.shape.num_experts


def workload(
    spec: JobSpec,
    shape: Shape,
    hardware: Hardware,
    lengths: Lengths | None,
    rewards: Mapping[str, Shape] | None = None,
) -> Workload:
    """The sizes of `spec`. It must be valid: `contract.refusals` finds nothing."""
    values = option_values(spec)
    lengths = lengths or guessed_lengths(values)
    reference = spec.lora is None and bool(values.get("beta"))
    pieces = RUNTIME.pieces and step_in_pieces(spec, shape)
    looked_at = rewards or {}
    scorers = {r.model: looked_at.get(r.model) or known_shape(r.model) for r in spec.rewards if r.model}
    return Workload(
        shape=shape,
        hardware=hardware,
        lengths=lengths,
        sizes=batches(spec.trainer, spec.algorithm, spec.world_size),
        algorithm=spec.algorithm,
        world_size=spec.world_size,
        ranks_per_node=spec.ranks_per_node,
        tensor_parallel=spec.parallelism.tensor_parallel,
        dtype_bytes=BYTES[spec.model.dtype if spec.model else "bfloat16"],
        num_iterations=values.get("num_iterations") or 1,
        lora=spec.lora,
        reference=reference,
        reward_shapes=tuple(found for found in scorers.values() if found),
        unknown_rewards=tuple(source for source, found in scorers.items() if not found),
        optimizer=OPTIMIZERS.get(str(values.get("optim") or "adamw_torch_fused"), ADAMW),
        sharding=spec.parallelism.sharding,
        flash_attention=_unpadded(values, shape, pieces=pieces),
        pieces=pieces,
        scores_old=_scores_old(spec, values, pieces=pieces),
        sorts_vocabulary=values.get("top_p") not in (None, 1, 1.0) or bool(values.get("top_k")),
        max_model_len=values.get("vllm_max_model_length") or lengths.total,
        evaluates=spec.evaluation is not None,
    )


def option_values(spec: JobSpec) -> dict[str, Any]:
    """TRL's options as the job has them: the user's, else TRL's defaults."""
    return {**_defaults(spec.algorithm), **spec.trainer}


@functools.cache
def _defaults(algorithm: str) -> Mapping[str, Any]:
    return {name: option.default for name, option in options(algorithm).items()}


def guessed_lengths(values: Mapping[str, Any]) -> Lengths:
    """From the options alone: nobody has looked at the prompts."""
    completion = values.get("max_completion_length") or GUESSED_COMPLETION
    longest = values.get("vllm_max_model_length")
    return Lengths(
        prompt=max(1, longest - completion) if longest else GUESSED_PROMPT, completion=completion, guessed=not longest
    )


PACKABLE = ("llama", "qwen2", "qwen3", "qwen3_moe", "gemma")
"""Families whose attention neither has windows nor caps its logits: their rows need no padding."""


def step_in_pieces(spec: JobSpec, shape: Shape) -> bool:
    """Whether the worker may cut an optimizer step anew, with TRL's gradients: see `worker.step`."""
    values = option_values(spec)
    optimizer = str(values.get("optim") or "")
    return (
        spec.memory.policy == "Auto"
        and spec.parallelism.sharding in ("none", "fsdp")
        and values.get("top_entropy_quantile", 1.0) == 1.0
        and not values.get("use_adaptive_entropy")
        and not (shape.num_experts and values.get("router_aux_loss_coef") != 0.0)
        and not any(kind in optimizer for kind in ("lomo", "layerwise"))
    )


def _unpadded(values: Mapping[str, Any], shape: Shape, *, pieces: bool) -> bool:
    """Whether attention gets no mask: the user chose a kernel without one, or the rows are packed."""
    attention = str((values.get("model_init_kwargs") or {}).get("attn_implementation") or "")
    packed = pieces and shape.verified and shape.family in PACKABLE and attention in ("", "sdpa")
    return packed or "flash" in attention


def _scores_old(spec: JobSpec, values: Mapping[str, Any], *, pieces: bool) -> bool:
    """TRL takes them in a pass of their own, but for GRPO without importance sampling on an aligned window.

    A step in pieces takes them from itself where no optimizer step lies between rollout and training.
    """
    sizes = batches(spec.trainer, spec.algorithm, spec.world_size)
    every = sizes.steps_per_generation * (values.get("num_iterations") or 1)
    aligned = sizes.gradient_accumulation_steps % every == 0
    if spec.algorithm == "rloo":
        return not (pieces and aligned and not values.get("beta") and spec.trainer.get("disable_dropout", True))
    corrected = bool(values.get("vllm_importance_sampling_correction", True))
    same = pieces and spec.trainer.get("disable_dropout", True)  # the worker's default, not TRL's
    return not aligned or (corrected and not same)
