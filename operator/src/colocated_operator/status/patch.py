"""JSON merge patch (RFC 7386) from one status to the next."""

from collections.abc import Mapping
from typing import Any


def merge_patch(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """What turns `old` into `new`: null removes a key, lists are replaced whole. Empty if they are equal."""
    patch: dict[str, Any] = {key: None for key in old if key not in new and old[key] is not None}
    for key, value in new.items():
        before = old.get(key)
        if isinstance(value, Mapping) and isinstance(before, Mapping):
            inner = merge_patch(before, value)
            if inner:
                patch[key] = inner
        elif value != before:
            patch[key] = value
    return patch


def without_empty(value: Mapping[str, Any]) -> dict[str, Any]:
    """`value` without empty strings, lists and maps: a status says what is known."""
    lean = {key: without_empty(entry) if isinstance(entry, Mapping) else entry for key, entry in value.items()}
    return {key: entry for key, entry in lean.items() if entry not in ("", [], {})}
