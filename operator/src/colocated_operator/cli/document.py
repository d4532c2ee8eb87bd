"""Reads a job from YAML and says clearly what is wrong with it."""

import difflib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, get_args

import typer
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from colocated_operator.cli.loader import Refused, documents
from colocated_runtime.contract import names
from colocated_runtime.contract.job import JobSpec

USAGE = 2
"""Exit code of a program that cannot do what it was asked to."""
API_VERSION = f"{names.GROUP}/{names.VERSION}"
NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
OBJECT_NAME = re.compile(r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?")
NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
KEY = re.compile(r"[-._a-zA-Z0-9]{1,253}")


class Mistakes(Exception):
    """What the user has to mend: one line each."""

    def __init__(self, *lines: str) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines


@contextmanager
def told() -> Iterator[None]:
    """Mistakes from within end the program: each is a line on stderr."""
    try:
        yield
    except Mistakes as mistakes:
        for line in mistakes.lines:
            typer.echo(f"error: {line}", err=True)
        raise typer.Exit(USAGE) from None


def refuse_empty(**options: str | None) -> None:
    """An empty value is mostly a shell's variable that is not set. Raise Mistakes."""
    for name, value in options.items():
        if value is not None and not value.strip():
            raise Mistakes(f"--{name.replace('_', '-')}: is empty; give a value, or leave the option out")


@dataclass(frozen=True)
class Document:
    """A job, and the ConfigMaps beside it in the same file."""

    name: str
    namespace: str
    spec: JobSpec
    config_maps: dict[str, dict[str, str]] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)


def read(path: Path, name: str | None = None, namespace: str | None = None) -> Document:
    """The ColocatedRLJob in the file, `name` where it holds several. Raise Mistakes.

    `namespace` is that of a job that names none, as kubectl has it: one that names another is a mistake.
    """
    refuse_empty(name=name, namespace=namespace)
    objects = _objects(path)
    jobs = [entry for entry in objects if entry.get("kind") == names.KIND]
    known = [str(_metadata(job).get("name", "")) for job in jobs]
    if name:
        jobs = [job for job, job_name in zip(jobs, known, strict=True) if job_name == name]
        if not jobs:
            raise Mistakes(f"{path}: holds no {names.KIND} named {name}; there are: {', '.join(known) or 'none'}")
    if not jobs:
        kinds = ", ".join(str(entry.get("kind")) for entry in objects)
        raise Mistakes(f"{path}: holds no {names.KIND}; there are: {kinds or 'no objects'}")
    if len(jobs) > 1:
        if len(set(known)) < len(known) or name:
            raise Mistakes(f"{path}: holds several {names.KIND}s of one name: {', '.join(known)}; rename them")
        raise Mistakes(f"{path}: holds several {names.KIND}s; choose one by --name: {', '.join(known)}")
    document = _document(path, jobs[0], _config_maps(path, objects))
    return replace(document, namespace=_namespace(path, jobs[0], namespace))


def _objects(path: Path) -> list[dict[str, Any]]:
    try:
        loaded = documents(path.read_text())
    except OSError as error:
        raise Mistakes(f"{path}: cannot be read: {error.strerror}") from error
    except Refused as error:
        raise Mistakes(f"{path}: {error}") from error
    except ValueError as error:
        raise Mistakes(f"{path}: is no YAML: {error}") from error
    loaded = [item for entry in loaded for item in _items(entry)]
    for entry in loaded:
        if not isinstance(entry, dict):
            raise Mistakes(f"{path}: holds {type(entry).__name__} where a Kubernetes object should be")
    return loaded


def _items(entry: Any) -> list[Any]:
    """Of a list, such as `kubectl get -o yaml` writes, its objects; anything else alone."""
    if isinstance(entry, dict) and str(entry.get("kind")).endswith("List") and isinstance(entry.get("items"), list):
        return list(entry["items"])
    return [entry]


def _document(path: Path, job: dict[str, Any], config_maps: dict[str, dict[str, str]]) -> Document:
    metadata = _metadata(job)
    name = metadata.get("name")
    if not isinstance(name, str) or not NAME.fullmatch(name) or len(name) > names.NAME_MAX:
        raise Mistakes(
            f"{path}: metadata.name: {name!r} is no name; use at most {names.NAME_MAX} lower-case letters, digits and"
            " '-', a letter first"
        )
    if job.get("apiVersion") != API_VERSION:
        raise Mistakes(f"{path}: apiVersion: {job.get('apiVersion')!r} is not {API_VERSION}")
    for key in job.keys() - {"apiVersion", "kind", "metadata", "spec", "status"}:
        raise Mistakes(f"{path}: {key}: no such field{_hint(str(key), ['metadata', 'spec'])}")
    try:
        spec = JobSpec.model_validate(job.get("spec"), by_alias=True, by_name=False)
    except ValidationError as error:
        raise Mistakes(*(f"{path}: {explain(detail)}" for detail in error.errors())) from error
    _texts(path, metadata, "annotations")
    return Document(
        name=name,
        namespace="default",
        spec=spec,
        config_maps=config_maps,
        labels=_texts(path, metadata, "labels"),
    )


def _texts(path: Path, metadata: dict[str, Any], field_name: str) -> dict[str, str]:
    """Labels or annotations: texts by keys, as the API server takes them."""
    texts = metadata.get(field_name)
    place = f"{path}: metadata.{field_name}"
    if texts is None:
        return {}
    if not isinstance(texts, dict):
        raise Mistakes(f"{place}: {texts!r} is {type(texts).__name__}; give keys and their text, such as {{key: text}}")
    for key, text in texts.items():
        if not isinstance(key, str) or not isinstance(text, str):
            raise Mistakes(f"{place}: {key!r}: {text!r} is no text under a text; put quotes around both")
    return texts


def _namespace(path: Path, job: dict[str, Any], wanted: str | None) -> str:
    said = _metadata(job).get("namespace")
    for place, namespace in ((f"{path}: metadata.namespace", said), ("--namespace", wanted)):
        if namespace is not None and not (isinstance(namespace, str) and NAMESPACE.fullmatch(namespace)):
            raise Mistakes(f"{place}: {namespace!r} is no namespace; use lower-case letters, digits, '-'")
    if said and wanted and said != wanted:
        raise Mistakes(f"{path}: metadata.namespace: {said} is not --namespace {wanted}; leave one of them out")
    return str(wanted or said or "default")


def _metadata(entry: dict[str, Any]) -> dict[str, Any]:
    metadata = entry.get("metadata")
    return metadata if isinstance(metadata, dict) else {}


def _config_maps(path: Path, objects: list[dict[str, Any]]) -> dict[str, dict[str, str]]:
    """Data of the ConfigMaps by name. Their names and keys become files: what Kubernetes refuses is refused here."""
    found = {}
    for entry in objects:
        if entry.get("kind") != "ConfigMap":
            continue
        name, data = _metadata(entry).get("name"), entry.get("data") or {}
        if not isinstance(name, str) or not OBJECT_NAME.fullmatch(name):
            raise Mistakes(f"{path}: ConfigMap metadata.name: {name!r} is no name; use lower-case letters, digits, '-'")
        if entry.get("binaryData"):
            raise Mistakes(f"{path}: ConfigMap {name}: binaryData is not read here; put text into data")
        if not isinstance(data, dict):
            raise Mistakes(f"{path}: ConfigMap {name}: data is {type(data).__name__}; give file names and their text")
        for key, text in data.items():
            if not isinstance(key, str) or not KEY.fullmatch(key) or key in (".", ".."):
                raise Mistakes(f"{path}: ConfigMap {name}: {key!r} is no key; use letters, digits, '-', '_' and '.'")
            if not isinstance(text, str):
                raise Mistakes(f"{path}: ConfigMap {name}: {key} is {type(text).__name__}; its value has to be text")
        found[name] = data
    return found


def explain(detail: ErrorDetails) -> str:
    """One line: field path, what is wrong, and the nearest field where there is no such one."""
    path = _path(detail["loc"])
    if detail["type"] == "extra_forbidden":
        return f"{path}: no such field{_hint(str(detail['loc'][-1]), _fields(detail['loc'][:-1]))}"
    if detail["type"] == "missing":
        return f"{path}: missing"
    value = detail["input"]
    if detail["type"] == "list_type" and isinstance(value, str):
        return f"{path}: {value!r} is text, and a list is needed; write [{value}]"
    shown = f" (it is {value!r})" if isinstance(value, str | int | float | bool | None) else ""
    words = detail["msg"].removeprefix("Value error, ")
    return f"{path}: {words[:1].lower()}{words[1:]}{shown}"


def _path(location: tuple[int | str, ...]) -> str:
    text = "spec"
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return text


def _hint(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    if near:
        return f"; did you mean {near[0]}?"
    return f"; there are: {', '.join(known)}" if known else ""


def _fields(location: tuple[int | str, ...]) -> list[str]:
    """Names, as in YAML, of the fields that the object at `location` may have."""
    fields = _by_alias(JobSpec)
    for part in location:
        if isinstance(part, str):
            model = _model_in(fields[part].annotation) if part in fields else None
            fields = _by_alias(model) if model else {}
    return list(fields)


def _by_alias(model: type[BaseModel]) -> dict[str, FieldInfo]:
    return {info.alias or name: info for name, info in model.model_fields.items()}


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((model for argument in get_args(annotation) if (model := _model_in(argument))), None)
