"""A job's life on a real cluster: real API server, scheduler, kubelet, pods and launcher; the ranks are stubs."""

import time

import pytest
from tests.cluster.kube import (
    SYSTEM,
    apply,
    at_step,
    condition,
    events,
    eventually,
    get,
    items,
    kubectl,
    patch,
    reaches,
    status,
    stub_job,
)

OPERATOR_PODS = "app.kubernetes.io/name=colocated-operator"
pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("operator")]


def test_job_runs_to_complete_and_says_everything(namespace: str) -> None:
    apply(namespace, stub_job("life", "--steps", "5", "--step-seconds", "0.3"))
    end = reaches(namespace, "life", "Complete")
    assert end["progress"]["step"] == 5
    assert end["progress"]["percent"] == 100
    assert end["attempt"] == 1
    assert end["output"]["model"].startswith("pvc://life-")
    assert end["checkpoints"]["step"] == 5
    assert [entry["step"] for entry in end["evaluations"]] == [0, 5]
    assert {"phase": "Train", "deviceBytes": 0, "hostBytes": 1000} in end["memory"]["peaks"]
    assert condition(namespace, "life", "Reconciling")["status"] == "False"
    kubectl("wait", "--for=condition=Complete", "crj/life", "-n", namespace, "--timeout=5s")
    (job,) = items("jobs", namespace)
    assert any(entry["type"] == "Complete" for entry in job["status"]["conditions"])
    eventually(lambda: {"Complete", "CheckpointSaved"} <= set(reasons(namespace, "life")))
    assert len(set(reasons(namespace, "life"))) == len(reasons(namespace, "life")), "each Event once"
    assert kubectl("get", "crj", "life", "-n", namespace).splitlines()[1].split()[1] == "Complete"
    (pod,) = items("pods", namespace)
    assert "finished" in kubectl("logs", pod["metadata"]["name"], "-n", namespace)


def reasons(namespace: str, name: str) -> list[str]:
    """Of the Events that are there."""
    return [entry["reason"] for entry in events(namespace, name)]


def test_nothing_is_written_to_spec_annotations_or_finalizers(namespace: str) -> None:
    apply(namespace, stub_job("clean", "--steps", "1"))
    reaches(namespace, "clean", "Complete")
    found = get("crj", "clean", namespace)["metadata"]
    assert "finalizers" not in found
    assert list(found["annotations"]) == ["kubectl.kubernetes.io/last-applied-configuration"]
    assert found["generation"] == 1


def test_suspend_saves_frees_the_pod_and_resume_goes_on(namespace: str) -> None:
    apply(namespace, stub_job("pause", "--steps", "40", "--step-seconds", "0.5"))
    at_step(namespace, "pause", 3)
    patch(namespace, "pause", {"spec": {"suspend": True}})
    saved = reaches(namespace, "pause", "Suspended")["checkpoints"]["step"]
    eventually(lambda: not items("pods", namespace))
    assert saved >= 3
    patch(namespace, "pause", {"spec": {"suspend": False}})
    resumed = reaches(namespace, "pause", "Running")
    assert resumed["attempt"] == 2
    assert resumed["restartCount"] == 0
    assert eventually(lambda: status(namespace, "pause").get("resumedFromStep")) == saved
    reaches(namespace, "pause", "Complete")


def test_what_is_edited_while_the_job_runs_holds_for_the_next_attempt(namespace: str) -> None:
    apply(namespace, stub_job("edited", "--steps", "1000", "--step-seconds", "0.2"))
    at_step(namespace, "edited", 1)
    (before,) = items("pods", namespace)
    image = before["spec"]["containers"][0]["image"]
    variables = get("crj", "edited", namespace)["spec"]["runtime"]["env"]
    change = {
        "resources": {"limits": {"memory": "700Mi"}},
        "runtime": {"env": [*variables, {"name": "A", "value": "b"}]},
    }
    patch(namespace, "edited", {"spec": change})
    step = status(namespace, "edited")["progress"]["step"]
    at_step(namespace, "edited", step + 10)
    assert [pod["metadata"]["uid"] for pod in items("pods", namespace)] == [before["metadata"]["uid"]]
    patch(namespace, "edited", {"spec": {"suspend": True}})
    reaches(namespace, "edited", "Suspended")
    eventually(lambda: not items("pods", namespace))
    patch(namespace, "edited", {"spec": {"suspend": False}})
    assert reaches(namespace, "edited", "Running")["attempt"] == 2
    (container,) = items("pods", namespace)[0]["spec"]["containers"]
    assert container["image"] == image
    assert container["resources"]["limits"]["memory"] == "700Mi"
    assert {"name": "A", "value": "b"} in container["env"]


def test_crash_restarts_from_the_checkpoint_and_logs_of_two_attempts_stay(namespace: str) -> None:
    apply(
        namespace, stub_job("crash", "--steps", "3", "--fail-at", "2", restart={"maxRestarts": 2, "backoffSeconds": 0})
    )
    end = reaches(namespace, "crash", "Failed", seconds=180)
    assert [entry["attempt"] for entry in end["restarts"]] == [1, 2]
    assert {entry["outcome"] for entry in end["restarts"]} == {"Crash"}
    assert "the stub fails at step 2" in condition(namespace, "crash", "Failed")["message"]
    pods = items("pods", namespace)
    assert sorted(pod["metadata"]["labels"]["rl.colocated.dev/attempt"] for pod in pods) == ["2", "3"]
    for pod in pods:
        assert "the stub fails at step 2" in kubectl("logs", pod["metadata"]["name"], "-n", namespace)
    read = "cat /storage/*/logs/*/rank-0.log"
    logs = kubectl("exec", "-n", namespace, reader(namespace), "--", "sh", "-c", read)
    assert logs.count("RuntimeError: the stub fails at step 2") == 2


def reader(namespace: str) -> str:
    """A pod that mounts the job's claim: the volume outlives the job's own pods."""
    (claim,) = items("pvc", namespace)
    attempt = items("pods", namespace)[0]
    spec = attempt["spec"]
    container = {key: spec["containers"][0][key] for key in ("name", "image", "securityContext")} | {
        "command": ["sleep", "300"],
        "volumeMounts": [{"name": "storage", "mountPath": "/storage"}],
    }
    claim_volume = {"name": "storage", "persistentVolumeClaim": {"claimName": claim["metadata"]["name"]}}
    pod = {"securityContext": spec["securityContext"], "containers": [container], "volumes": [claim_volume],
           "terminationGracePeriodSeconds": 0}  # fmt: skip
    apply(namespace, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "reader"}, "spec": pod})
    kubectl("wait", "--for=condition=Ready", "pod/reader", "-n", namespace, "--timeout=60s")
    return "reader"


def test_deleted_pod_is_a_preemption_that_loses_no_step(namespace: str) -> None:
    apply(
        namespace,
        stub_job("evicted", "--steps", "30", "--step-seconds", "0.5", restart={"maxRestarts": 0, "backoffSeconds": 0}),
    )
    at_step(namespace, "evicted", 4)
    (pod,) = items("pods", namespace)
    kubectl("delete", "pod", pod["metadata"]["name"], "-n", namespace, "--wait=false")
    (entry,) = eventually(lambda: status(namespace, "evicted").get("restarts"))
    assert (entry["outcome"], entry["counted"]) == ("Preempted", False)
    end = reaches(namespace, "evicted", "Complete")
    assert end["restartCount"] == 0
    assert end["resumedFromStep"] >= 4


def test_deadline_ends_the_job(namespace: str) -> None:
    apply(namespace, stub_job("late", "--steps", "1000", "--step-seconds", "0.5", activeDeadlineSeconds=15))
    end = reaches(namespace, "late", "Failed")
    assert condition(namespace, "late", "Failed")["reason"] == "DeadlineExceeded"
    assert end["attempt"] == 1
    eventually(lambda: not [p for p in items("pods", namespace) if p["status"]["phase"] == "Running"], seconds=150)


def test_time_to_live_removes_the_parts_and_never_the_job(namespace: str) -> None:
    apply(namespace, stub_job("ttl", "--steps", "1", ttlSecondsAfterFinished=3))
    reaches(namespace, "ttl", "Complete")
    eventually(lambda: not items("jobs", namespace) and not items("services", namespace))
    eventually(lambda: [entry["metadata"]["name"] for entry in items("cm", namespace)] == ["kube-root-ca.crt", "stub"])
    assert status(namespace, "ttl")["phase"] == "Complete"
    assert items("pvc", namespace), "the checkpoints stay with the job"


def test_delete_takes_everything_along(namespace: str) -> None:
    apply(namespace, stub_job("gone", "--steps", "100", "--step-seconds", "0.5"))
    at_step(namespace, "gone", 1)
    kubectl("delete", "crj", "gone", "-n", namespace)
    eventually(
        lambda: not (items("jobs", namespace) or items("pods", namespace) or items("pvc", namespace)), seconds=150
    )


def test_memory_near_the_limit_is_told(namespace: str) -> None:
    resources = {"requests": {"cpu": "10m"}, "limits": {"memory": "1Gi"}}
    spec = {"resources": resources, "memory": {"hostPressure": 0.5}}
    apply(namespace, stub_job("tight", "--steps", "60", "--step-seconds", "0.5", "--hold-mib", "550", **spec))
    eventually(lambda: condition(namespace, "tight", "MemoryPressure")["status"] == "True")
    assert condition(namespace, "tight", "MemoryPressure")["reason"] == "HostMemory"
    assert status(namespace, "tight")["memory"]["pressureEvents"] >= 1
    eventually(lambda: "MemoryPressure" in [entry["reason"] for entry in events(namespace, "tight")])


def test_out_of_host_memory_is_recognised(namespace: str) -> None:
    resources = {"requests": {"cpu": "10m"}, "limits": {"memory": "600Mi"}}
    apply(namespace, stub_job("oom", "--hold-mib", "900", resources=resources, restart={"maxRestarts": 0}))
    reaches(namespace, "oom", "Failed")
    failed = condition(namespace, "oom", "Failed")
    assert failed["reason"] == "HostOutOfMemory"
    assert "memory" in failed["message"]


def test_gpus_are_scheduled_and_too_many_wait(namespace: str) -> None:
    gpus = {"gpusPerNode": 2, "device": {"backend": "cpu", "product": "NVIDIA-H200"}}
    apply(namespace, stub_job("gpus", "--steps", "3", **gpus), stub_job("greedy", "--steps", "1", gpusPerNode=16))
    eventually(lambda: "nvidia.com/gpu" in condition(namespace, "greedy", "Running")["message"])
    assert condition(namespace, "greedy", "Running")["reason"] == "Unschedulable"
    reaches(namespace, "gpus", "Complete")
    (pod,) = items("pods", namespace, "rl.colocated.dev/job=gpus")
    assert pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "2"
    assert status(namespace, "greedy")["phase"] == "Starting", "it keeps waiting"


def test_product_that_no_node_has_waits(namespace: str) -> None:
    apply(namespace, stub_job("b200", gpusPerNode=1, device={"backend": "cpu", "product": "NVIDIA-B200"}))
    eventually(lambda: condition(namespace, "b200", "Running")["reason"] == "Unschedulable")


def test_two_nodes_meet_through_the_headless_service(namespace: str) -> None:
    shared = {"storage": {"volumeClaimTemplate": {"storage": "1Gi", "accessModes": ["ReadWriteMany"]}}}
    pair = stub_job("pair", "--steps", "3", "--gloo", nodes=2, checkpoint=shared)
    runtime = pair["spec"]["runtime"]  # with the image's own torch and torchrun
    del runtime["env"], runtime["podTemplate"]["spec"]["volumes"][0]["configMap"]["items"]
    apply(namespace, pair)
    end = reaches(namespace, "pair", "Complete", seconds=180)
    assert end["metrics"]["reward"] == 2.0, "both ranks' rewards, added up by gloo"
    assert len(items("pods", namespace)) == 2


def test_operator_killed_while_jobs_start_and_run(namespace: str) -> None:
    names = [f"k{number}" for number in range(4)]
    apply(namespace, *(stub_job(name, "--steps", "20", "--step-seconds", "0.5") for name in names))
    for _ in range(3):
        time.sleep(2.5)
        kubectl("delete", "pod", "-n", SYSTEM, "-l", OPERATOR_PODS, "--grace-period=0", "--force")
    for name in names:
        end = reaches(namespace, name, "Complete", seconds=240)
        assert (end["attempt"], end["restartCount"]) == (1, 0)
    assert len(items("jobs", namespace)) == len(names)
    eventually(lambda: "Complete" in reasons(namespace, "k0"))
    assert reasons(namespace, "k0").count("Complete") == 1
