"""runtime.podTemplate over the pod that the operator builds."""

from collections.abc import Mapping
from typing import Any

MERGE_KEYS = {
    "containers": "name",
    "initContainers": "name",
    "volumes": "name",
    "imagePullSecrets": "name",
    "env": "name",
    "volumeMounts": "mountPath",
    "ports": "containerPort",
    "hostAliases": "ip",
    "topologySpreadConstraints": "topologyKey",
}
"""Lists that are merged item by item, as in Kubernetes' strategic merge; tolerations are added, others replaced."""


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`over` laid over `base`: maps by key, null removes, lists by MERGE_KEYS. Neither is changed."""
    result = dict(base)
    for name, value in over.items():
        old = result.get(name)
        if value is None:
            result.pop(name, None)
        elif isinstance(value, Mapping):
            result[name] = merged(old if isinstance(old, Mapping) else {}, value)
        elif isinstance(value, list) and isinstance(old, list) and name in MERGE_KEYS:
            result[name] = _by_key(old, value, MERGE_KEYS[name])
        elif isinstance(value, list) and isinstance(old, list) and name == "tolerations":
            result[name] = [*old, *value]
        else:
            result[name] = value
    return result


def _by_key(base: list[Any], over: list[Any], key: str) -> list[Any]:
    """Items of `base` in their place, each with its namesake of `over` merged in; new items after them."""
    items = {_name(item, key, f"base {n}"): item for n, item in enumerate(base)}
    for number, item in enumerate(over):
        name = _name(item, key, f"over {number}")
        old = items.get(name)
        items[name] = merged(old, item) if isinstance(old, Mapping) and isinstance(item, Mapping) else item
    return list(items.values())


def _name(item: Any, key: str, otherwise: str) -> Any:
    return item[key] if isinstance(item, Mapping) and key in item else otherwise
