"""Between attempts: back-off, suspension, and the next attempt."""

from dataclasses import replace
from datetime import datetime

from colocated_operator.decide.decision import CreateAttempt, Decision, DeleteJob
from colocated_operator.decide.ended import deadline_exceeded, end_of_job, ended, refused
from colocated_operator.decide.situation import RESUMED, SUSPENDING, Situation, with_status
from colocated_operator.desired import AttemptPlan
from colocated_operator.observe import ChildJob
from colocated_operator.policies import planning, restart
from colocated_operator.policies.ending import Ending
from colocated_operator.policies.planning import with_plan
from colocated_operator.policies.waiting import Waiting
from colocated_operator.status import conditions
from colocated_operator.status.conditions import Fact
from colocated_runtime.contract import grace
from colocated_runtime.contract.outcome import Outcome


def between_attempts(s: Situation, child: ChildJob | None) -> Decision:
    """No Job runs: before the first attempt, after a suspension, or after an attempt whose end is recorded."""
    if s.spec.suspend:
        return _suspended(s)
    if s.late:
        return deadline_exceeded(s)
    deletes = end_of_job(child)
    if deletes or not s.pods_over:
        facts = conditions.reconciling("Stopping", "pods of the last attempt still end")
        return replace(with_status(s, "Restarting", facts), actions=deletes)
    if child is None and s.attempt and not s.recorded and not s.resuming:
        # Deleted while no operator ran.
        return ended(s, None, Ending(Outcome.PREEMPTED, f"the Job of attempt {s.attempt} is gone"))
    last = s.status.restarts[-1] if s.recorded else None
    if last:
        wait = restart.backoff_seconds(
            s.spec.restart,
            counted=last.counted,
            counted_total=s.status.restart_count,
            fruitless=s.status.uncounted_restarts,
        )
        left = wait - (s.now - datetime.fromisoformat(last.time)).total_seconds()
        if 0 < left <= wait:  # more is left only where the clock was set back
            facts = conditions.reconciling("BackOff", f"attempt {s.attempt + 1} starts {wait} s after the last ended")
            return replace(with_status(s, "Restarting", facts), again_in=left)
    return _next_attempt(s)


def _next_attempt(s: Situation) -> Decision:
    """Create the objects of the next attempt, unless the last try met an obstacle that only the user can remove."""
    job, obstacle = s.observation.job, s.observation.obstacle
    if obstacle and obstacle.kind == "Invalid" and obstacle.generation == job.generation:
        return refused(s.observation, s.status, s.now, obstacle.reason, obstacle.message)
    tried = obstacle is not None and obstacle.generation == job.generation
    spec = planning.with_room(s.spec, s.status.restarts)
    reserve = planning.host_reserve(s.spec, s.status.restarts)
    memory = planning.before_attempt(spec, s.status, reserve, tried=tried)
    if isinstance(memory, planning.Refusal):
        return refused(s.observation, with_plan(s.status, memory.plan), s.now, memory.reason, memory.message)
    plan = AttemptPlan(
        name=job.name,
        namespace=job.namespace,
        uid=job.uid,
        generation=job.generation,
        labels=job.labels,
        spec=spec,
        settings=s.settings,
        attempt=s.attempt + 1,
        restart_count=s.status.restart_count,
        seconds_left=None if s.seconds_left is None else int(s.seconds_left),
        memory=memory,
        host_reserve=reserve,
        grace_seconds=grace.period_seconds(s.status.throughput, memory),
    )
    waits = _waits(s)
    reason, message = (waits.reason, waits.message) if waits else ("Creating", "")
    facts = conditions.reconciling(reason, message) | {
        "Running": Fact("False", reason, message),
        "Suspended": Fact("False", RESUMED if s.resuming else reason),
    }
    s = replace(s, status=with_plan(s.status, memory))
    decision = with_status(s, "Restarting" if s.attempt else "Pending", facts, waits_for=waits.reason if waits else "")
    return replace(decision, actions=(CreateAttempt(plan),))


def _waits(s: Situation) -> Waiting | None:
    """What the last try found in the way; what an operator before this one found stays true until this one tries."""
    generation, obstacle, known = s.observation.job.generation, s.observation.obstacle, s.status.waiting
    if obstacle and obstacle.generation == generation:
        return Waiting(obstacle.reason, obstacle.message)
    if known is None or s.status.observed_generation != generation:
        return None
    message = next((entry.message for entry in s.status.conditions if entry.type == "Reconciling"), "")
    return Waiting(known.reason, message)


# Suspension


def suspending(s: Situation, child: ChildJob) -> Decision:
    """Delete the Job: its pods save and leave. The child's own `suspend` is Kueue's, never ours."""
    if not child.gone or not s.pods_over:
        deletes = () if child.deleting or child.gone else (DeleteJob(child.name),)
        deadlines = [pod.deadline for pod in s.observation.pods_of(s.attempt) if pod.deadline and not pod.terminal]
        until = f", by {conditions.stamp(max(deadlines))} at the latest" if deadlines else ""
        message = f"pods save and end{until}"
        facts = conditions.reconciling(SUSPENDING, message)
        decision = with_status(s, SUSPENDING, facts | {"Suspended": Fact("False", SUSPENDING, message)})
        return replace(decision, actions=deletes)
    return _suspended(s)


def _suspended(s: Situation) -> Decision:
    facts = conditions.current("Suspended") | {
        "Suspended": Fact("True", "Suspended", "spec.suspend is true"),
        "Running": Fact("False", "Suspended"),
    }
    return with_status(s, "Suspended", facts)
