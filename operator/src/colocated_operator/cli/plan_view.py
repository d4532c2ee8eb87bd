"""A memory plan as a person reads it on a terminal. Pure."""

import re
from collections.abc import Callable

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from colocated_runtime.contract.plan import PhasePlan, Plan, PlanItem

BAR = 36
"""Characters of a bar."""
EIGHTHS = " ▏▎▍▌▋▊▉"


def plan_view(name: str, plan: Plan) -> RenderableType:
    """Verdict, a bar for each phase, what it is made of, the settings, and what there is to say."""
    parts: list[RenderableType] = [
        _headline(name, plan),
        "",
        _phases(plan),
        "",
        _items("GiB on each GPU", plan, _device),
    ]
    if any(phase.host for phase in plan.phases):
        parts += ["", _items("GiB in each pod's memory", plan, _host)]
    parts += ["", _settings(plan)]
    if plan.refusal:
        parts += ["", Text(plan.refusal, "red")]
    if plan.why:
        parts += ["", Text(f"why: {plan.why}")]
    if plan.advice:
        parts += ["", *(Text(f"note: {note}", "yellow") for note in plan.advice)]
    return Group(*parts)


def gib(size: int) -> str:
    """Bytes as GiB with one decimal, without the unit."""
    return f"{size / 2**30:.1f}"


def words(name: str) -> str:
    """An item's name in words: kvCache becomes KV cache."""
    text = re.sub(r"(?<=[a-z0-9])([A-Z])", lambda match: f" {match[1].lower()}", name)
    return re.sub(r"\b(kv|nccl|cuda|lora)\b", lambda match: match[0].upper(), text)


def item_names(plan: Plan, of: Callable[[PhasePlan], list[PlanItem]]) -> list[str]:
    """Every item of the phases, in the order in which it comes up."""
    return list(dict.fromkeys(item.name for phase in plan.phases for item in of(phase)))


def bar(used: int, budget: int, full: int, width: int = BAR) -> Text:
    """`used` of `full` bytes as a bar, a mark at `budget`; what lies beyond the mark is red."""
    cells = used / full * width
    whole, eighth = int(cells), int(cells % 1 * 8)
    drawn = ("█" * whole + (EIGHTHS[eighth] if eighth else "")).ljust(width, "·")[:width]
    mark = min(width - 1, round(budget / full * width))
    over = used > budget
    text = Text()
    text.append(drawn[:mark], "green" if not over else "yellow")
    text.append("│", "bold")
    text.append(drawn[mark + 1 :], "red" if over else "dim")
    return text


def _device(phase: PhasePlan) -> list[PlanItem]:
    return phase.device


def _host(phase: PhasePlan) -> list[PlanItem]:
    return phase.host


def _headline(name: str, plan: Plan) -> Text:
    text = Text(f"{name}: ", "bold")
    text.append("fits" if plan.fits else "does not fit", "bold green" if plan.fits else "bold red")
    host = f"; {gib(plan.host_limit_bytes)} GiB of memory a pod" if plan.host_limit_bytes else ""
    device = f"each GPU has {gib(plan.device_bytes)} GiB, {gib(plan.budget_bytes)} GiB of it may be planned (│)"
    text.append(f"\n{device}{host}", "dim")
    if not plan.verified:
        text.append("\nunverified: the formulas are not tested for this model's architecture", "yellow")
    return text


def _phases(plan: Plan) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("phase")
    table.add_column("GPU")
    table.add_column("GiB", justify="right")
    table.add_column("host GiB", justify="right")
    table.add_column("seconds", justify="right")
    full = max([plan.device_bytes, *(phase.device_bytes for phase in plan.phases)])
    for phase in plan.phases:
        table.add_row(
            phase.phase.value,
            bar(phase.device_bytes, plan.budget_bytes, full),
            _size(phase.device_bytes, plan.budget_bytes),
            _size(phase.host_bytes, plan.host_limit_bytes),
            f"{phase.seconds:.1f}" if phase.seconds else "",
        )
    if plan.step_seconds:
        table.add_row("", "", "", "", Text(f"{plan.step_seconds:.1f}", "bold"))
    return table


def _size(size: int, limit: int | None) -> Text:
    return Text(gib(size), "red" if limit is not None and size > limit else "")


def _items(title: str, plan: Plan, of: Callable[[PhasePlan], list[PlanItem]]) -> Table:
    """Items down, phases across."""
    table = Table(box=None, pad_edge=False, header_style="bold", show_footer=True, footer_style="bold")
    table.add_column(title, footer="total")
    for phase in plan.phases:
        total = sum(item.bytes for item in of(phase))
        table.add_column(phase.phase.value, footer=gib(total), justify="right")
    for name in item_names(plan, of):
        sizes = [sum(item.bytes for item in of(phase) if item.name == name) for phase in plan.phases]
        table.add_row(words(name), *(_cell(size) for size in sizes))
    return table


def _cell(size: int) -> str:
    if not size:
        return ""
    return gib(size) if size >= 0.05 * 2**30 else "<0.1"


def _settings(plan: Plan) -> RenderableType:
    """Under the names that the spec has for them."""
    chosen = plan.settings
    cache = f"(KV cache {gib(chosen.kv_cache_bytes)} GiB)"
    pieces = f"  ({chosen.tokens_at_once} tokens at once)" if chosen.tokens_at_once else ""
    recomputed = f"  ({chosen.recompute})" if chosen.recompute in ("selective", "half") else ""
    rows = {
        "memory.gpuMemoryUtilization": f"{chosen.gpu_memory_utilization:.3g}  {cache}",
        "memory.sleepLevel": str(chosen.sleep_level),
        "memory.offload": chosen.offload,
        "parallelism.tensorParallel": str(chosen.tensor_parallel),
        "trainer.per_device_train_batch_size": f"{chosen.per_device_train_batch_size}{pieces}",
        "trainer.gradient_accumulation_steps": str(chosen.gradient_accumulation_steps),
        "trainer.steps_per_generation": str(chosen.steps_per_generation),
        "trainer.gradient_checkpointing": f"{str(chosen.gradient_checkpointing).lower()}{recomputed}",
    }
    table = Table(box=None, pad_edge=False, show_header=False)
    for name, value in rows.items():
        table.add_row(name, value)
    return Group(Text("settings", "bold"), Padding(table, (0, 0, 0, 2), expand=False))
