"""Builders of what the API server would say, and a clock: a job's life without a cluster."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.unit.contract.bad_jobs import GOOD

from colocated_operator.decide import CreateAttempt, Decision, DeleteAttempt, DeleteJob, Sweep, decide
from colocated_operator.observe import ChildJob, ChildPod, Observation, Obstacle, Pulled, RLJob, Trace
from colocated_operator.settings import Settings
from colocated_operator.status.patch import without_empty
from colocated_runtime.contract.outcome import Outcome
from colocated_runtime.contract.report import TERMINATION_LIMIT, Checkpoint, Progress, Report, Stage

UID = "abcde-1234"
START = datetime(2026, 1, 1, tzinfo=UTC)
SETTINGS = Settings(runtime_image="runtime:1", namespaces=())


def spec(**changes: Any) -> dict[str, Any]:
    return GOOD | changes


def rl_job(spec: dict[str, Any] | None = None, status: dict[str, Any] | None = None, generation: int = 1) -> RLJob:
    return RLJob(
        name="job", namespace="ns", uid=UID, generation=generation, version=1, deleting=False,
        labels={}, spec=GOOD if spec is None else spec, status=status or {},
    )  # fmt: skip


def child(attempt: int = 1, **changes: Any) -> ChildJob:
    values: dict[str, Any] = {
        "name": f"job-abcde-{attempt}", "namespace": "ns", "uid": f"job-{attempt}", "owner": UID, "version": 1,
        "attempt": attempt, "restart_count": 0, "created": START, "completions": 1, "deleting": False,
        "suspended": False, "conditions": {}, "message": "", "terminating": 0, "gone": False,
    }  # fmt: skip
    return ChildJob(**(values | changes))


def pod(attempt: int = 1, index: int = 0, **changes: Any) -> ChildPod:
    values: dict[str, Any] = {
        "name": f"job-abcde-{attempt}-{index}-x", "namespace": "ns", "uid": f"pod-{attempt}-{index}",
        "job_uid": f"job-{attempt}", "version": 1, "attempt": attempt, "index": index,
        "phase": "Running", "reason": "", "ip": "10.0.0.1", "created": START, "deadline": None, "gone": False,
        "unschedulable": "", "scheduled": START, "disruption": "", "waiting_container": "colocated",
        "waiting_reason": "", "waiting_message": "", "initializing": "", "others": (), "failure": None,
        "exit_code": None,
        "exit_reason": "", "exit_time": None, "last_words": "", "message": "", "memory_limit": 64 * 2**30,
    }  # fmt: skip
    values |= changes
    runs = values["phase"] == "Running" and values["exit_code"] is None
    return ChildPod(**({"runs": runs} | values))


def report(step: int = 0, attempt: int = 1, node: int = 0, **changes: Any) -> Report:
    values: dict[str, Any] = {
        "name": "job", "uid": UID, "attempt": attempt, "node": node, "stage": Stage.RUNNING, "started": 0.0,
        "updated": 0.0, "progress": Progress(step=step, total_steps=10),
        "checkpoints": [Checkpoint(step=step, uri=f"pvc://c/checkpoint-{step}", time=START.timestamp())]
        if step else [],
    }  # fmt: skip
    return Report(**(values | changes))


def last_words(outcome: Outcome, step: int = 0, attempt: int = 1, **changes: Any) -> str:
    return report(step, attempt, stage=Stage.FINISHED, outcome=outcome, message=str(outcome), **changes).within(
        TERMINATION_LIMIT
    )


class Life:
    """A job and its objects, and the passes made over them; every action of a decision is carried out."""

    def __init__(self, spec: dict[str, Any] | None = None) -> None:
        self.spec = spec or GOOD
        self.status: dict[str, Any] = {}
        self.generation = 1
        self.children: dict[int, ChildJob] = {}
        self.pods: dict[str, ChildPod] = {}
        self.reports: dict[str, Pulled] = {}
        self.obstacle: Obstacle | None = None
        self.config_maps: dict[int, Trace] = {}
        self.swept = False
        self.now = START

    def observe(self) -> Observation:
        job = rl_job(self.spec, self.status, self.generation)
        unknown = not self.status and not self.children
        return Observation(
            job, tuple(self.children.values()), tuple(self.pods.values()), self.reports, self.obstacle,
            trace=max(self.config_maps.values(), default=None) if unknown else None, swept=self.swept,
        )  # fmt: skip

    def new_operator(self) -> None:
        """What only the old one had seen is forgotten: objects that were deleted, reports."""
        self.children = {number: job for number, job in self.children.items() if not job.gone}
        self.pods = {uid: pod for uid, pod in self.pods.items() if not pod.gone}
        self.reports, self.swept = {}, False

    def one_pass(self, seconds: float = 1.0) -> Decision:
        self.now += timedelta(seconds=seconds)
        decision = decide(self.observe(), self.now, SETTINGS)
        for action in decision.actions:
            if isinstance(action, CreateAttempt) and not self.obstacle:
                made = child(action.plan.attempt, restart_count=action.plan.restart_count, created=self.now)
                self.children[made.attempt] = made
                self.config_maps[made.attempt] = Trace(made.attempt, made.restart_count)
                self.put_pod(pod(made.attempt, created=self.now))
                self.swept = False
            elif isinstance(action, DeleteJob | DeleteAttempt):
                number = int(action.name.rpartition("-")[2])
                self.change_child(number, gone=True)
                if isinstance(action, DeleteAttempt):
                    self.config_maps.pop(number, None)
            elif isinstance(action, Sweep):
                self.config_maps, self.swept = {}, True
        before = decision.status.attempt - 1
        self.children = {n: job for n, job in self.children.items() if not (job.gone and n < before)}
        self.status = without_empty(decision.status.model_dump(by_alias=True, mode="json", exclude_none=True))
        return decision

    def passes(self, count: int = 5, seconds: float = 1.0) -> Decision:
        for _ in range(count - 1):
            self.one_pass(seconds)
        return self.one_pass(seconds)

    def suspend(self) -> None:
        """Set spec.suspend, and let the first attempt's pod save and end."""
        self.spec = {**self.spec, "suspend": True}
        self.one_pass()
        self.put_pod(pod(1, gone=True))
        self.one_pass()

    def put_pod(self, value: ChildPod) -> None:
        self.pods[value.uid] = value

    def change_child(self, attempt: int, **changes: Any) -> None:
        self.children[attempt] = replace(self.children[attempt], **changes)

    def runs(self, attempt: int = 1, step: int = 1, **changes: Any) -> Decision:
        self.reports[f"pod-{attempt}-0"] = Pulled(report(step, attempt, **changes))
        return self.one_pass()

    def ends(self, attempt: int, outcome: Outcome, step: int = 0, exit_code: int = 1, **changes: Any) -> None:
        """The pod of `attempt` ends with a final report, and its Job with it."""
        words = last_words(outcome, step, attempt, **changes)
        self.put_pod(
            pod(attempt, phase="Succeeded" if exit_code == 0 else "Failed", exit_code=exit_code, last_words=words,
                exit_time=self.now)
        )  # fmt: skip
        condition = {"Complete": "CompletionsReached"} if exit_code == 0 else {"Failed": "BackoffLimitExceeded"}
        self.change_child(attempt, conditions=condition)

    def condition(self, name: str) -> dict[str, Any]:
        return next(entry for entry in self.status["conditions"] if entry["type"] == name)
