"""What worker ranks tell the launcher, and the launcher tells the operator. Times are Unix seconds, sizes bytes.

Bounds make sure that whatever parses also fits into a status.
"""

from enum import StrEnum
from typing import Annotated, TypeVar

from pydantic import Field, StringConstraints

from colocated_runtime.contract.base import Message
from colocated_runtime.contract.outcome import Outcome
from colocated_runtime.contract.phase import Phase as Phase  # its users know it from here
from colocated_runtime.contract.plan import Plan

TERMINATION_LIMIT = 4096
"""Kubernetes keeps this many bytes of a container's termination message."""
REPORT_LIMIT = 256 * 1024
"""Bytes of a served report; the operator reads no more."""
PRESSURE_KEPT = 50
EVALUATIONS_KEPT = 200
"""Of a rank, a report and a status."""
T = TypeVar("T")
Number = Annotated[float, Field(allow_inf_nan=False)]
Moment = Annotated[float, Field(ge=0, lt=4e9, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0, lt=2**53)]
Code = Annotated[int, Field(ge=-(2**31), lt=2**31)]
Word = Annotated[str, StringConstraints(max_length=63, pattern=r"^[A-Z][A-Za-z]*$")]
Key = Annotated[str, StringConstraints(max_length=253)]
Uri = Annotated[str, StringConstraints(max_length=4096)]
Numbers = Annotated[dict[Key, Number], Field(max_length=1000)]


class Stage(StrEnum):
    """Where the launcher of one pod stands."""

    FETCHING = "Fetching"
    WAITING = "Waiting"  # for the other nodes' launchers
    STARTING = "Starting"  # imports, model, engine
    RUNNING = "Running"
    STOPPING = "Stopping"  # SIGTERM seen
    FINISHED = "Finished"


class Progress(Message):
    """`step` counts optimizer steps, resumed ones included."""

    step: Count = 0
    total_steps: Count = 0
    eta_seconds: Annotated[float, Field(ge=0, lt=4e9, allow_inf_nan=False)] | None = None


class PhasePeak(Message):
    """The largest use seen in one phase; device bytes are the most loaded device's of this pod."""

    device_bytes: Count = 0
    host_bytes: Count = 0


class Pressure(Message):
    """One memory-pressure event. `sequence` grows by one an event and pod, so that a reader can tell new ones."""

    sequence: Count
    time: Moment
    kind: Word  # Host | Device | Sleep
    phase: Phase | None = None
    used_bytes: Count = 0
    limit_bytes: Count = 0
    message: str = ""


class Checkpoint(Message):
    """A complete checkpoint: its manifest exists and its directory has its final name."""

    step: Count
    uri: Uri
    time: Moment
    size_bytes: Count = 0


class Evaluation(Message):
    """Mean reward over held-out prompts, greedy; the interval is the 95 % one of the mean."""

    step: Count
    mean: Number
    low: Number
    high: Number
    prompts: Count


class Weights(Message):
    """Whether the engine samples from the trainer's weights."""

    in_sync: bool
    step: Count
    log_probability_difference: float | None = None
    message: str = ""


class Told(Message):
    """What a rank tells and its pod's report repeats."""

    progress: Progress = Progress()
    metrics: Numbers = Field(default_factory=dict)
    throughput: Numbers = Field(default_factory=dict)
    peaks: dict[Phase, PhasePeak] = Field(default_factory=dict)
    pressure: list[Pressure] = Field(default_factory=list, max_length=10_000)
    checkpoints: list[Checkpoint] = Field(default_factory=list, max_length=1000)
    checkpoint_error: str = ""
    evaluations: list[Evaluation] = Field(default_factory=list, max_length=10_000)
    weights: Weights | None = None
    resumed_from_step: Count | None = None
    model_uri: Uri = ""
    """The final model directory; set once training is done and the directory is complete."""
    outcome: Outcome | None = None
    """How it ended; None while it runs, and of a rank that could not say."""
    message: str = ""
    traceback: str = ""


class RankState(Told):
    """One worker rank's own file, `<state dir>/rank-<global rank>.json`; replaced atomically, read by the launcher."""

    rank: Count
    pid: Count
    updated: Moment
    phase: Phase = Phase.START
    phase_since: Moment = 0.0


class Report(Told):
    """GET /report of one pod's launcher. Fields of the ranks are merged: rank 0's word, the largest peak."""

    name: str
    uid: str
    attempt: Count
    node: Count
    stage: Stage
    started: Moment
    updated: Moment
    phase: Phase | None = None
    plan: Plan | None = None
    """Of the launcher, made with the device and the memory limit that it found."""
    grace_seconds: Annotated[float, Field(ge=0, lt=4e9, allow_inf_nan=False)] = 0.0
    """How long the ranks may take to save and leave."""
    host_used_bytes: Count = 0
    """What the pod's container used when the report was updated; without page cache, which would make room."""
    slow_save: str = ""
    """Says that a save has been running for long; it may still succeed."""
    exit_code: Code | None = None
    rank: Count | None = None
    """The rank that ended the attempt, where one did."""

    def within(self, limit: int) -> str:
        """JSON of at most `limit` bytes. What is too much goes step by step, what is missed least first."""
        small = self
        for step in (
            {},
            {
                "traceback": self.traceback[-20_000:],
                "pressure": self.pressure[-PRESSURE_KEPT:],
                "checkpoints": self.checkpoints[-200:],
                "evaluations": first_and_newest(self.evaluations, EVALUATIONS_KEPT),
            },
            {"traceback": self.traceback[-1500:], "plan": None},
            {
                "pressure": self.pressure[-1:],
                "checkpoints": self.checkpoints[-2:],
                "evaluations": first_and_newest(self.evaluations, 2),
            },
            {"traceback": self.traceback[-600:], "message": self.message[:600], "throughput": {}},
            {"traceback": "", "metrics": {}, "peaks": {}, "pressure": []},
        ):
            small = small.model_copy(update=step)
            text = small.model_dump_json(by_alias=True, exclude_defaults=True)
            if len(text.encode()) <= limit:
                return text
        bare = Report(
            name=self.name, uid=self.uid, attempt=self.attempt, node=self.node, stage=self.stage, started=self.started,
            updated=self.updated, outcome=self.outcome, exit_code=self.exit_code, message=self.message[:300],
            progress=self.progress,
        )  # fmt: skip
        return bare.model_dump_json(by_alias=True, exclude_defaults=True)


def first_and_newest(entries: list[T], count: int) -> list[T]:
    """At most `count` (from 2 on) of `entries`: the first, from which progress is measured, and the newest."""
    return entries if len(entries) <= count else [entries[0], *entries[1 - count :]]
