"""TRL's batch arithmetic (GRPOConfig and RLOOConfig, __post_init__), before TRL is there to do it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from colocated_runtime.contract.options import number


@dataclass(frozen=True)
class Batches:
    """Sizes in completions unless said otherwise."""

    per_device: int
    """Of one micro-batch of one rank."""
    world_size: int
    """Ranks."""
    gradient_accumulation_steps: int
    steps_per_generation: int
    """Micro-batches that one rollout feeds."""
    num_generations: int
    """Completions of one prompt."""

    @property
    def generation_batch(self) -> int:
        """One rollout, all ranks together."""
        return self.per_device * self.world_size * self.steps_per_generation

    @property
    def per_rank(self) -> int:
        """One rollout's share of a rank."""
        return self.per_device * self.steps_per_generation

    @property
    def prompts(self) -> int:
        """Different prompts of one rollout."""
        return self.generation_batch // self.num_generations

    def too_few(self, rows: int) -> str:
        """What to say where a dataset has `rows`; empty if that is enough. TRL would train no step and call it done."""
        if rows >= self.prompts:
            return ""
        return (
            f"dataset: {rows} rows, but one rollout takes {self.prompts} different prompts (generation batch"
            f" {self.generation_batch} / num_generations {self.num_generations}); give more rows, or a smaller batch"
        )


def batches(trainer: Mapping[str, Any], algorithm: str, world_size: int) -> Batches:
    """The sizes that TRL will use. Raise ValueError, with the way out, for what TRL would refuse."""
    per_device = number(trainer, algorithm, "per_device_train_batch_size")
    accumulation = number(trainer, algorithm, "gradient_accumulation_steps")
    generations = number(trainer, algorithm, "num_generations")
    total, steps = trainer.get("generation_batch_size"), trainer.get("steps_per_generation")
    if total is not None and steps is not None:
        raise ValueError(
            f"trainer.generation_batch_size: {total} beside steps_per_generation {steps}; set only one of the two,"
            " each follows from the other"
        )
    at_once = per_device * world_size
    if total is not None:
        if total % at_once:
            raise ValueError(
                f"trainer.generation_batch_size: {total} is no multiple of per_device_train_batch_size {per_device} x"
                f" {world_size} ranks; use {_nearest(total, at_once)}"
            )
        steps = total // at_once
    made = Batches(per_device, world_size, accumulation, steps or accumulation, generations)
    if made.generation_batch % generations:
        raise ValueError(_not_in_groups(made))
    return made


def _not_in_groups(made: Batches) -> str:
    batch, ranks = made.generation_batch, made.world_size
    divisors = [size for size in range(2, batch + 1) if batch % size == 0]
    below = max((size for size in divisors if size <= made.num_generations), default=None)
    above = min((size for size in divisors if size >= made.num_generations), default=None)
    sizes = " or ".join(str(size) for size in (below, above) if size)
    use = f"num_generations {sizes}, or another batch size" if sizes else "a batch of at least two completions"
    return (
        f"trainer.num_generations: {made.num_generations} does not divide the generation batch {batch} ="
        f" per_device_train_batch_size {made.per_device} x {ranks} rank{'s' if ranks > 1 else ''} x"
        f" steps_per_generation {made.steps_per_generation}; use {use}"
    )


def _nearest(total: int, step: int) -> str:
    below, above = total // step * step, (total // step + 1) * step
    return f"{below} or {above}" if below else str(above)
