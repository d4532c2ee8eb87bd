"""What to say where nothing fits: the phase, its largest items, what is missing, and the nearest setting that fits.

The nearest setting is the first of a fixed list of changes, smallest first, that fits when it is planned like any
other.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from colocated_runtime.contract.devices import wrong_dtype
from colocated_runtime.contract.job import JobSpec, Lora, Memory
from colocated_runtime.planner.devices import GIB
from colocated_runtime.planner.items import Item, gib, total
from colocated_runtime.planner.least import frugal, on_least_device, with_enough_host
from colocated_runtime.planner.search import Candidate, Given, best, exact_in_any_cut, largest_utilization, search
from colocated_runtime.planner.workload import ADAMW, BYTES, Workload, workload

LARGEST_ITEMS = 4
HEADROOM = Memory().headroom
"""The default: more is what somebody asked for."""
SHORTEST_COMPLETION = 64
"""Shorter completions are not proposed."""
MOST_DEVICES = 8
"""Of a node: more are not proposed."""


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


def refusal(spec: JobSpec, chosen: Candidate, own: Given, near: Nearest | None) -> str:
    """One message for a person; `near` as `nearest` found it."""
    missing, fits = what_is_missing(chosen, own), f"Fits with {_settings(spec, near, own)}" if near else ""
    if near and near.found.job.ranks_per_node == chosen.job.ranks_per_node:
        return f"{missing}. {fits}."
    larger = _larger_device(spec, chosen, own)
    if near:
        return f"{missing}. {fits}{f', or on devices with {larger}' if larger else ''}."
    use = f"devices with {larger}, or a smaller model" if larger else "a smaller model: no device is large enough"
    return f"{missing}. No setting of this job fits; use {use}."


def what_is_missing(chosen: Candidate, own: Given) -> str:
    """The phase that fails by most, and what fills it; on the device, on the host, or on both."""
    found = [*_missing_on_device(chosen, own), *_missing_on_host(chosen)]
    return ". ".join(found)


def _missing_on_device(chosen: Candidate, own: Given) -> Iterator[str]:
    phase, missing = max(chosen.missing.items(), key=lambda entry: entry[1])
    if chosen.cache_missing > max(missing, 0):
        yield (
            f"Rollout: {gib(chosen.cache_missing)} are missing in the engine's share of {chosen.utilization:g}; it"
            f" leaves {gib(max(0, chosen.cache))} for keys and values, and one sequence of"
            f" {chosen.job.max_model_len} tokens takes"
            f" {gib(chosen.made.fixed.engine.sequence)}: {_largest(chosen.device_items(phase))}"
        )
    elif missing > 0:
        yield (
            f"{phase}: {gib(missing)} are missing; it needs {gib(chosen.budget + missing)} of {gib(chosen.budget)}, the"
            f" device's {gib(chosen.job.hardware.device_bytes)} less memory.headroom {own.headroom:.0%}:"
            f" {_largest(chosen.device_items(phase))}"
        )


def _missing_on_host(chosen: Candidate) -> Iterator[str]:
    phase, missing = max(chosen.host_missing.items(), key=lambda entry: entry[1], default=(None, 0))
    if phase and missing > 0:
        used = chosen.uses[phase].host
        yield (
            f"{phase}: {gib(missing)} of host memory are missing; it needs {gib(total(used))} of the pod's"
            f" {gib(total(used) - missing)}: {_largest(used)}"
        )


def nearest(spec: JobSpec, chosen: Candidate, own: Given) -> Nearest | None:
    """The first change that fits when it is planned."""
    for change in _changes(spec, chosen, own):
        if best(search(change.job, frugal(change.own))).fits:
            return Nearest(_closest(best(search(change.job, change.own)), own), change.words)
    return None


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


def _free(spec: JobSpec, chosen: Candidate, own: Given) -> Given:
    """All open that changes no gradients."""
    rows = None if exact_in_any_cut(spec, chosen.job.shape) else own.rows
    return replace(own, utilization=None, sleep_level=None, checkpointing=None, rows=rows, offload=None)


def _changes(spec: JobSpec, chosen: Candidate, own: Given) -> Iterator[Change]:
    """What the plan may not change by itself, one setting at a time, then all of them, then what changes the job."""
    job, free = chosen.job, _free(spec, chosen, own)
    if own.utilization is not None:
        yield Change(job, replace(own, utilization=None))
    if own.sleep_level in (0, 1):
        yield Change(job, replace(own, sleep_level=2))
    if own.checkpointing == "none":
        yield Change(job, replace(own, checkpointing="full"))
    if own.rows is not None and free.rows is None:
        yield Change(job, replace(own, rows=None))
    if own.offload == "none":
        yield Change(job, replace(own, offload="optimizer"))
    yield Change(job, free)
    if own.headroom > HEADROOM:
        yield Change(job, replace(free, headroom=HEADROOM), f"memory.headroom: {HEADROOM}")
    yield from _with_host(job, own)
    yield from _with_host(job, free)
    for other, words in _other_jobs(spec, job, own):
        yield Change(other, own, words)
        yield Change(other, free, words)
        yield from _with_host(other, free, f"{words}, ")
    for other, words in _more_devices(spec, job, own):
        yield Change(other, own, words)
        yield Change(other, free, words)


def _with_host(job: Workload, own: Given, words: str = "") -> Iterator[Change]:
    """With the least memory limit of the pod that some setting needs, where it has less."""
    enough = with_enough_host(job, own)
    if enough is not job and enough is not None:
        yield Change(enough, own, f"{words}{_host_words(enough)}")


def _host_words(job: Workload) -> str:
    return f"resources.limits.memory: {(job.hardware.host_limit_bytes or 0) // GIB}Gi"


def _shared_out(job: Workload, own: Given) -> Workload | None:
    """`job` with its states shared out over the ranks, where the runtime can do that."""
    possible = job.world_size > 1 and job.sharding == "none" and not job.shape.num_experts
    return replace(job, sharding="fsdp") if possible and own.offload in (None, "none") else None


def _other_jobs(spec: JobSpec, job: Workload, own: Given) -> Iterator[tuple[Workload, str]]:
    """Jobs that are not quite the user's, and what to set for them."""
    if job.optimizer.temporary:
        yield replace(job, optimizer=ADAMW), "trainer.optim: adamw_torch_fused"
    if shared := _shared_out(job, own):
        yield shared, "parallelism.sharding: fsdp"
    for ranks in range(job.tensor_parallel + 1, job.ranks_per_node + 1):
        if job.ranks_per_node % ranks == 0 and not job.shape.undivided(ranks):
            yield replace(job, tensor_parallel=ranks), f"parallelism.tensorParallel: {ranks}"
            if shared:
                both = replace(shared, tensor_parallel=ranks)
                yield both, f"parallelism.sharding: fsdp and parallelism.tensorParallel: {ranks}"
    completion = job.lengths.completion // 2
    while completion >= SHORTEST_COMPLETION:
        shorter = replace(job.lengths, completion=completion)
        words = f"trainer.max_completion_length: {completion}"
        if "vllm_max_model_length" in spec.trainer:
            words += f" and vllm_max_model_length: {shorter.total}"
        yield replace(job, lengths=shorter, max_model_len=shorter.total), words
        completion //= 2
    if job.dtype_bytes > BYTES["bfloat16"] and not any(wrong_dtype("bfloat16", job.hardware.product)):
        yield replace(job, dtype_bytes=BYTES["bfloat16"]), "model.dtype: bfloat16"
    if job.lora is None:
        adapters = replace(job, lora=Lora(), reference=False)
        yield adapters, "lora: {r: 16}, training adapters instead of all weights"
        if job.ranks_per_node > 1 and not job.shape.undivided(job.ranks_per_node):
            spread = replace(adapters, tensor_parallel=job.ranks_per_node)
            words = f"lora: {{r: 16}} and parallelism.tensorParallel: {job.ranks_per_node}"
            yield spread, words
            if shared:
                yield replace(spread, sharding="fsdp"), f"{words} and parallelism.sharding: fsdp"


def _more_devices(spec: JobSpec, job: Workload, own: Given) -> Iterator[tuple[Workload, str]]:
    """More GPUs in each pod, and more of them for each engine. Slices of one GPU cannot talk to each other."""
    if "mig" in f"{spec.resource_name} {job.hardware.product}".lower():
        return
    devices = 2 * job.ranks_per_node
    while devices <= MOST_DEVICES:
        for ranks in range(job.tensor_parallel, devices + 1):
            if devices % ranks or job.shape.undivided(ranks):
                continue
            parallel = spec.parallelism.model_copy(update={"tensor_parallel": ranks})
            wider = spec.model_copy(update={"gpus_per_node": devices, "parallelism": parallel})
            hardware = replace(job.hardware, devices_per_node=devices)
            try:
                made = workload(wider, job.shape, hardware, job.lengths)
            except ValueError:  # the batch is not to be divided so
                break
            made = replace(made, reward_shapes=job.reward_shapes, unknown_rewards=job.unknown_rewards)
            yield made, _devices_words(devices, ranks, job)
            if shared := _shared_out(made, own):
                yield shared, f"{_devices_words(devices, ranks, job)}, parallelism.sharding: fsdp"
        devices *= 2


def _devices_words(devices: int, ranks: int, job: Workload) -> str:
    size = f", parallelism.tensorParallel: {ranks}" if ranks != job.tensor_parallel else ""
    return f"gpusPerNode: {devices}{size}"


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


def _larger_device(spec: JobSpec, chosen: Candidate, own: Given) -> str:
    """The smallest device on which some setting fits: planned, as whole GiB; and what to set. Empty where none does."""
    free = _free(spec, chosen, own)
    larger = on_least_device(chosen.job, free)
    if larger is None:
        return ""
    same_host = larger.hardware.host_limit_bytes == chosen.job.hardware.host_limit_bytes
    words = [] if same_host else [_host_words(larger)]
    if not best(search(larger, frugal(own))).fits:
        fitting = _closest(best(search(larger, free)), own)
        words.append(_settings(spec, Nearest(fitting, ""), own))
    return " and ".join([f"at least {larger.hardware.device_bytes // GIB} GiB", *([", ".join(words)] if words else [])])
