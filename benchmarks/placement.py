"""N colocated GPUs against the same N split into trainers and samplers, from the phases measured on one GPU.

    python benchmarks/step_time.py OUT --side ours --completions 64 --tokens 512 …    and the same with 128, 256, 512
    python benchmarks/placement.py OUT/*-ours.json OUT/*-trl.json --gpus 8 --completions 64

`--completions` are those of each GPU where all do everything; in a split a sampler generates, and a trainer trains on,
N / samplers and N / trainers times as many. Each layout's phases are those that one GPU was measured to take with so
many completions, linear between two measured sizes; a layout outside of what was measured is left out. Counted for a
split, in its favour: no waking and no sleeping, weights travel at NVLink's speed. Not counted on any side: the
trainers' reduction of gradients.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from colocated_runtime.planner.models import QWEN2_5_7B

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from step_time import PROMPT, longest_of  # noqa: E402

NVLINK = 300e9
"""Bytes a second from a trainer to a sampler."""
DEVICE_GIB = 139.8
ENGINE_GIB = 3.0
"""Of an engine besides weights and cache: context, graphs, workspace."""


@dataclass(frozen=True)
class Point:
    """What one GPU was measured to take for so many completions of a step."""

    completions: int
    generation: float
    """Seconds, without waking and sleeping."""
    switch: float
    sync: float
    training: float
    """Seconds of scoring, forward, backward and optimizer."""
    training_gib: float
    """Of the device at training's peak."""


@dataclass(frozen=True)
class Layout:
    """One step of one layout."""

    name: str
    cycle: float
    """Seconds."""
    idle: float
    """Share of the GPUs' time in which they wait."""
    memory: float
    """Bytes that the running phases need, of all bytes there are, averaged over time."""


def point(run: dict[str, Any]) -> Point:
    """Of one line of step_time.py."""
    took, peaks = run["median"], run["peak_gib"]
    training = sum(took.get(span, 0.0) for span in ("score", "rewards", "train", "optimizer"))
    return Point(
        run["case"]["completions"], took["decode"], took["switch"], took["sync"], training,
        max(peaks.get(span, 0.0) for span in ("score", "train", "optimizer")),
    )  # fmt: skip


def at(points: Sequence[Point], completions: float) -> Point | None:
    """Between the two measured sizes around `completions`; None outside of them."""
    ordered = sorted(points, key=lambda each: each.completions)
    for low, high in pairwise([ordered[0], *ordered]):
        if low.completions <= completions <= high.completions:
            share = (completions - low.completions) / max(1, high.completions - low.completions)
            mixed = {
                name: getattr(low, name) + share * (getattr(high, name) - getattr(low, name))
                for name in ("generation", "switch", "sync", "training", "training_gib")
            }
            return Point(round(completions), **mixed)
    return None


def generation_gib(completions: float, tokens: str) -> float:
    """What generation needs of a device: the engine's weights, the cache of all its sequences, the rest of it."""
    model = QWEN2_5_7B
    cache = completions * (PROMPT + longest_of(tokens)) * model.kv_elements_per_token * 2
    return (model.parameters * 2 + cache) / 2**30 + ENGINE_GIB


def colocated(name: str, each: Point, tokens: str) -> Layout:
    """All GPUs generate, then all train."""
    cycle = each.generation + each.switch + each.sync + each.training
    needed = each.generation * generation_gib(each.completions, tokens) + each.training * each.training_gib
    return Layout(name, cycle, 0.0, needed / cycle / DEVICE_GIB)


def split(points: Sequence[Point], gpus: int, samplers: int, completions: int, tokens: str) -> Iterator[Layout]:
    """Trainers and samplers in turn, and with the samplers one step ahead; nothing where a size was not measured."""
    trainers = gpus - samplers
    sampling, training = (at(points, completions * gpus / count) for count in (samplers, trainers))
    if sampling is None or training is None:
        return
    transfer = sampling.sync + QWEN2_5_7B.parameters * 2 / NVLINK
    busy = samplers * sampling.generation + trainers * training.training
    needed = (
        samplers * sampling.generation * generation_gib(sampling.completions, tokens)
        + trainers * training.training * training.training_gib
    )
    cycles = {
        "in turn": sampling.generation + training.training + transfer,
        "one step ahead": max(sampling.generation, training.training) + transfer,
    }
    for how, cycle in cycles.items():
        share = gpus * cycle
        yield Layout(f"{trainers} + {samplers} {how}", cycle, 1 - busy / share, needed / share / DEVICE_GIB)


def layouts(runs: Sequence[dict[str, Any]], gpus: int, completions: int) -> list[Layout]:
    """Ours, TRL's where it was measured, then all splits; `runs` are of one model and one choice of lengths."""
    points = [point(run) for run in runs if run["side"] == "ours"]
    tokens = runs[0]["case"]["tokens"]
    found = []
    for side, name in (("ours", "colocated"), ("trl", "colocated, TRL")):
        of_side = [point(run) for run in runs if run["side"] == side and run["case"]["completions"] == completions]
        found += [colocated(name, each, tokens) for each in of_side]
    for samplers in range(1, gpus):
        found += split(points, gpus, samplers, completions, tokens)
    return found


def table(found: Sequence[Layout]) -> Iterator[str]:
    """Markdown: what can be compared with the first layout, which is ours."""
    ours = found[0]
    yield "| layout (trainers + samplers) | cycle, s | ours is shorter by | idle GPUs | memory in use | ours uses |"
    yield "|---|---|---|---|---|---|"
    for each in found:
        yield (
            f"| {each.name} | {each.cycle:.2f} | {1 - ours.cycle / each.cycle:+.0%} | {each.idle:.0%}"
            f" | {each.memory:.0%} | {ours.memory / each.memory:.2f} |"
        )


def main() -> None:
    """Print the table of the files that are named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, help="JSON files of step_time.py")
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--completions", type=int, default=64, help="of each GPU where all do everything")
    asked = parser.parse_args()
    runs = [json.loads(path.read_text()) for path in asked.runs]
    if len({(run["case"]["shape"], run["case"]["tokens"]) for run in runs}) != 1:
        sys.exit("the runs are of different models or lengths")
    if runs[0]["case"]["shape"] != "7b":
        sys.exit("the sizes of cache and weights are those of 7b: measure that")
    found = layouts(runs, asked.gpus, asked.completions)
    if not found or found[0].name != "colocated":
        sys.exit(f"no run of ours has {asked.completions} completions")
    print("\n".join(table(found)))


if __name__ == "__main__":
    main()
