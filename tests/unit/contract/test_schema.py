"""The generated files are what the code generates, and the schema is complete enough to be read and to be bounded."""

from collections.abc import Iterator
from typing import Any

import yaml
from tools import crd

from colocated_runtime.contract.job import JobSpec
from colocated_runtime.contract.rules import IMMUTABLE
from colocated_runtime.contract.schema import custom_resource_definition


def root() -> dict[str, Any]:
    (version,) = custom_resource_definition()["spec"]["versions"]
    schema: dict[str, Any] = version["schema"]["openAPIV3Schema"]
    return schema


def nodes(node: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every schema node below `node`, with its path."""
    yield path, node
    for name, child in node.get("properties", {}).items():
        yield from nodes(child, f"{path}.{name}")
    for key, mark in (("items", "[]"), ("additionalProperties", "{}")):
        if key in node:
            yield from nodes(node[key], path + mark)


def all_nodes() -> list[tuple[str, dict[str, Any]]]:
    properties = root()["properties"]
    return [*nodes(properties["spec"], "spec"), *nodes(properties["status"], "status")]


def test_files_are_what_the_code_generates() -> None:
    for file in crd.FILES:
        assert file.read_text() == crd.text(), f"{file} is old: run python tools/crd.py"


def test_file_is_small_enough_for_client_side_apply() -> None:
    assert len(crd.text()) < 200_000
    assert yaml.safe_load(crd.text()) == custom_resource_definition()


def test_every_field_has_a_text() -> None:
    bare = [path for path, node in all_nodes() if "description" not in node and path[-1] not in "]}"]
    assert bare == []


def test_everything_is_bounded() -> None:
    bounds = {"string": "maxLength", "array": "maxItems"}
    loose = [
        path
        for path, node in all_nodes()
        if node.get("type") in bounds and bounds[node["type"]] not in node and "enum" not in node
    ]
    loose += [path for path, node in all_nodes() if "additionalProperties" in node and "maxProperties" not in node]
    assert loose == []


def test_unknown_fields_pass_only_where_they_must() -> None:
    open_nodes = [path for path, node in all_nodes() if node.get("x-kubernetes-preserve-unknown-fields")]
    elsewhere = [path for path in open_nodes if not path.startswith(("spec.trainer", "status."))]
    assert elsewhere == ["spec.runtime.podTemplate"]


def test_every_field_is_either_immutable_or_meant_to_change() -> None:
    free = {
        "restart",
        "watchdog",
        "suspend",
        "activeDeadlineSeconds",
        "ttlSecondsAfterFinished",
        "resources",
        "runtime",
    }
    spec = root()["properties"]["spec"]["properties"]
    assert set(spec) == free | set(IMMUTABLE)


def test_wire_names_are_the_fields_of_the_models() -> None:
    assert root()["properties"]["spec"]["properties"].keys() == {field.alias for field in JobSpec.model_fields.values()}


def test_rules_have_messages_with_a_way_out() -> None:
    entries = [rule for _, node in [("", root()), *all_nodes()] for rule in node.get("x-kubernetes-validations", [])]
    assert len(entries) > 60
    assert all(len(rule["message"]) > 10 for rule in entries)


def test_status_has_no_defaults() -> None:
    status = root()["properties"]["status"]
    assert [path for path, node in nodes(status, "status") if "default" in node] == []


def test_no_item_of_a_list_has_a_default() -> None:
    """A list that the server fills in is another list than the one that was applied: server-side apply conflicts."""
    spec = root()["properties"]["spec"]
    assert [path for path, node in nodes(spec, "spec") if "[]." in path and "default" in node] == []
