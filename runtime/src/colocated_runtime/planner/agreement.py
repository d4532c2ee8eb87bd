"""Where a job and its model do not go together, on whatever device: vLLM would say it in the pod. Pure."""

import difflib
from collections.abc import Iterator

from colocated_runtime.contract.job import JobSpec
from colocated_runtime.contract.options import number
from colocated_runtime.planner.features import RUNTIME
from colocated_runtime.planner.shapes import Shape
from colocated_runtime.planner.states import OUTER, adapted


def disagreements(spec: JobSpec, shape: Shape) -> list[str]:
    """One message for each field of `spec` that a model of `shape` cannot have; empty where it can run."""
    return [
        *_quantization(spec, shape),
        *_experts(spec, shape),
        *_tensor_parallel(spec, shape),
        *_lengths(spec, shape),
        *_adapters(spec, shape),
    ]


AROUND = ("model", "layers", "self_attn", "mlp", "embed_tokens", "language_model")
"""What may stand before a module's name in a longer one."""


def _quantization(spec: JobSpec, shape: Shape) -> Iterator[str]:
    if shape.quantization and spec.model:
        yield (
            f"model.source: {spec.model.source} has quantised weights (quantization_config: {shape.quantization}),"
            " which cannot be trained, nor given to the engine; use the model that they were made from"
        )


def _experts(spec: JobSpec, shape: Shape) -> Iterator[str]:
    """A model's own code may keep its weights as its checkpoint does; transformers' does not."""
    if shape.num_experts and spec.model and not spec.model.trust_remote_code and not RUNTIME.experts:
        yield (
            f"model.source: {spec.model.source} is a mixture of {shape.num_experts} experts, whose trained weights"
            " cannot be given to the engine yet; use a dense model"
        )


def _tensor_parallel(spec: JobSpec, shape: Shape) -> Iterator[str]:
    ranks = spec.parallelism.tensor_parallel
    undivided = shape.undivided(ranks)
    if undivided:
        possible = [n for n in range(1, spec.ranks_per_node + 1) if spec.ranks_per_node % n == 0]
        sizes = " or ".join(str(n) for n in possible if not shape.undivided(n))
        yield f"parallelism.tensorParallel: {ranks} does not divide the model's {undivided}; use {sizes}"


def _lengths(spec: JobSpec, shape: Shape) -> Iterator[str]:
    """The prompts are not known here; the longest of them is looked at before the engine starts."""
    limit = shape.max_position_embeddings
    longest = spec.trainer.get("vllm_max_model_length")
    completion = number(spec.trainer, spec.algorithm, "max_completion_length")
    if limit and longest and longest > limit:
        yield (
            f"trainer.vllm_max_model_length: {longest} is more than the model's max_position_embeddings {limit}; use at"
            f" most {limit}"
        )
    elif limit and completion >= limit:
        yield (
            f"trainer.max_completion_length: {completion} leaves no room for a prompt in the model's"
            f" max_position_embeddings {limit}; use at most {limit} less the longest prompt"
        )


def _adapters(spec: JobSpec, shape: Shape) -> Iterator[str]:
    """PEFT adapts what matches and passes over the rest, unless nothing does."""
    if spec.lora is None or not shape.verified or shape.num_experts or spec.lora.target_modules == ["all-linear"]:
        return
    modules = [weight.name for weight in adapted(shape, ["all-linear"])]
    for name in spec.lora.target_modules:
        *before, last = name.split(".")
        odd = [part for part in before if part not in (*AROUND, *modules) and not part.isdecimal()]
        wrong = odd[0] if odd else last if last not in (*modules, *OUTER) else None
        if wrong is not None:
            near = difflib.get_close_matches(wrong, (*modules, *AROUND) if odd else modules, n=1)
            hint = f"; did you mean {near[0]}? There" if near else "; there"
            yield (
                f"lora.target_modules: {name}: the model has no module {wrong}{hint} are {', '.join(modules)},"
                " or leave it out for all linear layers"
            )
