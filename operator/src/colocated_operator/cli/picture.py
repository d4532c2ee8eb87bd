"""A memory plan as an SVG picture: a stacked bar for each phase, the device's limit across. Pure."""

from collections.abc import Iterator
from xml.sax.saxutils import escape

from colocated_operator.cli.plan_view import gib, item_names, words
from colocated_runtime.contract.plan import PhasePlan, Plan

COLORS = (
    "#4e79a7", "#d9731a", "#499894", "#d1495b", "#4f9544", "#a8820c", "#9a5f91", "#79706e", "#8c564b", "#2b6f77",
    "#c0608f", "#5b6abf", "#6b8e23", "#b5485d", "#2f4b7c", "#a0522d", "#3d8b8b", "#7d5ba6",
)  # fmt: skip
"""Dark enough for white numbers."""
HALO = 'paint-order="stroke" stroke="white" stroke-width="4"'
LEFT, TOP, BAR, GAP, HEIGHT, LEGEND = 64, 70, 84, 36, 400, 250
"""Pixels: margins, a bar's width, the space between two, the plot's height, the legend's width."""
LABEL = 13
"""Height that a segment needs to hold its number."""


def picture(name: str, plan: Plan) -> str:
    """The whole SVG document. Items lie in the same order in every bar."""
    right = LEFT + GAP + len(plan.phases) * (BAR + GAP)
    scale = HEIGHT / (1.08 * max([plan.device_bytes, *(phase.device_bytes for phase in plan.phases)]))
    colors = {item: COLORS[number % len(COLORS)] for number, item in enumerate(item_names(plan, lambda p: p.device))}
    size = f'width="{right + LEGEND}" height="{TOP + HEIGHT + 60}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        _text(LEFT, 28, f"{name}: {'fits' if plan.fits else 'does not fit'}", 'font-size="18" font-weight="bold"'),
        _text(LEFT, 50, "planned GiB of each GPU, by phase", 'fill="#555"'),
        *_axis(scale, right),
    ]
    places = [(phase, LEFT + GAP + number * (BAR + GAP)) for number, phase in enumerate(plan.phases)]
    for phase, x in places:
        parts += _bar(phase, x, scale, colors)
    parts += _limit(plan.device_bytes, "device", scale, right, 'stroke="#333"', above=True)
    parts += _limit(plan.budget_bytes, "budget", scale, right, 'stroke="#c00" stroke-dasharray="6 4"', above=False)
    for phase, x in places:
        parts += _labels(phase, x + BAR / 2, scale, over=phase.device_bytes > plan.budget_bytes)
    parts += _legend(colors, right + 24)
    return "\n".join([*parts, "</svg>", ""])


def _y(size: float, scale: float) -> float:
    return TOP + HEIGHT - size * scale


def _axis(scale: float, right: int) -> Iterator[str]:
    """A line and a number at every fifth or so of the height."""
    top = HEIGHT / scale / 2**30
    step = next(step for step in (1, 2, 5, 10, 20, 50, 100, 200, 500, 10**9) if top / step <= 8)
    for value in range(0, int(top) + 1, step):
        y = _y(value * 2**30, scale)
        yield f'<line x1="{LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>'
        yield _text(LEFT - 8, y + 4, str(value), 'text-anchor="end" fill="#555"')


def _bar(phase: PhasePlan, x: int, scale: float, colors: dict[str, str]) -> Iterator[str]:
    below = 0
    for item in sorted(phase.device, key=lambda item: list(colors).index(item.name)):
        height = item.bytes * scale
        y = _y(below, scale) - height
        tip = escape(f"{words(item.name)}: {gib(item.bytes)} GiB" + (f" = {item.formula}" if item.formula else ""))
        yield (
            f'<rect x="{x}" y="{y:.1f}" width="{BAR}" height="{height:.1f}" fill="{colors[item.name]}" stroke="white"'
            f' stroke-width="0.5"><title>{tip}</title></rect>'
        )
        if height >= LABEL:
            style = 'text-anchor="middle" fill="white" font-size="11"'
            yield _text(x + BAR / 2, y + height / 2 + 4, gib(item.bytes), style)
        below += item.bytes


def _labels(phase: PhasePlan, middle: float, scale: float, *, over: bool) -> Iterator[str]:
    """The total above the bar, the phase and the host's total below it."""
    color = "#c00" if over else "black"
    style = f'text-anchor="middle" font-weight="bold" fill="{color}" {HALO}'
    yield _text(middle, _y(phase.device_bytes, scale) - 5, gib(phase.device_bytes), style)
    yield _text(middle, TOP + HEIGHT + 18, phase.phase.value, 'text-anchor="middle"')
    if phase.host:
        yield _text(middle, TOP + HEIGHT + 34, f"host {gib(phase.host_bytes)}", 'text-anchor="middle" fill="#555"')


def _limit(size: int, name: str, scale: float, right: int, stroke: str, *, above: bool) -> Iterator[str]:
    y = _y(size, scale)
    yield f'<line x1="{LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}" stroke-width="1.5" {stroke}/>'
    yield _text(right + 4, y - 2 if above else y + 12, f"{name} {gib(size)}")


def _legend(colors: dict[str, str], x: int) -> Iterator[str]:
    """From the top of a stack to its bottom, beside the lower part of the plot."""
    names = list(reversed(colors))
    first = TOP + HEIGHT - 20 * len(names)
    for number, name in enumerate(names):
        y = first + 20 * number
        yield f'<rect x="{x}" y="{y}" width="12" height="12" fill="{colors[name]}"/>'
        yield _text(x + 18, y + 10, words(name))


def _text(x: float, y: float, text: str, style: str = "") -> str:
    return f'<text x="{x:g}" y="{y:.1f}" {style}>{escape(text)}</text>'
