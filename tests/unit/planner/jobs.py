"""Specs, shapes and plans that the planner's tests share."""

from typing import Any

from colocated_runtime.contract.job import JobSpec
from colocated_runtime.contract.plan import Plan
from colocated_runtime.contract.report import Phase
from colocated_runtime.planner.devices import GIB, hardware_of
from colocated_runtime.planner.plan import make_plan
from colocated_runtime.planner.shapes import shape_of
from colocated_runtime.planner.workload import Lengths

SHORT = Lengths(prompt=64, completion=512)


def job(model: str = "Qwen/Qwen2.5-7B", **fields: Any) -> JobSpec:
    """A spec on one H200 unless `fields` say otherwise."""
    given = {"gpusPerNode": 1, "device": {"product": "NVIDIA-H200"}, "model": {"source": f"hf://{model}"}, **fields}
    return JobSpec.model_validate(given)


def plan(spec: JobSpec, lengths: Lengths | None = SHORT) -> Plan:
    """The plan of a spec whose model and device are known."""
    assert spec.model is not None
    shape, hardware = shape_of(spec.model), hardware_of(spec)
    assert shape is not None
    assert hardware is not None
    return make_plan(spec, shape, hardware, lengths=lengths)


def gib(made: Plan, phase: Phase) -> float:
    """Peak of `phase` on the device, in GiB."""
    found = made.phase(phase)
    assert found is not None
    return found.device_bytes / GIB
