"""`colocated run` as a user types it; with torch, the stub worker under the real launcher and torchrun."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from colocated_operator.cli.document import Document
from colocated_operator.cli.run import notes
from colocated_runtime.contract.job import JobSpec
from colocated_runtime.contract.report import RankState

STUB = Path(__file__).parent.parent / "launcher" / "stub_worker.py"
ENVIRONMENT = os.environ | {
    "PYTHONPATH": os.pathsep.join(path for path in sys.path if path), "COLUMNS": "200", "PYTHONUNBUFFERED": "1"
}  # fmt: skip
COMMAND = [sys.executable, "-m", "colocated_operator.cli", "run"]


def job(directory: Path, *arguments: str, **spec: object) -> Path:
    """A file with a job whose worker is the stub. JSON is YAML."""
    path = directory / "job.yaml"
    spec = {"runtime": {"command": [sys.executable, str(STUB), *arguments]}} | spec
    head = {"apiVersion": "rl.colocated.dev/v1alpha1", "kind": "ColocatedRLJob", "metadata": {"name": "job"}}
    path.write_text(json.dumps(head | {"spec": spec}))
    return path


def run(path: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, str(path), *options], cwd=path.parent, env=ENVIRONMENT, capture_output=True, text=True, timeout=100
    )


def training(path: Path) -> subprocess.Popen[str]:
    """A run that goes on, and has shown a step."""
    process = subprocess.Popen(
        [*COMMAND, str(path)], cwd=path.parent, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout
    for line in process.stdout:
        if "step " in line:
            break
    return process


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"nodez": 1}, "spec.nodez: no such field; did you mean nodes?"),
        ({"nodes": 2, "checkpoint": {"storage": {"claim": "c"}}}, "spec.nodes: 2, but this machine is one node"),
        ({"runtime": {}}, "spec.model: missing"),
    ],
)
def test_a_mistake_is_exit_code_2_and_no_traceback(tmp_path: Path, spec: dict[str, object], words: str) -> None:
    done = run(job(tmp_path, **spec))
    assert done.returncode == 2
    assert words in done.stderr
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "job-run").exists()


def test_what_has_no_effect_here_is_said() -> None:
    spec = {"suspend": True, "activeDeadlineSeconds": 60, "restart": {"maxRestarts": 3}, "runtime": {"image": "x"}}
    assert notes(Document("job", "default", JobSpec.model_validate(spec))) == [
        "for clusters only, and without effect here: suspend, activeDeadlineSeconds",
        "runtime.image is not used here; the job runs in this Python environment",
    ]


@pytest.mark.torch
@pytest.mark.timeout(120)
def test_complete(tmp_path: Path) -> None:
    done = run(job(tmp_path, "--steps", "4"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "reward      0.100 [0.000, 0.200] before → 0.800 [0.700, 0.900] after 4 steps" in done.stdout
    home = tmp_path / "job-run" / "job-local"
    assert f"checkpoint  file://{home}/checkpoints/checkpoint-4" in done.stdout
    assert f"model       file://{home}/model" in done.stdout
    assert (home / "logs" / "attempt-1" / "rank-0.log").read_text().startswith("step 1\n")
    again = run(tmp_path / "job.yaml")
    assert again.returncode == 0
    assert again.stdout.startswith("job is complete already; to start anew, remove job-run, or give another --storage")
    assert f"model       file://{home}/model" in again.stdout
    assert not (home / "logs" / "attempt-2").exists()


@pytest.mark.torch
@pytest.mark.timeout(120)
def test_a_crash_shows_its_traceback(tmp_path: Path) -> None:
    done = run(job(tmp_path, "--fail-at", "2"), "--storage", str(tmp_path / "elsewhere"))
    assert done.returncode == 1
    assert "Crash: the stub fails at step 2" in done.stdout
    assert "RuntimeError: the stub fails at step 2" in done.stdout
    assert (tmp_path / "elsewhere" / "job-local").exists()


@pytest.mark.torch
@pytest.mark.timeout(180)
def test_nothing_outlives_a_launcher_that_is_killed(tmp_path: Path) -> None:
    path = job(tmp_path, "--steps", "3000", "--step-seconds", "0.1")
    process = training(path)
    state = RankState.model_validate_json(next(tmp_path.rglob("rank-0.json")).read_bytes())
    subprocess.run(["pkill", "-KILL", "-P", str(process.pid)], check=True)
    assert "left no report" in process.communicate(timeout=60)[0]
    deadline = time.monotonic() + 10
    while Path(f"/proc/{state.pid}").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not Path(f"/proc/{state.pid}").exists()


@pytest.mark.torch
@pytest.mark.timeout(180)
def test_ctrl_c_saves_and_the_next_run_goes_on(tmp_path: Path) -> None:
    path = job(tmp_path, "--steps", "300", "--step-seconds", "0.1")
    process = subprocess.Popen([*COMMAND, str(path)], cwd=tmp_path, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    try:
        for line in process.stdout:
            if (shown := re.search(r"step (\d+) of 300", line)) and int(shown[1]) >= 5:  # the display may skip steps
                break
        process.send_signal(signal.SIGINT)
        output = process.communicate(timeout=30)[0]
    finally:
        process.kill()
    assert process.returncode == 143
    assert "what has been trained is saved first" in output
    assert "Preempted: the stub is done" in output

    saved = max(int(p.name.rpartition("-")[2]) for p in tmp_path.glob("job-run/job-local/checkpoints/checkpoint-*"))
    assert saved >= 5
    again = run(job(tmp_path, "--steps", str(saved + 1)))
    assert again.returncode == 0
    assert "attempt 2" in again.stdout
    assert f"resumed from step {saved}" in again.stdout


@pytest.mark.torch
@pytest.mark.timeout(180)
def test_a_launcher_that_trains_on_alone_can_be_stopped(tmp_path: Path) -> None:
    path = job(tmp_path, "--steps", "3000", "--step-seconds", "0.1")
    process = training(path)
    process.kill()
    process.wait()
    refused = run(path)
    assert refused.returncode == 2
    launcher = re.search(r"stop its launcher \(kill (\d+) on ", refused.stderr)
    assert launcher, refused.stderr
    os.kill(int(launcher[1]), signal.SIGTERM)
    deadline = time.monotonic() + 30
    while "another run uses" in (again := run(job(tmp_path, "--steps", "1"))).stderr and time.monotonic() < deadline:
        time.sleep(0.2)
    assert again.returncode == 0, again.stdout + again.stderr
    assert "resumed from step" in again.stdout
