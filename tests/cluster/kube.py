"""The cluster as a user sees it: kubectl and helm, and jobs whose workers are stubs behind the real launcher."""

import json
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
SYSTEM = "colocated-system"
RELEASE = "colocated-operator"
STUB = ROOT / "tests/unit/launcher/stub_worker.py"
LIGHT = ROOT / "tests/cluster/light_torchrun.py"

Object = dict[str, Any]


def kubectl(*arguments: str, stdin: Any = None, check: bool = True) -> str:
    """Output of kubectl; `stdin` is sent as JSON."""
    text = None if stdin is None else json.dumps(stdin)
    done = subprocess.run(["kubectl", *arguments], input=text, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 or not check, done.stderr
    return done.stdout + ("" if check else done.stderr)


def get(kind: str, name: str, namespace: str) -> Object:
    return json.loads(kubectl("get", kind, name, "-n", namespace, "-o", "json"))


def items(kind: str, namespace: str, selector: str = "") -> list[Object]:
    query = ["-l", selector] if selector else []
    return json.loads(kubectl("get", kind, "-n", namespace, "-o", "json", *query))["items"]


def apply(namespace: str, *objects: Object) -> None:
    kubectl("apply", "-n", namespace, "-f", "-", stdin={"apiVersion": "v1", "kind": "List", "items": list(objects)})


def patch(namespace: str, name: str, change: Object, *flags: str) -> None:
    kubectl("patch", "crj", name, "-n", namespace, "--type=merge", "-p", json.dumps(change), *flags)


def eventually(what: Callable[[], Any], seconds: float = 60, pause: float = 0.3) -> Any:
    """The first true value of `what`; its AssertionErrors count as false until the time is over."""
    end = time.monotonic() + seconds
    while True:
        try:
            value = what()
        except AssertionError:
            if time.monotonic() > end:
                raise
            value = None
        if value:
            return value
        assert time.monotonic() < end, f"not within {seconds} s: {what.__doc__ or what}"
        time.sleep(pause)


def of(name: str, kind: str, namespace: str) -> list[Object]:
    """The job's objects of a kind."""
    return items(kind, namespace, f"rl.colocated.dev/job={name}")


def job(name: str, spec: Object) -> Object:
    return {
        "apiVersion": "rl.colocated.dev/v1alpha1",
        "kind": "ColocatedRLJob",
        "metadata": {"name": name},
        "spec": spec,
    }


def stub_code() -> Object:
    """ConfigMap that stub jobs mount."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "stub"},
        "data": {"stub_worker.py": STUB.read_text(), "run.py": LIGHT.read_text(), "__init__.py": ""},
    }


def stub_job(name: str, *options: str, **spec: Any) -> Object:
    """A job whose ranks are stubs: real launcher, pods and volumes, no model and no torchrun, whose imports are most of
    what a stub's pod costs."""
    mount = {"name": "colocated", "volumeMounts": [{"name": "stub", "mountPath": "/stub"}]}
    files = {
        "stub_worker.py": ["stub_worker.py"],
        "__init__.py": ["torch/__init__.py", "torch/distributed/__init__.py"],
        "run.py": ["torch/distributed/run.py"],
    }
    items = [{"key": key, "path": path} for key, paths in files.items() for path in paths]
    volume = {"name": "stub", "configMap": {"name": "stub", "items": items}}
    runtime = {
        "command": ["python", "/stub/stub_worker.py", *options],
        "podTemplate": {"spec": {"containers": [mount], "volumes": [volume]}},
        "env": [{"name": "PYTHONPATH", "value": "/stub:/app"}],
    }
    defaults = {
        "checkpoint": {"storage": {"volumeClaimTemplate": {"storage": "1Gi"}}},
        "restart": {"backoffSeconds": 0},
        "resources": {"requests": {"cpu": "10m"}},
    }
    return job(name, defaults | {"runtime": runtime | spec.pop("runtime", {})} | spec)


def status(namespace: str, name: str) -> Object:
    return get("crj", name, namespace).get("status", {})


def condition(namespace: str, name: str, kind: str) -> Object:
    entries = status(namespace, name).get("conditions", [])
    return next((entry for entry in entries if entry["type"] == kind), {"status": "", "reason": "", "message": ""})


def reaches(namespace: str, name: str, phase: str, seconds: float = 120) -> Object:
    """The status once the job is in `phase`."""

    def there() -> Object | None:
        now = status(namespace, name)
        assert now.get("phase") == phase, now
        return now

    return eventually(there, seconds)


def at_step(namespace: str, name: str, step: int, seconds: float = 120) -> Object:
    """The status once `step` optimizer steps are done."""

    def there() -> Object | None:
        now = status(namespace, name)
        assert now.get("progress", {}).get("step", 0) >= step, now
        return now

    return eventually(there, seconds)


def events(namespace: str, name: str) -> list[Object]:
    return [entry for entry in items("events", namespace) if entry["involvedObject"]["name"] == name]


def helm(*arguments: str, check: bool = True) -> str:
    done = subprocess.run(["helm", *arguments], capture_output=True, text=True, timeout=180)
    assert done.returncode == 0 or not check, done.stderr
    return done.stdout + ("" if check else done.stderr)


def install(*values: str) -> None:
    """Install or upgrade the operator from the chart, with the images built from this checkout."""
    repository, _, tag = os.environ["OPERATOR_IMAGE"].rpartition(":")
    settings = [f"image.repository={repository}", f"image.tag={tag}", f"runtimeImage={os.environ['RUNTIME_IMAGE']}"]
    flags = [flag for value in (*settings, *values) for flag in ("--set", value)]
    chart = str(ROOT / "charts/colocated-operator")
    helm("upgrade", "--install", RELEASE, chart, "-n", SYSTEM, "--wait", "--timeout", "120s", *flags)


def operator_log() -> str:
    return kubectl("logs", "-n", SYSTEM, f"deploy/{RELEASE}", "--tail=-1")
