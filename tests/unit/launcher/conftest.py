"""An attempt whose files lie in the test's own directory, and a launcher process that runs it."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.ports import free_port

from colocated_runtime.contract import names
from colocated_runtime.contract.attempt import Attempt
from colocated_runtime.contract.job import JobSpec
from colocated_runtime.contract.report import Report, Stage

STUB = Path(__file__).with_name("stub_worker.py")


@pytest.fixture
def make_attempt() -> Callable[..., Attempt]:
    def make(*, hosts: tuple[str, ...] = ("127.0.0.1",), number: int = 1, port: int = 0, **spec: Any) -> Attempt:
        return Attempt(
            name="job", namespace="default", uid="0123456789", generation=1, attempt=number, hosts=list(hosts),
            report_port=port or free_port(), storage_uri="pvc://claim", spec=JobSpec(nodes=len(hosts), **spec),
        )  # fmt: skip

    return make


@dataclass
class Running:
    """A launcher process of one node."""

    process: subprocess.Popen[str]
    attempt: Attempt
    directory: Path
    node: int

    def report(self) -> Report:
        url = f"http://{self.attempt.hosts[self.node]}:{self.attempt.report_port}/report"
        with urllib.request.urlopen(url, timeout=5) as answer:
            return Report.model_validate(json.load(answer))

    def wait_for(self, wanted: Callable[[Report], bool], seconds: float = 40.0) -> Report:
        """The first report that is as wanted; fails with the launcher's words if none comes."""
        deadline = time.monotonic() + seconds
        report = None
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                report = self.report()
            except OSError:
                time.sleep(0.05)
                continue
            if wanted(report):
                return report
            time.sleep(0.05)
        raise AssertionError(f"last report: {report}, launcher's log: {self.log()}")

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def finish(self, seconds: float = 50.0) -> Report:
        """Wait for the exit; the final report."""
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(self.log()) from None
        assert self.final_file.exists(), self.log()
        return Report.model_validate_json(self.final_file.read_text())

    @property
    def storage(self) -> Path:
        return self.directory / "storage" / self.attempt.directory

    @property
    def final_file(self) -> Path:
        return self.storage / "reports" / f"attempt-{self.attempt.attempt}-node-{self.node}.json"

    @property
    def termination_log(self) -> Path:
        return self.directory / f"termination-{self.node}.log"

    def log(self) -> str:
        return (self.directory / f"launcher-{self.node}.log").read_text()


@pytest.fixture
def launch(tmp_path: Path, make_attempt: Callable[..., Attempt]) -> Iterator[Callable[..., Running]]:
    """Start a launcher with the stub worker; every process is ended with the test."""
    started: list[Running] = []

    def start(
        *arguments: str, attempt: Attempt | None = None, node: int = 0, grace: float = 20, **spec: Any
    ) -> Running:
        attempt = attempt or make_attempt(runtime={"command": [sys.executable, str(STUB), *arguments]}, **spec)
        file = tmp_path / f"attempt-{attempt.attempt}.json"
        file.write_text(attempt.model_dump_json(by_alias=True))
        environment = os.environ | {
            names.ENV_ATTEMPT_FILE: str(file),
            names.ENV_STATE_DIR: str(tmp_path / f"state-{node}"),
            names.ENV_STORAGE_DIR: str(tmp_path / "storage"),
            names.ENV_NODE_INDEX: str(node),
            names.ENV_TERMINATION_LOG: str(tmp_path / f"termination-{node}.log"),
            names.ENV_GRACE_SECONDS: str(grace),
            names.ENV_REPORT_HOST: attempt.hosts[node],
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            "MASTER_PORT": str(attempt.report_port + 1),
        }
        with (tmp_path / f"launcher-{node}.log").open("w") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "colocated_runtime.launcher"],
                env=environment, stdout=log, stderr=subprocess.STDOUT, text=True,
            )  # fmt: skip
        running = Running(process, attempt, tmp_path, node)
        started.append(running)
        return running

    yield start
    for running in started:
        for _ in range(2):  # the second one ends the ranks at once
            if running.process.poll() is None:
                running.stop()
                time.sleep(0.2)
        try:
            running.process.wait(15)
        except subprocess.TimeoutExpired:
            running.process.kill()


@pytest.fixture
def is_running() -> Callable[[Report], bool]:
    return lambda report: report.stage is Stage.RUNNING and report.progress.step > 0
