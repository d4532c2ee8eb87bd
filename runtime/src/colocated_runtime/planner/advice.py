"""What to know beside the figures: guesses, a better tensor parallel size, and where colocation is the wrong choice."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from colocated_runtime.contract.report import Phase
from colocated_runtime.planner.cost import decode_seconds
from colocated_runtime.planner.items import Item, gib, total
from colocated_runtime.planner.phases import CONTEXT
from colocated_runtime.planner.search import Candidate, Given, best, search

WORTH_SAYING = 0.8
"""Another placement or size is named where it takes at most this share of the step."""
ENGINE_SHARE = 0.9
"""Of a device that an engine has for itself: vLLM's own default."""


@dataclass(frozen=True)
class Separate:
    """Some devices generate while the others train."""

    generating: int
    """Devices."""
    lagging: float
    """Seconds a step where training lags one step behind: both sides work all the time."""
    on_policy: float
    """Seconds a step where each waits for the other."""


def advice(chosen: Candidate, own: Given, mended: Candidate | None) -> list[str]:
    """Sentences for a person, the most important first. `mended`: what fits after the change that a refusal names."""
    if not chosen.fits:
        said = _unmeasured(mended, own) if mended else _only_split(chosen)
        return [*said, *_guesses(chosen)]
    better = _other_tensor_parallel(chosen, own)
    return [
        *_tensor_parallel(chosen, better),
        *_placement(better or chosen),
        *_unmeasured(chosen, own),
        *_guesses(chosen),
    ]


def separate(chosen: Candidate) -> Separate | None:
    """The best division of the same devices, by the same cost model; None where there is only one device."""
    job = chosen.job
    devices, size = job.world_size, job.tensor_parallel
    divided = [_divided(chosen, generating) for generating in range(size, devices, size)]
    return min(divided, key=lambda one: one.lagging, default=None)


def _divided(chosen: Candidate, generating: int) -> Separate:
    job, base = chosen.job, chosen.made.fixed
    needs, devices = base.engine, job.world_size
    sequences = job.sizes.generation_batch / (generating / job.tensor_parallel)
    cache = int(ENGINE_SHARE * job.hardware.device_bytes) - needs.fixed
    together = max(1.0, min(sequences, cache / (needs.rollout / job.max_num_seqs)))
    updates = max(1.0, job.sizes.steps_per_generation * job.num_iterations / job.sizes.gradient_accumulation_steps)
    rollout = sequences / together * decode_seconds(base, together) / updates
    train = (chosen.seconds.train + chosen.seconds.score) * devices / (devices - generating)
    moved = base.states.weights.bytes / job.hardware.peer_bandwidth / updates
    return Separate(generating, max(rollout, train) + moved, rollout + train + moved)


def _placement(chosen: Candidate) -> Iterator[str]:
    other, here = separate(chosen), chosen.seconds
    if other is None or other.lagging > WORTH_SAYING * here.step:
        return
    yield (
        f"Colocation may be the wrong choice: generation takes {here.rollout / here.step:.0%} of a step of"
        f" {here.step:.1f} s, and hardly less on more devices. With {other.generating} of the {chosen.job.world_size}"
        f" devices generating and the others training, a step would take about {other.lagging:.1f} s if training lags"
        f" one step behind, {other.on_policy:.1f} s if it does not."
    )


def _only_split(chosen: Candidate) -> Iterator[str]:
    """Trainer and engine would fit on devices of their own."""
    base, budget = chosen.made.fixed, chosen.budget
    trainer = max(_of_trainer(chosen.uses[phase].device) for phase in (Phase.SCORE, Phase.TRAIN, Phase.CHECKPOINT))
    engine = CONTEXT + base.engine.fixed + base.engine.sequence
    if trainer > budget or engine > budget:
        return
    job = chosen.job
    rollout = chosen.seconds.rollout
    train = chosen.seconds.train + chosen.seconds.score
    yield (
        f"It would fit on separate devices: {gib(trainer)} on each of {job.world_size} that train and {gib(engine)} on"
        f" each of {job.tensor_parallel} that generate, about {rollout + train:.1f} s a step on-policy, with"
        f" {job.world_size + job.tensor_parallel} devices instead of {job.world_size}. This operator does not do that."
    )


def _of_trainer(items: list[Item]) -> int:
    """Bytes without the engine's, and without what stays reserved only because nothing sleeps."""
    return total([item for item in items if not item.name.startswith(("engine", "cudaGraphs", "allocatorReserve"))])


def _other_tensor_parallel(chosen: Candidate, own: Given) -> Candidate | None:
    """The best other size, if it is worth saying. The spec's default cannot be told from a wish, so it is only said."""
    job = chosen.job
    sizes = [n for n in range(1, job.ranks_per_node + 1) if job.ranks_per_node % n == 0 and n != job.tensor_parallel]
    pinned = replace(own, rows=chosen.made.rows, checkpointing=chosen.made.checkpointing)
    others = [best(search(replace(job, tensor_parallel=n), pinned)) for n in sizes if not job.shape.undivided(n)]
    faster = min((one for one in others if one.fits), key=lambda one: one.seconds.step, default=None)
    return faster if faster and faster.seconds.step <= WORTH_SAYING * chosen.seconds.step else None


def _tensor_parallel(chosen: Candidate, better: Candidate | None) -> Iterator[str]:
    if better:
        yield (
            f"parallelism.tensorParallel: {better.job.tensor_parallel} would take about {better.seconds.step:.1f} s a"
            f" step instead of {chosen.seconds.step:.1f} s."
        )


def _unmeasured(chosen: Candidate, own: Given) -> Iterator[str]:
    """What the plan chose or proposes, and nobody has run on a GPU yet."""
    if chosen.offload != "none" and own.offload is None:
        yield (
            "Unmeasured: the optimizer's states go to host memory between updates, which has not run on a GPU yet;"
            " memory.offload: none leaves it out."
        )


def _guesses(chosen: Candidate) -> Iterator[str]:
    job = chosen.job
    if job.shape.multimodal:
        yield "Unverified: only the model's text part is planned; its weights for images or sound come on top of it."
    elif not job.shape.verified:
        yield "Unverified: the formulas are not tested for this architecture; it is planned as a Llama of these sizes."
    if job.lengths.guessed:
        yield f"The longest prompt is guessed: {job.lengths.prompt} tokens. Set trainer.vllm_max_model_length."
    if job.hardware.shared:
        yield (
            "The device is shared with other pods, and what they hold of it is not known before the pod runs: planned"
            " as if nobody else were there. A job that meets others runs out of memory, or takes it from them; use"
            " devices of its own, or MIG slices, each of which has its memory to itself."
        )
    if not job.hardware.rates_known:
        yield "The device's speed is not known: times are an A100's. Set device.product."
    if job.unknown_rewards:
        yield f"Not planned, since their size is not known: reward models {', '.join(job.unknown_rewards)}."
