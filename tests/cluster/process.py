"""The operator as a plain process behind the proxy: it can be killed at any call and looked at from outside."""

import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.cluster.kube import ROOT, eventually
from tests.cluster.proxy import Proxy
from tests.ports import free_port

WATCHED = 3
"""Streams of one operator and namespace: jobs, Jobs, pods."""


@dataclass
class Process:
    """One operator for some namespaces, started again after each kill, as a kubelet would."""

    proxy: Proxy
    namespaces: tuple[str, ...]
    folder: Path
    kills: int = 0
    _running: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def log(self) -> str:
        path = self.folder / "operator.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def forget_log(self) -> None:
        """What is in the log is expected."""
        (self.folder / "operator.log").write_text("")

    def start(self, liveness_port: int | None = None) -> None:
        """Start it; returns at once."""
        assert not self.alive()
        kubeconfig = self.folder / "kubeconfig"
        kubeconfig.write_text(KUBECONFIG.format(server=self.proxy.url))
        environment = os.environ | {
            "KUBECONFIG": str(kubeconfig),
            "PYTHONPATH": f"{ROOT}/operator/src:{ROOT}/runtime/src",
            "COLOCATED_RUNTIME_IMAGE": os.environ["RUNTIME_IMAGE"],
            "COLOCATED_NAMESPACES": ",".join(self.namespaces),
            "COLOCATED_LIVENESS_PORT": str(liveness_port or free_port()),
            "COLOCATED_METRICS_PORT": str(free_port()),
        }
        with (self.folder / "operator.log").open("ab") as log:
            self._running = subprocess.Popen(
                [sys.executable, "-m", "colocated_operator"], env=environment, stdout=log, stderr=log
            )

    @property
    def exit_code(self) -> int | None:
        return self._running.poll() if self._running else None

    def alive(self) -> bool:
        return self._running is not None and self._running.poll() is None

    def kill(self) -> None:
        """SIGKILL, now."""
        assert self._running
        self._running.kill()
        self._running.wait()
        self.kills += 1

    def terminate(self) -> None:
        """SIGTERM, now."""
        assert self._running
        self._running.terminate()

    def stop(self) -> None:
        """SIGTERM; it ends within seconds."""
        if self._running and self.alive():
            self.terminate()
            try:
                self._running.wait(20)
            except subprocess.TimeoutExpired:
                self._running.kill()
                raise

    def again(self) -> float:
        """Start it again, if it is gone; seconds until it watches everything."""
        began = time.monotonic()
        if not self.alive():
            eventually(lambda: not self.proxy.watching, 10, 0.01)
            self.start()
        self.watches()
        return time.monotonic() - began

    def watches(self) -> None:
        """Wait until all its streams are open, or it has been killed again before."""
        streams = WATCHED * len(self.namespaces)
        eventually(lambda: self.proxy.watching >= streams or not self.alive(), 60, 0.05)


KUBECONFIG = """\
apiVersion: v1
kind: Config
current-context: proxy
clusters: [{{name: proxy, cluster: {{server: "{server}"}}}}]
contexts: [{{name: proxy, context: {{cluster: proxy, user: proxy}}}}]
users: [{{name: proxy, user: {{}}}}]
"""
