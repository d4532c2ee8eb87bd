"""What to say where nothing fits: the phase, its largest items, what is missing, and the nearest setting that fits."""

from colocated_runtime.contract.job import JobSpec
from colocated_runtime.planner.items import Item, gib
from colocated_runtime.planner.search import Candidate

LARGEST_ITEMS = 4


def refusal(spec: JobSpec, chosen: Candidate) -> str:
    """One message for a person."""
    return f"{what_is_missing(spec, chosen)}"


def what_is_missing(spec: JobSpec, chosen: Candidate) -> str:
    """The phase that fails by most, and what fills it."""
    phase, missing = max(chosen.missing.items(), key=lambda entry: entry[1])
    host_phase, host_missing = max(chosen.host_missing.items(), key=lambda entry: entry[1], default=(phase, 0))
    if host_missing > max(missing, chosen.cache_missing, 0):
        use = chosen.uses[host_phase].host
        return (
            f"{host_phase}: {gib(host_missing)} of host memory are missing in resources.limits.memory"
            f" {gib(chosen.host_limit or 0)}; {_largest(use)}"
        )
    if chosen.cache_missing > max(missing, 0):
        job, needs = chosen.made.job, chosen.made.engine
        return (
            f"Rollout: the engine's share of {chosen.choice.utilization:g} leaves {gib(max(0, chosen.cache))} for keys"
            f" and values, and one sequence of {job.max_model_len} tokens takes {gib(needs.sequence)}"
        )
    return (
        f"{phase}: {gib(missing)} are missing. It needs {gib(chosen.budget + missing)} of a device's"
        f" {gib(chosen.budget)} ({gib(chosen.made.job.hardware.device_bytes)} less headroom"
        f" {spec.memory.headroom:.0%}); {_largest(chosen.uses[phase].device)}"
    )


def _largest(items: list[Item]) -> str:
    ordered = sorted(items, key=lambda item: -item.bytes)[:LARGEST_ITEMS]
    return "largest: " + ", ".join(f"{item.name} {gib(item.bytes)}" for item in ordered)
