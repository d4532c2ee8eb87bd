"""What the launcher's environment tells it: where things lie, which node of the job this is, how long it may take."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from colocated_runtime.contract import names
from colocated_runtime.contract.attempt import Attempt
from colocated_runtime.files import SharedFiles

GRACE_SECONDS = 110.0


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

    def hub(self, node: int) -> Path:
        """Downloads of one node; on the volume, so that a restart finds them."""
        return self.storage / "hub" / f"node-{node}"


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
        node = int(env.get(names.ENV_NODE_INDEX, "0"))
        if node >= len(attempt.hosts):
            raise ValueError(f"{names.ENV_NODE_INDEX}={node}, but the attempt has {len(attempt.hosts)} hosts")
        return cls(
            paths=Paths(
                attempt_file=attempt_file,
                state=Path(env.get(names.ENV_STATE_DIR, names.STATE_DIR)),
                storage=Path(env.get(names.ENV_STORAGE_DIR, names.STORAGE_DIR)) / attempt.directory,
                termination_log=Path(env.get(names.ENV_TERMINATION_LOG, names.TERMINATION_LOG)),
            ),
            node=node,
            grace_seconds=float(env.get(names.ENV_GRACE_SECONDS, GRACE_SECONDS)),
            report_host=env.get(names.ENV_REPORT_HOST),
        )


def attempt_file(env: Mapping[str, str]) -> Path:
    """Where the attempt's description lies."""
    return Path(env.get(names.ENV_ATTEMPT_FILE, names.ATTEMPT_FILE))
