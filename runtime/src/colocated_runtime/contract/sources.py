"""Every model and dataset that a job's spec names, each with the field that names it."""

from collections.abc import Iterator
from typing import Literal, NamedTuple

from colocated_runtime.contract.job import JobSpec

Kind = Literal["model", "dataset"]
"""A hub may have one of each under the same name."""


class NamedSource(NamedTuple):
    """A source as the spec gives it, not parsed yet."""

    field: str
    uri: str
    kind: Kind
    revision: str | None = None


def named_sources(spec: JobSpec) -> Iterator[NamedSource]:
    """Policy, dataset, held-out dataset and reward models, in the spec's order."""
    if spec.model:
        yield NamedSource("model.source", spec.model.source, "model", spec.model.revision)
    if spec.dataset:
        yield NamedSource("dataset.source", spec.dataset.source, "dataset", spec.dataset.revision)
    if spec.evaluation:
        data = spec.evaluation.dataset
        yield NamedSource("evaluation.dataset.source", data.source, "dataset", data.revision)
    for index, reward in enumerate(spec.rewards):
        if reward.model:
            yield NamedSource(f"rewards[{index}].model", reward.model, "model")


def source_name(uri: str, revision: str | None) -> str:
    """As messages call it."""
    return f"{uri}@{revision}" if revision else uri


def source_key(kind: Kind, uri: str, revision: str | None) -> str:
    """Under which the launcher writes down, and the worker finds, where a source lies."""
    return f"{kind} {source_name(uri, revision)}"
