"""Kubernetes quantities as they stand in YAML."""

import re
from typing import Any

PATTERN = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?\d+)?")


def quantity_text(value: Any) -> str:
    """`value` as text: YAML gives `cpu: 4` as a number. Raise ValueError if it is no quantity."""
    text = str(value)
    if isinstance(value, bool) or not isinstance(value, str | int) or len(text) > 32 or not PATTERN.fullmatch(text):
        raise ValueError(f"{value!r} is no quantity; write e.g. 16Gi, 500m or 4")
    return text
