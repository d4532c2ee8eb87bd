"""The objects of an attempt."""

import json
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.contract.bad_jobs import GOOD, changed
from tests.unit.operator.cluster import SETTINGS, UID

from colocated_operator.desired import AttemptPlan, objects
from colocated_operator.desired.merge import merged
from colocated_runtime.contract import names
from colocated_runtime.contract.attempt import Attempt
from colocated_runtime.contract.job import JobSpec


def plan(labels: dict[str, str] | None = None, seconds_left: int | None = None, **changes: Any) -> AttemptPlan:
    spec = changed(GOOD, {name.replace("__", "."): value for name, value in changes.items()})
    return AttemptPlan(
        name="job", namespace="ns", uid=UID, generation=3, labels=labels or {}, spec=JobSpec.model_validate(spec),
        settings=SETTINGS, attempt=2, restart_count=1, seconds_left=seconds_left,
    )  # fmt: skip


def pod_spec(**changes: Any) -> dict[str, Any]:
    return objects.job(plan(**changes))["spec"]["template"]["spec"]


def container(**changes: Any) -> dict[str, Any]:
    return pod_spec(**changes)["containers"][0]


def mount_paths(**changes: Any) -> dict[str, dict[str, Any]]:
    return {mount["mountPath"]: mount for mount in container(**changes)["volumeMounts"]}


def test_job_is_indexed_all_or_none_and_carries_what_a_new_operator_needs() -> None:
    job = objects.job(plan(nodes=2, checkpoint={"storage": {"claim": "shared"}}))
    assert job["metadata"]["name"] == "job-abcde-2"
    assert job["metadata"]["annotations"] == {names.ANNOTATION_RESTARTS: "1", names.ANNOTATION_GENERATION: "3"}
    assert job["metadata"]["ownerReferences"][0]["uid"] == UID
    spec = job["spec"]
    assert (spec["completions"], spec["parallelism"], spec["backoffLimit"]) == (2, 2, 0)
    assert spec["podReplacementPolicy"] == "Failed"
    assert "suspend" not in spec


def test_config_map_tells_a_new_operator_as_much_as_its_job_would() -> None:
    meta = objects.config_map(plan())["metadata"]
    assert meta["labels"][names.LABEL_ATTEMPT] == "2"
    assert meta["annotations"][names.ANNOTATION_RESTARTS] == "1"


def test_queue_labels_go_to_the_job_and_no_others() -> None:
    labels = {"kueue.x-k8s.io/queue-name": "gpus", "team": "a"}
    made = objects.job(plan(labels=labels))["metadata"]["labels"]
    assert made["kueue.x-k8s.io/queue-name"] == "gpus"
    assert "team" not in made


def test_deadline_holds_without_an_operator() -> None:
    assert objects.job(plan(seconds_left=90))["spec"]["activeDeadlineSeconds"] == 90 + objects.BACKSTOP_SECONDS
    assert "activeDeadlineSeconds" not in objects.job(plan())["spec"]


def test_pod_is_restricted() -> None:
    pod, (only,) = pod_spec(), pod_spec()["containers"]
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert only["securityContext"]["readOnlyRootFilesystem"] is True
    assert only["securityContext"]["allowPrivilegeEscalation"] is False
    assert only["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_gpus_are_limits_with_toleration_shared_memory_and_affinity() -> None:
    changes = {"gpusPerNode": 4, "device__product": "NVIDIA-H200"}
    pod = pod_spec(**changes)
    assert pod["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "4"
    assert {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"} in pod["tolerations"]
    (volume,) = [entry for entry in pod["volumes"] if entry["name"] == "shared-memory"]
    assert volume["emptyDir"] == {"medium": "Memory", "sizeLimit": "8Gi"}
    required = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert required["nodeSelectorTerms"][0]["matchExpressions"] == [
        {"key": "nvidia.com/gpu.product", "operator": "In", "values": ["NVIDIA-H200"]}
    ]


def test_amd_labels_its_nodes_under_another_key() -> None:
    pod = pod_spec(gpusPerNode=1, resourceName="amd.com/gpu", device__product="AMD_Instinct_MI300X_OAM")
    required = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    (expression,) = required["nodeSelectorTerms"][0]["matchExpressions"]
    assert expression["key"] == "amd.com/gpu.product-name"
    pod = pod_spec(gpusPerNode=1, resourceName="volcano.sh/vgpu-number", device__product="NVIDIA-H200")
    assert "nvidia.com/gpu.product" in json.dumps(pod["affinity"])


def test_affinity_of_the_template_and_product_must_both_hold() -> None:
    zones = [{"key": "zone", "operator": "In", "values": [name]} for name in ("a", "b")]
    preferred = [{"weight": 1, "preference": {"matchExpressions": [zones[0]]}}]
    affinity = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {"matchExpressions": [zones[0]]},
                    {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]},
                ]
            },
            "preferredDuringSchedulingIgnoredDuringExecution": preferred,
        },
        "podAntiAffinity": {},
    }
    template = {"spec": {"affinity": affinity}}
    made = pod_spec(gpusPerNode=1, device__product="H200", runtime__podTemplate=template)["affinity"]
    product = {"key": "nvidia.com/gpu.product", "operator": "In", "values": ["H200"]}
    first, second = made["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert first == {"matchExpressions": [zones[0], product]}
    assert second["matchExpressions"] == [product]
    assert second["matchFields"][0]["values"] == ["node-1"]
    assert made["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"] == preferred
    assert made["podAntiAffinity"] == {}


def test_job_without_gpus_asks_for_none() -> None:
    assert "nvidia.com/gpu" not in json.dumps(objects.job(plan()))


def test_config_map_is_the_attempt_that_launcher_and_worker_read() -> None:
    made = objects.config_map(plan(nodes=2, checkpoint={"storage": {"claim": "shared"}}))
    attempt = Attempt.model_validate_json(made["data"][names.ATTEMPT_KEY])
    assert made["immutable"] is True
    assert attempt.attempt == 2
    assert attempt.storage_uri == "pvc://shared"
    assert attempt.spec == plan(nodes=2, checkpoint={"storage": {"claim": "shared"}}).spec
    assert attempt.hosts == [f"job-abcde-2-{index}.job-abcde.ns.svc.cluster.local" for index in (0, 1)]


def test_claim_of_a_template_belongs_to_the_job() -> None:
    template = {"storage": {"volumeClaimTemplate": {"storage": "7Gi", "accessModes": ["ReadWriteMany"]}}}
    claim = objects.volume_claim(plan(checkpoint=template))
    assert claim is not None
    assert claim["metadata"]["name"] == "job-abcde-checkpoints"
    assert claim["spec"] == {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "7Gi"}}}
    assert objects.volume_claim(plan(checkpoint={"storage": {"emptyDir": {}}})) is None


def test_sources_and_rewards_are_mounted_read_only() -> None:
    mounts = mount_paths(
        model__source="pvc://models/qwen",
        rewards=[{"function": "mine:score", "configMap": "code"}],
        checkpoint={"storage": {"claim": "models"}},
    )
    assert mounts["/volumes/models"] == {"name": "storage", "mountPath": "/volumes/models", "readOnly": True}
    assert mounts["/etc/colocated/rewards/code"]["readOnly"] is True
    assert "readOnly" not in mounts["/storage"]


def test_pod_template_is_merged_by_name_and_cannot_hide_the_pod() -> None:
    template = {
        "metadata": {"labels": {names.LABEL_JOB_UID: "other", "team": "a"}},
        "spec": {
            "priorityClassName": "high",
            "tolerations": [{"key": "dedicated", "operator": "Exists"}],
            "containers": [
                {"name": "colocated", "env": [{"name": "HOME", "value": "/elsewhere"}, {"name": "A", "value": "b"}]},
                {"name": "sidecar", "image": "x"},
            ],
        },
    }
    made = objects.job(plan(runtime__podTemplate=template))["spec"]["template"]
    assert made["metadata"]["labels"][names.LABEL_JOB_UID] == UID
    assert made["metadata"]["labels"]["team"] == "a"
    assert [entry["name"] for entry in made["spec"]["containers"]] == ["colocated", "sidecar"]
    environment = {entry["name"]: entry["value"] for entry in made["spec"]["containers"][0]["env"]}
    assert environment["HOME"] == "/elsewhere"
    assert environment["A"] == "b"
    assert {"key": "dedicated", "operator": "Exists"} in made["spec"]["tolerations"]
    assert len(made["spec"]["tolerations"]) == 3


def test_pod_template_without_metadata_and_with_its_own_grace() -> None:
    template = {"metadata": None, "spec": {"terminationGracePeriodSeconds": 600}}
    made = objects.job(plan(runtime__podTemplate=template))["spec"]["template"]
    assert made["metadata"]["labels"][names.LABEL_JOB_UID] == UID
    environment = {entry["name"]: entry["value"] for entry in made["spec"]["containers"][0]["env"]}
    assert environment["COLOCATED_GRACE_SECONDS"] == "590"


def test_the_grace_period_is_the_attempts() -> None:
    made = objects.job(replace(plan(), grace_seconds=400))["spec"]["template"]["spec"]
    assert made["terminationGracePeriodSeconds"] == 400
    environment = {entry["name"]: entry["value"] for entry in made["containers"][0]["env"]}
    assert environment["COLOCATED_GRACE_SECONDS"] == "390"


def test_merge_changes_neither_side_and_null_removes() -> None:
    base, over = {"a": {"b": 1, "c": 2}}, {"a": {"c": None, "d": 3}}
    assert merged(base, over) == {"a": {"b": 1, "d": 3}}
    assert base == {"a": {"b": 1, "c": 2}}


@pytest.mark.parametrize(
    "template",
    [
        {"metadata": {"labels": [1]}},
        {"spec": {"terminationGracePeriodSeconds": "soon"}},
        {"spec": {"affinity": "none"}},
        {"spec": [1]},
    ],
)
def test_what_is_no_pod_template_is_said(template: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"^runtime\.podTemplate: it is no pod template \("):
        objects.job(plan(gpusPerNode=1, device__product="H200", runtime__podTemplate=template))
