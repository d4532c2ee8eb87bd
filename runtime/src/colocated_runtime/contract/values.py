"""The kinds of values that the spec holds, each with its bound."""

import re
from fractions import Fraction
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, StringConstraints, WithJsonSchema

from colocated_runtime.contract.rules import QUANTITY

QUANTITY_PATTERN = re.compile(r"([+-]?(?:\d+(?:\.\d*)?|\.\d+))([KMGTPE]i|[numkMGTPE]|[eE][+-]?\d+)?")
IN_BYTES = re.compile(r"(\d{1,8}(?:\.\d{1,8})?) ?([KMGT])i?B", re.IGNORECASE)
DECIMAL = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}


def quantity_text(value: Any) -> str:
    """`value` as text: YAML gives `cpu: 4` as a number. Raise ValueError if it is no quantity."""
    text = str(value)
    if (
        isinstance(value, bool)
        or not isinstance(value, str | int)
        or len(text) > 32
        or not QUANTITY_PATTERN.fullmatch(text)
    ):
        raise ValueError(_no_quantity(value))
    return text


def _no_quantity(value: Any) -> str:
    """With the spelling that was meant, as far as it shows: 80 GB is 80Gi here, 80GiB too."""
    meant = IN_BYTES.fullmatch(value) if isinstance(value, str) else None
    return f"{value!r} is no quantity; write {f'{meant[1]}{meant[2].upper()}i' if meant else 'e.g. 16Gi, 500m or 4'}"


def quantity_bytes(quantity: str) -> int:
    """A quantity as a whole number, rounded down. Raise ValueError if it is none."""
    return int(quantity_value(quantity))


def quantity_value(quantity: str) -> Fraction:
    """A quantity as a number, exact. Raise ValueError if it is none."""
    match = QUANTITY_PATTERN.fullmatch(quantity)
    if not match:
        raise ValueError(_no_quantity(quantity))
    number, unit = match.groups()
    if unit in BINARY:
        return Fraction(number) * (1 << BINARY[unit])
    exponent = DECIMAL[unit] if unit in DECIMAL else int(unit[1:] if unit else 0)
    return Fraction(number) * Fraction(10) ** max(-30, min(exponent, 30))  # 1e999999999 would take minutes


def port(text: str) -> int:
    """A TCP port. Raise ValueError if it is none."""
    if not text.isdecimal() or not 0 < int(text) < 1 << 16:
        raise ValueError(f"{text!r} is no port; use a number from 1 to 65535")
    return int(text)


Name = Annotated[str, StringConstraints(min_length=1, max_length=253)]
Text = Annotated[str, StringConstraints(max_length=4096)]
Uri = Annotated[str, StringConstraints(min_length=6, max_length=1024)]
Quantity = Annotated[
    str,
    BeforeValidator(quantity_text),
    WithJsonSchema(
        {"x-kubernetes-int-or-string": True, "maxLength": 32, "x-kubernetes-validations": [QUANTITY.as_dict()]}
    ),
]
"""A Kubernetes quantity, such as 16Gi, 500m or the bare number 4."""
AccessMode = Literal["ReadWriteOnce", "ReadWriteOncePod", "ReadWriteMany"]
PositiveInt = Annotated[int, Field(ge=1, le=1_000_000_000)]
