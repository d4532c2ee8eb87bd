"""One rank as the pods start it, without torchrun, and what it left behind."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from colocated_runtime.contract import names
from colocated_runtime.contract.attempt import Attempt
from colocated_runtime.contract.job import JobSpec
from colocated_runtime.contract.report import RankState


class Rank(NamedTuple):
    """A rank that failed."""

    state: RankState
    output: str
    """Its log."""


def run_rank(directory: Path, spec: dict[str, Any], seconds: float = 120) -> Rank:
    """Run a job's only rank, which must fail."""
    attempt = Attempt(
        name="job", namespace="ns", uid="0123456789", generation=1, attempt=1, hosts=["localhost"],
        storage_uri="pvc://claim", spec=JobSpec.model_validate(spec),
    )  # fmt: skip
    (directory / "attempt.json").write_text(attempt.model_dump_json(by_alias=True))
    done = subprocess.run(
        [sys.executable, "-m", "colocated_runtime.worker"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, timeout=seconds,
        env=os.environ | {
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            names.ENV_ATTEMPT_FILE: str(directory / "attempt.json"), names.ENV_STATE_DIR: str(directory),
            names.ENV_STORAGE_DIR: str(directory / "storage"), names.ENV_REWARDS_DIR: str(directory / "rewards"),
        },
    )  # fmt: skip
    assert done.returncode == 1, done.stdout
    return Rank(RankState.model_validate_json((directory / "rank-0.json").read_text()), done.stdout)
