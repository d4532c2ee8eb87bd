"""One pass's decision: what to create or delete, and what the status says. Pure; the clock is passed in.

The state is in the cluster alone: the number of the attempt and the restarts before it are read from the status and
from the labels of the Jobs, whichever knows more, so that neither a killed operator nor an edited status loses one.
"""

from dataclasses import replace
from datetime import datetime, timedelta

from colocated_operator.decide.between import between_attempts, suspending
from colocated_operator.decide.decision import Action, CreateAttempt, Decision, DeleteAttempt, DeleteJob, Sweep
from colocated_operator.decide.ended import complete, ended, finished, refused
from colocated_operator.decide.running import running
from colocated_operator.decide.situation import Situation, known_status, parse
from colocated_operator.observe import Observation
from colocated_operator.policies.ending import Ending, ending
from colocated_operator.policies.silence import silence
from colocated_operator.settings import Settings
from colocated_runtime.contract.job import JobSpec
from colocated_runtime.contract.outcome import Outcome
from colocated_runtime.contract.status import JobStatus

__all__ = ["Action", "CreateAttempt", "Decision", "DeleteAttempt", "DeleteJob", "Sweep", "decide"]

ATTEMPTS_KEPT = 2
"""Jobs, pods and ConfigMaps of so many attempts stay readable."""
HEARD_AGAIN_AFTER = timedelta(minutes=1)


def decide(observation: Observation, now: datetime, settings: Settings) -> Decision:
    """The pass. A job that is being deleted is left alone: owner references delete what belongs to it."""
    status = known_status(observation, now)
    if observation.job.deleting:
        return Decision(status)
    child = observation.child(status.attempt)
    stalled = _is_true(status, "Stalled")
    told = _is_true(status, status.phase) and not stalled
    # Its own condition says otherwise: the phase was written by somebody else.
    denied = any(entry.type == status.phase and entry.status == "False" for entry in status.conditions)
    terminal = status.phase in ("Complete", "Failed") and (told or not (denied or (child and child.live)))
    unchanged = status.observed_generation == observation.job.generation
    if terminal and (unchanged or not stalled):
        return finished(observation, status, now)
    spec, problem = parse(observation.job.spec)
    if spec is None or problem:
        if child and child.live:
            spec = spec or JobSpec()  # what runs is described by its own ConfigMap
        else:
            return refused(observation, status, now, "InvalidSpec", problem)
    situation = Situation(observation, now, settings, spec, status)
    decision = _going(situation)
    return replace(
        decision, status=_without_idle_news(decision.status, status), actions=decision.actions + _outdated(situation)
    )


def _going(s: Situation) -> Decision:
    """A job that is neither finished nor refused."""
    child = s.child
    if child is None or s.recorded:
        return between_attempts(s, child)
    end = ending(s.observation, child, s.now)
    if end and end.outcome is Outcome.COMPLETE:
        return complete(s, end)
    if s.spec.suspend:
        return suspending(s, child)
    if s.resuming and (child.gone or child.deleting):
        return between_attempts(s, child)
    if end is None and s.late:
        end = Ending(Outcome.DEADLINE_EXCEEDED, "")
    end = end or silence(s.observation, child, s.spec)
    return ended(s, child, end) if end else running(s, child)


def _outdated(s: Situation) -> tuple[Action, ...]:
    """What is left of attempts older than the two last. The store forgets a Job that is gone after this pass."""
    return tuple(
        DeleteAttempt(child.name)
        for child in s.observation.children
        if child.attempt <= s.attempt - ATTEMPTS_KEPT and not child.deleting
    )


def _without_idle_news(status: JobStatus, before: JobStatus) -> JobStatus:
    """`before` where nothing is new but that the pods have reported again, less than a minute later."""
    if not before.observed_at or status.model_copy(update={"observed_at": before.observed_at}) != before:
        return status
    later = datetime.fromisoformat(status.observed_at) - datetime.fromisoformat(before.observed_at)
    return before if timedelta(0) <= later < HEARD_AGAIN_AFTER else status


def _is_true(status: JobStatus, condition: str) -> bool:
    return any(entry.type == condition and entry.status == "True" for entry in status.conditions)
