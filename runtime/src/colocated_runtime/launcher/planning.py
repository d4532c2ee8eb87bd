"""The memory plan once more, with what only the pod knows: the model's own config.json, its devices, its limit."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import structlog

from colocated_runtime import host_memory
from colocated_runtime.contract import uris
from colocated_runtime.contract.attempt import Attempt
from colocated_runtime.contract.devices import wrong_dtype
from colocated_runtime.contract.job import JobSpec
from colocated_runtime.contract.outcome import Outcome
from colocated_runtime.contract.plan import Plan
from colocated_runtime.contract.sources import source_key
from colocated_runtime.launcher import nvml
from colocated_runtime.launcher.classify import Ending
from colocated_runtime.launcher.nvml import Device
from colocated_runtime.planner import config_file
from colocated_runtime.planner.agreement import disagreements
from colocated_runtime.planner.devices import Hardware, hardware_of
from colocated_runtime.planner.plan import make_plan
from colocated_runtime.planner.shapes import Shape, shape_of

log = structlog.get_logger()


def plan_here(attempt: Attempt, sources_file: Path) -> tuple[Plan | None, Ending | None]:
    """The plan whose settings the ranks take; or one that does not fit this pod, and the ending that follows from it.

    No plan is made on CPUs, where the engine's memory is a fixed small cache beside the trainer's, nor for a command
    of the user's. The operator's plan holds where model or device stay unknown or planning fails, and on several nodes:
    all ranks must take the same settings, and devices of one product may differ by a few megabytes.
    """
    spec = attempt.spec
    if spec.backend == "cpu" or spec.runtime.command:
        return None, None
    try:
        host = host_memory.read()
        shape = _shape(spec, sources_file)
        hardware = _hardware(spec, nvml.devices(), host.limit if host else None, attempt.host_reserve)
        if shape is None or hardware is None:
            log.info("no memory plan of its own: model or device is not known", plan_of_the_operator=bool(attempt.plan))
            return attempt.plan, None
        assert spec.model is not None
        found = [*disagreements(spec, shape), *wrong_dtype(spec.model.dtype, hardware.product)]
        if found:
            return attempt.plan, Ending(Outcome.BAD_PLAN, "; ".join(found))
        rewards = _reward_shapes(spec, sources_file)
        made = make_plan(spec, shape, hardware, rewards=rewards)
        if not made.fits:
            return made, _refusal(spec, shape, hardware, made, rewards)
        return made if len(attempt.hosts) == 1 else attempt.plan, None
    except Exception:  # a mistake of the planner's must not stop a job
        log.exception("planning failed; the job goes on without a plan of its own")
        return attempt.plan, None


def _refusal(spec: JobSpec, shape: Shape, hardware: Hardware, plan: Plan, rewards: Mapping[str, Shape]) -> Ending:
    """For good, unless it is others' memory that is missing: they may go."""
    alone = replace(hardware, used_bytes=0)
    if hardware.used_bytes and make_plan(spec, shape, alone, rewards=rewards).fits:
        others = f"{hardware.used_bytes / 2**30:.1f} GiB of a GPU are in use by others"
        return Ending(Outcome.TRANSIENT, f"{others}: {plan.refusal}")
    return Ending(Outcome.BAD_PLAN, plan.refusal)


def _shape(spec: JobSpec, sources_file: Path) -> Shape | None:
    """From the model's config.json; where there is none, from what the spec says."""
    assert spec.model is not None
    return _config(spec.model.source, spec.model.revision, sources_file) or shape_of(spec.model)


def _reward_shapes(spec: JobSpec, sources_file: Path) -> dict[str, Shape]:
    """Of the reward models whose config.json says enough, by source."""
    found = {reward.model: _config(reward.model, None, sources_file) for reward in spec.rewards if reward.model}
    return {source: shape for source, shape in found.items() if shape}


def _config(source: str, revision: str | None, sources_file: Path) -> Shape | None:
    """By the config.json of a model that the launcher has downloaded, or that lies in the image or on a claim."""
    local = uris.parse(source).local_path or json.loads(sources_file.read_text())[source_key("model", source, revision)]
    try:
        return config_file.read_shape(Path(local) / config_file.NAME)
    except ValueError as error:
        log.warning("config.json says too little to plan by it", error=str(error))
        return None


def _hardware(spec: JobSpec, devices: Sequence[Device], limit: int | None, reserve: int) -> Hardware | None:
    """The smallest and fullest of the devices counts; without a driver to ask, what the spec says of them."""
    devices = devices[: spec.ranks_per_node]  # the ranks take the first ones
    if devices:
        smallest = min(device.total for device in devices)
        product = devices[0].name.replace(" ", "-")
        device = spec.device.model_copy(update={"memory": str(smallest), "product": product})
        spec = spec.model_copy(update={"device": device})
    hardware = hardware_of(spec)
    if hardware is None:
        return None
    used = max((device.used for device in devices), default=0)
    limit = limit or hardware.host_limit_bytes
    return replace(hardware, used_bytes=used, host_limit_bytes=limit, host_reserve_bytes=reserve)
