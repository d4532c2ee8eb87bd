"""`colocated run`: a job on this machine, without a cluster."""

import signal
import subprocess
import time
from pathlib import Path
from typing import Annotated

import httpx
import typer
from rich.console import Console

from colocated_operator.cli import local, view
from colocated_operator.cli.display import Display
from colocated_operator.cli.document import Document, Mistakes, read, told
from colocated_operator.cli.model import refuse
from colocated_runtime.contract.job import JobSpec, Resources, Restart
from colocated_runtime.contract.report import Report

POLL_SECONDS = 0.5


def run(
    file: Annotated[Path, typer.Argument(help="YAML with a ColocatedRLJob, and the ConfigMaps of its rewards.")],
    storage: Annotated[
        Path | None, typer.Option(help="Where checkpoints, logs and the model go. Default: ./NAME-run")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Which job, where the file holds several.")] = None,
) -> None:
    """Run a job on this machine, without a cluster. Run it again to go on from its last checkpoint.

    A job that is complete is not run again: its results are shown.

    Ctrl-C saves a checkpoint and leaves; a second one leaves at once. Exit code: 0 complete, 143 stopped, 1 failed,
    2 a mistake in the file.
    """
    console = Console()
    with told():
        document = read(file, name)
        _refuse(file, document)
        directory = storage or Path(f"{document.name}-run")
        done = local.finished(document, directory)
        if done:
            _show_results(document.name, directory, *done, console)
            return
        started = local.prepare(document, directory)
    console.print(f"{document.name}, attempt {started.attempt.attempt}, in {started.directory}", highlight=False)
    for note in notes(document):
        console.print(f"note: {note}", highlight=False, soft_wrap=True)
    raise typer.Exit(_follow(started, console))


def _show_results(name: str, directory: Path, report: Report, logs: Path, console: Console) -> None:
    ways = f"to start anew, remove {directory}, or give another --storage"
    for line in (f"{name} is complete already; {ways}", *view.closing_words(report, str(logs))):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _refuse(file: Path, document: Document) -> None:
    refuse(file, document.spec)
    found = local.unsuitable(document)
    if found:
        raise Mistakes(*(f"{file}: spec.{line}" for line in found))
    for wrong in (local.wrong_variable(), local.missing_runtime(document.spec)):
        if wrong:
            raise Mistakes(wrong)


def notes(document: Document) -> list[str]:
    """What the job says and a run on this machine does not do."""
    notes = []
    spec = document.spec
    set_ones = [name for name, is_set in _of_clusters(spec).items() if is_set]
    if set_ones:
        notes.append(f"for clusters only, and without effect here: {', '.join(set_ones)}")
    if spec.runtime.env_from:
        notes.append("runtime.envFrom is not read here; the variables of this shell are used")
    if spec.runtime.image:
        notes.append("runtime.image is not used here; the job runs in this Python environment")
    return notes


def _of_clusters(spec: JobSpec) -> dict[str, bool]:
    """Fields by which a cluster places, delays, ends or repeats a job, and whether the job says them."""
    return {
        "suspend": spec.suspend,
        "activeDeadlineSeconds": spec.active_deadline_seconds is not None,
        "ttlSecondsAfterFinished": spec.ttl_seconds_after_finished is not None,
        "restart": spec.restart != Restart(),
        "resources": spec.resources != Resources(),
        "runtime.podTemplate": bool(spec.runtime.pod_template),
    }


def _follow(started: local.LocalRun, console: Console) -> int:
    """Show the run until the launcher has ended; its exit code."""
    with told():
        process = started.start()
    signals = _stop_on_signals(process)
    with Display(started.attempt.name, console) as display:
        while process.poll() is None:
            while signals:
                display.say(signals.pop())
            report = _report(started.report_url)
            if report and report.uid == started.attempt.uid:
                display.show(view.of_report(report))
            time.sleep(POLL_SECONDS)
        final = started.final_report()
        if final:
            display.show(view.of_report(final))
    if final is None:
        tail = started.launcher_log.read_text(errors="replace").strip().splitlines()[-10:]
        words = [f"the launcher ended with exit code {process.returncode} and left no report", *tail]
    else:
        words = view.closing_words(final, str(started.logs))
    for line in words:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    return process.returncode if final and process.returncode >= 0 else 1


def _report(url: str) -> Report | None:
    """None while the launcher does not answer yet, or no more."""
    try:
        return Report.model_validate_json(httpx.get(url, timeout=3.0, trust_env=False).content)
    except (httpx.HTTPError, ValueError):
        return None


def _stop_on_signals(process: subprocess.Popen[bytes]) -> list[str]:
    """From now on signals go to the launcher; what there is to say about them comes into the list."""
    words: list[str] = []

    def stop(*_: object) -> None:
        words.append("leaving; what has been trained is saved first; again to leave at once")
        process.terminate()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)
    return words
