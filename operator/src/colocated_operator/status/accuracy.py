"""The observed peaks beside the plan: a plan that is far off is said so, because the next one rests on it."""

from colocated_operator.status.conditions import Fact
from colocated_runtime.contract.phase import Phase
from colocated_runtime.contract.plan import Plan
from colocated_runtime.contract.status import JobStatus, PhasePeakStatus

CONDITION = "MemoryPlanAccurate"
TOLERANCE = 0.15
"""Share of the planned bytes by which a phase's peak may differ."""
SETTLED_STEPS = 2
"""Before the second step the optimizer's state is not resident in every phase."""
JUDGED = (Phase.ROLLOUT, Phase.TRAIN)
"""In the others the device still holds what torch keeps of the phase before, which no phase needs: it is no part of
their plans."""


def accuracy_facts(status: JobStatus) -> dict[str, Fact]:
    """Whether each judged phase's device peak is within TOLERANCE of its plan; nothing where there is none to judge."""
    plan = status.memory.plan
    if plan is None or status.progress.step < SETTLED_STEPS:
        return {}
    pairs = [(peak, planned) for peak in status.memory.peaks if (planned := planned_bytes(plan, peak.phase))]
    seen = [(peak, planned) for peak, planned in pairs if peak.device_bytes and peak.phase in JUDGED]
    if not seen:
        return {}
    far = [(peak, planned) for peak, planned in seen if abs(peak.device_bytes - planned) > TOLERANCE * planned]
    if not far:
        return {CONDITION: Fact("True", "AsPlanned")}
    return {CONDITION: Fact("False", "Drift", "; ".join(_words(peak, planned) for peak, planned in far))}


def planned_bytes(plan: Plan, phase: str) -> int:
    """Planned device bytes of `phase`; 0 where the plan has no such phase."""
    return next((entry.device_bytes for entry in plan.phases if entry.phase == phase), 0)


def _words(peak: PhasePeakStatus, planned: int) -> str:
    seen = peak.device_bytes
    return f"{peak.phase}: {seen / 2**30:.1f} GiB seen, {planned / 2**30:.1f} GiB planned ({seen / planned - 1:+.0%})"
