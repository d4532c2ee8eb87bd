"""Model shape, devices, settings → bytes of every phase → settings chosen, or a refusal with the nearest that fits."""

from collections.abc import Mapping

from colocated_runtime.contract.job import JobSpec
from colocated_runtime.contract.plan import PhasePlan, Plan, PlanItem, PlannedSettings
from colocated_runtime.planner.advice import advice
from colocated_runtime.planner.devices import Hardware
from colocated_runtime.planner.items import Item
from colocated_runtime.planner.refusal import nearest, refusal
from colocated_runtime.planner.search import Candidate, best, given, search
from colocated_runtime.planner.shapes import Shape
from colocated_runtime.planner.why import why
from colocated_runtime.planner.workload import Lengths, workload

LARGEST = 2**53 - 1
"""Bytes that JSON's numbers hold exactly. What needs more does not fit anyway."""


def make_plan(
    spec: JobSpec,
    shape: Shape,
    hardware: Hardware,
    *,
    lengths: Lengths | None = None,
    rewards: Mapping[str, Shape] | None = None,
) -> Plan:
    """The plan of `spec` for a model of `shape` on `hardware`: chosen under Auto, checked under Manual.

    `lengths` are the data's and `rewards` the shapes of reward models by source, where somebody has looked. A spec that
    `contract.refusals` accepts never raises: what does not fit has `fits` False and a `refusal` that names the nearest
    setting that was planned and does fit.
    """
    job, own = workload(spec, shape, hardware, lengths, rewards), given(spec, shape)
    found = search(job, own)
    chosen = best(found)
    near = None if chosen.fits else nearest(spec, chosen, own)
    return Plan(
        fits=chosen.fits,
        verified=shape.verified,
        device_bytes=hardware.device_bytes,
        budget_bytes=chosen.budget,
        host_limit_bytes=hardware.host_limit_bytes,
        settings=planned_settings(chosen),
        phases=_phases(chosen),
        step_seconds=round(chosen.seconds.step, 3),
        why=why(spec, chosen, found),
        refusal="" if chosen.fits else refusal(spec, chosen, own, near),
        advice=advice(chosen, own, near.found if near else None),
    )


def planned_settings(chosen: Candidate) -> PlannedSettings:
    """The candidate's settings under the spec's own names."""
    job, made = chosen.job, chosen.made
    rows = job.sizes.per_device if job.pieces else made.rows
    return PlannedSettings(
        gpu_memory_utilization=chosen.utilization,
        kv_cache_bytes=max(0, chosen.cache),
        sleep_level=chosen.sleep_level,
        tensor_parallel=job.tensor_parallel,
        per_device_train_batch_size=rows,
        gradient_accumulation_steps=job.sizes.per_device * job.sizes.gradient_accumulation_steps // rows,
        steps_per_generation=job.sizes.per_rank // rows,
        gradient_checkpointing=made.checkpointing != "none",
        recompute=made.checkpointing if job.pieces else None,
        tokens_at_once=made.rows * job.lengths.total if job.pieces else 0,
        offload=chosen.offload,
    )


def _phases(chosen: Candidate) -> list[PhasePlan]:
    lasting = chosen.seconds.phases
    return [
        PhasePlan(
            phase=phase,
            device=[_item(item) for item in chosen.device_items(phase)],
            host=[_item(item) for item in use.host],
            seconds=round(lasting.get(phase, 0.0), 3),
        )
        for phase, use in chosen.uses.items()
    ]


def _item(item: Item) -> PlanItem:
    return PlanItem(name=item.name, bytes=min(item.bytes, LARGEST), formula=item.words())
