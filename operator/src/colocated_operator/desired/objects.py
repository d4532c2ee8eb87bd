"""ConfigMap, Service, claim and Job."""

from typing import Any

from colocated_operator.desired import AttemptPlan, metadata
from colocated_operator.desired.pod import pod_template
from colocated_runtime.contract import names
from colocated_runtime.contract.attempt import Attempt

BACKSTOP_SECONDS = 30
"""The Job's own deadline comes so much later than the operator's, which alone knows when the spec has changed."""


def config_map(plan: AttemptPlan) -> dict[str, Any]:
    """What launcher and worker read: the attempt. Holds no secrets, for the spec only refers to them."""
    memory: dict[str, Any] = {"plan": plan.memory} if plan.memory else {}
    if plan.host_reserve:
        memory["host_reserve"] = plan.host_reserve
    attempt = Attempt(
        name=plan.name,
        namespace=plan.namespace,
        uid=plan.uid,
        generation=plan.generation,
        attempt=plan.attempt,
        hosts=hosts(plan),
        storage_uri=f"pvc://{plan.claim}" if plan.claim else "emptydir://",
        spec=plan.spec,
        **memory,
    )
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(plan, plan.attempt_name, labels=_attempt_label(plan), annotations=_origin(plan)),
        "immutable": True,
        "data": {names.ATTEMPT_KEY: attempt.model_dump_json(by_alias=True, exclude_unset=True, indent=1)},
    }


def hosts(plan: AttemptPlan) -> list[str]:
    """Fully qualified name of each node's pod: the own one answers at once, from the pod's /etc/hosts."""
    domain = f"{plan.key}.{plan.namespace}.svc.{plan.settings.cluster_domain}"
    return [f"{plan.attempt_name}-{index}.{domain}" for index in range(plan.spec.nodes)]


def service(plan: AttemptPlan) -> dict[str, Any]:
    """Headless: gives every pod of every attempt its name, ready or not."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(plan, plan.key),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {names.LABEL_JOB_UID: plan.uid},
            "ports": [{"name": "report", "port": names.REPORT_PORT, "protocol": "TCP"}],
        },
    }


def volume_claim(plan: AttemptPlan) -> dict[str, Any] | None:
    """The claim of a volumeClaimTemplate; all attempts share it, it goes with the ColocatedRLJob."""
    template = plan.spec.checkpoint.storage.volume_claim_template
    if template is None:
        return None
    spec: dict[str, Any] = {
        "accessModes": list(template.access_modes),
        "resources": {"requests": {"storage": template.storage}},
    }
    if template.storage_class_name:
        spec["storageClassName"] = template.storage_class_name
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": metadata(plan, str(plan.claim)),
        "spec": spec,
    }


def job(plan: AttemptPlan) -> dict[str, Any]:
    """One pod a node, all or none: the first failure ends the attempt, and the operator alone makes the next.

    podReplacementPolicy Failed: after Kueue's suspend and resume, new pods wait until the old ones are gone. Raise
    ValueError where runtime.podTemplate is none.
    """
    queue = {key: value for key, value in plan.labels.items() if key.startswith(names.QUEUE_LABEL_PREFIX)}
    spec: dict[str, Any] = {
        "completionMode": "Indexed",
        "completions": plan.spec.nodes,
        "parallelism": plan.spec.nodes,
        "backoffLimit": 0,
        "podReplacementPolicy": "Failed",
        "template": pod_template(plan),
    }
    if plan.seconds_left is not None:
        spec["activeDeadlineSeconds"] = max(0, plan.seconds_left) + BACKSTOP_SECONDS  # where no operator runs
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata(plan, plan.attempt_name, labels=_attempt_label(plan) | queue, annotations=_origin(plan)),
        "spec": spec,
    }


def _origin(plan: AttemptPlan) -> dict[str, str]:
    return {
        names.ANNOTATION_RESTARTS: str(plan.restart_count),
        names.ANNOTATION_GENERATION: str(plan.generation),
    }


def _attempt_label(plan: AttemptPlan) -> dict[str, str]:
    return {names.LABEL_ATTEMPT: str(plan.attempt)}
