"""At the end of an attempt, and of the job."""

from dataclasses import replace
from datetime import datetime
from typing import Any

from colocated_operator.decide.decision import Action, Decision, DeleteJob, Sweep
from colocated_operator.decide.situation import RESUMED, Situation, at_rest, is_resuming, with_status
from colocated_operator.observe import ChildJob, Observation
from colocated_operator.policies import restart
from colocated_operator.policies.ending import Ending
from colocated_operator.status import conditions
from colocated_operator.status.conditions import Fact, stamp
from colocated_runtime.contract import names
from colocated_runtime.contract.outcome import Outcome
from colocated_runtime.contract.report import Report
from colocated_runtime.contract.status import JobStatus, RestartStatus

RESTARTS_KEPT = 10
DEADLINE_MOVED = "its Job kept the activeDeadlineSeconds it was made with; the next attempt has those of the spec"


def complete(s: Situation, end: Ending) -> Decision:
    """The job is done."""
    facts = conditions.current("Complete") | conditions.ended("Complete", "Trained", end.message)
    decision = with_status(s, "Complete", facts, end.report)
    done = decision.status.progress
    changes: dict[str, Any] = {"completion_time": stamp(s.now)}
    if done.total_steps:
        changes["progress"] = done.model_copy(update={"percent": 100, "eta_seconds": 0})
    return Decision(decision.status.model_copy(update=changes), end_of_job(s.child))


def ended(s: Situation, child: ChildJob | None, end: Ending) -> Decision:
    """Record the end of the present attempt; then restart or fail."""
    deletes = end_of_job(child)
    if end.outcome is Outcome.DEADLINE_EXCEEDED:
        if s.late:
            return replace(deadline_exceeded(s, end.report), actions=deletes)
        end = replace(end, outcome=Outcome.PREEMPTED, message=DEADLINE_MOVED)
    progressed = _progressed(s, end)
    fruitless = 1 if progressed else s.status.uncounted_restarts + 1
    follows = restart.after(end.outcome, end.message, s.spec.restart, s.status.restart_count, fruitless)
    if isinstance(follows, restart.Final):
        return replace(failed(s, end.outcome, follows.message, end.report), actions=deletes)
    entry = RestartStatus(
        attempt=s.attempt,
        outcome=end.outcome.value,
        message=end.message[:2000],
        exit_code=end.exit_code,
        counted=follows.counted,
        resumed_from_step=s.status.resumed_from_step,
        time=stamp(s.now),
    )
    facts = conditions.reconciling(end.outcome.value, end.message) | {
        "Running": Fact("False", end.outcome.value, end.message)
    }
    decision = with_status(s, "Restarting", facts, end.report)
    changes = {
        "restarts": [*decision.status.restarts, entry][-RESTARTS_KEPT:],
        "restart_count": s.status.restart_count + follows.counted,
        "uncounted_restarts": 0 if follows.counted else fruitless,
    }
    return Decision(decision.status.model_copy(update=changes), deletes, again_in=0.0)


def end_of_job(child: ChildJob | None) -> tuple[Action, ...]:
    """Deletes a Job that would go on although its attempt is over."""
    return (DeleteJob(child.name),) if child and child.live and not child.deleting else ()


def _progressed(s: Situation, end: Ending) -> bool:
    """Whether the attempt saved a step beyond the one that it began with."""
    saved = [entry.step for entry in end.report.checkpoints] if end.report else []
    return max([s.status.checkpoints.step, *saved]) > (s.status.resumed_from_step or 0)


def failed(s: Situation, outcome: Outcome, message: str, report: Report | None = None) -> Decision:
    """The job is over without success; `report` is the one that ended its last attempt."""
    facts = conditions.current(outcome.value) | conditions.ended("Failed", outcome.value, message)
    decision = with_status(s, "Failed", facts, report)
    since = s.status.completion_time if s.status.phase == "Failed" else None
    return replace(decision, status=decision.status.model_copy(update={"completion_time": since or stamp(s.now)}))


def deadline_exceeded(s: Situation, report: Report | None = None) -> Decision:
    """Failed because activeDeadlineSeconds are over."""
    message = f"the job took longer than spec.activeDeadlineSeconds: {s.spec.active_deadline_seconds}"
    return failed(s, Outcome.DEADLINE_EXCEEDED, message, report)


def finished(observation: Observation, status: JobStatus, now: datetime) -> Decision:
    """What still runs ends, then the time to live of what belongs to the job runs. The object itself stays."""
    status = status.model_copy(update={"observed_generation": observation.job.generation})
    running = tuple(action for child in observation.children for action in end_of_job(child))
    ttl = observation.job.spec.get("ttlSecondsAfterFinished")
    if ttl is None or observation.swept or not status.completion_time:
        return Decision(status, running)
    left = ttl - (now - datetime.fromisoformat(status.completion_time)).total_seconds()
    if left > 0:
        return Decision(status, running, again_in=left)
    children = [child for child in observation.children if not (child.gone or child.deleting)]
    sweep = Sweep(names.job_key(observation.job.name, observation.job.uid))
    return Decision(status, (*(DeleteJob(child.name) for child in children), sweep))


def refused(observation: Observation, status: JobStatus, now: datetime, reason: str, message: str) -> Decision:
    """Failed until the spec changes; no pod was made for it."""
    facts = (
        conditions.stalled(reason, message)
        | conditions.idle()
        | {
            "Failed": Fact("True", reason, message),
            "Running": Fact("False", reason),
            "Suspended": Fact("False", RESUMED if is_resuming(status) else reason),
        }
    )
    generation = observation.job.generation
    changes = {
        "phase": "Failed",
        "observed_generation": generation,
        "conditions": conditions.updated(status.conditions, facts, now, generation),
        "completion_time": status.completion_time or stamp(now),
        "waiting": None,
    }
    return Decision(at_rest(status).model_copy(update=changes))
