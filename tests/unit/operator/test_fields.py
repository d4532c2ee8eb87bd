"""Which fields of the spec the words of Kubernetes 1.34 point at."""

from typing import Any

import pytest
from tests.unit.operator.cluster import spec

from colocated_operator.policies.fields import of_missing, of_refusal, of_unschedulable, see
from colocated_runtime.contract.job import JobSpec

POD = 'pods "job-abcde-1-0-" is forbidden: '
TEMPLATE = "spec.runtime.podTemplate"
CLAIM = {"storage": {"claim": "checkpoints"}}


def job(pod: dict[str, Any] | None = None, **changes: Any) -> JobSpec:
    return JobSpec.model_validate(spec(runtime={"podTemplate": {"spec": pod} if pod else {}}, **changes))


NAMED = job({"serviceAccountName": "robot", "priorityClassName": "high", "runtimeClassName": "kata"})


@pytest.mark.parametrize(
    ("words", "fields"),
    [
        ("exceeded quota: q, requested: pods=1, used: pods=0, limited: pods=0", []),
        (
            "exceeded quota: q, requested: pods=1,requests.cpu=2, used: pods=0,requests.cpu=3, limited: pods=1",
            ["spec.resources"],
        ),
        (
            "exceeded quota: q, requested: requests.nvidia.com/gpu=8, used: requests.nvidia.com/gpu=0, limited:"
            " requests.nvidia.com/gpu=4",
            ["spec.gpusPerNode"],
        ),
        ("failed quota: q: must specify limits.memory for: colocated; requests.cpu for: x", ["spec.resources"]),
        ("maximum memory usage per Container is 1Gi, but limit is 4Gi", ["spec.resources"]),
        ("[minimum cpu usage per Pod is 1, but request is 10m]", ["spec.resources"]),
        (
            'error looking up service account ns/robot: serviceaccount "robot" not found',
            [f"{TEMPLATE}.spec.serviceAccountName"],
        ),
        ("no PriorityClass with name high was found", [f"{TEMPLATE}.spec.priorityClassName"]),
        ('pod rejected: RuntimeClass "kata" not found', [f"{TEMPLATE}.spec.runtimeClassName"]),
        ('violates PodSecurity "restricted:latest": host namespaces (hostNetwork=true)', [TEMPLATE]),
        ('admission webhook "no.memory" denied the request: not today', []),
    ],
)
def test_refusal_of_a_pod_points_at(words: str, fields: list[str]) -> None:
    assert list(of_refusal(POD + words, NAMED)) == fields


@pytest.mark.parametrize(
    ("words", "fields"),
    [
        ("1 Insufficient cpu, 2 Insufficient memory.", ["spec.resources"]),
        ("1 Insufficient nvidia.com/gpu.", ["spec.gpusPerNode"]),
        ("2 Insufficient memory, 2 Insufficient nvidia.com/gpu.", ["spec.resources", "spec.gpusPerNode"]),
        ("1 Insufficient rdma/hca.", []),
        ("1 node(s) had untolerated taint(s).", [f"{TEMPLATE}.spec.tolerations"]),
        (
            "1 node(s) didn't match Pod's node affinity/selector.",
            ["spec.device.product", f"{TEMPLATE}.spec.nodeSelector"],
        ),
        ("pod has unbound immediate PersistentVolumeClaims.", ["spec.checkpoint.storage"]),
        ("1 node(s) had volume node affinity conflict.", ["spec.checkpoint.storage"]),
        ("1 node(s) didn't find available persistent volumes to bind.", ["spec.checkpoint.storage"]),
    ],
)
def test_scheduler_points_at(words: str, fields: list[str]) -> None:
    wanted = job({"nodeSelector": {"a": "b"}}, gpusPerNode=1, device={"product": "NVIDIA-H200"}, checkpoint=CLAIM)
    assert list(of_unschedulable(f"0/2 nodes are available: {words}", wanted)) == fields


def test_claim_that_is_not_bound_may_be_a_sources() -> None:
    wanted = job(model={"source": "pvc://models/qwen"})
    assert list(of_unschedulable("pod has unbound immediate PersistentVolumeClaims.", wanted)) == ["spec.model.source"]


VARIABLES = {
    "env": [
        {"name": "A", "valueFrom": {"secretKeyRef": {"name": "hub", "key": "token"}}},
        {"name": "B", "valueFrom": {"configMapKeyRef": {"name": "hub", "key": "url"}}},
    ],
    "envFrom": [{"secretRef": {"name": "more"}}],
}


@pytest.mark.parametrize(
    ("words", "fields"),
    [
        ('secret "hub" not found', ["spec.runtime.env[0].valueFrom.secretKeyRef.name"]),
        ("couldn't find key url in ConfigMap ns/hub", ["spec.runtime.env[1].valueFrom.configMapKeyRef.name"]),
        ('secret "more" not found', ["spec.runtime.envFrom[0].secretRef.name"]),
        ("container has runAsNonRoot and image will run as root", ["spec.runtime.env", "spec.runtime.envFrom"]),
    ],
)
def test_what_the_kubelet_misses_is_named_by(words: str, fields: list[str]) -> None:
    assert list(of_missing(words, JobSpec.model_validate(spec(runtime=VARIABLES)))) == fields


def test_namespace_without_its_default_account_is_nothing_of_the_spec() -> None:
    assert not list(of_refusal(f'{POD}error looking up service account ns/default: serviceaccount "default"', job()))


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ([], ""),
        ([TEMPLATE, TEMPLATE], f"; see {TEMPLATE}; what is edited holds for the next attempt: suspend and resume"),
        (["spec.gpusPerNode"], "; see spec.gpusPerNode, fixed once the job was started"),
        (
            [TEMPLATE, "spec.gpusPerNode"],
            f"; see spec.gpusPerNode, fixed once the job was started; and {TEMPLATE}; what is edited holds for the next"
            " attempt: suspend and resume",
        ),
    ],
)
def test_where_to_look_and_when_a_change_takes_effect(fields: list[str], text: str) -> None:
    assert see(iter(fields)) == text
