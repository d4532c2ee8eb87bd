"""One pass's decision: what to create or delete, and what the status says. Pure; the clock is passed in.

The state is in the cluster alone: the number of the attempt and the restarts before it are read from the status and
from the labels of the Jobs, whichever knows more, so that neither a killed operator nor an edited status loses one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from pydantic import ValidationError

from colocated_operator.desired import AttemptPlan
from colocated_operator.observe import ChildJob, Observation
from colocated_operator.policies import restart
from colocated_operator.policies.ending import Ending, ending, final_report, is_lost
from colocated_operator.policies.waiting import waiting
from colocated_operator.settings import Settings
from colocated_operator.status import conditions
from colocated_operator.status.conditions import Fact, stamp
from colocated_operator.status.reported import report_facts, with_reports
from colocated_runtime.contract.job import JobSpec
from colocated_runtime.contract.outcome import Outcome
from colocated_runtime.contract.refusals import refusals
from colocated_runtime.contract.report import Report, Stage
from colocated_runtime.contract.status import JobPhase, JobStatus, RestartStatus

ATTEMPTS_KEPT = 2
"""Jobs, pods and ConfigMaps of so many attempts stay readable."""
UNREACHABLE_AFTER = timedelta(seconds=15)
UNDER_WAY = (Stage.RUNNING, Stage.STOPPING, Stage.FINISHED)
RESTARTS_KEPT = 10
SUSPENDING = "Suspending"
"""Reason of Suspended=False while the pods save and end."""
RESUMED = "Resumed"
"""Reason of Suspended=False from the end of a suspension until the next attempt's Job exists."""


@dataclass(frozen=True)
class CreateAttempt:
    """Create the objects of an attempt."""

    plan: AttemptPlan


@dataclass(frozen=True)
class DeleteAttempt:
    """Delete the Job of an attempt, its pods with it, and its ConfigMap."""

    name: str


@dataclass(frozen=True)
class DeleteService:
    """Delete the job's Service."""

    name: str


Action = CreateAttempt | DeleteAttempt | DeleteService


@dataclass(frozen=True)
class Decision:
    """What follows from an observation."""

    status: JobStatus
    actions: tuple[Action, ...] = ()
    again_in: float | None = None
    """Seconds after which time alone changes the decision."""


@dataclass(frozen=True)
class Situation:
    """An observation with what is derived from it."""

    observation: Observation
    now: datetime
    settings: Settings
    spec: JobSpec
    status: JobStatus
    """As written last, put right by what the Jobs say."""

    @property
    def attempt(self) -> int:
        return self.status.attempt

    @property
    def child(self) -> ChildJob | None:
        """The present attempt's Job."""
        return self.observation.child(self.attempt)

    @property
    def recorded(self) -> bool:
        """Whether the present attempt's end is in the status."""
        return any(entry.attempt == self.attempt for entry in self.status.restarts)

    @property
    def resuming(self) -> bool:
        """Whether the present attempt was ended by spec.suspend, or would have been: that is no restart."""
        return self.status.phase == "Suspended" or any(
            entry.type == "Suspended" and entry.reason in (SUSPENDING, RESUMED) for entry in self.status.conditions
        )

    @property
    def pods_over(self) -> bool:
        """Whether no pod of the present attempt holds a GPU, as far as anybody can tell."""
        return all(pod.terminal or is_lost(pod, self.now) for pod in self.observation.pods_of(self.attempt))

    @property
    def seconds_left(self) -> float | None:
        """Of activeDeadlineSeconds, which counts from the first attempt's start."""
        if self.spec.active_deadline_seconds is None:
            return None
        start = datetime.fromisoformat(self.status.start_time) if self.status.start_time else self.now
        return self.spec.active_deadline_seconds - (self.now - start).total_seconds()


def decide(observation: Observation, now: datetime, settings: Settings) -> Decision:
    """The pass. A job that is being deleted is left alone: owner references delete what belongs to it."""
    status = known_status(observation)
    if observation.job.deleting:
        return Decision(status)
    child = observation.child(status.attempt)
    terminal = status.phase in ("Complete", "Failed") and not (child and child.live)
    unchanged = status.observed_generation == observation.job.generation
    if terminal and (unchanged or not _is_true(status, "Stalled")):
        return _finished(observation, status, now)
    spec, problem = parse(observation.job.spec)
    if spec is None or problem:
        if child and child.live:
            spec = spec or JobSpec()  # what runs is described by its own ConfigMap
        else:
            return _refused(observation, status, now, "InvalidSpec", problem)
    situation = Situation(observation, now, settings, spec, status)
    decision = _going(situation)
    return replace(decision, actions=decision.actions + _outdated(situation))


def known_status(observation: Observation) -> JobStatus:
    """The written status, with attempt, restarts and start put right by the Jobs' labels and annotations."""
    try:
        status = JobStatus.model_validate(observation.job.status)
    except ValidationError:
        status = JobStatus()
    children = observation.children
    if not children:
        return status
    newest = max(children, key=lambda child: child.attempt)
    started = min(child.created for child in children)
    changes: dict[str, Any] = {"restart_count": max(status.restart_count, newest.restart_count)}
    if status.start_time is None or datetime.fromisoformat(status.start_time) > started:
        changes["start_time"] = stamp(started)
    if newest.attempt > status.attempt or (newest.live and newest.attempt < status.attempt):
        changes["attempt"] = newest.attempt
        changes["memory"] = status.memory.model_copy(update={"pressure_events": 0})
        changes["resumed_from_step"] = status.checkpoints.step or None  # until its own report says it
    return status.model_copy(update=changes)


def parse(raw: Mapping[str, Any]) -> tuple[JobSpec | None, str]:
    """The spec, and what is wrong with it in words for the user; empty if nothing is."""
    try:
        spec = JobSpec.model_validate(raw)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        return None, f"spec.{place}: {first['msg']}"
    return spec, "; ".join(str(refusal) for refusal in refusals(spec)[:5])


def _going(s: Situation) -> Decision:
    """A job that is neither finished nor refused."""
    child = s.child
    if child is None or s.recorded:
        return _between_attempts(s, child)
    end = ending(s.observation, child, s.now)
    if end and end.outcome is Outcome.COMPLETE:
        return _complete(s, end)
    if s.spec.suspend:
        return _suspending(s, child)
    if s.resuming and (child.gone or child.deleting):
        return _between_attempts(s, child)
    if end is None and (s.seconds_left is None or s.seconds_left > 0):
        return _running(s, child)
    if end is None:
        end = Ending(Outcome.DEADLINE_EXCEEDED, "")
    return _ended(s, child, end)


# Between attempts


def _between_attempts(s: Situation, child: ChildJob | None) -> Decision:
    """No Job runs: before the first attempt, after a suspension, or after an attempt whose end is recorded."""
    if s.spec.suspend:
        return _suspended(s)
    if s.seconds_left is not None and s.seconds_left <= 0:
        return _failed(s, Outcome.DEADLINE_EXCEEDED, _deadline_message(s))
    if not s.pods_over:
        return _status(s, "Restarting", conditions.reconciling("Stopping", "pods of the last attempt still end"))
    if child is None and s.attempt and not s.recorded and not s.resuming:
        # Deleted while no operator ran.
        return _ended(s, None, Ending(Outcome.PREEMPTED, f"the Job of attempt {s.attempt} is gone"))
    last = s.status.restarts[-1] if s.recorded else None
    if last:
        wait = restart.backoff_seconds(
            s.spec.restart,
            counted=last.counted,
            counted_total=s.status.restart_count,
            fruitless=s.status.uncounted_restarts,
        )
        left = (datetime.fromisoformat(last.time) + timedelta(seconds=wait) - s.now).total_seconds()
        if left > 0:
            facts = conditions.reconciling("BackOff", f"attempt {s.attempt + 1} starts {wait} s after the last ended")
            return replace(_status(s, "Restarting", facts), again_in=left)
    return _next_attempt(s)


def _next_attempt(s: Situation) -> Decision:
    """Create the objects of the next attempt, unless the last try met an obstacle that only the user can remove."""
    job, obstacle = s.observation.job, s.observation.obstacle
    if obstacle and obstacle.kind == "Invalid" and obstacle.generation == job.generation:
        return _refused(s.observation, s.status, s.now, obstacle.reason, obstacle.message)
    plan = AttemptPlan(
        name=job.name,
        namespace=job.namespace,
        uid=job.uid,
        generation=job.generation,
        labels=job.labels,
        spec=s.spec,
        settings=s.settings,
        attempt=s.attempt + 1,
        restart_count=s.status.restart_count,
        seconds_left=None if s.seconds_left is None else int(s.seconds_left),
    )
    reason, message = (obstacle.reason, obstacle.message) if obstacle else ("Creating", "")
    facts = conditions.reconciling(reason, message) | {
        "Running": Fact("False", reason, message),
        "Suspended": Fact("False", RESUMED if s.resuming else reason),
    }
    decision = _status(s, "Restarting" if s.attempt else "Pending", facts)
    return replace(decision, actions=(CreateAttempt(plan),))


# While an attempt runs


def _running(s: Situation, child: ChildJob) -> Decision:
    """From the Job's creation to its end."""
    reports = _reports(s)
    started = any(report.stage in UNDER_WAY for report in reports)
    if not reports:  # a new operator has not asked yet
        started = s.status.phase == "Running"
    obstacle = waiting(child, s.observation.pods_of(s.attempt), s.spec.nodes)
    facts = report_facts(reports, s.now) | _reachability(s) | {"Suspended": Fact("False", "Running")}
    if obstacle and obstacle.stalled:
        facts |= conditions.stalled(obstacle.reason, obstacle.message)
    elif obstacle:
        facts |= conditions.reconciling(obstacle.reason, obstacle.message)
    elif any(pod.phase == "Running" for pod in s.observation.pods_of(s.attempt)):
        facts |= conditions.current("PodsRunning")
    else:
        facts |= conditions.reconciling("PodsPending")
    if started:
        facts["Running"] = Fact("True", "Training", f"attempt {s.attempt}")
    elif obstacle:
        facts["Running"] = Fact("False", obstacle.reason, obstacle.message)
    else:
        facts["Running"] = Fact("False", "Starting", reports[0].message if reports else "")
    decision = _status(s, "Running" if started else "Starting", facts)
    return replace(decision, again_in=s.seconds_left)


def _reports(s: Situation) -> list[Report]:
    """What the present attempt's pods reported last, in order of index, from index 0 without a gap."""
    found = []
    for pod in s.observation.pods_of(s.attempt):
        report = final_report(s.observation, pod)
        if report is None:
            break
        found.append(report)
    return found


def _reachability(s: Situation) -> dict[str, Fact]:
    pods = [pod for pod in s.observation.pods_of(s.attempt) if pod.phase == "Running" and not pod.terminal]
    failures = []
    for pod in pods:
        pulled = s.observation.reports.get(pod.uid)
        if pulled and pulled.error and pulled.since and s.now - pulled.since > UNREACHABLE_AFTER:
            failures.append(f"pod {pod.name}: {pulled.error}")
    if failures:
        return {"ReportReachable": Fact("False", "Unreachable", "; ".join(failures[:4]))}
    answered = pods and all(
        (pulled := s.observation.reports.get(pod.uid)) and pulled.report and not pulled.error for pod in pods
    )
    return {"ReportReachable": Fact("True", "Answered")} if answered else {}


# At the end of an attempt


def _complete(s: Situation, end: Ending) -> Decision:
    facts = conditions.current("Complete") | conditions.ended("Complete", "Trained", end.message)
    decision = _status(s, "Complete", facts, end.report)
    done = decision.status.progress
    changes: dict[str, Any] = {"completion_time": stamp(s.now), "activity": ""}
    if done.total_steps:
        changes["progress"] = done.model_copy(update={"percent": 100, "eta_seconds": 0})
    return replace(decision, status=decision.status.model_copy(update=changes))


def _ended(s: Situation, child: ChildJob | None, end: Ending) -> Decision:
    """Record the end of the present attempt; then restart or fail."""
    deletes = (DeleteAttempt(child.name),) if child and child.live and not child.deleting else ()
    if end.outcome is Outcome.DEADLINE_EXCEEDED:
        return replace(_failed(s, end.outcome, _deadline_message(s), end.report), actions=deletes)
    progressed = _progressed(s, end)
    fruitless = 1 if progressed else s.status.uncounted_restarts + 1
    follows = restart.after(end.outcome, end.message, s.spec.restart, s.status.restart_count, fruitless)
    if isinstance(follows, restart.Final):
        return replace(_failed(s, end.outcome, follows.message, end.report), actions=deletes)
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
    decision = _status(s, "Restarting", facts, end.report)
    changes = {
        "restarts": [*decision.status.restarts, entry][-RESTARTS_KEPT:],
        "restart_count": s.status.restart_count + follows.counted,
        "uncounted_restarts": 0 if follows.counted else fruitless,
        "activity": "",
    }
    return Decision(decision.status.model_copy(update=changes), deletes, again_in=0.0)


def _progressed(s: Situation, end: Ending) -> bool:
    """Whether the attempt saved a step beyond the one that it began with."""
    saved = [entry.step for entry in end.report.checkpoints] if end.report else []
    return max([s.status.checkpoints.step, *saved]) > (s.status.resumed_from_step or 0)


def _failed(s: Situation, outcome: Outcome, message: str, report: Report | None = None) -> Decision:
    facts = conditions.current(outcome.value) | conditions.ended("Failed", outcome.value, message)
    decision = _status(s, "Failed", facts, report)
    since = s.status.completion_time if s.status.phase == "Failed" else None
    changes = {"completion_time": since or stamp(s.now), "activity": ""}
    return replace(decision, status=decision.status.model_copy(update=changes))


def _deadline_message(s: Situation) -> str:
    return f"the job took longer than activeDeadlineSeconds: {s.spec.active_deadline_seconds}"


def _finished(observation: Observation, status: JobStatus, now: datetime) -> Decision:
    """Nothing more happens, but the time to live of what belongs to the job runs. The object itself stays."""
    status = status.model_copy(update={"observed_generation": observation.job.generation})
    ttl = observation.job.spec.get("ttlSecondsAfterFinished")
    children = [child for child in observation.children if not (child.gone or child.deleting)]
    if ttl is None or not children or not status.completion_time:
        return Decision(status)
    left = (datetime.fromisoformat(status.completion_time) + timedelta(seconds=ttl) - now).total_seconds()
    if left > 0:
        return Decision(status, again_in=left)
    service = children[0].name.rpartition("-")[0]
    return Decision(status, (DeleteService(service), *(DeleteAttempt(child.name) for child in children)))


def _refused(observation: Observation, status: JobStatus, now: datetime, reason: str, message: str) -> Decision:
    """Failed until the spec changes; no pod was made for it."""
    facts = conditions.stalled(reason, message) | {
        "Failed": Fact("True", reason, message),
        "Running": Fact("False", reason),
    }
    generation = observation.job.generation
    changes = {
        "phase": "Failed",
        "observed_generation": generation,
        "conditions": conditions.updated(status.conditions, facts, now, generation),
        "completion_time": status.completion_time or stamp(now),
    }
    return Decision(status.model_copy(update=changes))


# Suspension


def _suspending(s: Situation, child: ChildJob) -> Decision:
    """Delete the Job: its pods save and leave. The child's own `suspend` is Kueue's, never ours."""
    if not child.gone or not s.pods_over:
        deletes = () if child.deleting or child.gone else (DeleteAttempt(child.name),)
        facts = conditions.reconciling(SUSPENDING, "pods save and end")
        decision = _status(s, s.status.phase, facts | {"Suspended": Fact("False", SUSPENDING)})
        return replace(decision, actions=deletes)
    return _suspended(s)


def _suspended(s: Situation) -> Decision:
    facts = conditions.current("Suspended") | {
        "Suspended": Fact("True", "Suspended", "spec.suspend is true"),
        "Running": Fact("False", "Suspended"),
    }
    return _status(s, "Suspended", facts)


# Helpers


def _status(s: Situation, phase: JobPhase, facts: conditions.Facts, final: Report | None = None) -> Decision:
    """The status with what the reports say, a phase and conditions. `final` is the report that ended the attempt."""
    reports = [final] if final else _reports(s)
    status = with_reports(s.status, reports, s.spec.checkpoint.keep)
    if final:
        facts = report_facts(reports, s.now) | dict(facts)
    if phase not in ("Complete", "Failed"):
        facts = {"Complete": Fact("False", phase), "Failed": Fact("False", phase), **facts}
    generation = s.observation.job.generation
    changes = {
        "phase": phase,
        "observed_generation": generation,
        "conditions": conditions.updated(status.conditions, facts, s.now, generation),
        "completion_time": None,
    }
    return Decision(status.model_copy(update=changes))


def _outdated(s: Situation) -> tuple[Action, ...]:
    """Jobs of attempts older than the two last."""
    return tuple(
        DeleteAttempt(child.name)
        for child in s.observation.children
        if child.attempt <= s.attempt - ATTEMPTS_KEPT and not (child.gone or child.deleting)
    )


def _is_true(status: JobStatus, condition: str) -> bool:
    return any(entry.type == condition and entry.status == "True" for entry in status.conditions)
