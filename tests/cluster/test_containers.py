"""Containers of the user's beside the job's own, and pods that do not start, on a real kubelet."""

import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.kube import (
    apply,
    at_step,
    condition,
    eventually,
    items,
    kubectl,
    of,
    patch,
    reaches,
    status,
    stub_job,
)

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("operator")]

RESTRICTED = {
    "runAsNonRoot": True, "runAsUser": 10001, "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]}, "seccompProfile": {"type": "RuntimeDefault"},
}  # fmt: skip
PROXY = {"name": "proxy", "image": "localhost/pause:1", "securityContext": RESTRICTED}
"""Never ends by itself."""


def fetch(*command: str) -> dict[str, Any]:
    return {"name": "fetch", "image": os.environ["RUNTIME_IMAGE"], "command": list(command),
            "securityContext": RESTRICTED, "terminationMessagePolicy": "FallbackToLogsOnError"}  # fmt: skip


def with_pod(name: str, *options: str, pod: dict[str, Any], **spec: Any) -> dict[str, Any]:
    """A stub job with more in its pods."""
    made = stub_job(name, *options, **spec)
    template = made["spec"]["runtime"]["podTemplate"]["spec"]
    for key, entries in pod.items():
        template[key] = [*template.get(key, []), *entries]
    return made


def no_pod_runs(namespace: str) -> bool:
    return not [pod for pod in items("pods", namespace) if pod["status"]["phase"] in ("Pending", "Running")]


def test_proxy_that_never_ends_holds_neither_the_job_nor_its_node(namespace: str) -> None:
    apply(namespace, with_pod("proxied", "--steps", "3", pod={"containers": [PROXY]}))
    assert reaches(namespace, "proxied", "Complete")["progress"]["step"] == 3
    eventually(lambda: no_pod_runs(namespace))
    failing = with_pod("failing", "--fail-at", "2", pod={"containers": [PROXY]}, restart={"maxRestarts": 0})
    apply(namespace, failing)
    reaches(namespace, "failing", "Failed")
    eventually(lambda: no_pod_runs(namespace))


def test_init_container_that_fails_is_named_and_counted(namespace: str) -> None:
    failing = fetch("python", "-c", "raise SystemExit('no such bucket')")
    restart = {"maxRestarts": 1, "backoffSeconds": 0}
    apply(namespace, with_pod("fetching", "--steps", "1", pod={"initContainers": [failing]}, restart=restart))
    end = reaches(namespace, "fetching", "Failed")
    assert end["restartCount"] == 1
    said = condition(namespace, "fetching", "Failed")
    assert said["reason"] == "Crash"
    assert "container fetch, exit code 1: no such bucket" in said["message"]


def launcher_of(namespace: str, name: str) -> int:
    """The process, as this machine numbers it: its pods run on it."""
    (pod,) = [entry["metadata"]["name"] for entry in of(name, "pods", namespace)]
    host = pod.rpartition("-")[0].encode()
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            ours = b"colocated_runtime.launcher" in (entry / "cmdline").read_bytes()
            if ours and b"HOSTNAME=" + host in (entry / "environ").read_bytes():
                return int(entry.name)
    raise AssertionError(f"no launcher of {pod} among the processes")


def test_launcher_that_does_not_answer_is_given_up(namespace: str) -> None:
    """One that is stopped, and one whose place another program has taken."""
    watchdog = {"stallTimeoutSeconds": 10, "startTimeoutSeconds": 30}
    common = {"watchdog": watchdog, "restart": {"maxRestarts": 0}}
    apply(namespace, stub_job("stopped", "--steps", "1000", "--step-seconds", "0.5", **common))
    replaced = stub_job("replaced", "--steps", "1", **common)
    (ours,) = replaced["spec"]["runtime"]["podTemplate"]["spec"]["containers"]
    ours["command"] = ["python", "-c", "import signal; signal.sigwait([signal.SIGTERM])"]
    apply(namespace, replaced)
    at_step(namespace, "stopped", 1)
    launcher = launcher_of(namespace, "stopped")
    os.kill(launcher, signal.SIGSTOP)
    try:
        for name, words in (
            ("stopped", "stallTimeoutSeconds (10 s)"),
            ("replaced", "runtime.podTemplate sets command"),
        ):
            reaches(namespace, name, "Failed", seconds=240)
            said = condition(namespace, name, "Failed")
            assert said["reason"] == "Hung"
            assert "its launcher has not answered for" in said["message"]
            assert words in said["message"]
    finally:
        with suppress(ProcessLookupError):
            os.kill(launcher, signal.SIGCONT)


def test_volume_that_cannot_be_mounted_is_told(namespace: str) -> None:
    volume = {"name": "absent", "secret": {"secretName": "absent"}}
    made = with_pod("mounting", "--steps", "1", pod={"volumes": [volume]})
    (ours,) = made["spec"]["runtime"]["podTemplate"]["spec"]["containers"]
    ours["volumeMounts"] = [
        *ours["volumeMounts"],
        {"name": "absent", "mountPath": "/absent"},
    ]  # else it is not waited for
    apply(namespace, made)
    eventually(lambda: condition(namespace, "mounting", "Running")["reason"] == "ContainerCreating", seconds=90)
    assert "kubectl describe pod mounting-" in condition(namespace, "mounting", "Running")["message"]
    kubectl("create", "secret", "generic", "absent", "-n", namespace)
    reaches(namespace, "mounting", "Complete", seconds=240)


def test_deadline_raised_while_the_job_runs_costs_one_uncounted_restart_at_most(namespace: str) -> None:
    """The batch Job keeps the deadline that it was made with, and 30 s more."""
    steps = ("--steps", "160", "--step-seconds", "0.5")
    restart = {"maxRestarts": 0, "backoffSeconds": 0}
    apply(namespace, stub_job("raised", *steps, activeDeadlineSeconds=20, restart=restart))
    at_step(namespace, "raised", 2)
    patch(namespace, "raised", {"spec": {"activeDeadlineSeconds": 3600}})
    end = reaches(namespace, "raised", "Complete", seconds=240)
    assert [(entry["outcome"], entry["counted"]) for entry in end.get("restarts", [])] == [("Preempted", False)]
    assert end["resumedFromStep"] > 0
    assert status(namespace, "raised").get("restartCount", 0) == 0
