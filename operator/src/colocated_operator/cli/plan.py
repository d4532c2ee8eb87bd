"""`colocated plan`: the memory plan of a job, before anything runs."""

import shlex
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
import yaml
from rich.console import Console

from colocated_operator.cli.devices import devices_view, needed, on_each_device
from colocated_operator.cli.document import Mistakes, read, refuse_empty, told
from colocated_operator.cli.model import refuse, warn
from colocated_operator.cli.picture import picture
from colocated_operator.cli.plan_view import plan_view
from colocated_runtime.contract import devices
from colocated_runtime.contract.job import JobSpec
from colocated_runtime.contract.plan import Plan
from colocated_runtime.contract.refusals import LEAST_DEVICE, no_size
from colocated_runtime.contract.values import quantity_text
from colocated_runtime.planner.devices import Hardware, hardware_of
from colocated_runtime.planner.plan import make_plan
from colocated_runtime.planner.shapes import Shape

DOES_NOT_FIT = 1


class Output(StrEnum):
    """What `-o` takes."""

    JSON = "json"
    YAML = "yaml"


def plan(
    file: Annotated[Path, typer.Argument(help="YAML with a ColocatedRLJob.")],
    output: Annotated[Output | None, typer.Option("-o", "--output", help="The plan itself instead of a table.")] = None,
    draw: Annotated[Path | None, typer.Option("--picture", help="Also draw it: FILE.svg.")] = None,
    config: Annotated[
        Path | None, typer.Option(help="The model's config.json, where the job says too little of the model.")
    ] = None,
    device_memory: Annotated[str | None, typer.Option(help="Of one GPU, e.g. 80Gi, instead of the job's.")] = None,
    device_product: Annotated[
        str | None, typer.Option(help="As nodes are labelled, e.g. NVIDIA-H100-80GB-HBM3, instead of the job's.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Which job, where the file holds several.")] = None,
) -> None:
    """Predict what each phase of a job needs, on GPU and host, before anything runs.

    For a job that names no device: on which well-known ones it fits.

    Exit code: 0 it fits, 1 it does not, 2 a mistake in the file or too little said.
    """
    with told():
        refuse_empty(device_product=device_product)
        document = read(file, name)
        spec = _on_device(document.spec, device_memory, device_product)
        shape = _shape(file, spec, config)
        warn(file, spec)
        if spec.device.memory is None and spec.device.product is None and output is None and draw is None:
            given = {"--config": config, "--name": name}
            options = [f"{option}={value}" for option, value in given.items() if value is not None]
            raise typer.Exit(_show_devices(document.name, ["colocated", "plan", str(file), *options], spec, shape))
        made = make_plan(spec, shape, _hardware(file, spec))
        if draw:
            _write(draw, picture(document.name, made))
    if output is None:
        Console().print(plan_view(document.name, made), highlight=False)
    else:
        typer.echo(_written(made, output), nl=False)
    raise typer.Exit(0 if made.fits else DOES_NOT_FIT)


def _show_devices(name: str, command: list[str], spec: JobSpec, shape: Shape) -> int:
    """Which well-known devices would do; the exit code. `command` lacks but the device."""
    plans = on_each_device(spec, shape)
    Console().print(
        devices_view(name, shlex.join(command), plans, needed(spec, shape)), highlight=False, soft_wrap=True
    )
    return 0 if any(made.fits for made in plans.values()) else DOES_NOT_FIT


def _shape(file: Path, spec: JobSpec, config: Path | None) -> Shape:
    shape = refuse(file, spec, config, planned=True)
    if spec.runtime.command or spec.model is None:
        raise Mistakes(f"{file}: spec.runtime.command runs a program of its own, whose memory is not known here")
    if spec.backend == "cpu":
        raise Mistakes(f"{file}: spec.gpusPerNode: {spec.gpus_per_node}: on CPUs there is no GPU memory to plan")
    if shape is None:
        raise Mistakes(
            f"{file}: spec.model.source: {spec.model.source} is no model whose sizes are known here; give its"
            " config.json by --config, or the sizes as spec.model.shape"
        )
    return shape


def _on_device(spec: JobSpec, memory: str | None, product: str | None) -> JobSpec:
    """`spec` on the device of the options, where they name one. Raise Mistakes."""
    if memory is None and product is None:
        return spec
    try:
        said = None if memory is None else quantity_text(memory)
    except ValueError as error:
        raise Mistakes(f"--device-memory: {error}") from error
    wrong = said and no_size(said, LEAST_DEVICE)
    if wrong:
        raise Mistakes(f"--device-memory: {wrong}")
    label = product.replace(" ", "-") if product else spec.device.product  # the driver's names have blanks
    device = spec.device.model_copy(update={"memory": said, "product": label})
    asked = spec.model_copy(update={"device": device})
    if product:
        found = [f"--device-{line.removeprefix('device.')}" for line in devices.refusals(asked)]
        if found:
            raise Mistakes(*found)
    return asked


def _hardware(file: Path, spec: JobSpec) -> Hardware:
    hardware = hardware_of(spec)
    if hardware is None:
        product = spec.device.product
        unknown = f"spec.device.product: {product} is no product whose memory is known here"
        raise Mistakes(
            f"{file}: {unknown if product else 'spec.device: not said'}; give --device-memory 80Gi or --device-product"
            " NVIDIA-H100-80GB-HBM3, or set the same in spec.device"
        )
    return hardware


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text)
    except OSError as error:
        raise Mistakes(f"--picture: {path} cannot be written: {error.strerror}") from error


def _written(plan: Plan, output: Output) -> str:
    if output is Output.JSON:
        return plan.model_dump_json(by_alias=True, indent=2) + "\n"
    return str(yaml.safe_dump(plan.model_dump(by_alias=True, mode="json"), sort_keys=False, width=120))
