"""The table of docs/reliability.md from the rows that the tests of faults have left.

COLOCATED_FAULT_ROWS=rows.jsonl python -m pytest tests/unit/...     as often as wanted
python tools/fault_table.py rows.jsonl
"""

import json
import statistics
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any


def table(rows: list[dict[str, Any]]) -> str:
    """Markdown: rows of the same fault, injection and loss are one."""
    times: dict[tuple[str, str, str], int] = defaultdict(int)
    seconds: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for row in rows:
        key = row["fault"], row["injected"], row["lost"]
        times[key] += row["times"]
        seconds[key] += row["seconds"]
    lines = ["| fault | injected by | times | lost | seconds: median, worst |", "|---|---|---|---|---|"]
    for (fault, injected, lost), count in times.items():
        took = seconds[fault, injected, lost]
        figures = f"{statistics.median(took):.1f}, {max(took):.1f}" if took else ""
        lines.append(f"| {fault} | {injected} | {count} | {lost} | {figures} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table([json.loads(line) for line in Path(sys.argv[1]).read_text().splitlines()]))
