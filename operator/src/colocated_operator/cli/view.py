"""What a terminal shows of a job: the same from a launcher's report and from the status of an object. Pure."""

from dataclasses import dataclass, field

from colocated_runtime.contract.outcome import Outcome
from colocated_runtime.contract.report import Evaluation, Phase, Report, Stage
from colocated_runtime.contract.status import EvaluationStatus, JobStatus

BUSY = (Stage.RUNNING, Stage.STOPPING)


@dataclass(frozen=True)
class View:
    """One look at a job."""

    stage: str
    activity: str = ""
    step: int = 0
    total_steps: int = 0
    eta_seconds: float | None = None
    reward: float | None = None
    tokens_per_second: float | None = None
    message: str = ""
    events: tuple[str, ...] = field(default=())
    """What has happened so far, oldest first; each is told once."""

    def line(self) -> str:
        """All of it in one line, for output that is no terminal."""
        parts = [self.stage + (f" ({self.activity})" if self.activity else "")]
        if self.total_steps:
            parts.append(f"step {self.step} of {self.total_steps}")
        if self.reward is not None:
            parts.append(f"reward {self.reward:.3f}")
        if self.tokens_per_second is not None:
            parts.append(speed(self.tokens_per_second))
        if self.eta_seconds is not None and self.step < self.total_steps:
            parts.append(f"{duration(self.eta_seconds)} left")
        if self.message:
            parts.append(self.message)
        return ", ".join(parts)


def of_report(report: Report) -> View:
    """Of a launcher's report."""
    events = [f"resumed from step {report.resumed_from_step}"] if report.resumed_from_step else []
    events += [evaluation_line(evaluation) for evaluation in report.evaluations]
    events += [f"checkpoint of step {checkpoint.step}: {checkpoint.uri}" for checkpoint in report.checkpoints]
    events += [f"memory pressure: {event.message}" for event in report.pressure]
    if report.checkpoint_error:
        events.append(f"no checkpoint was written: {report.checkpoint_error}")
    if report.slow_save:
        events.append(f"slow checkpoint: {report.slow_save}")
    return View(
        stage=report.stage.value,
        activity=report.phase.value if report.stage in BUSY and report.phase not in (None, Phase.START) else "",
        step=report.progress.step,
        total_steps=report.progress.total_steps,
        eta_seconds=report.progress.eta_seconds,
        reward=report.metrics.get("reward"),
        tokens_per_second=report.throughput.get("tokensPerSecond"),
        message=report.message,
        events=tuple(events),
    )


def of_status(status: JobStatus) -> View:
    """Of the status of a ColocatedRLJob."""
    events = [
        f"attempt {restart.attempt} ended: {restart.outcome}"
        + (f" ({restart.message})" if restart.message else "")
        + (f"; it had begun at step {restart.resumed_from_step}" if restart.resumed_from_step else "")
        for restart in status.restarts
    ]
    events += [evaluation_line(evaluation) for evaluation in status.evaluations]
    events += [f"checkpoint of step {checkpoint.step}: {checkpoint.uri}" for checkpoint in status.checkpoints.kept]
    told = ("Failed", "Stalled", "MemoryPressure")
    shown = [entry for entry in status.conditions if entry.status == "True" and entry.message]
    events += [f"{entry.type}: {entry.message}" for entry in shown if entry.type in told]
    waiting = next((entry.message for entry in status.conditions if entry.type == "Reconciling" and entry in shown), "")
    return View(
        stage=status.phase,
        activity=status.activity,
        step=status.progress.step,
        total_steps=status.progress.total_steps,
        eta_seconds=status.progress.eta_seconds,
        reward=status.metrics.get("reward"),
        tokens_per_second=status.throughput.get("tokensPerSecond"),
        message=waiting,
        events=tuple(events),
    )


def news(before: View | None, now: View) -> list[str]:
    """Events that were not there before."""
    known = before.events if before else ()
    return [event for event in now.events if event not in known]


def evaluation_line(evaluation: Evaluation | EvaluationStatus) -> str:
    """The mean reward with its confidence interval."""
    return (
        f"evaluation at step {evaluation.step}: mean reward {evaluation.mean:.3f}"
        f" [{evaluation.low:.3f}, {evaluation.high:.3f}] over {evaluation.prompts} prompts"
    )


def before_and_after(evaluations: list[Evaluation] | list[EvaluationStatus]) -> str:
    """The first and the last evaluation side by side; empty where there are not two."""
    if len(evaluations) < 2:
        return ""
    first, last = evaluations[0], evaluations[-1]
    return (
        f"{first.mean:.3f} [{first.low:.3f}, {first.high:.3f}] before →"
        f" {last.mean:.3f} [{last.low:.3f}, {last.high:.3f}] after {last.step} steps"
        f" (mean of {last.prompts} held-out prompts, 95 % intervals)"
    )


def closing_words(report: Report, logs: str) -> list[str]:
    """The end of a local run."""
    outcome = report.outcome or Outcome.CRASH
    lines = [f"{outcome.value}: {report.message}"]
    if report.traceback:
        lines += report.traceback.strip().splitlines()[-15:]
    lines += _results(
        before_and_after(report.evaluations),
        report.checkpoints[-1].uri if report.checkpoints else "",
        report.model_uri,
    )
    if report.checkpoint_error:
        lines.append(f"  not saved   {report.checkpoint_error}")
    return [*lines, f"  logs        {logs}"]


def closing_words_of_status(status: JobStatus) -> list[str]:
    """The end of a job in the cluster."""
    failure = next((entry for entry in status.conditions if entry.type == "Failed" and entry.status == "True"), None)
    lines = [f"{status.phase}: {failure.reason}: {failure.message}" if failure else status.phase]
    return lines + _results(before_and_after(status.evaluations), status.checkpoints.latest, status.output.model)


def _results(reward: str, checkpoint: str, model: str) -> list[str]:
    rows = {"reward": reward, "checkpoint": checkpoint, "model": model}
    return [f"  {name:<11} {value}" for name, value in rows.items() if value]


def speed(tokens: float) -> str:
    """Of so many tokens a second."""
    return f"{tokens:,.0f} tokens/s" if tokens >= 10 else f"{tokens:.1f} tokens/s"


def duration(seconds: float) -> str:
    """As h:mm:ss or m:ss."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
