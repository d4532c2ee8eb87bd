"""The pod of a node. Passes the `restricted` Pod Security Standard; GPUs, shared memory and volumes from the spec."""

from collections.abc import Mapping
from typing import Any

from colocated_operator.desired import AttemptPlan
from colocated_operator.desired.merge import merged
from colocated_operator.desired.volumes import Mounts, mounts
from colocated_runtime.contract import names
from colocated_runtime.contract.devices import product_label
from colocated_runtime.contract.grace import LAUNCHER_SECONDS
from colocated_runtime.contract.pod_template import REQUIRED

USER = 10001
LOST_NODE_SECONDS = 30
"""How long pods stay on a node that is not ready; Kubernetes' default is 300."""
READY_SECONDS = 2

RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "runAsNonRoot": True,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}
WRITABLE = {
    "HOME": names.SCRATCH_DIR,
    "XDG_CACHE_HOME": f"{names.SCRATCH_DIR}/cache",
    "HF_HOME": f"{names.SCRATCH_DIR}/huggingface",
    "VLLM_CACHE_ROOT": f"{names.SCRATCH_DIR}/vllm",
    "TORCHINDUCTOR_CACHE_DIR": f"{names.SCRATCH_DIR}/inductor",
    "TRITON_CACHE_DIR": f"{names.SCRATCH_DIR}/triton",
}
"""The root file system is read-only: whatever libraries write goes to the scratch volume."""


def pod_template(plan: AttemptPlan) -> dict[str, Any]:
    """The template of the Job, the user's runtime.podTemplate merged over it.

    Raise ValueError where that has not the form of a pod template.
    """
    try:
        return _pod_template(plan)
    except (TypeError, AttributeError, KeyError, ValueError) as error:
        raise ValueError(f"runtime.podTemplate: it is no pod template ({type(error).__name__}: {error})") from error


def _pod_template(plan: AttemptPlan) -> dict[str, Any]:
    made = mounts(plan)
    labels = {
        names.LABEL_JOB: plan.name,
        names.LABEL_JOB_UID: plan.uid,
        names.LABEL_ATTEMPT: str(plan.attempt),
        "app.kubernetes.io/name": "colocated-rl",
    }
    template: dict[str, Any] = {
        "metadata": {"labels": labels},
        "spec": {
            "restartPolicy": "Never",
            "subdomain": plan.key,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": plan.grace_seconds,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": USER,
                "runAsGroup": USER,
                "fsGroup": USER,
                "fsGroupChangePolicy": "OnRootMismatch",
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "tolerations": _tolerations(plan),
            "containers": [_container(plan, made)],
            "volumes": made.volumes,
        },
    }
    result = merged(template, plan.spec.runtime.pod_template)
    if plan.spec.device.product:
        result["spec"]["affinity"] = _on_product(plan, result["spec"].get("affinity") or {})
    # What the operator finds its pods by is not the user's to change.
    meta = result.get("metadata") or {}
    result["metadata"] = {**meta, "labels": {**(meta.get("labels") or {}), **labels}}
    return result


def _container(plan: AttemptPlan, made: Mounts) -> dict[str, Any]:
    runtime, spec = plan.spec.runtime, plan.spec
    gpus = {spec.resource_name: str(spec.gpus_per_node)} if spec.gpus_per_node else {}
    environment = [
        *({"name": name, "value": value} for name, value in WRITABLE.items()),
        {"name": "COLOCATED_GRACE_SECONDS", "value": str(max(1, _grace_seconds(plan) - LAUNCHER_SECONDS))},
        *(variable.model_dump(by_alias=True, exclude_none=True) for variable in runtime.env),
    ]
    container: dict[str, Any] = {
        "name": names.CONTAINER,
        "image": runtime.image or plan.settings.runtime_image,
        "env": environment,
        "ports": [{"name": "report", "containerPort": names.REPORT_PORT, "protocol": "TCP"}],
        "readinessProbe": {
            "httpGet": {"path": "/healthz", "port": "report"},
            "periodSeconds": READY_SECONDS,
            "timeoutSeconds": 2,
        },
        "resources": {
            "requests": dict(spec.resources.requests) | gpus,
            "limits": dict(spec.resources.limits) | gpus,
        },
        "securityContext": RESTRICTED,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": made.mounts,
    }
    if runtime.env_from:
        container["envFrom"] = [dict(source) for source in runtime.env_from]
    if runtime.image_pull_policy:
        container["imagePullPolicy"] = runtime.image_pull_policy
    return container


def _grace_seconds(plan: AttemptPlan) -> int:
    """The pod's grace period, which the user may have set."""
    user = plan.spec.runtime.pod_template.get("spec") or {}
    return int(user.get("terminationGracePeriodSeconds", plan.grace_seconds))


def _tolerations(plan: AttemptPlan) -> list[dict[str, Any]]:
    lost = [
        {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute",
         "tolerationSeconds": LOST_NODE_SECONDS}
        for key in ("not-ready", "unreachable")
    ]  # fmt: skip
    if not plan.spec.gpus_per_node:
        return lost
    return [*lost, {"key": plan.spec.resource_name, "operator": "Exists", "effect": "NoSchedule"}]


def _on_product(plan: AttemptPlan, affinity: Mapping[str, Any]) -> dict[str, Any]:
    """`affinity`, but only for nodes whose GPU is device.product, by the label of the vendor's feature discovery.

    Of the terms one is enough, so the product goes into each of them.
    """
    expression = {"key": product_label(plan.spec.resource_name), "operator": "In", "values": [plan.spec.device.product]}
    nodes = affinity.get("nodeAffinity") or {}
    required = nodes.get(REQUIRED) or {}
    terms = [
        {**term, "matchExpressions": [*(term.get("matchExpressions") or []), expression]}
        for term in required.get("nodeSelectorTerms") or [{}]
    ]
    return {**affinity, "nodeAffinity": {**nodes, REQUIRED: {**required, "nodeSelectorTerms": terms}}}
