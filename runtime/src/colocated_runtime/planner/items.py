"""A named number of bytes with its formula in words, rendered only when a person will read it."""

from collections.abc import Callable
from typing import NamedTuple

from colocated_runtime.planner.devices import GIB, MIB


class Item(NamedTuple):
    """One use of memory. `docs/memory.md` has a section for each name."""

    name: str
    bytes: int
    words: Callable[[], str]


def total(items: list[Item]) -> int:
    """Sum of the items' bytes."""
    return sum([item.bytes for item in items])


def gib(size: float) -> str:
    """`size` bytes for a person: 14.19 GiB, 250 MiB."""
    return f"{size / GIB:.2f} GiB" if abs(size) >= GIB / 10 else f"{size / MIB:.0f} MiB"


def billions(number: float) -> str:
    """A count of parameters for a person: 7.62 B, 135 M."""
    return f"{number / 1e9:.2f} B" if number >= 1e9 else f"{number / 1e6:.1f} M"
