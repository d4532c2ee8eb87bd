"""The least that a job needs: of a device, and of the pod's memory, whatever may be set."""

from dataclasses import dataclass, replace

from colocated_runtime.contract.job import JobSpec
from colocated_runtime.planner.devices import GIB, Hardware
from colocated_runtime.planner.items import total
from colocated_runtime.planner.search import Candidate, Given, given, search
from colocated_runtime.planner.shapes import Shape
from colocated_runtime.planner.workload import Workload, workload

LARGEST_DEVICE = 300
"""GiB: no device is larger."""


def frugal(own: Given) -> Given:
    """The settings that take the least memory of all that `own` leaves open: if these do not fit, none do.

    Offload stays open: it takes the least of the device and the most of the host.
    """
    return replace(
        own,
        sleep_level=2 if own.sleep_level is None else own.sleep_level,
        checkpointing=own.checkpointing or "full",
        rows=own.rows or 1,
    )


def without_host_limit(job: Workload) -> Workload:
    """`job` in pods that may take what they like."""
    return replace(job, hardware=replace(job.hardware, host_limit_bytes=None))


def with_enough_host(job: Workload, own: Given) -> Workload | None:
    """`job` with the least memory limit, in whole GiB, with which some setting fits: its own where that suffices.

    None where the device is too small for every setting.
    """
    limit = job.hardware.host_limit_bytes
    fitting = [one for one in search(without_host_limit(job), frugal(own)) if one.fits]
    if not fitting:
        return None
    needed = min(max(total(use.host) for use in one.uses.values()) for one in fitting)
    if limit is None or needed <= limit:
        return job
    return replace(job, hardware=replace(job.hardware, host_limit_bytes=-(-needed // GIB) * GIB))


@dataclass(frozen=True)
class Least:
    """GiB of what some setting of a job fits into."""

    device: int
    host: int | None
    """Of the pod's memory, where its limit is below that."""


def least(spec: JobSpec, shape: Shape, hardware: Hardware) -> Least | None:
    """The smallest device, by the settings that `spec` leaves open, and the pod's memory there; None if no device would
    do."""
    job, own = workload(spec, shape, hardware, None), given(spec, shape)
    found = on_least_device(job, own)
    if found is None:
        return None
    limit = found.hardware.host_limit_bytes
    raised = limit if limit != hardware.host_limit_bytes else None
    return Least(found.hardware.device_bytes // GIB, raised // GIB if raised else None)


def on_least_device(job: Workload, own: Given) -> Workload | None:
    """`job` on the smallest device on which some setting fits, with as much of the host as it takes there; None if no
    device would do."""
    size = least_device(without_host_limit(job), own)
    if size is None:
        return None
    sized = replace(job, hardware=replace(job.hardware, device_bytes=size * GIB))
    return with_enough_host(sized, own) or sized


def least_device(job: Workload, own: Given) -> int | None:
    """GiB of the smallest device on which some setting of a job without a host limit fits; None if no device would do.

    From a lower bound upwards, planned at each size: the engine's share is a whole hundredth of the device.
    """
    bounds = [bound for one in search(job, frugal(own)) if (bound := _lower_bound(one, own)) is not None]
    if not bounds:
        return None
    size = max(1, min(bounds) // GIB)
    while size < LARGEST_DEVICE:
        sized = replace(job, hardware=replace(job.hardware, device_bytes=size * GIB))
        if any(one.fits for one in search(sized, frugal(own))):
            return size
        size += 1
    return None


def _lower_bound(one: Candidate, own: Given) -> int | None:
    """Bytes below which no device holds the longest sequence's cache beside the rest of every phase."""
    needs, kept = one.made.fixed.engine, 1 - own.headroom
    share = own.utilization
    found = [total(use.device) / kept for use in one.uses.values() if not use.cached]
    cached = [total(use.device) for use in one.uses.values() if use.cached]
    if share is None:
        return int(max(*found, *((size + needs.sequence) / kept for size in cached), 0))
    if share >= kept:
        return None
    found.append((needs.fixed + needs.sequence) / share)
    return int(max(*found, *((size - needs.fixed) / (kept - share) for size in cached), 0))
