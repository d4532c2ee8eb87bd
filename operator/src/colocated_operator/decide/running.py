"""While an attempt runs: what its pods, its Job and its reports tell the user."""

from datetime import timedelta

from colocated_operator.decide.decision import Decision
from colocated_operator.decide.situation import Situation, at_rest, with_status
from colocated_operator.observe import ChildJob
from colocated_operator.policies.waiting import waiting
from colocated_operator.status import conditions
from colocated_operator.status.conditions import Fact
from colocated_operator.status.reported import report_facts
from colocated_runtime.contract.report import Report, Stage

UNREACHABLE_AFTER = timedelta(seconds=15)
LEAVING = (Stage.STOPPING, Stage.FINISHED)


def running(s: Situation, child: ChildJob) -> Decision:
    """From the Job's creation to its end."""
    reports = s.reports
    started = any(_trains(report) for report in reports)
    if not reports or any(report.stage in LEAVING for report in reports):
        started |= s.status.phase == "Running"  # what was seen; a new operator has not asked yet
    pods = s.observation.pods_of(s.attempt)
    if all(pod.gone for pod in pods) and not child.failing:
        pods = ()  # its queue has suspended and resumed the Job
    resting = child.suspended or not pods  # the reports are those of pods that had to leave
    if resting:
        started = False
    obstacle = waiting(child, pods, s.spec, s.now, s.observation.refusal)
    facts = (
        report_facts(reports, s.now) | _reachability(s, told=bool(reports)) | {"Suspended": Fact("False", "Running")}
    )
    if resting:
        facts |= conditions.idle()
    if obstacle and obstacle.stalled:
        facts |= conditions.stalled(obstacle.reason, obstacle.message)
    elif obstacle:
        facts |= conditions.reconciling(obstacle.reason, obstacle.message)
    elif any(pod.running for pod in pods):
        facts |= conditions.current("PodsRunning")
    elif any(pod.ended for pod in pods):
        facts |= conditions.reconciling("Stopping", "pods of the attempt end")
    else:
        facts |= conditions.reconciling("PodsPending")
    if started:
        said = next((f": {report.message}" for report in reports if report.message), "")
        facts["Running"] = Fact("True", "Training", f"attempt {s.attempt}{said}")
    elif obstacle:
        facts["Running"] = Fact("False", obstacle.reason, obstacle.message)
    else:
        facts["Running"] = Fact("False", "Starting", reports[0].message if reports else "")
    waits_for = obstacle.reason if obstacle and not obstacle.stalled else ""
    decision = with_status(s, "Running" if started else "Starting", facts, waits_for=waits_for)
    return Decision(at_rest(decision.status) if resting else decision.status, again_in=s.seconds_left)


def _trains(report: Report) -> bool:
    """Not one that ends before its first step, of a mistake in the spec."""
    return report.stage is Stage.RUNNING or (report.stage in LEAVING and report.progress.step > 0)


def _reachability(s: Situation, *, told: bool) -> dict[str, Fact]:
    """Whether the pods that run answer. Where they never did, nobody can tell of their memory either."""
    pods = [pod for pod in s.observation.pods_of(s.attempt) if pod.running]
    if not pods:
        return {"ReportReachable": Fact("False", conditions.NOT_RUNNING)}
    answers = {pod.name: s.observation.reports.get(pod.uid) for pod in pods}
    failures = [
        f"pod {name}: {pulled.error}"
        for name, pulled in answers.items()
        if pulled and pulled.error and pulled.since and s.now - pulled.since > UNREACHABLE_AFTER
    ]
    if failures:
        facts = {"ReportReachable": Fact("False", "Unreachable", "; ".join(failures[:4]))}
        return facts if told else facts | {"MemoryPressure": Fact("Unknown", "Unreachable")}
    if all(pulled and pulled.report and not pulled.error for pulled in answers.values()):
        return {"ReportReachable": Fact("True", "Answered")}
    before = next((entry.reason for entry in s.status.conditions if entry.type == "ReportReachable"), "")
    return {"ReportReachable": Fact("Unknown", "NotAnswered")} if before in ("", conditions.NOT_RUNNING) else {}
