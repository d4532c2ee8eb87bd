"""Specs that nobody would write, from the CRD's own schema: valid, nearly valid, and none at all."""

import copy
import functools
import math
from typing import Any

import hypothesis.strategies as st
from hypothesis import HealthCheck, Phase, given, seed, settings

from colocated_runtime.contract.schema import custom_resource_definition

Schema = dict[str, Any]
Spec = dict[str, Any]

STUB: Spec = {"runtime": {"command": ["stub"]}, "checkpoint": {"storage": {"emptyDir": {}}}}
GRPO: Spec = {
    "model": {"source": "file:///models/x"},
    "dataset": {"source": "reasoning-gym://chain_sum?size=16&seed=1"},
    "rewards": [{"name": "reasoning_gym"}],
    "trainer": {"num_generations": 2, "per_device_train_batch_size": 2},
}
HOSTILE = ["", " ", "-", "../../etc/passwd", "$(HOME)", "{{ x }}", "a" * 300, "\u202e", "\n", "null", "0x10", "1e999"]
NOWHERE = {"nowhere": "true"}
"""A node selector that no node has: nothing that is generated here may run."""

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.floats(-1e9, 1e9) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
pod_templates = st.fixed_dictionaries(
    {},
    optional={
        "metadata": st.dictionaries(st.sampled_from(["labels", "annotations", "name"]), json_values, max_size=2),
        "spec": json_values
        | st.dictionaries(
            st.sampled_from([
                "containers", "volumes", "tolerations", "initContainers", "securityContext", "affinity",
                "terminationGracePeriodSeconds", "restartPolicy", "imagePullSecrets", "contaners", "subdomain",
            ]),
            json_values | st.lists(st.dictionaries(st.sampled_from(["name", "image", "key"]), json_values), max_size=2),
            max_size=3,
        ),
        "junk": json_values,
    },
)  # fmt: skip


@functools.cache
def spec_schema() -> Schema:
    (version,) = custom_resource_definition()["spec"]["versions"]
    return version["schema"]["openAPIV3Schema"]["properties"]["spec"]


def values(schema: Schema, name: str = "") -> st.SearchStrategy[Any]:
    """Values that the schema admits; one in fifty of any kind."""
    return st.integers(0, 49).flatmap(lambda luck: json_values if luck == 49 else _admitted(schema, name))


def _admitted(schema: Schema, name: str) -> st.SearchStrategy[Any]:
    if name == "podTemplate":
        return pod_templates
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if schema.get("x-kubernetes-int-or-string"):
        return st.integers(0, 100) | st.sampled_from(["1Gi", "500m", "0", *HOSTILE])
    kind = schema.get("type")
    if kind == "object" and "properties" in schema:
        required = set(schema.get("required", []))
        parts = {key: values(part, key) for key, part in schema["properties"].items()}
        return st.fixed_dictionaries(
            {key: part for key, part in parts.items() if key in required},
            optional={key: part for key, part in parts.items() if key not in required},
        )
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return st.dictionaries(st.text(max_size=8), values(schema["additionalProperties"]), max_size=3)
    if kind == "object":
        return st.dictionaries(st.text(max_size=8), json_values, max_size=3)
    if kind == "array":
        return st.lists(values(schema["items"]), max_size=min(3, schema.get("maxItems", 3)))
    if kind == "boolean":
        return st.booleans()
    if kind == "integer":
        low, high = math.ceil(schema.get("minimum", -(2**31))), math.floor(schema.get("maximum", 2**31))
        return st.integers(low, high) | st.sampled_from([low, high])
    if kind == "number":
        return st.floats(schema.get("minimum", -1e6), schema.get("maximum", 1e6), allow_nan=False)
    if "pattern" in schema:
        return st.from_regex(schema["pattern"].replace(r"\z", r"\Z"), fullmatch=True) | st.sampled_from(HOSTILE)
    return st.text(max_size=min(20, schema.get("maxLength", 20))) | st.sampled_from(HOSTILE)


@functools.cache
def whole() -> st.SearchStrategy[Any]:
    """Of the whole schema."""
    return values(spec_schema())


@st.composite
def specs(draw: st.DrawFn) -> Any:
    """A good spec with a few fields set at will, or one that is generated as a whole."""
    schema = spec_schema()
    if draw(st.integers(0, 3)) == 3:
        return draw(whole())
    spec = copy.deepcopy(draw(st.sampled_from([STUB, GRPO])))
    for _ in range(draw(st.integers(1, 3))):
        node, part = spec, schema
        while True:
            key = draw(st.sampled_from(sorted(part["properties"])))
            inner = part["properties"][key]
            if "properties" not in inner or draw(st.booleans()):
                node[key] = draw(values(inner, key))
                break
            if not isinstance(node.get(key), dict):
                node[key] = {}
            node, part = node[key], inner
    return spec


def harmless(spec: Any) -> Any:
    """`spec`, which nothing can run and which takes three pods at most."""
    if not isinstance(spec, dict):
        return spec
    spec = copy.deepcopy(spec)
    if isinstance(spec.get("nodes"), int):
        spec["nodes"] = min(spec["nodes"], 3)
    runtime = spec.setdefault("runtime", {})
    if isinstance(runtime, dict):
        template = runtime.setdefault("podTemplate", {})
        if isinstance(template, dict):
            pod = template.setdefault("spec", {})
            if isinstance(pod, dict):
                pod["nodeSelector"] = NOWHERE
    return spec


def generated(count: int, number: int) -> list[Any]:
    """`count` different specs, always the same ones for a seed `number`."""
    found: list[Any] = []

    @seed(number)
    @settings(
        max_examples=2 * count, phases=[Phase.generate], database=None, deadline=None,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(specs())
    def collect(spec: Any) -> None:
        spec = harmless(spec)
        if spec not in found:
            found.append(spec)

    collect()
    return found[:count]
