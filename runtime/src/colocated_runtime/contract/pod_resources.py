"""CPU and memory of a pod: spec.resources, and what runtime.podTemplate lays over them. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any

from colocated_runtime.contract.job import JobSpec, Resources
from colocated_runtime.contract.names import CONTAINER
from colocated_runtime.contract.pod_template import items
from colocated_runtime.contract.values import quantity_bytes, quantity_value

MOST_BYTES = 1 << 50
"""No device and no node has more memory."""


def memory_limit(spec: JobSpec) -> int | None:
    """Bytes that the job's container may take; None without a limit."""
    limits = spec.resources.limits
    for _, container in _containers(spec, "containers"):
        if container.get("name") == CONTAINER:
            limits = _over(limits, container["resources"].get("limits"))
    try:
        size = quantity_bytes(limits["memory"])
    except (KeyError, ValueError):  # the API server says it, when the pod is tried
        return None
    return size if 0 < size < MOST_BYTES else None


def refusals(spec: JobSpec) -> Iterator[str]:
    """Requests above their limits, or a second number of GPUs: the API server would take no pod."""
    own = spec.resources
    for part, amounts in (("requests", own.requests), ("limits", own.limits)):
        if spec.resource_name in amounts:
            yield f"resources.{part}: {spec.resource_name} is set by gpusPerNode; leave it out of resources"
    yield from _above("resources", own.requests, own.limits)
    for kind in ("containers", "initContainers"):
        for field, container in _containers(spec, kind):
            said = container["resources"]
            ours = kind == "containers" and container.get("name") == CONTAINER
            base = own if ours else Resources()
            for part in ("requests", "limits"):
                if ours and spec.resource_name in _over({}, said.get(part)):
                    yield f"{field}.{part}: {spec.resource_name} is set by gpusPerNode; leave it out of the template"
            yield from _above(field, _over(base.requests, said.get("requests")), _over(base.limits, said.get("limits")))


def _containers(spec: JobSpec, kind: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Those of the template that have resources, with the field's path."""
    for field, container in items(spec.runtime.pod_template, kind):
        if isinstance(container.get("resources"), Mapping):
            yield f"{field}.resources", container


def _over(base: Mapping[str, str], said: Any) -> dict[str, str]:
    """`said` laid over `base`, as the template is over the pod: null removes."""
    more = said if isinstance(said, Mapping) else {}
    return {name: str(amount) for name, amount in {**base, **more}.items() if amount is not None}


def _above(field: str, requests: Mapping[str, str], limits: Mapping[str, str]) -> Iterator[str]:
    for name, amount in requests.items():
        try:
            more = name in limits and quantity_value(amount) > quantity_value(limits[name])
        except ValueError:
            continue  # the API server says it, when the pod is tried
        if more:
            yield (
                f"{field}.requests.{name}: {amount} is more than its limit {limits[name]}; lower it, or raise"
                f" {field}.limits.{name}"
            )
