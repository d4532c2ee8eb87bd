"""Fields of the spec that the words of API server and scheduler point at, and how they can be changed. Pure."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from colocated_runtime.contract.job import JobSpec
from colocated_runtime.contract.refusals import named_objects
from colocated_runtime.contract.sources import named_sources

TEMPLATE = "spec.runtime.podTemplate"
EDITABLE = ("spec.resources", "spec.runtime")
"""Where the spec may be edited once the job was started."""
AMOUNTS = re.compile(r"\b(cpu|memory|ephemeral-storage)\b")
QUOTA = re.compile(r"exceeded quota: .*requested: (?P<asked>.*), used: ")
LIMITED = re.compile(r"must specify .* for: |(maximum|minimum) \S+ usage per |limit to request ratio per ")
"""How admission speaks of what a quota wants to be told, and of a LimitRange."""
LACKING = re.compile(r"Insufficient ([\w./-]*\w)")
"""A resource of which the scheduler finds too little."""
CLAIM = re.compile("PersistentVolumeClaim|persistent volumes to bind|volume node affinity", re.IGNORECASE)
BY_NAME = {
    "serviceAccountName": re.compile(r"service ?account", re.IGNORECASE),
    "priorityClassName": re.compile("PriorityClass"),
    "runtimeClassName": re.compile("RuntimeClass"),
}
"""Fields of the pod that name another object → how it is told that there is none."""


def see(fields: Iterator[str]) -> str:
    """The end of a message: where to look, and when a change takes effect; empty where no field is at fault."""
    named = list(dict.fromkeys(fields))
    edited = [field for field in named if field.startswith(EDITABLE)]
    fixed = [field for field in named if field not in edited]
    parts = [f"{', '.join(edited)}; what is edited holds for the next attempt: suspend and resume"] if edited else []
    if fixed:
        parts.insert(0, f"{', '.join(fixed)}, fixed once the job was started")
    return f"; see {'; and '.join(parts)}" if parts else ""


def of_refusal(words: str, spec: JobSpec) -> Iterator[str]:
    """Those that made the API server refuse a pod."""
    quota = QUOTA.search(words)
    amounts = quota["asked"] if quota else words if LIMITED.search(words) else ""
    if AMOUNTS.search(amounts):
        yield "spec.resources"
    if spec.resource_name in amounts:
        yield "spec.gpusPerNode"
    if "violates PodSecurity" in words:
        yield TEMPLATE
    for name, told in BY_NAME.items():
        if told.search(words) and name in _pod(spec):
            yield f"{TEMPLATE}.spec.{name}"


def of_unschedulable(words: str, spec: JobSpec) -> Iterator[str]:
    """Those that keep a pod from every node, by what the scheduler says of the nodes that it has looked at."""
    if any(AMOUNTS.match(name) for name in LACKING.findall(words)):
        yield "spec.resources"
    if spec.resource_name in LACKING.findall(words):
        yield "spec.gpusPerNode"
    if "node affinity/selector" in words:
        if spec.device.product:
            yield "spec.device.product"
        yield from (f"{TEMPLATE}.spec.{name}" for name in ("nodeSelector", "affinity") if name in _pod(spec))
    if "untolerated taint" in words:
        yield f"{TEMPLATE}.spec.tolerations"
    if CLAIM.search(words):
        if spec.checkpoint.storage.empty_dir is None:
            yield "spec.checkpoint.storage"
        yield from (f"spec.{named.field}" for named in named_sources(spec) if named.uri.startswith("pvc://"))


def of_missing(words: str, spec: JobSpec) -> Iterator[str]:
    """Those that name the Secret or ConfigMap, or its key, that the kubelet misses; all that might, where none does."""
    told = set(re.findall(r"[\w.-]*\w", words))
    found = [
        f"spec.{field}"
        for field, kind, name in named_objects(spec)
        if field.startswith("runtime.") and name in told and kind.lower() in words.lower()
    ]
    yield from found or ["spec.runtime.env", "spec.runtime.envFrom"]


def _pod(spec: JobSpec) -> Mapping[str, Any]:
    """What runtime.podTemplate says of the pod."""
    pod = spec.runtime.pod_template.get("spec")
    return pod if isinstance(pod, Mapping) else {}
