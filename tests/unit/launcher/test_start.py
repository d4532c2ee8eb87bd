"""What can go wrong before the ranks start; no torch needed."""

import asyncio
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from colocated_runtime.contract import names
from colocated_runtime.contract.outcome import Outcome
from colocated_runtime.contract.report import Report, Stage
from colocated_runtime.launcher import planning
from colocated_runtime.launcher.environment import Environment, Paths
from colocated_runtime.launcher.launcher import Launcher

PYTHONPATH = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def test_sigterm_while_waiting_for_the_other_pod(launch, make_attempt) -> None:
    running = launch(attempt=make_attempt(hosts=("127.0.0.1", "127.0.0.2")))
    running.wait_for(lambda report: report.stage is Stage.WAITING)
    running.stop()
    assert running.finish().message == "stopped as asked while waiting for the other pods"
    assert running.process.returncode == 143


def test_a_pod_that_never_comes(launch, make_attempt) -> None:
    attempt = make_attempt(hosts=("127.0.0.1", "127.0.0.2"), watchdog={"start_timeout_seconds": 10})
    final = launch(attempt=attempt).finish()
    assert final.outcome is Outcome.TRANSIENT
    assert final.message == (
        "still waiting for the other pods after watchdog.startTimeoutSeconds (10 s): waiting for pod 1 (127.0.0.2)"
    )
    assert 9 < final.updated - final.started < 15


async def test_download_meeting_and_start_share_one_deadline(make_attempt, tmp_path) -> None:
    attempt = make_attempt(hosts=("127.0.0.1", "127.0.0.2"), watchdog={"start_timeout_seconds": 60})
    paths = Paths(tmp_path / "attempt.json", tmp_path / "state", tmp_path / "storage", tmp_path / "termination")
    environment = Environment(paths, node=0, grace_seconds=1, report_host=None)
    download_took = 59.0
    launcher = Launcher(attempt, environment, began=time.monotonic() - download_took)
    ending = await asyncio.wait_for(launcher._meet(), 10)
    assert ending is not None
    assert "startTimeoutSeconds (60 s)" in ending.message


@pytest.mark.parametrize(
    ("owner", "function", "doing"),
    [
        (Path, "mkdir", "making the attempt's directories"),
        (planning, "plan_here", "planning the memory"),
    ],
)
async def test_a_volume_that_hangs_does_not_hang_the_launcher(
    make_attempt, tmp_path, monkeypatch, owner, function: str, doing: str
) -> None:
    monkeypatch.setattr(owner, function, lambda *_, **__: threading.Event().wait(60))
    paths = Paths(tmp_path / "attempt.json", tmp_path, tmp_path / "storage", tmp_path / "termination")
    environment = Environment(paths, node=0, grace_seconds=1, report_host=None)
    launcher = Launcher(make_attempt(watchdog={"start_timeout_seconds": 10}), environment, began=time.monotonic() - 9)
    late = await asyncio.wait_for(launcher._ending(), 10)
    assert late.outcome is Outcome.TRANSIENT
    assert late.message.startswith(f"still {doing} after watchdog.startTimeoutSeconds (10 s)")
    launcher._stop.ask()
    assert (await asyncio.wait_for(launcher._ending(), 1)).outcome is Outcome.PREEMPTED


def test_stale_files_are_forgotten(launch, make_attempt, tmp_path) -> None:
    state = tmp_path / "state-0"
    state.mkdir()
    for name in ("rank-0.json", "stop"):
        (state / name).write_text('{"rank": 0, "pid": 1, "updated": 0, "outcome": "Complete"}')
    launch(attempt=make_attempt(runtime={"command": ["false"]})).finish()
    assert not list(state.glob("rank-*")) + list(state.glob("stop"))


@pytest.mark.parametrize(("number", "outcome"), [(1, Outcome.USER_ERROR), (2, Outcome.TRANSIENT)])
def test_storage_that_cannot_be_written(launch, make_attempt, tmp_path, number: int, outcome: Outcome) -> None:
    """The first attempt finds a mistake; a later one a volume that was well before, and may be again."""
    (tmp_path / "storage").write_text("no directory")
    running = launch(attempt=make_attempt(number=number))
    assert running.process.wait(60) == 1
    words = Report.model_validate_json(running.termination_log.read_text())
    assert words.outcome is outcome
    assert words.message.startswith("checkpoint.storage: a directory of the attempt cannot be used: ")


def test_a_wrong_description_is_one_message(tmp_path) -> None:
    (tmp_path / "attempt.json").write_text('{"name": "x"}')
    done = subprocess.run(
        [sys.executable, "-m", "colocated_runtime.launcher"], capture_output=True, text=True, timeout=20,
        env=os.environ | PYTHONPATH | {names.ENV_ATTEMPT_FILE: str(tmp_path / "attempt.json")},
    )  # fmt: skip
    assert done.returncode == 1
    assert "the attempt's description is missing or wrong" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


def test_a_port_that_is_taken_is_one_message(launch, make_attempt) -> None:
    attempt = make_attempt(hosts=("127.0.0.1", "127.0.0.2"))
    first = launch(attempt=attempt)
    first.wait_for(lambda report: True)
    second = launch(attempt=attempt)
    assert second.process.wait(20) == 1
    assert "cannot serve the report" in second.log()
    assert "Traceback" not in second.log()
