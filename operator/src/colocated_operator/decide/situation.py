"""An observation with what follows from it at once: the spec as values, and the status put right by the cluster."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from pydantic import ValidationError

from colocated_operator.decide.decision import Decision
from colocated_operator.observe import ChildJob, Observation
from colocated_operator.policies.ending import final_report, is_lost
from colocated_operator.settings import Settings
from colocated_operator.status import conditions
from colocated_operator.status.accuracy import accuracy_facts
from colocated_operator.status.conditions import Fact, stamp
from colocated_operator.status.reported import progress, report_facts, save_facts, with_reports
from colocated_operator.status.times import with_possible_times
from colocated_runtime.contract.job import JobSpec
from colocated_runtime.contract.refusals import refusals
from colocated_runtime.contract.report import Report
from colocated_runtime.contract.status import CheckpointsStatus, JobPhase, JobStatus, WaitingStatus

SUSPENDING: Literal["Suspending"] = "Suspending"
"""Phase, and reason of Suspended=False, while the pods save and end."""
RESTING: tuple[JobPhase, ...] = ("Pending", "Restarting", "Suspended", "Complete", "Failed")
"""Phases in which no attempt runs."""
RESUMED = "Resumed"
"""Reason of Suspended=False from the end of a suspension until the next attempt's Job exists."""
MOST_ATTEMPTS = 10**6
"""No job has more: a larger number is believed only where a Job has it too."""


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
        """Number of the present attempt; 0 before the first."""
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
        return is_resuming(self.status)

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

    @property
    def late(self) -> bool:
        """Whether activeDeadlineSeconds, as the spec has it now, are over."""
        return self.seconds_left is not None and self.seconds_left <= 0

    @property
    def reports(self) -> list[Report]:
        """What the present attempt's pods reported last, in order of index, from index 0 without a gap."""
        found = []
        for pod in self.observation.pods_of(self.attempt):
            report = final_report(self.observation, pod)
            if report is None:
                break
            found.append(report)
        return found


def is_resuming(status: JobStatus) -> bool:
    """Whether the attempt of `status` was ended by spec.suspend, and no other one has followed."""
    return status.phase == "Suspended" or any(
        entry.type == "Suspended" and (entry.status == "True" or entry.reason in (SUSPENDING, RESUMED))
        for entry in status.conditions
    )


def at_rest(status: JobStatus) -> JobStatus:
    """`status` where no attempt runs: nothing is being done, and nobody can say when it will be."""
    progress = status.progress.model_copy(update={"eta_seconds": None})
    return status.model_copy(update={"activity": "", "progress": progress})


def known_status(observation: Observation, now: datetime) -> JobStatus:
    """The written status, with attempt, restarts and start put right by the Jobs' labels and annotations."""
    try:
        status = with_possible_times(JobStatus.model_validate(observation.job.status), now)
    except ValidationError:
        status = JobStatus()
    children = observation.children
    status = _with_likely_attempt(status, children)
    if not children:
        return _traced(status, observation)
    newest = max(children, key=lambda child: child.attempt)
    started = min(child.created for child in children)
    changes: dict[str, Any] = {"restart_count": max(status.restart_count, newest.restart_count)}
    if status.start_time is None or datetime.fromisoformat(status.start_time) > started:
        changes["start_time"] = stamp(started)
    if newest.attempt > status.attempt or (newest.live and newest.attempt < status.attempt):
        changes["attempt"] = newest.attempt
        changes["memory"] = status.memory.model_copy(update={"pressure_events": 0})
        # Until its own report says it:
        saved = status.checkpoints if _outlives_pods(observation.job.spec) else CheckpointsStatus()
        changes["checkpoints"] = saved
        changes["resumed_from_step"] = saved.step or None
        changes["progress"] = progress(saved.step, status.progress.total_steps)
    return status.model_copy(update=changes)


def _with_likely_attempt(status: JobStatus, children: Sequence[ChildJob]) -> JobStatus:
    """`status` without a number that only an editor can have written: the next ones must fit too."""
    of_jobs = [child.attempt for child in children]
    if status.attempt <= max(MOST_ATTEMPTS, *of_jobs, 0):
        return status
    ended = [entry.attempt for entry in status.restarts if entry.attempt <= MOST_ATTEMPTS]
    return status.model_copy(update={"attempt": max([*of_jobs, *ended], default=0)})


def _outlives_pods(spec: Mapping[str, Any]) -> bool:
    """Whether checkpoints lie on a claim; an emptyDir goes with its pod."""
    storage = (spec.get("checkpoint") or {}).get("storage") or {}
    return bool(storage.get("claim") or storage.get("volumeClaimTemplate") is not None)


def _traced(status: JobStatus, observation: Observation) -> JobStatus:
    """An empty status with the number of the last attempt, by its ConfigMap.

    The ConfigMap of attempt 1 may also be that of an operator that was killed before it created the Job; unless the
    job is suspended, attempt 1 is made then.
    """
    trace = observation.trace
    if trace is None or (trace.attempt == 1 and not observation.job.spec.get("suspend")):
        return status
    return status.model_copy(update={"attempt": trace.attempt, "restart_count": trace.restart_count})


def parse(raw: Mapping[str, Any]) -> tuple[JobSpec | None, str]:
    """The spec, and what is wrong with it in words for the user; empty if nothing is."""
    try:
        spec = JobSpec.model_validate(raw)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        return None, f"spec.{place}: {first['msg']}"
    return spec, "; ".join(f"spec.{refusal}" for refusal in refusals(spec)[:5])


def with_status(
    s: Situation, phase: JobPhase, facts: conditions.Facts, final: Report | None = None, waits_for: str = ""
) -> Decision:
    """The status with what the reports say, a phase and conditions.

    `final` is the report that ended the attempt, `waits_for` the reason that keeps it from running.
    """
    reports = [final] if final else s.reports
    status = with_reports(s.status, reports, s.spec.checkpoint.keep)
    facts = accuracy_facts(status) | save_facts(reports) | dict(facts)
    if phase in RESTING:
        status, facts = at_rest(status), conditions.idle() | facts
    if final:
        facts = report_facts(reports, s.now) | facts
    if phase not in ("Complete", "Failed"):
        facts = {"Complete": Fact("False", phase), "Failed": Fact("False", phase), **facts}
    generation = s.observation.job.generation
    changes: dict[str, Any] = {
        "phase": phase,
        "observed_generation": generation,
        "conditions": conditions.updated(status.conditions, facts, s.now, generation),
        "completion_time": None,
        "waiting": waiting_since(s.status.waiting, waits_for, s.now),
    }
    if reports:
        heard = datetime.fromtimestamp(reports[0].updated, UTC)
        changes["observed_at"] = stamp(min(heard, s.now))
    return Decision(status.model_copy(update=changes))


def waiting_since(before: WaitingStatus | None, reason: str, now: datetime) -> WaitingStatus | None:
    """The wait for `reason`, which goes on where it was the reason before; None without one."""
    if not reason:
        return None
    return before if before and before.reason == reason else WaitingStatus(reason=reason, since=stamp(now))
