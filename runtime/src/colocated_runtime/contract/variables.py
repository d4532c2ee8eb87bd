"""Environment variables of the pods, written as in a pod, to which they are copied."""

from typing import Required

from pydantic import ConfigDict, with_config
from typing_extensions import TypedDict

from colocated_runtime.contract.base import Contract
from colocated_runtime.contract.values import Name, Quantity, Text

AS_IN_POD = ConfigDict(extra="forbid", use_attribute_docstrings=True)


@with_config(AS_IN_POD)
class KeySelector(TypedDict, total=False):
    """One key of a Secret or ConfigMap."""

    name: Required[Name]
    """Of the Secret or ConfigMap."""
    key: Required[Name]
    """Whose value is taken."""
    optional: bool
    """Whether the pod starts without it."""


@with_config(AS_IN_POD)
class FieldSelector(TypedDict, total=False):
    """A field of the pod."""

    apiVersion: Name
    """Of the path; v1 unless set."""
    fieldPath: Required[Name]
    """Such as metadata.name."""


@with_config(AS_IN_POD)
class ResourceSelector(TypedDict, total=False):
    """A resource of the container."""

    containerName: Name
    """The job's own container unless set."""
    resource: Required[Name]
    """Such as limits.memory."""
    divisor: Quantity
    """Unit of the value, such as 1Mi."""


@with_config(AS_IN_POD)
class ValueSource(TypedDict, total=False):
    """Where a variable's value comes from: exactly one of these. Field names as in a pod, to which it is copied."""

    secretKeyRef: KeySelector
    configMapKeyRef: KeySelector
    fieldRef: FieldSelector
    resourceFieldRef: ResourceSelector


@with_config(AS_IN_POD)
class ObjectReference(TypedDict, total=False):
    """A Secret or ConfigMap, all of its keys."""

    name: Required[Name]
    """Of the Secret or ConfigMap."""
    optional: bool
    """Whether the pod starts without it."""


@with_config(AS_IN_POD)
class EnvironmentSource(TypedDict, total=False):
    """All keys of a Secret or ConfigMap as variables: exactly one of secretRef and configMapRef."""

    prefix: Name
    """Put before each key."""
    secretRef: ObjectReference
    configMapRef: ObjectReference


class EnvVar(Contract):
    """As in a pod: a value or a reference."""

    name: Name
    """The variable's name."""
    value: Text | None = None
    """The value itself."""
    value_from: ValueSource | None = None
