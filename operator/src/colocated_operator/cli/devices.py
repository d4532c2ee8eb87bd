"""On which well-known devices a job fits, for one that names none. Pure."""

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from colocated_operator.cli.plan_view import gib
from colocated_runtime.contract.job import JobSpec
from colocated_runtime.contract.plan import Plan
from colocated_runtime.planner.devices import Hardware, hardware_of
from colocated_runtime.planner.least import least
from colocated_runtime.planner.plan import make_plan
from colocated_runtime.planner.shapes import Shape

WELL_KNOWN = {
    "cuda": (
        "NVIDIA-L4",
        "NVIDIA-A100-SXM4-40GB",
        "NVIDIA-L40S",
        "NVIDIA-A100-SXM4-80GB",
        "NVIDIA-H100-80GB-HBM3",
        "NVIDIA-H200",
        "NVIDIA-B200",
    ),
    "rocm": ("AMD_Instinct_MI250X", "AMD_Instinct_MI300X_OAM", "AMD_Instinct_MI325X_OAM"),
}
"""As nodes are labelled, the smaller memory first."""


def on_each_device(spec: JobSpec, shape: Shape) -> dict[str, Plan]:
    """The plan of `spec` on each well-known product of its backend."""
    return {product: make_plan(spec, shape, _hardware(spec, product)) for product in WELL_KNOWN[spec.backend]}


def needed(spec: JobSpec, shape: Shape) -> str:
    """The smallest GPU that would do, with the settings that take least; empty where none would."""
    found = least(spec, shape, _hardware(spec, WELL_KNOWN[spec.backend][0]))
    if found is None:
        return ""
    host = f" and resources.limits.memory: {found.host}Gi" if found.host else ""
    return f"with the settings that take least it needs GPUs of at least {found.device} GiB{host}"


def _hardware(spec: JobSpec, product: str) -> Hardware:
    device = spec.device.model_copy(update={"product": product})
    hardware = hardware_of(spec.model_copy(update={"device": device}))
    assert hardware is not None
    return hardware


def devices_view(name: str, command: str, plans: dict[str, Plan], words: str) -> RenderableType:
    """A line a device, and the way to the whole plan: `command` lacks but the device. `words` as `needed` says it."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("device")
    for title in ("GiB", "seconds a step"):
        table.add_column(title, justify="right")
    for product, plan in plans.items():
        fits = Text("fits", "green") if plan.fits else Text("does not fit", "red")
        seconds = f"{plan.step_seconds:.1f}" if plan.fits else ""
        table.add_row(product, gib(plan.device_bytes), seconds, fits)
    smallest = next((product for product, plan in plans.items() if plan.fits), None)
    *_, largest = plans
    shown = plans[smallest or largest]
    notes = [Text(f"on {largest}: {shown.refusal}", "red")] if shown.refusal else []
    notes += [Text(f"note: {note}", "yellow") for note in shown.advice]
    return Group(
        Text(f"{name}: names no device; with well-known ones it"),
        "",
        table,
        "",
        *([Text(words)] if words else []),
        *notes,
        Text(f"the whole plan of one: {command} --device-product {smallest or largest}", no_wrap=True),
        Text("of another GPU: --device-memory 80Gi; for good: spec.device", "dim"),
    )
