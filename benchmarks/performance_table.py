"""The tables of docs/performance.md, from what `step_time.py` and `capacity.py` measured: a line a side in results/.

python benchmarks/performance_table.py            prints them
python benchmarks/performance_table.py --write    puts them into docs/performance.md
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from colocated_runtime.planner.models import QWEN2_5_7B

HERE = Path(__file__).parent
DOCUMENT = HERE.parent / "docs" / "performance.md"
sys.path.insert(0, str(HERE))

from capacity import table as capacity_table  # noqa: E402
from document import main, with_tables  # noqa: E402
from placement import layouts  # noqa: E402
from placement import table as placement_table  # noqa: E402
from step_time import PROMPT, lengths  # noqa: E402

BANDWIDTH, FLOPS = 4.3e12, 790e12
"""Bytes and 16-bit operations a second that an H200 was seen to reach."""
SPANS = {
    "generation": ("decode",),
    "waking, sleeping, host work of generation": ("switch",),
    "weight sync": ("sync",),
    "scoring, rewards": ("score", "rewards"),
    "forward and backward": ("train",),
    "optimizer": ("optimizer",),
    "whole step": ("step",),
}


def completions(case: dict[str, Any], steps: int) -> list[list[int]]:
    """Tokens of each completion of the measured steps: the draws of step_time.py without those of its first step."""
    length = lengths(case["tokens"])
    every = [[length(index) for index in range(case["completions"])] for _ in range(steps)]
    return every[1:]


def floors(case: dict[str, Any], steps: int) -> dict[str, float]:
    """Seconds below which a phase cannot come on this device, mean of the measured steps.

    Generation: each decode step reads the weights and the keys and values of what is still unfinished. Training: six
    operations for each parameter and token, and causal attention's, forwards and twice that backwards.
    """
    model, decode, train = QWEN2_5_7B, 0.0, 0.0
    found = completions(case, steps)
    for drawn in found:
        for position in range(max(drawn)):
            alive = sum(length > position for length in drawn)
            read = alive * (PROMPT + position) * model.kv_elements_per_token * 2
            decode += (model.parameters * 2 + read) / BANDWIDTH
        sizes = [PROMPT + length for length in drawn]
        attention = sum(3 * 2 * size**2 * model.num_hidden_layers * model.query_size for size in sizes)
        train += (6 * model.parameters * sum(sizes) + attention) / FLOPS
    return {"generation": decode / len(found), "forward and backward": train / len(found)}


def case_table(trl: dict[str, Any], ours: dict[str, Any]) -> Iterator[str]:
    """Lines of Markdown for one case."""
    case, least = ours["case"], floors(ours["case"], len(ours["steps"]))
    yield f"### {case['completions']} completions of {case['tokens']} tokens"
    yield "| seconds | TRL | colocated-rl | ratio | floor |"
    yield "|---|---|---|---|---|"
    for name, spans in SPANS.items():
        one, other = (sum(side["median"].get(span, 0.0) for span in spans) for side in (trl, ours))
        floor = f"{least[name]:.1f}" if name in least else ""
        bold = "**" if name == "whole step" else ""
        yield f"| {name} | {one:.2f} | {other:.2f} | {bold}{one / other:.2f}{bold} | {floor} |"
    peaks = (max(side["peak_gib"].values()) for side in (trl, ours))
    yield f"| highest peak, GiB | {' | '.join(f'{peak:.1f}' for peak in peaks)} | | |"
    yield ""


def lines_of(name: str) -> list[dict[str, Any]]:
    """What was kept of a benchmark."""
    return [json.loads(line) for line in (HERE / "results" / f"{name}.jsonl").read_text().splitlines()]


def by_case() -> list[dict[str, dict[str, Any]]]:
    """The sides of each case that step_time.py measured, in the order of its file."""
    sides: dict[str, dict[str, Any]] = {}
    for run in lines_of("step_time"):
        sides.setdefault(json.dumps(run["case"]), {})[run["side"]] = run
    return list(sides.values())


def steps() -> Iterator[str]:
    """Of every case of which both sides are there."""
    for found in by_case():
        if "trl" in found and "ours" in found:
            yield from case_table(found["trl"], found["ours"])


def without_engine() -> Iterator[str]:
    """TRL generating by transformers beside ours."""
    yield "| seconds | transformers | colocated-rl | ratio |"
    yield "|---|---|---|---|"
    for found in by_case():
        if "transformers" in found:
            for name in ("generation", "whole step"):
                one, other = (found[side]["median"][SPANS[name][0]] for side in ("transformers", "ours"))
                yield f"| {name} | {one:.2f} | {other:.2f} | {one / other:.2f} |"


def separate() -> Iterator[str]:
    """Eight GPUs, 64 completions of 512 tokens each; splits with more samplers or fewer take longer."""
    runs = [run for run in lines_of("step_time") if run["case"]["tokens"] == "512" and run["side"] != "transformers"]
    found = layouts(runs, 8, 64)
    yield from placement_table([each for each in found if "+" not in each.name or each.name[4] in "234"])


TABLES = {
    "steps": steps,
    "transformers": without_engine,
    "placement": separate,
    "capacity": lambda: capacity_table(lines_of("capacity")),
}


def written(document: str) -> str:
    """`document` with the tables in their places."""
    return with_tables(document, TABLES)


if __name__ == "__main__":
    main(__doc__, DOCUMENT, TABLES)
