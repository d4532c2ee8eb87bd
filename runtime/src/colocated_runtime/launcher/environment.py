"""What the launcher's environment tells it: where things lie, which node of the job this is, how long it may take."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from colocated_runtime.contract import names
from colocated_runtime.contract.attempt import Attempt
from colocated_runtime.contract.values import port
from colocated_runtime.files import SharedFiles

T = TypeVar("T")
GRACE_SECONDS = "110"


@dataclass(frozen=True)
class Paths(SharedFiles):
    """Files and directories of one attempt on this node."""

    storage: Path
    """The job's own directory on the checkpoint volume."""
    termination_log: Path

    @property
    def fetch_file(self) -> Path:
        """What the download says of itself (`fetch.FetchState`)."""
        return self.state / "fetch.json"

    def logs(self, attempt: int) -> Path:
        """One file a rank, and one of this node's torchrun."""
        return self.storage / names.log_directory(attempt)

    def final_report(self, attempt: int, node: int) -> Path:
        """The final report of one node's launcher in one attempt."""
        return self.storage / names.final_report(attempt, node)

    @property
    def compiled(self) -> Path:
        """What was compiled (`caches`)."""
        return self.storage / names.COMPILED

    def hub(self, node: int) -> Path:
        """Downloads of one node; on the volume, so that a restart finds them."""
        return self.storage / names.HUB / f"node-{node}"


@dataclass(frozen=True)
class Environment:
    """The launcher's surroundings, without the attempt itself."""

    paths: Paths
    node: int
    grace_seconds: float
    report_host: str | None
    """Address to serve on; None: all."""

    @classmethod
    def read(cls, env: Mapping[str, str], attempt: Attempt, attempt_file: Path) -> "Environment":
        """From the variables of contract.names; raise ValueError where one is no number or the node unknown."""
        if names.ENV_MASTER_PORT in env:
            _read(env, names.ENV_MASTER_PORT, port, "")
        node = _read(env, names.ENV_NODE_INDEX, int, "0")
        if not 0 <= node < len(attempt.hosts):
            raise ValueError(f"{names.ENV_NODE_INDEX}={node}, but the attempt has {len(attempt.hosts)} hosts")
        return cls(
            paths=Paths(
                attempt_file=attempt_file,
                state=Path(env.get(names.ENV_STATE_DIR, names.STATE_DIR)),
                storage=Path(env.get(names.ENV_STORAGE_DIR, names.STORAGE_DIR)) / attempt.directory,
                termination_log=Path(env.get(names.ENV_TERMINATION_LOG, names.TERMINATION_LOG)),
            ),
            node=node,
            grace_seconds=_read(env, names.ENV_GRACE_SECONDS, float, GRACE_SECONDS),
            report_host=env.get(names.ENV_REPORT_HOST),
        )


def _read(env: Mapping[str, str], name: str, kind: Callable[[str], T], default: str) -> T:
    """The variable as `kind`; raise ValueError with its name."""
    try:
        return kind(env.get(name, default))
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error


def attempt_file(env: Mapping[str, str]) -> Path:
    """Where the attempt's description lies."""
    return Path(env.get(names.ENV_ATTEMPT_FILE, names.ATTEMPT_FILE))
