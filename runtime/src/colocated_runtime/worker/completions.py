"""How much of a rollout trainer.log_completions writes, into the log and into completions/*.parquet."""

from collections.abc import Iterable
from itertools import islice
from typing import Any

CHARACTERS = 64_000
"""Of prompts, completions and what rewards log beside them, at most, at each step that is logged."""
ROWS = 16
"""Completions that share them, unless num_completions_to_print says how many."""
WIDTH = 80
"""Characters that a line break counts for: it takes a line of the table that TRL prints."""
TURNS = 8
"""Of a chat, the last ones."""
CUT = " […]"


def bounded(logs: dict[str, Any], rows: int | None) -> dict[str, Any]:
    """TRL's record of a rollout, its first completions alone and their texts cut."""
    rows = rows or ROWS
    share = CHARACTERS // (rows * (2 + len(logs["extra"])))

    def texts(column: Iterable[Any]) -> list[Any]:
        return [_entry(entry, share) for entry in islice(column, rows)]

    return {
        **logs,
        "prompt": texts(logs["prompt"]),
        "completion": texts(logs["completion"]),
        "rewards": {name: list(islice(column, rows)) for name, column in logs["rewards"].items()},
        "advantages": list(islice(logs["advantages"], rows)),
        "extra": {name: texts(column) for name, column in logs["extra"].items()},
    }


def _entry(entry: Any, limit: int) -> Any:
    if entry is None or isinstance(entry, bool | int | float):
        return entry
    if isinstance(entry, list) and all(isinstance(turn, dict) for turn in entry):
        turns = entry[-TURNS:]
        return [
            {"role": turn.get("role", ""), "content": _cut(str(turn.get("content", "")), limit // len(turns))}
            for turn in turns
        ]
    return _cut(str(entry), limit)


def _cut(text: str, limit: int) -> str:
    kept = "\n".join(text[:limit].split("\n")[: limit // WIDTH + 1])
    return text if kept == text else kept + CUT
