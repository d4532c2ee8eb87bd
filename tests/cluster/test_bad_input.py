"""Mistakes and faults: each ends in one clear message, nothing is lost, and no traceback is in the operator's log."""

import subprocess
import time

import pytest
from tests.cluster.kube import (
    RELEASE,
    ROOT,
    SYSTEM,
    apply,
    at_step,
    condition,
    events,
    eventually,
    job,
    kubectl,
    patch,
    reaches,
    status,
    stub_code,
    stub_job,
)
from tests.unit.contract.bad_jobs import GOOD

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("operator")]

MODEL = {"source": "file:///models/SmolLM2-135M-Instruct", "dtype": "float32"}
DATASET = {"source": "reasoning-gym://chain_sum?size=16&seed=1"}
TRAINER = {"max_steps": 1, "num_generations": 2, "per_device_train_batch_size": 2, "max_completion_length": 8}


def training(**changes: object) -> dict[str, object]:
    """A small real training."""
    spec = {"model": MODEL, "dataset": DATASET, "rewards": [{"name": "reasoning_gym"}], "trainer": TRAINER}
    return spec | {"checkpoint": {"storage": {"emptyDir": {}}}, "restart": {"maxRestarts": 0}} | changes


def config_map(name: str, data: dict[str, str]) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def claim(name: str) -> dict[str, object]:
    """For one node."""
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": spec}


def failure(namespace: str, name: str, seconds: float = 180) -> str:
    """Reason and message once the job has failed."""
    reaches(namespace, name, "Failed", seconds)
    failed = condition(namespace, name, "Failed")
    return f"{failed['reason']}: {failed['message']}"


@pytest.mark.parametrize(
    ("trainer", "words"),
    [
        ({"learning_rat": 1e-6}, ("trainer.learning_rat", "learning_rate")),
        ({"per_device_train_batch_size": 6, "num_generations": 4}, ("num_generations",)),
        (
            {"max_completion_length": 600, "vllm_max_model_length": 512},
            ("vllm_max_model_length", "max_completion_length"),
        ),
    ],
    ids=["unknown option", "batch not divisible", "completion over the engine's length"],
)
def test_trainer_mistake_is_refused_before_any_pod(namespace: str, trainer: dict, words: tuple[str, ...]) -> None:
    """At apply where CEL can tell, else by the operator."""
    bad = job("bad", GOOD | {"trainer": trainer})
    said = kubectl("create", "-n", namespace, "-f", "-", stdin=bad, check=False)
    if "created" in said:
        said = failure(namespace, "bad", seconds=15)
        assert condition(namespace, "bad", "Stalled")["status"] == "True"
        assert kubectl("get", "pods", "-n", namespace, "-o", "name") == ""
    for word in words:
        assert word in said


def test_prompt_that_leaves_no_room_for_a_completion(namespace: str) -> None:
    """How long the prompts are only the pod knows."""
    apply(namespace, job("long", training(trainer=TRAINER | {"vllm_max_model_length": 24})))
    said = failure(namespace, "long")
    assert said.startswith("UserError")
    for word in ("vllm_max_model_length", "24", "max_completion_length"):
        assert word in said


def test_reward_module_that_does_not_import(namespace: str) -> None:
    code = config_map("code", {"mine.py": "import nothing_here\n"})
    spec = training(rewards=[{"function": "mine:score", "configMap": "code"}])
    apply(namespace, code, job("reward", spec))
    said = failure(namespace, "reward")
    assert said.startswith("UserError")
    assert "mine" in said
    assert "nothing_here" in said


def test_dataset_without_the_named_column(namespace: str) -> None:
    spec = training(dataset=DATASET | {"promptColumn": "problem"})
    apply(namespace, job("column", spec))
    said = failure(namespace, "column")
    assert said.startswith("UserError")
    assert "problem" in said
    assert "question" in said, "it names the columns that there are"


def test_missing_config_map_is_waited_for(namespace: str) -> None:
    kubectl("delete", "configmap", "stub", "-n", namespace)
    spec = GOOD | {"rewards": [{"function": "mine:score", "configMap": "code"}]}
    apply(namespace, job("cm", spec))
    eventually(lambda: condition(namespace, "cm", "Reconciling")["reason"] == "ConfigMapMissing")
    said = condition(namespace, "cm", "Reconciling")["message"]
    assert said.startswith("spec.rewards[0].configMap: there is no ConfigMap 'code'")
    assert status(namespace, "cm")["phase"] == "Pending"


def test_wait_is_one_event_also_after_a_restart_of_the_operator(namespace: str) -> None:
    apply(namespace, job("once", GOOD | {"rewards": [{"function": "mine:score", "configMap": "code"}]}))
    apply(namespace, stub_job("big", resources={"requests": {"cpu": "1000"}}))
    waits = {"once": "ConfigMapMissing", "big": "Unschedulable"}

    def told() -> dict[str, int]:
        return {
            name: sum(event["reason"] == reason for event in events(namespace, name)) for name, reason in waits.items()
        }

    once = dict.fromkeys(waits, 1)
    eventually(lambda: told() == once)
    kubectl("rollout", "restart", "-n", SYSTEM, f"deploy/{RELEASE}")
    kubectl("rollout", "status", "-n", SYSTEM, f"deploy/{RELEASE}", "--timeout=60s")
    time.sleep(10)
    assert told() == once


def test_missing_claim_is_waited_for_and_then_used(namespace: str) -> None:
    apply(namespace, stub_job("pvc", "--steps", "1", checkpoint={"storage": {"claim": "later"}}))
    eventually(lambda: condition(namespace, "pvc", "Reconciling")["reason"] == "PersistentVolumeClaimMissing")
    assert "checkpoint.storage.claim" in condition(namespace, "pvc", "Reconciling")["message"]
    apply(namespace, claim("later"))
    assert reaches(namespace, "pvc", "Complete")["output"]["model"].startswith("pvc://later/")


def test_claim_that_cannot_serve_two_nodes_is_refused(namespace: str) -> None:
    apply(namespace, claim("one"))
    apply(namespace, stub_job("two", nodes=2, checkpoint={"storage": {"claim": "one"}}))
    said = failure(namespace, "two", seconds=20)
    assert "ReadWriteOnce" in said
    assert "ReadWriteMany" in said


def test_missing_secret_is_named(namespace: str) -> None:
    token = {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hub", "key": "token"}}}
    apply(namespace, stub_job("secret", "--steps", "1", runtime={"env": [token]}))
    eventually(lambda: condition(namespace, "secret", "Running")["reason"] == "ConfigError")
    said = condition(namespace, "secret", "Running")["message"]
    assert 'secret "hub" not found' in said
    assert "spec.runtime.env[0].valueFrom.secretKeyRef.name" in said
    kubectl("create", "secret", "generic", "hub", "--from-literal=token=x", "-n", namespace)
    reaches(namespace, "secret", "Complete")


def test_image_that_cannot_be_pulled_is_named(namespace: str) -> None:
    apply(namespace, stub_job("image", runtime={"image": "localhost/nowhere:1"}))
    eventually(lambda: condition(namespace, "image", "Running")["reason"] == "ImageError")
    assert "localhost/nowhere:1" in condition(namespace, "image", "Running")["message"]


TEMPLATE = "spec.runtime.podTemplate"


@pytest.mark.parametrize(
    ("pod", "words", "field"),
    [
        ({"serviceAccountName": "robot"}, 'serviceaccount "robot" not found', f"{TEMPLATE}.spec.serviceAccountName;"),
        ({"priorityClassName": "none"}, "PriorityClass", f"{TEMPLATE}.spec.priorityClassName;"),
        ({"runtimeClassName": "none"}, "RuntimeClass", f"{TEMPLATE}.spec.runtimeClassName;"),
        ({"hostNetwork": True}, "violates PodSecurity", f"{TEMPLATE};"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_pod_that_the_api_server_refuses_is_told_with_its_words(
    namespace: str, pod: dict[str, object], words: str, field: str
) -> None:
    refused = stub_job("refused", "--steps", "1")
    refused["spec"]["runtime"]["podTemplate"]["spec"] |= pod
    apply(namespace, refused)
    eventually(lambda: condition(namespace, "refused", "Running")["reason"] == "PodsRefused")
    said = condition(namespace, "refused", "Running")["message"]
    for part in (words, f"see {field} what is edited holds for the next attempt: suspend and resume"):
        assert part in said
    eventually(lambda: [e["reason"] for e in events(namespace, "refused")].count("PodsRefused") == 1)


def test_service_account_that_is_made_later_lets_the_job_run(namespace: str) -> None:
    late = stub_job("late", "--steps", "1")
    late["spec"]["runtime"]["podTemplate"]["spec"]["serviceAccountName"] = "robot"
    apply(namespace, late)
    eventually(lambda: condition(namespace, "late", "Running")["reason"] == "PodsRefused")
    kubectl("create", "serviceaccount", "robot", "-n", namespace)
    reaches(namespace, "late", "Complete")


def test_typo_in_the_pod_template_is_refused_in_words(namespace: str) -> None:
    bad = stub_job("typo")
    bad["spec"]["runtime"]["podTemplate"]["spec"]["contaners"] = []
    apply(namespace, bad)
    said = failure(namespace, "typo", seconds=20)
    assert said.startswith("JobRefused")
    assert "contaners" in said


def test_pod_template_that_is_none_is_refused_in_words(namespace: str) -> None:
    bad = stub_job("none")
    bad["spec"]["runtime"]["podTemplate"] = {"spec": {"containers": [{"name": ["colocated"]}]}}
    apply(namespace, bad)
    assert "podTemplate" in failure(namespace, "none", seconds=20)


def test_pod_of_a_stranger_with_our_labels_harms_nobody(namespace: str) -> None:
    labels = {"rl.colocated.dev/job-uid": "x", "rl.colocated.dev/attempt": "x"}
    annotations = {"batch.kubernetes.io/job-completion-index": "\u00b2"}
    meta = {"name": "stranger", "labels": labels, "annotations": annotations}
    secure = {"runAsNonRoot": True, "runAsUser": 10001, "allowPrivilegeEscalation": False}
    secure |= {"capabilities": {"drop": ["ALL"]}, "seccompProfile": {"type": "RuntimeDefault"}}
    container = {"name": "x", "image": "localhost/pause:1", "securityContext": secure}
    apply(namespace, {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": [container]}})
    apply(namespace, stub_job("beside", "--steps", "1"))
    reaches(namespace, "beside", "Complete")


def test_spec_edited_while_running_is_refused_where_it_could_not_take_effect(namespace: str) -> None:
    apply(namespace, stub_job("edited", "--steps", "30", "--step-seconds", "0.5"))
    at_step(namespace, "edited", 1)
    with pytest.raises(AssertionError, match="nodes"):
        patch(namespace, "edited", {"spec": {"nodes": 2}})
    patch(namespace, "edited", {"spec": {"ttlSecondsAfterFinished": 3600}})
    reaches(namespace, "edited", "Complete")


def test_status_edited_by_a_user_is_put_right(namespace: str) -> None:
    apply(namespace, stub_job("forged", "--steps", "40", "--step-seconds", "0.5"))
    at_step(namespace, "forged", 2)
    patch(namespace, "forged", {"status": None}, "--subresource=status")
    eventually(lambda: status(namespace, "forged").get("phase") == "Running")
    patch(namespace, "forged", {"status": {"phase": "Complete", "attempt": 0}}, "--subresource=status")
    eventually(lambda: status(namespace, "forged")["phase"] == "Running")
    assert status(namespace, "forged")["attempt"] == 1
    assert reaches(namespace, "forged", "Complete")["attempt"] == 1


def test_api_server_restarted_while_a_job_runs(namespace: str) -> None:
    apply(namespace, stub_job("outage", "--steps", "40", "--step-seconds", "0.5"))
    at_step(namespace, "outage", 2)
    subprocess.run([str(ROOT / "localcluster/restart-apiserver"), "5"], check=True, timeout=120)
    end = reaches(namespace, "outage", "Complete", seconds=240)
    assert (end["attempt"], end["restartCount"]) == (1, 0)


def test_garbage_from_a_pod_harms_nobody(namespace: str) -> None:
    """A command that is not our launcher, and dies with nonsense as its last words."""
    bad = stub_job("garbage", restart={"maxRestarts": 0})
    script = "head -c 3000 /dev/urandom > /dev/termination-log; exit 3"
    bad["spec"]["runtime"]["podTemplate"]["spec"]["containers"][0]["command"] = ["sh", "-c", script]
    apply(namespace, bad, stub_code())
    said = failure(namespace, "garbage")
    assert said.startswith("Crash")
    assert "exit code 3" in said
