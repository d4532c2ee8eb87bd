"""The CRD on a real API server: what it refuses and with which words, what it defaults, what may change when."""

import json
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.unit.contract.bad_jobs import BAD_JOBS, GOOD, BadJob, changed

from colocated_runtime.contract.schema import custom_resource_definition

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parents[2]
CRD = "colocatedrljobs.rl.colocated.dev"


def kubectl(*arguments: str, stdin: Any = None) -> subprocess.CompletedProcess[str]:
    text = None if stdin is None else json.dumps(stdin)
    return subprocess.run(["kubectl", *arguments], input=text, capture_output=True, text=True, timeout=60)


def job(spec: dict[str, Any], name: str = "job") -> dict[str, Any]:
    return {
        "apiVersion": "rl.colocated.dev/v1alpha1",
        "kind": "ColocatedRLJob",
        "metadata": {"name": name},
        "spec": spec,
    }


@pytest.fixture(scope="module")
def namespace() -> Iterator[str]:
    """A namespace of its own under the checkout's CRD, which is installed if there is none, and then removed again."""
    served = kubectl("get", "crd", CRD, "--ignore-not-found", "-o", "json").stdout
    if served:
        (version,) = json.loads(served)["spec"]["versions"]
        (wanted,) = custom_resource_definition()["spec"]["versions"]
        assert version["schema"] == wanted["schema"], "the cluster serves another CRD: helm upgrade the chart first"
    else:
        done = kubectl("create", "-f", str(ROOT / "crds"))
        assert done.returncode == 0, done.stderr
        kubectl("wait", "--for=condition=Established", f"crd/{CRD}", "--timeout=30s")
    name = f"admission-{uuid.uuid4().hex[:6]}"
    assert kubectl("create", "namespace", name).returncode == 0
    yield name
    kubectl("delete", "namespace", name, "--wait=false")
    if not served:
        kubectl("delete", "crd", CRD)


def dry_run(namespace: str, *objects: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    items = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
    return kubectl("apply", "-n", namespace, "--dry-run=server", "-f", "-", stdin=items)


@pytest.mark.parametrize("bad", BAD_JOBS, ids=lambda bad: bad.name)
def test_mistake_is_refused_at_apply(namespace: str, bad: BadJob) -> None:
    done = dry_run(namespace, job(bad.spec))
    assert done.returncode != 0, done.stdout
    assert bad.at_apply in done.stderr


@pytest.mark.parametrize("name", ["a" * 41, "1job", "a.b"])
def test_name_that_no_service_could_have_is_refused(namespace: str, name: str) -> None:
    done = dry_run(namespace, job(GOOD, name))
    assert "metadata.name: at most 40 characters" in done.stderr
    assert f"'{name}' has {len(name)}" in done.stderr


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.yaml")), ids=lambda path: path.stem)
def test_example_is_accepted(namespace: str, path: Path) -> None:
    done = kubectl("apply", "-n", namespace, "--dry-run=server", "-f", str(path))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("flags", [(), ("--server-side",)], ids=["client-side", "server-side"])
def test_defaults_are_no_drift(namespace: str, flags: tuple[str, ...], tmp_path: Path) -> None:
    name = "drift-" + ("server" if flags else "client")
    file = tmp_path / "job.yaml"
    spec = changed(GOOD, {"resources.limits": {"cpu": 1, "memory": "2Gi"}, "trainer.learning_rate": 1.0})
    file.write_text(yaml.safe_dump(job(spec, name)))
    assert kubectl("apply", "-n", namespace, *flags, "-f", str(file)).returncode == 0
    done = kubectl("diff", "-n", namespace, *flags, "-f", str(file))
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


def test_server_side_apply_takes_over_from_client_side_apply(namespace: str, tmp_path: Path) -> None:
    """A tool that began with one and goes on with the other, or another tool, meets no conflict over what is equal."""
    file = tmp_path / "job.yaml"
    rewards = [{"name": "reasoning_gym"}, {"function": "code:score", "weight": 0.5}]
    runtime = {"env": [{"name": "A", "value": "1"}], "envFrom": [{"secretRef": {"name": "s"}}]}
    file.write_text(yaml.safe_dump(job(changed(GOOD, {"rewards": rewards, "runtime": runtime}), "taken-over")))
    for flags in [(), ("--server-side",), ("--server-side", "--field-manager=other")]:
        done = kubectl("apply", "-n", namespace, *flags, "-f", str(file))
        assert done.returncode == 0, done.stderr


def test_nested_defaults_appear(namespace: str) -> None:
    done = kubectl("create", "-n", namespace, "--dry-run=server", "-o", "json", "-f", "-", stdin=job(GOOD))
    spec = json.loads(done.stdout)["spec"]
    assert spec["memory"] == {"policy": "Auto", "headroom": 0.05, "hostPressure": 0.9}
    assert spec["checkpoint"] == {"everySteps": 50, "keep": 2}
    assert spec["watchdog"] == {"stallTimeoutSeconds": 1800, "startTimeoutSeconds": 3600}
    assert spec["runtime"] == {"podTemplate": {}}
    assert spec["nodes"] == 1


def test_null_of_an_option_with_a_default_is_kept(namespace: str) -> None:
    wanted = job(GOOD)
    wanted["spec"] = changed(GOOD, {})
    wanted["spec"]["trainer"]["vllm_importance_sampling_clip_max"] = None
    done = kubectl("create", "-n", namespace, "--dry-run=server", "-o", "json", "-f", "-", stdin=wanted)
    assert json.loads(done.stdout)["spec"]["trainer"]["vllm_importance_sampling_clip_max"] is None


@pytest.fixture(scope="module")
def started(namespace: str) -> str:
    """A job whose status says that an attempt was started; suspended, so that no operator touches it."""
    spec = changed(GOOD, {"suspend": True, "lora": {"r": 8}, "runtime.image": "localhost/own:1"})
    assert kubectl("create", "-n", namespace, "-f", "-", stdin=job(spec, "started")).returncode == 0
    status = json.dumps({"status": {"attempt": 1, "phase": "Running"}})
    done = kubectl("patch", "-n", namespace, "crj/started", "--subresource=status", "--type=merge", "-p", status)
    assert done.returncode == 0, done.stderr
    return "started"


def patch(namespace: str, name: str, spec: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    change = json.dumps({"spec": spec})
    return kubectl("patch", "-n", namespace, f"crj/{name}", "--type=merge", "--dry-run=server", "-p", change)


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("algorithm", {"algorithm": "rloo"}),
        ("model", {"model": {"source": "hf://Qwen/Qwen3-0.6B"}}),
        ("dataset", {"dataset": {"maxSamples": 5}}),
        ("evaluation", {"evaluation": {"dataset": {"source": "reasoning-gym://chain_sum"}}}),
        ("rewards", {"rewards": [{"name": "reasoning_gym", "weight": 2}]}),
        ("trainer", {"trainer": {"learning_rate": 0.5}}),
        ("trainer", {"trainer": {"option_of_a_newer_trl": 1}}),
        ("lora", {"lora": {"r": 16}}),
        ("lora", {"lora": None}),
        ("nodes", {"nodes": 2, "checkpoint": {"storage": {"claim": "shared"}}}),
        ("gpusPerNode", {"gpusPerNode": 8}),
        ("resourceName", {"resourceName": "amd.com/gpu"}),
        ("processesPerNode", {"processesPerNode": 2}),
        ("device", {"device": {"memory": "80Gi"}}),
        ("memory", {"memory": {"gpuMemoryUtilization": 0.5}}),
        ("checkpoint", {"checkpoint": {"everySteps": 7}}),
        ("runtime.command", {"runtime": {"command": ["true"]}}),
    ],
)
def test_what_could_not_take_effect_cannot_change(
    namespace: str, started: str, field: str, change: dict[str, Any]
) -> None:
    done = patch(namespace, started, change)
    assert done.returncode != 0
    assert f"spec.{field}: Forbidden: spec.{field} cannot change once the job was started" in done.stderr


@pytest.mark.parametrize(
    "change",
    [
        {"suspend": False},
        {"activeDeadlineSeconds": 60},
        {"ttlSecondsAfterFinished": 60},
        {"restart": {"maxRestarts": 9}},
        {"watchdog": {"stallTimeoutSeconds": 60}},
        {"resources": {"limits": {"memory": "8Gi"}}},
        {"runtime": {"image": "localhost/other:1"}},
        {"runtime": {"env": [{"name": "A", "value": "1"}]}},
        {"runtime": {"envFrom": [{"secretRef": {"name": "s"}}]}},
        {"runtime": {"podTemplate": {"spec": {"priorityClassName": "high"}}}},
    ],
)
def test_what_takes_effect_may_change(namespace: str, started: str, change: dict[str, Any]) -> None:
    assert patch(namespace, started, change).returncode == 0


def test_all_may_change_before_the_first_attempt(namespace: str) -> None:
    spec = changed(GOOD, {"suspend": True})
    assert kubectl("create", "-n", namespace, "-f", "-", stdin=job(spec, "waiting")).returncode == 0
    done = patch(namespace, "waiting", {"trainer": {"learning_rate": 0.5}})
    assert done.returncode == 0, done.stderr


def test_explain_reads_well() -> None:
    text = kubectl("explain", "crj.spec.memory").stdout
    assert "How the GPU's memory is shared between training and generation." in text
    assert "<no description>" not in text
    assert "<empty>" not in text
    assert (
        "Not here: set memory.gpuMemoryUtilization."
        in kubectl("explain", "crj.spec.trainer.vllm_gpu_memory_utilization").stdout
    )
