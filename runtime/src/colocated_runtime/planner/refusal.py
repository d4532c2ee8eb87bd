"""What to say where nothing fits: the phase, its largest items, what is missing, and the nearest setting that fits.

The nearest setting is the first of a fixed list of changes, smallest first, that fits when it is planned like any
other.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from colocated_runtime.contract.job import JobSpec, Lora
from colocated_runtime.planner.devices import GIB
from colocated_runtime.planner.items import Item, gib, total
from colocated_runtime.planner.search import Candidate, Given, best, exact_in_any_cut, largest_utilization, search
from colocated_runtime.planner.workload import ADAMW, Workload

LARGEST_ITEMS = 4
SHORTEST_COMPLETION = 64
"""Shorter completions are not proposed."""


@dataclass(frozen=True)
class Change:
    """A job like the user's but for some settings; `words` are those that a candidate does not show by itself."""

    job: Workload
    own: Given
    words: str = ""


@dataclass(frozen=True)
class Nearest:
    """A change that was planned and fits."""

    found: Candidate
    words: str


def refusal(spec: JobSpec, chosen: Candidate, own: Given) -> str:
    """One message for a person."""
    near = nearest(spec, chosen, own)
    way_out = f"Fits with {_settings(spec, near, own)}" if near else _no_way_out(chosen, own)
    return f"{what_is_missing(chosen, own)}. {way_out}."


def what_is_missing(chosen: Candidate, own: Given) -> str:
    """The phase that fails by most, and what fills it."""
    phase, missing = max(chosen.missing.items(), key=lambda entry: entry[1])
    host_phase, host_missing = max(chosen.host_missing.items(), key=lambda entry: entry[1], default=(phase, 0))
    if host_missing > max(missing, chosen.cache_missing, 0):
        used = chosen.uses[host_phase].host
        return (
            f"{host_phase}: {gib(host_missing)} of host memory are missing; it needs {gib(total(used))} of the pod's"
            f" {gib(total(used) - host_missing)}: {_largest(used)}"
        )
    if chosen.cache_missing > max(missing, 0):
        return (
            f"Rollout: {gib(chosen.cache_missing)} are missing in the engine's share of {chosen.utilization:g}; it"
            f" leaves {gib(max(0, chosen.cache))} for keys and values, and one sequence of"
            f" {chosen.job.max_model_len} tokens takes"
            f" {gib(chosen.made.fixed.engine.sequence)}: {_largest(chosen.device_items(phase))}"
        )
    return (
        f"{phase}: {gib(missing)} are missing; it needs {gib(chosen.budget + missing)} of {gib(chosen.budget)}, the"
        f" device's {gib(chosen.job.hardware.device_bytes)} less memory.headroom {own.headroom:.0%}:"
        f" {_largest(chosen.device_items(phase))}"
    )


def nearest(spec: JobSpec, chosen: Candidate, own: Given) -> Nearest | None:
    """The first change that fits when it is planned."""
    exact = exact_in_any_cut(spec, chosen.job.shape)
    for change in _changes(spec, chosen, own, exact=exact):
        if best(search(change.job, _frugal(change.own))).fits:
            return Nearest(_closest(best(search(change.job, change.own)), own), change.words)
    return None


def _frugal(own: Given) -> Given:
    """The settings that take the least memory of all that `own` leaves open: if these do not fit, none do.

    Offload stays open: it takes the least of the device and the most of the host.
    """
    return replace(
        own,
        sleep_level=2 if own.sleep_level is None else own.sleep_level,
        checkpointing=own.checkpointing or "full",
        rows=own.rows or 1,
    )


def _largest(items: list[Item]) -> str:
    ordered = sorted(items, key=lambda item: -item.bytes)[:LARGEST_ITEMS]
    return ", ".join(f"{item.name} {gib(item.bytes)}" for item in ordered)


def _closest(found: Candidate, own: Given) -> Candidate:
    """With a share of the device as close to the user's as fits, where the user set one."""
    if own.utilization is None or not found.fits:
        return found
    share = min(own.utilization, largest_utilization(found.made, found.uses, found.budget))
    closer = replace(found, utilization=share)
    return closer if closer.fits else found


def _changes(spec: JobSpec, chosen: Candidate, own: Given, *, exact: bool) -> Iterator[Change]:
    """What the plan may not change by itself, one setting at a time, then all of them, then what changes the job."""
    job = chosen.job
    if own.utilization is not None:
        yield Change(job, replace(own, utilization=None))
    if own.sleep_level in (0, 1):
        yield Change(job, replace(own, sleep_level=2))
    if own.checkpointing == "none":
        yield Change(job, replace(own, checkpointing="full"))
    if own.rows is not None and exact:
        yield Change(job, replace(own, rows=None))
    if own.offload == "none":
        yield Change(job, replace(own, offload="optimizer"))
    rows = None if exact else own.rows
    free = replace(own, utilization=None, sleep_level=None, checkpointing=None, rows=rows, offload=None)
    yield Change(job, free)
    limit = job.hardware.host_limit_bytes
    if limit is not None and max(chosen.host_missing.values()) > 0:
        unlimited = replace(job, hardware=replace(job.hardware, host_limit_bytes=None))
        needed = max(total(use.host) for use in chosen.uses.values())
        yield Change(unlimited, own, f"resources.limits.memory: {-(-needed // GIB)}Gi")
    for other, words in _other_jobs(spec, job):
        yield Change(other, own, words)
        yield Change(other, free, words)


def _other_jobs(spec: JobSpec, job: Workload) -> Iterator[tuple[Workload, str]]:
    """Jobs that are not quite the user's, and what to set for them."""
    if job.optimizer.temporary:
        yield replace(job, optimizer=ADAMW), "trainer.optim: adamw_torch_fused"
    for ranks in range(job.tensor_parallel + 1, job.ranks_per_node + 1):
        if job.ranks_per_node % ranks == 0 and not job.shape.undivided(ranks):
            yield replace(job, tensor_parallel=ranks), f"parallelism.tensorParallel: {ranks}"
    completion = job.lengths.completion // 2
    while completion >= SHORTEST_COMPLETION:
        shorter = replace(job.lengths, completion=completion)
        words = f"trainer.max_completion_length: {completion}"
        if "vllm_max_model_length" in spec.trainer:
            words += f" and vllm_max_model_length: {shorter.total}"
        yield replace(job, lengths=shorter, max_model_len=shorter.total), words
        completion //= 2
    if job.lora is None:
        adapters = replace(job, lora=Lora(), reference=False)
        yield adapters, "lora: {r: 16}, training adapters instead of all weights"
        if job.ranks_per_node > 1 and not job.shape.undivided(job.ranks_per_node):
            spread = replace(adapters, tensor_parallel=job.ranks_per_node)
            yield spread, f"lora: {{r: 16}} and parallelism.tensorParallel: {job.ranks_per_node}"


def _settings(spec: JobSpec, near: Nearest, own: Given) -> str:
    found, words = near.found, [near.words] if near.words else []
    job, rows = found.job, found.made.rows
    if own.utilization not in (None, found.utilization):
        words.append(f"memory.gpuMemoryUtilization: {found.utilization:g}")
    if own.sleep_level not in (None, found.sleep_level):
        words.append(f"memory.sleepLevel: {found.sleep_level}")
    if own.checkpointing not in (None, found.made.checkpointing):
        words.append(f"trainer.gradient_checkpointing: {str(found.made.checkpointing != 'none').lower()}")
    if own.offload not in (None, found.offload):
        words.append(f"memory.offload: {found.offload}")
    if own.rows not in (None, rows):
        accumulation = job.sizes.per_device * job.sizes.gradient_accumulation_steps // rows
        cut = f"trainer.per_device_train_batch_size: {rows}, gradient_accumulation_steps: {accumulation}"
        if "steps_per_generation" in spec.trainer:
            cut += f", steps_per_generation: {job.sizes.per_rank // rows}"
        words.append(f"{cut} (the same gradients)")
    return ", ".join(words) or "memory.policy: Auto"


def _no_way_out(chosen: Candidate, own: Given) -> str:
    needed = max(chosen.missing.values()) + chosen.budget
    if chosen.cache_missing > 0:
        needed += chosen.cache_missing
    way_out = f"No setting of this job fits; use devices with at least {gib(needed / (1 - own.headroom))}"
    job = chosen.job
    sharded = job.world_size > 1 and "zero3" not in job.features.sharding
    return f"{way_out}, or a smaller model{'; states are not sharded over the devices yet' if sharded else ''}"
