"""From the ranks' state files to the report: pure, but for reading the files."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from colocated_runtime.contract.report import PRESSURE_KEPT, Phase, PhasePeak, Pressure, RankState, Report, Stage

Pulse = tuple[int, Phase, float, float]
"""Step, phase, its begin, and when the rank last wrote its file."""


def read_ranks(state: Path) -> list[RankState]:
    """What the ranks have written so far, in their order."""
    found = []
    for path in state.glob("rank-*.json"):
        try:
            found.append(RankState.model_validate_json(path.read_bytes()))
        except (ValidationError, FileNotFoundError):
            continue  # a worker of another version, or gone this instant
    return sorted(found, key=lambda rank: rank.rank)


def merge(report: Report, ranks: list[RankState], now: float) -> Report:
    """The report with the ranks' news: the first rank's word, the largest peaks, the first checkpoint error."""
    if not ranks:
        return report.model_copy(update={"updated": now})
    first = ranks[0]
    changes: dict[str, Any] = {
        name: getattr(first, name)
        for name in ("phase", "progress", "metrics", "throughput", "checkpoints", "evaluations", "resumed_from_step")
    }
    unsynced = next((rank.weights for rank in ranks if rank.weights and not rank.weights.in_sync), None)
    return report.model_copy(
        update=changes
        | {
            "updated": now,
            "peaks": _largest([rank.peaks for rank in ranks]),
            "weights": unsynced or first.weights,
            "checkpoint_error": next((rank.checkpoint_error for rank in ranks if rank.checkpoint_error), ""),
            "model_uri": first.model_uri,
        }
    )


def _largest(peaks: list[dict[Phase, PhasePeak]]) -> dict[Phase, PhasePeak]:
    result: dict[Phase, PhasePeak] = {}
    for phase, peak in (item for mapping in peaks for item in mapping.items()):
        known = result.get(phase, PhasePeak())
        result[phase] = PhasePeak(
            device_bytes=max(known.device_bytes, peak.device_bytes),
            host_bytes=max(known.host_bytes, peak.host_bytes),
        )
    return result


def all_have_started(ranks: list[RankState], expected: range) -> bool:
    """Whether every expected rank is in a phase after its start; between two phases it is in none of them."""
    return {rank.rank for rank in ranks if rank.phase is not Phase.START} >= set(expected)


def all_have_ended(ranks: list[RankState], expected: range) -> bool:
    """Whether every expected rank has said how it ended."""
    return {rank.rank for rank in ranks if rank.outcome} >= set(expected)


@dataclass
class PressureLog:
    """All pressure events of this pod, numbered in the order in which they became known."""

    events: list[Pressure] = field(default_factory=list)
    _known: dict[int | None, int] = field(default_factory=dict)

    def add_ranks(self, ranks: list[RankState]) -> None:
        """Take up what the ranks have written since the last call."""
        for rank in ranks:
            for event in rank.pressure:
                if event.sequence > self._known.get(rank.rank, -1):
                    self._known[rank.rank] = event.sequence
                    self.add(event)

    def add(self, event: Pressure) -> None:
        """Take up one event under the next number; only the newest are kept."""
        number = self.events[-1].sequence + 1 if self.events else 1
        self.events = [*self.events, event.model_copy(update={"sequence": number})][-PRESSURE_KEPT:]


class Watchdog:
    """Notices that the ranks take too long to start, or that a rank does not come on any more.

    Each rank is watched by itself: the others may go on for a while before they wait for it.
    """

    def __init__(self, *, start_seconds: float, stall_seconds: float, began: float) -> None:
        self._start_seconds = start_seconds
        self._stall_seconds = stall_seconds
        self._began = began
        self._pulses: dict[int, Pulse] = {}
        self._since: dict[int, float] = {}

    def complaint(self, ranks: list[RankState], stage: Stage, now: float) -> str:
        """What is wrong; empty while all is well. `now` and `began` are of one clock, in seconds."""
        for rank in ranks:
            pulse = (rank.progress.step, rank.phase, rank.phase_since, rank.updated)
            if pulse != self._pulses.get(rank.rank):
                self._pulses[rank.rank], self._since[rank.rank] = pulse, now
        if stage is Stage.STARTING:
            if now - self._began < self._start_seconds:
                return ""
            return (
                f"no first rollout within watchdog.startTimeoutSeconds ({self._start_seconds:.0f} s) of the pod's start"
            )
        running = sorted((rank for rank in ranks if not rank.outcome), key=lambda rank: self._since[rank.rank])
        if not running or now - self._since[running[0].rank] < self._stall_seconds:
            return ""
        where = ", ".join(
            f"rank {rank.rank} in {rank.phase} at step {rank.progress.step} for {now - self._since[rank.rank]:.0f} s"
            for rank in running[:4]
        ) + (f" and {len(running) - 4} more" if len(running) > 4 else "")
        return f"no progress for watchdog.stallTimeoutSeconds ({self._stall_seconds:.0f} s): {where}"


def slow_save(ranks: list[RankState], now: float, seconds: float) -> str:
    """Says that a save has been running for more than `seconds`; it may still succeed. `now` is Unix time."""
    saving = [rank for rank in ranks if rank.phase is Phase.CHECKPOINT and not rank.outcome]
    if not saving:
        return ""
    since = min(rank.phase_since for rank in saving)
    if now - since <= seconds:
        return ""
    clock = datetime.fromtimestamp(since, UTC).strftime("%H:%M:%S")  # the same at every look: it is told once
    return f"step {saving[0].progress.step}: saving since {clock} UTC, slow or hanging storage"
