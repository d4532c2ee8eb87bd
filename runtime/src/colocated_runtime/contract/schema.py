"""The CustomResourceDefinition, made from the pydantic models: one place for types, defaults, bounds and texts."""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from colocated_runtime.contract import names, rules
from colocated_runtime.contract.job import JobSpec
from colocated_runtime.contract.options import OWNED, Option, options
from colocated_runtime.contract.rules import Rule
from colocated_runtime.contract.status import JobStatus

Schema = dict[str, Any]

TEXT_MAX = 4096
ITEMS_MAX = 256
CHOICES_MAX = 12
"""An option's choices stand in its text up to this many."""

COLUMNS = (
    ("Phase", "string", ".status.phase", "What the job does, or how it ended."),
    ("Step", "integer", ".status.progress.step", "Optimizer steps done."),
    ("Progress", "integer", ".status.progress.percent", "Per cent of all steps."),
    ("Reward", "number", ".status.metrics.reward", "Mean reward of the last step."),
    ("GPU memory", "string", ".status.memory.peakDevice", "The largest use of one device."),
    ("Restarts", "integer", ".status.restartCount", "Counted restarts."),
    ("Age", "date", ".metadata.creationTimestamp", ""),
)


def custom_resource_definition() -> Schema:
    """The whole object, as it is applied."""
    version = {
        "name": names.VERSION,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "additionalPrinterColumns": [_column(*column) for column in COLUMNS],
        "schema": {"openAPIV3Schema": _root()},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{names.PLURAL}.{names.GROUP}"},
        "spec": {
            "group": names.GROUP,
            "names": {
                "kind": names.KIND,
                "listKind": f"{names.KIND}List",
                "plural": names.PLURAL,
                "singular": names.SINGULAR,
                "shortNames": [names.SHORT_NAME],
            },
            "scope": "Namespaced",
            "versions": [version],
        },
    }


def _column(name: str, kind: str, path: str, description: str) -> Schema:
    column = {"name": name, "type": kind, "jsonPath": path}
    return column | {"description": description} if description else column


def _root() -> Schema:
    spec, status = structural(JobSpec), _without_defaults(structural(JobStatus))
    spec["properties"]["trainer"] |= _trainer()
    status["properties"]["conditions"] |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}
    return {
        "type": "object",
        "description": "A colocated RL job: TRL trains and vLLM generates in the same processes on the same GPUs.",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": spec,
            "status": status,
        },
        "x-kubernetes-validations": _validations(rules.ROOT),
    }


def _validations(entries: tuple[Rule, ...]) -> list[dict[str, str]]:
    return [entry.as_dict() for entry in entries]


# From pydantic's JSON schema to Kubernetes' structural one


def structural(model: type[BaseModel]) -> Schema:
    """The structural schema of `model`, with the rules of every model inside it."""
    schema = model.model_json_schema(by_alias=True)
    definitions = schema.pop("$defs", {})
    return _node(schema, definitions, model.__name__)


def _node(node: Mapping[str, Any], definitions: Mapping[str, Any], model: str = "") -> Schema:
    """One node. `model` is the pydantic model of which it is the schema, for its rules."""
    if "$ref" in node:
        name = node["$ref"].rpartition("/")[2]
        return _node(definitions[name] | {k: v for k, v in node.items() if k != "$ref"}, definitions, name)
    if "anyOf" in node:
        return _optional(node, definitions)
    made: Schema = {}
    for key, value in node.items():
        match key:
            case "title" | "discriminator" | "propertyNames" | "additionalProperties" | "properties" | "items":
                continue
            case "description":
                made[key] = " ".join(value.split())
            case "const":
                made["enum"] = [value]
            case "exclusiveMinimum" | "exclusiveMaximum":
                made[key.replace("exclusiveM", "m")] = value
                made[key] = True
            case "default":
                # The defaults inside an object stand at its own fields.
                made[key] = {} if isinstance(value, dict) else value
            case _:
                made[key] = value
    made |= _children(node, definitions)
    if model in rules.BY_MODEL:
        made["x-kubernetes-validations"] = _validations(rules.BY_MODEL[model])
    return made


def _optional(node: Mapping[str, Any], definitions: Mapping[str, Any]) -> Schema:
    """`X | None` is X that may be left out: the API server drops null where it is not declared."""
    inner = [member for member in node["anyOf"] if member.get("type") != "null"]
    if len(inner) != 1:
        raise ValueError(f"no structural schema for a union: {node}")
    own = {key: value for key, value in node.items() if key != "anyOf" and not (key == "default" and value is None)}
    return _node(inner[0] | own, definitions)


def _children(node: Mapping[str, Any], definitions: Mapping[str, Any]) -> Schema:
    made: Schema = {}
    if "properties" in node:
        made["properties"] = {name: _node(child, definitions) for name, child in node["properties"].items()}
    elif isinstance(node.get("additionalProperties"), dict):
        made["additionalProperties"] = _node(node["additionalProperties"], definitions)
    elif node.get("additionalProperties"):
        made["x-kubernetes-preserve-unknown-fields"] = True
    if "items" in node:
        made["items"] = _node(node["items"], definitions)
    return made


def _without_defaults(node: Schema) -> Schema:
    """For status: what the operator wrote stays as it is, so that it can tell whether something changed."""
    made = {key: value for key, value in node.items() if key != "default"}
    if "properties" in made:
        made["properties"] = {name: _without_defaults(child) for name, child in made["properties"].items()}
    if "items" in made:
        made["items"] = _without_defaults(made["items"])
    return made


# TRL's options


def _trainer() -> Schema:
    """All options of all algorithms, typed; others pass, for another image may carry another TRL."""
    every = {**options("rloo"), **options("grpo")}
    return {
        "properties": {name: _option(option) for name, option in sorted(every.items())},
        "x-kubernetes-preserve-unknown-fields": True,
        "x-kubernetes-validations": _validations(rules.TRAINER),
    }


def _option(option: Option) -> Schema:
    instead = OWNED.get(option.name)
    description = f"Not here: {instead}." if instead else _text(option)
    schema = _type(option) | ({"description": description} if description else {})
    # Null says something else than leaving it out only where TRL's default is a value.
    if "None" in option.types and option.default is not None and option.name not in rules.READ_BY_RULES:
        schema["nullable"] = True
    return schema


def _text(option: Option) -> str:
    few = option.choices if len(option.choices) <= CHOICES_MAX else ()
    return f"{option.summary} One of {', '.join(few)}." if few else option.summary


def _type(option: Option) -> Schema:
    match sorted(set(option.types) - {"None"}):
        case ["int"]:
            return {"type": "integer"}
        case ["float"]:
            return {"type": "number"}
        case ["bool"]:
            return {"type": "boolean"}
        case ["str"]:
            return {"type": "string", "maxLength": TEXT_MAX}
        case ["int", "str"]:
            return {"x-kubernetes-int-or-string": True, "maxLength": TEXT_MAX}
        case ["list"]:
            kind = {"type": "number"} if "float" in option.annotation else {"type": "string", "maxLength": TEXT_MAX}
            return {"type": "array", "maxItems": ITEMS_MAX, "items": kind}
        case ["tuple"]:
            return {"type": "array", "minItems": 2, "maxItems": 2, "items": {"type": "number"}}
        case ["dict"]:
            return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        case ["list", "str"] if option.name in OWNED:  # rules see only fields that have a type
            return {"type": "string", "maxLength": TEXT_MAX}
        case _ if option.name in OWNED:
            return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        case _:
            return {"x-kubernetes-preserve-unknown-fields": True}
