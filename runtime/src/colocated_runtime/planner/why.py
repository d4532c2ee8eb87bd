"""Why the plan's settings and no others, in a sentence a setting."""

from colocated_runtime.contract.job import JobSpec
from colocated_runtime.planner.features import Checkpointing
from colocated_runtime.planner.items import gib
from colocated_runtime.planner.search import ABOUT, DEFAULT_UTILIZATION, Candidate

CHECKPOINTING: dict[Checkpointing, str] = {
    "none": "no gradient checkpointing",
    "selective": "gradient checkpointing of all but matrix products and attention",
    "half": "gradient checkpointing of every second layer",
    "full": "gradient checkpointing",
}


def why(spec: JobSpec, chosen: Candidate, found: list[Candidate]) -> str:
    """For status and terminal."""
    if spec.memory.policy == "Manual":
        return "memory.policy is Manual: checked as set."
    if not chosen.fits:
        return ""
    return " ".join([_utilization(spec, chosen), _others(chosen, found)]).strip()


def _utilization(spec: JobSpec, chosen: Candidate) -> str:
    job = chosen.job
    if spec.memory.gpu_memory_utilization is not None:
        return f"Utilisation {chosen.utilization:g} is set."
    if job.lengths.guessed and chosen.utilization == DEFAULT_UTILIZATION:
        return f"Utilisation {chosen.utilization:g} is TRL's default, since the prompts' length is a guess."
    held = chosen.cache >= chosen.made.fixed.engine.rollout
    what = f"{job.max_num_seqs} sequences of {job.lengths.total} tokens"
    return (
        f"Utilisation {chosen.utilization:g} holds a whole rollout, {what}, at once."
        if held
        else f"Utilisation {chosen.utilization:g} is the largest that fits: {gib(chosen.cache)} of cache for {what}."
    )


def _others(chosen: Candidate, found: list[Candidate]) -> str:
    fitting = sum(one.fits for one in found)
    parts = [
        f"sleep level {chosen.sleep_level}",
        f"{chosen.made.rows * chosen.job.lengths.total} tokens at once"
        if chosen.job.pieces
        else f"micro-batches of {chosen.made.rows}",
        CHECKPOINTING[chosen.made.checkpointing],
        *(["optimizer states on the host but for updates"] if chosen.offload != "none" else []),
    ]
    words = (
        f"within {ABOUT - 1:.0%} of the fastest of {fitting} settings that fit, of {len(found)}, and of those the one"
        " with the most room while it trains"
        if fitting > 1
        else f"the only one of {len(found)} settings that fits"
    )
    return f"{', '.join(parts).capitalize()}: {words}."
