from colocated_operator.cli import view
from colocated_operator.cli.view import View
from colocated_runtime.contract.outcome import Outcome
from colocated_runtime.contract.report import Checkpoint, Evaluation, Phase, Pressure, Progress, Report, Stage
from colocated_runtime.contract.status import (
    CheckpointsStatus,
    CheckpointStatus,
    Condition,
    EvaluationStatus,
    JobStatus,
    OutputStatus,
    ProgressStatus,
    RestartStatus,
)

BEFORE = Evaluation(step=0, mean=0.1, low=0.05, high=0.15, prompts=64)
AFTER = Evaluation(step=8, mean=0.5, low=0.4, high=0.6, prompts=64)
REPORT = Report(
    name="job", uid="local", attempt=2, node=0, stage=Stage.RUNNING, started=0, updated=9, phase=Phase.ROLLOUT,
    progress=Progress(step=3, total_steps=8, eta_seconds=75.2), metrics={"reward": 0.25, "loss": 1.0},
    throughput={"tokensPerSecond": 12345.6},
    evaluations=[BEFORE], checkpoints=[Checkpoint(step=2, uri="file:///c/checkpoint-2", time=0)],
    pressure=[Pressure(sequence=1, time=0, kind="Host", message="95% used")], resumed_from_step=2,
)  # fmt: skip


def test_of_a_report() -> None:
    now = view.of_report(REPORT)
    assert now.line() == "Running (Rollout), step 3 of 8, reward 0.250, 12,346 tokens/s, 1:15 left"
    assert now.events == (
        "resumed from step 2",
        "evaluation at step 0: mean reward 0.100 [0.050, 0.150] over 64 prompts",
        "checkpoint of step 2: file:///c/checkpoint-2",
        "memory pressure: 95% used",
    )


def test_of_a_status() -> None:
    def condition(kind: str, message: str, status: str = "True") -> Condition:
        return Condition(type=kind, status=status, reason="R", message=message, last_transition_time="")

    status = JobStatus(
        phase="Running", activity="Train", progress=ProgressStatus(step=1, total_steps=4, eta_seconds=3700),
        throughput={"tokensPerSecond": 8.25},
        restarts=[RestartStatus(attempt=1, outcome="Crash", message="boom", resumed_from_step=2)],
        checkpoints=CheckpointsStatus(kept=[CheckpointStatus(step=2, uri="pvc://c/x", time="")]),
        conditions=[condition("MemoryPressure", "95%"), condition("Stalled", "no", "False"),
                    condition("Reconciling", "1 of 2 pods runs"), condition("Running", "fine")],
    )  # fmt: skip
    now = view.of_status(status)
    assert now.line() == "Running (Train), step 1 of 4, 8.2 tokens/s, 1:01:40 left, 1 of 2 pods runs"
    assert now.events == (
        "attempt 1 ended: Crash (boom); it had begun at step 2",
        "checkpoint of step 2: pvc://c/x",
        "MemoryPressure: 95%",
    )


def test_each_event_is_told_once() -> None:
    first = View("Running", events=("a",))
    assert view.news(None, first) == ["a"]
    assert view.news(first, View("Running", events=("a", "b"))) == ["b"]
    assert view.news(first, first) == []


def test_closing_words() -> None:
    done = REPORT.model_copy(
        update={
            "outcome": Outcome.COMPLETE, "message": "trained 8 of 8 steps", "evaluations": [BEFORE, AFTER],
            "model_uri": "file:///c/model",
        }
    )  # fmt: skip
    assert view.closing_words(done, "/logs") == [
        "Complete: trained 8 of 8 steps",
        "  reward      0.100 [0.050, 0.150] before → 0.500 [0.400, 0.600] after 8 steps"
        " (mean of 64 held-out prompts, 95 % intervals)",
        "  checkpoint  file:///c/checkpoint-2",
        "  model       file:///c/model",
        "  logs        /logs",
    ]


def test_closing_words_of_a_failure_end_with_the_traceback() -> None:
    trace = "\n".join(str(number) for number in range(40))
    failed = REPORT.model_copy(update={"outcome": Outcome.CRASH, "message": "boom", "traceback": trace})
    lines = view.closing_words(failed, "/logs")
    assert lines[0] == "Crash: boom"
    assert lines[1:16] == [str(number) for number in range(25, 40)]


def test_closing_words_of_a_status() -> None:
    status = JobStatus(
        phase="Failed", output=OutputStatus(model="pvc://c/model"),
        evaluations=[EvaluationStatus(**BEFORE.model_dump())],
        conditions=[Condition(type="Failed", status="True", reason="Crash", message="x", last_transition_time="")],
    )  # fmt: skip
    assert view.closing_words_of_status(status) == ["Failed: Crash: x", "  model       pvc://c/model"]
