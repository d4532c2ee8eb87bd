"""Starts this node's ranks under torchrun, or the user's command in their place."""

import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from colocated_runtime.contract import names
from colocated_runtime.contract.attempt import Attempt
from colocated_runtime.contract.values import port
from colocated_runtime.launcher import processes

WORKER = ("-m", "colocated_runtime.worker")
LOG_DIR = "COLOCATED_LOG_DIR"
WITH_TORCHRUN = 'command -v setpriv >/dev/null && set -- setpriv --pdeathsig KILL "$@"'
TO_OWN_LOG = f'{WITH_TORCHRUN}; exec "$@" >>"${LOG_DIR}/rank-$RANK.log" 2>&1'
"""Shell that becomes the rank itself: its log is complete whoever dies, and the rank never waits for a reader.

Where there is setpriv (util-linux) no rank outlives a torchrun that was killed.
"""


def torchrun(attempt: Attempt, node: int, scratch: Path, port: int) -> list[str]:
    """The command that starts the ranks of `node`; `scratch` is for torchrun's own files, `port` on the first host."""
    spec = attempt.spec
    command = spec.runtime.command or [sys.executable, *WORKER]
    return [
        sys.executable, "-m", "torch.distributed.run",
        "--nnodes", str(len(attempt.hosts)),
        "--node-rank", str(node),
        "--nproc-per-node", str(spec.ranks_per_node),
        "--master-addr", attempt.hosts[0],
        "--master-port", str(port),
        "--max-restarts", "0",
        "--log-dir", str(scratch),
        "--no-python", "sh", "-c", TO_OWN_LOG, "rank", *command,
    ]  # fmt: skip


def start(attempt: Attempt, node: int, state: Path, log_dir: Path) -> subprocess.Popen[bytes]:
    """Start torchrun; its words go to its own log file. Raise OSError where the directory cannot be written."""
    log_dir.mkdir(parents=True, exist_ok=True)
    scratch = state / "torchrun"
    scratch.mkdir(parents=True, exist_ok=True)
    command = torchrun(attempt, node, scratch, master_port(len(attempt.hosts), os.environ))
    with (log_dir / torchrun_log(node)).open("ab") as log:
        return subprocess.Popen(
            command,
            env=os.environ | {LOG_DIR: str(log_dir), "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=processes.end_with_parent,
        )


def master_port(hosts: int, env: Mapping[str, str]) -> int:
    """The rendezvous port: a free one where one host is alone, else one that all hosts know beforehand.

    Raise ValueError where MASTER_PORT is no port.
    """
    if names.ENV_MASTER_PORT in env:
        return port(env[names.ENV_MASTER_PORT])
    if hosts > 1:
        return names.RENDEZVOUS_PORT
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def global_ranks(attempt: Attempt, node: int) -> range:
    """The ranks that run on `node`."""
    count = attempt.spec.ranks_per_node
    return range(node * count, (node + 1) * count)


def rank_log(rank: int) -> str:
    """Name of a rank's log file."""
    return f"rank-{rank}.log"


def torchrun_log(node: int) -> str:
    """Name of the log file of a node's torchrun."""
    return f"torchrun-{node}.log"
