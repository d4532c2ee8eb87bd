"""What a test of a fault has seen, for the table in docs/reliability.md: `tools/fault_table.py` makes it."""

import json
import os
from collections.abc import Sequence
from pathlib import Path

FILE = "COLOCATED_FAULT_ROWS"
"""Variable that names the file to which rows are added; unset: none are kept."""


def record(fault: str, injected: str, lost: str, *, times: int = 1, seconds: Sequence[float] = ()) -> None:
    """Add a row: `times` faults of one kind, what each cost at most, and seconds until it was found or made good."""
    if FILE in os.environ:
        row = {"fault": fault, "injected": injected, "lost": lost, "times": times, "seconds": list(seconds)}
        with Path(os.environ[FILE]).open("a") as file:
            file.write(json.dumps(row) + "\n")
