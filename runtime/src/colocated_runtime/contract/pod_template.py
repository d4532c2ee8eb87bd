"""The form of runtime.podTemplate, as far as we lay it over a pod; the API server looks at the rest. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any

FIELDS: dict[str, Any] = {}
ITEMS = [FIELDS]
CONTAINER = {
    "env": ITEMS,
    "volumeMounts": ITEMS,
    "ports": ITEMS,
    "resources": {"requests": FIELDS, "limits": FIELDS},
}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
FORM = {
    "metadata": {"labels": FIELDS, "annotations": FIELDS},
    "spec": {
        "containers": [CONTAINER],
        "initContainers": [CONTAINER],
        "volumes": ITEMS,
        "tolerations": ITEMS,
        "imagePullSecrets": ITEMS,
        "hostAliases": ITEMS,
        "topologySpreadConstraints": ITEMS,
        "affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": ITEMS}]}}},
        "terminationGracePeriodSeconds": 600,
        "restartPolicy": "Never",
    },
}
"""Maps of fields, lists of items, numbers, texts that must be so; what is not named may be anything."""


def items(template: Mapping[str, Any], kind: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Field and contents of each of spec.KIND (containers, volumes, ...); what has another form is left out."""
    pod = template.get("spec")
    found = pod.get(kind) if isinstance(pod, Mapping) else None
    for index, item in enumerate(found if isinstance(found, list) else []):
        if isinstance(item, Mapping):
            yield f"runtime.podTemplate.spec.{kind}[{index}]", item


def refusals(template: Any, form: Any = FORM, field: str = "runtime.podTemplate") -> Iterator[str]:
    """What in `template` has another form; null removes a field and is good anywhere."""
    if template is None:
        return
    if isinstance(form, dict):
        if not isinstance(template, Mapping):
            yield f"{field}: {template!r} is no map of fields; write it as a pod template has it"
            return
        for name, inner in form.items():
            yield from refusals(template.get(name), inner, f"{field}.{name}")
    elif isinstance(form, list):
        if not isinstance(template, list):
            yield f"{field}: {template!r} is no list; write its items with a dash each, as a pod template has them"
            return
        for index, item in enumerate(template):
            yield from refusals(item, form[0], f"{field}[{index}]")
    elif isinstance(form, str):
        if template != form:
            yield f"{field}: {template!r}, but attempts are counted by the operator; leave it out"
    elif not isinstance(template, int) or isinstance(template, bool) or template < 0:
        yield f"{field}: {template!r} is no whole number; write e.g. {form}"
