"""When the observed peaks contradict the plan."""

import pytest
from tests.unit.contract.plans import GIB, plan
from tests.unit.operator.cluster import Life

from colocated_operator.status.accuracy import CONDITION, accuracy_facts
from colocated_runtime.contract.plan import PhasePlan, PlanItem
from colocated_runtime.contract.report import Phase, PhasePeak
from colocated_runtime.contract.status import JobStatus, MemoryStatus, PhasePeakStatus, ProgressStatus

PLANNED = plan().phases[1].device_bytes / GIB


def status(train: float, step: int = 5, phase: str = "Train") -> JobStatus:
    """A job whose `phase` used `train` GiB of the device."""
    peaks = [PhasePeakStatus(phase=phase, device_bytes=round(train * GIB))]
    memory = MemoryStatus(plan=plan(), peaks=peaks)
    return JobStatus(progress=ProgressStatus(step=step, total_steps=10), memory=memory)


@pytest.mark.parametrize("share", [0.86, 1.0, 1.14])
def test_within_fifteen_per_cent_is_as_planned(share: float) -> None:
    assert accuracy_facts(status(PLANNED * share))[CONDITION].status == "True"


@pytest.mark.parametrize(("share", "words"), [(1.2, "(+20%)"), (0.5, "(-50%)")])
def test_beyond_it_says_phase_seen_and_planned(share: float, words: str) -> None:
    fact = accuracy_facts(status(PLANNED * share))[CONDITION]
    assert (fact.status, fact.reason) == ("False", "Drift")
    assert fact.message == f"Train: {PLANNED * share:.1f} GiB seen, {PLANNED:.1f} GiB planned {words}"


@pytest.mark.parametrize(
    "early", [status(1, step=1), status(0), status(1, phase="Score"), JobStatus()],
    ids=["first-step", "no-peak", "phase-without-plan", "no-plan"],
)  # fmt: skip
def test_nothing_is_said_before_there_is_something_to_judge(early: JobStatus) -> None:
    assert accuracy_facts(early) == {}


def test_what_torch_keeps_of_the_phase_before_is_no_drift() -> None:
    scored = PhasePlan(phase=Phase.SCORE, device=[PlanItem(name="trainerWeights", bytes=14 * GIB)])
    told = status(60, phase="Score")
    told.memory.plan = plan(phases=[*plan().phases, scored])
    assert accuracy_facts(told) == {}


def test_a_running_job_shows_the_launchers_plan_and_its_drift() -> None:
    life = Life()
    life.passes(2)
    peaks = {Phase.TRAIN: PhasePeak(device_bytes=100 * GIB)}
    life.runs(step=3, plan=plan(), peaks=peaks)
    assert life.status["memory"]["plan"]["budgetBytes"] == 132 * GIB
    assert life.condition(CONDITION)["status"] == "False"
    assert life.condition(CONDITION)["message"].startswith("Train: 100.0 GiB seen")
    life.runs(step=4)
    assert life.status["memory"]["plan"], "stays where a later report lacks it"
