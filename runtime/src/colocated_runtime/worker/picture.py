"""The peaks of each phase over the steps of an attempt, as an SVG picture. Pure."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import ceil, floor
from xml.sax.saxutils import escape

from colocated_runtime.contract.report import Phase, PhasePeak
from colocated_runtime.planner.devices import GIB

MOST = 1000
"""Rows that a history holds; then two neighbours become one."""
COLORS = {
    Phase.START: "#79706e", Phase.ROLLOUT: "#4e79a7", Phase.SCORE: "#9a5f91", Phase.TRAIN: "#d9731a",
    Phase.SYNC: "#4f9544", Phase.CHECKPOINT: "#a8820c", Phase.EVALUATE: "#2b6f77",
}  # fmt: skip
LEFT, TOP, WIDTH, HEIGHT, LEGEND, GAP = 64, 70, 640, 240, 150, 60
"""Pixels: margins, a panel's size, the legend's width, the space below a panel."""

Peaks = dict[Phase, PhasePeak]
Size = Callable[[PhasePeak], int]


def larger(one: PhasePeak, other: PhasePeak) -> PhasePeak:
    """The larger of both, on device and host."""
    return PhasePeak(
        device_bytes=max(one.device_bytes, other.device_bytes), host_bytes=max(one.host_bytes, other.host_bytes)
    )


def together(one: Peaks, other: Peaks) -> Peaks:
    """The larger peak of each phase of either."""
    return one | {phase: larger(one.get(phase, peak), peak) for phase, peak in other.items()}


@dataclass
class History:
    """The peaks of all steps, in at most MOST rows of equally many steps each."""

    rows: list[tuple[int, Peaks]] = field(default_factory=list)
    """Last step of the row, and the peaks of its steps."""
    _every: int = 1
    _open: int = 0

    def add(self, step: int, peaks: Peaks) -> None:
        """Of the step that has just ended."""
        if self._open:
            self.rows[-1] = step, together(self.rows[-1][1], peaks)
        else:
            self.rows.append((step, peaks))
        self._open = (self._open + 1) % self._every
        if len(self.rows) >= MOST and not self._open:
            pairs = zip(self.rows[::2], self.rows[1::2], strict=True)
            self.rows = [(last, together(first, second)) for (_, first), (last, second) in pairs]
            self._every *= 2

    def add_to_last(self, peaks: Peaks) -> None:
        """Of what came after the last step."""
        if self.rows:
            self.rows[-1] = self.rows[-1][0], together(self.rows[-1][1], peaks)


def picture(name: str, history: History, device_limit: int) -> str:
    """The whole SVG document: a panel for the device, where there is one (`device_limit` in bytes, else 0), and one
    for the host; a curve for each phase."""
    panels: list[tuple[str, Size, int]] = [("host memory of the rank", lambda peak: peak.host_bytes, 0)]
    if device_limit:
        panels.insert(0, ("memory of the device", lambda peak: peak.device_bytes, device_limit))
    height = TOP + len(panels) * (HEIGHT + GAP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + LEGEND}" height="{height}"'
        ' font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        _text(LEFT, 28, name, 'font-size="18" font-weight="bold"'),
    ]
    for number, (title, size, limit) in enumerate(panels):
        parts += _panel(
            f"{title}: peak GiB of each phase, by step", history, size, limit, TOP + number * (HEIGHT + GAP)
        )
    return "\n".join([*parts, "</svg>", ""])


def _panel(title: str, history: History, size: Size, limit: int, top: int) -> Iterator[str]:
    seen = [phase for phase in Phase if any(phase in peaks for _, peaks in history.rows)]
    most = max([limit, 1, *(size(peak) for _, peaks in history.rows for peak in peaks.values())]) * 1.08
    steps = [step for step, _ in history.rows] or [0]
    first, last = steps[0], max(steps[-1], steps[0] + 1)

    def x(step: float) -> float:
        return LEFT + (step - first) / (last - first) * WIDTH

    def y(value: float) -> float:
        return top + HEIGHT - value / most * HEIGHT

    yield _text(LEFT, top - 12, title, 'fill="#555"')
    for value in _ticks(0, most / GIB):
        place = y(value * GIB)
        yield f'<line x1="{LEFT}" x2="{LEFT + WIDTH}" y1="{place:.1f}" y2="{place:.1f}" stroke="#ddd"/>'
        yield _text(LEFT - 8, place + 4, f"{value:g}", 'text-anchor="end" fill="#555"')
    for step in filter(float.is_integer, _ticks(first, last)):
        yield _text(x(step), top + HEIGHT + 18, f"{step:.0f}", 'text-anchor="middle"')
    if limit:
        yield f'<line x1="{LEFT}" x2="{LEFT + WIDTH}" y1="{y(limit):.1f}" y2="{y(limit):.1f}" stroke="#c00"/>'
        yield _text(LEFT + WIDTH + 8, y(limit) + 4, f"device {limit / GIB:.1f}", 'fill="#c00"')
    for number, phase in enumerate(seen):
        sizes = [(step, size(peaks[phase])) for step, peaks in history.rows if phase in peaks]
        yield from _curve(phase, [(x(step), y(peak)) for step, peak in sizes])
        place = top + 30 + 20 * number
        yield f'<rect x="{LEFT + WIDTH + 8}" y="{place}" width="12" height="12" fill="{COLORS[phase]}"/>'
        yield _text(LEFT + WIDTH + 26, place + 10, f"{phase.value} {max(peak for _, peak in sizes) / GIB:.2f}")


def _curve(phase: Phase, points: list[tuple[float, float]]) -> Iterator[str]:
    """A line, and a dot for each row where there are few."""
    color, tip = COLORS[phase], phase.value
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    yield (f'<polyline points="{line}" fill="none" stroke="{color}" stroke-width="1.5"><title>{tip}</title></polyline>')
    if len(points) <= 100:
        yield from (f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{color}"/>' for x, y in points)


def _ticks(low: float, high: float) -> list[float]:
    """At most nine round numbers from `low` to `high`."""
    sizes = (digit * 10.0**power for power in range(-9, 12) for digit in (1, 2, 5))
    apart = next(size for size in sizes if (high - low) / size <= 8)
    return [number * apart for number in range(ceil(low / apart), floor(high / apart) + 1)]


def _text(x: float, y: float, text: str, style: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}>{escape(text)}</text>'
