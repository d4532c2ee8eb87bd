"""From the launchers' reports to the fields of status."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from colocated_operator.status.conditions import Fact, stamp
from colocated_runtime.contract.grace import shortage
from colocated_runtime.contract.plan import Plan
from colocated_runtime.contract.report import (
    EVALUATIONS_KEPT,
    Phase,
    PhasePeak,
    Pressure,
    Report,
    Stage,
    first_and_newest,
)
from colocated_runtime.contract.status import (
    CheckpointsStatus,
    CheckpointStatus,
    EvaluationStatus,
    JobStatus,
    MemoryStatus,
    OutputStatus,
    PhasePeakStatus,
    ProgressStatus,
)

PRESSURE_LASTS = timedelta(minutes=2)
"""How long after its last event memory pressure counts as present."""


def with_reports(status: JobStatus, reports: Sequence[Report], keep: int) -> JobStatus:
    """`status` with what the pods of the present attempt report, in order of their index; the first speaks for all.

    What a report lacks stays: a final one is shortened to fit the termination message.
    """
    if not reports:
        return status
    first = reports[0]
    changes: dict[str, Any] = {
        "activity": str(first.phase or "") if first.stage is Stage.RUNNING else "",
        "memory": _memory(status.memory, reports),
        "checkpoints": _checkpoints(status.checkpoints, first, keep),
        "evaluations": _evaluations(status.evaluations, first),
    }
    if first.progress.total_steps:
        seen = first.progress
        changes["progress"] = progress(seen.step, seen.total_steps, seen.eta_seconds)
    if first.metrics:
        changes["metrics"] = {name: short(value) for name, value in list(first.metrics.items())[:64]}
    if first.throughput:
        changes["throughput"] = {name: short(value) for name, value in list(first.throughput.items())[:16]}
    if first.resumed_from_step is not None:
        changes["resumed_from_step"] = first.resumed_from_step
    if first.model_uri:
        changes["output"] = OutputStatus(model=first.model_uri)
    return status.model_copy(update=changes)


def progress(done: int, total: int, eta: float | None = None) -> ProgressStatus:
    """Steps done and in all (0: not known), and the seconds left."""
    return ProgressStatus(
        step=done,
        total_steps=total,
        percent=min(100, 100 * done // total) if total else 0,
        eta_seconds=round(eta) if eta is not None else None,
    )


def _memory(old: MemoryStatus, reports: Sequence[Report]) -> MemoryStatus:
    peaks: dict[str, PhasePeak] = {
        peak.phase: PhasePeak(device_bytes=peak.device_bytes, host_bytes=peak.host_bytes) for peak in old.peaks
    }
    for report in reports:
        for phase, peak in report.peaks.items():
            before = peaks.get(phase.value, PhasePeak())
            peaks[phase.value] = PhasePeak(
                device_bytes=max(before.device_bytes, peak.device_bytes),
                host_bytes=max(before.host_bytes, peak.host_bytes),
            )
    largest = max((peak.device_bytes for peak in peaks.values()), default=0)
    order = [phase.value for phase in Phase]
    return old.model_copy(
        update={
            "plan": _plan(old.plan, reports[0].plan),
            "peaks": [
                PhasePeakStatus(phase=name, device_bytes=peaks[name].device_bytes, host_bytes=peaks[name].host_bytes)
                for name in sorted(peaks, key=lambda name: order.index(name) if name in order else len(order))
            ],
            "peak_device": gibibytes(largest) if largest else "",
            "pressure_events": max(
                old.pressure_events, sum(max((p.sequence for p in r.pressure), default=0) for r in reports)
            ),
        }
    )


def _plan(old: Plan | None, new: Plan | None) -> Plan | None:
    """The newer one; `old` itself where they say the same, so that nobody compares their items again at each pass."""
    if old is None or new is None:
        return new or old
    return old if _gist(old) == _gist(new) else new


def _gist(plan: Plan) -> tuple[object, ...]:
    sums = [(phase.device_bytes, phase.host_bytes) for phase in plan.phases]
    return plan.device_bytes, plan.budget_bytes, plan.host_limit_bytes, plan.settings, plan.step_seconds, sums


def _checkpoints(old: CheckpointsStatus, report: Report, keep: int) -> CheckpointsStatus:
    """The newest `keep` of all that were reported: older ones have been deleted from the volume.

    A final report names only the last ones, but none is newer; where a later attempt began at step 0 none was left.
    """
    newest = max((saved.step for saved in report.checkpoints), default=0 if report.resumed_from_step == 0 else None)
    known = {entry.step: entry for entry in old.kept if newest is None or entry.step <= newest}
    for saved in report.checkpoints:
        known[saved.step] = CheckpointStatus(
            step=saved.step, uri=saved.uri, time=_stamp(saved.time), size_bytes=saved.size_bytes
        )
    kept = [known[step] for step in sorted(known)][-keep:]
    if not kept:
        return old if newest is None else CheckpointsStatus()
    return CheckpointsStatus(latest=kept[-1].uri, step=kept[-1].step, time=kept[-1].time, kept=kept)


def _evaluations(old: list[EvaluationStatus], report: Report) -> list[EvaluationStatus]:
    known = {entry.step: entry for entry in old}
    for entry in report.evaluations:
        known[entry.step] = EvaluationStatus(**entry.model_dump())
    return first_and_newest([known[step] for step in sorted(known)], EVALUATIONS_KEPT)


def report_facts(reports: Sequence[Report], now: datetime) -> dict[str, Fact]:
    """Conditions that the reports speak of."""
    if not reports:
        return {}
    facts = {"MemoryPressure": _pressure(reports, now)}
    first = reports[0]
    if first.weights:
        facts["WeightsInSync"] = (
            Fact("True", "InSync", first.weights.message)
            if first.weights.in_sync
            else Fact("False", "Stale", f"step {first.weights.step}: {first.weights.message}")
        )
    return facts | save_facts(reports)


def save_facts(reports: Sequence[Report]) -> dict[str, Fact]:
    """What they say of checkpoints, which pods write while they leave, too."""
    first = next(iter(reports), None)
    if first is None:
        return {}
    if first.checkpoint_error:
        return {"CheckpointReady": Fact("False", "SaveFailed", first.checkpoint_error)}
    if first.slow_save:
        over = first.stage is Stage.FINISHED
        return {"CheckpointReady": Fact("False", "SaveFailed" if over else "SaveSlow", first.slow_save)}
    if too_short := shortage(first.throughput, first.grace_seconds):
        return {"CheckpointReady": Fact("False", "GracePeriodTooShort", too_short)}
    if first.checkpoints:
        return {"CheckpointReady": Fact("True", "Saved", first.checkpoints[-1].uri)}
    return {}


def latest_pressure(reports: Sequence[Report]) -> Pressure | None:
    """The newest memory-pressure event of all pods."""
    events = [event for report in reports for event in report.pressure]
    return max(events, key=lambda event: event.time, default=None)


def _pressure(reports: Sequence[Report], now: datetime) -> Fact:
    event = latest_pressure(reports)
    if event is None or now - datetime.fromtimestamp(event.time, UTC) > PRESSURE_LASTS:
        return Fact("False", "NoPressure", event.message if event else "")
    reason = "SleepIneffective" if event.kind == "Sleep" else f"{event.kind}Memory"
    return Fact("True", reason, event.message)


def short(value: float) -> float:
    """`value` to four digits, as a person reads it."""
    return float(f"{value:.4g}")


def gibibytes(size: int) -> str:
    """As a quantity with one decimal: 63.8Gi."""
    return f"{size / 2**30:.1f}Gi"


def _stamp(time: float) -> str:
    return stamp(datetime.fromtimestamp(time, UTC))
