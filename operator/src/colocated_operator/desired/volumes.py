"""The pod's volumes and where they are mounted."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from colocated_operator.desired import AttemptPlan
from colocated_runtime.contract import names, uris
from colocated_runtime.contract.job import JobSpec
from colocated_runtime.contract.pod_template import items
from colocated_runtime.contract.sources import named_sources

SHARED_MEMORY_PER_RANK_GIB = 2
"""Shared memory of a rank, for NCCL and gloo between the ranks of a pod; used bytes count as the pod's memory."""


@dataclass(frozen=True)
class Mounts:
    """`spec.volumes` of the pod and `volumeMounts` of its container."""

    volumes: list[dict[str, Any]]
    mounts: list[dict[str, Any]]


def mounts(plan: AttemptPlan) -> Mounts:
    """All volumes of the pod. Each claim is one volume, however often the spec names it."""
    spec = plan.spec
    shared_memory = {"medium": "Memory", "sizeLimit": f"{SHARED_MEMORY_PER_RANK_GIB * spec.ranks_per_node}Gi"}
    volumes: list[dict[str, Any]] = [
        {"name": "attempt", "configMap": {"name": plan.attempt_name}},
        {"name": "storage", **_storage(plan)},
        {"name": "state", "emptyDir": {}},
        {"name": "scratch", "emptyDir": {}},
        {"name": "tmp", "emptyDir": {}},
        {"name": "shared-memory", "emptyDir": shared_memory},
    ]
    made: list[dict[str, Any]] = [
        {"name": "attempt", "mountPath": names.ATTEMPT_FILE, "subPath": names.ATTEMPT_KEY, "readOnly": True},
        {"name": "storage", "mountPath": names.STORAGE_DIR},
        {"name": "state", "mountPath": names.STATE_DIR},
        {"name": "scratch", "mountPath": names.SCRATCH_DIR},
        {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108
        {"name": "shared-memory", "mountPath": "/dev/shm"},  # noqa: S108
    ]
    for number, config_map in enumerate(reward_config_maps(spec)):
        volumes.append({"name": f"rewards-{number}", "configMap": {"name": config_map}})
        made.append({"name": f"rewards-{number}", "mountPath": f"{names.REWARDS_DIR}/{config_map}", "readOnly": True})
    for number, claim in enumerate(source_claims(spec)):
        name = "storage" if claim == plan.claim else f"source-{number}"
        if name != "storage":
            volumes.append({"name": name, "persistentVolumeClaim": {"claimName": claim}})
        made.append({"name": name, "mountPath": f"{names.VOLUMES_DIR}/{claim}", "readOnly": True})
    return Mounts(volumes, made)


def reward_config_maps(spec: JobSpec) -> list[str]:
    """ConfigMaps with the code of reward functions."""
    return sorted({reward.config_map for reward in spec.rewards if reward.config_map})


def source_claims(spec: JobSpec) -> dict[str, str]:
    """Claims that pvc:// sources name, in order, each with a field that names it."""
    parsed = [(uris.parse(source.uri), source.field) for source in named_sources(spec)]
    return dict(sorted((source.name, field) for source, field in parsed if source.scheme == "pvc"))


TEMPLATE_KINDS = {"configMap": ("ConfigMap", "name"), "persistentVolumeClaim": ("PersistentVolumeClaim", "claimName")}
"""Of a volume: the kind of object that it needs, and the key with that one's name."""


def template_volumes(spec: JobSpec) -> Iterator[tuple[str, str, str]]:
    """Kind, name and field of what the volumes of runtime.podTemplate need. Not of Secrets: they are not ours to read.

    The pod would wait in ContainerCreating for what is missing, and say so in the kubelet's Events alone.
    """
    for field, volume in items(spec.runtime.pod_template, "volumes"):
        for source, (kind, key) in TEMPLATE_KINDS.items():
            needed = volume.get(source)
            if not isinstance(needed, Mapping) or needed.get("optional"):
                continue
            name = needed.get(key)
            if isinstance(name, str):
                yield kind, name, f"{field}.{source}"


def _storage(plan: AttemptPlan) -> dict[str, Any]:
    if plan.claim:
        return {"persistentVolumeClaim": {"claimName": plan.claim}}
    empty_dir = plan.spec.checkpoint.storage.empty_dir
    limit = empty_dir.size_limit if empty_dir else None
    return {"emptyDir": {"sizeLimit": limit} if limit else {}}
