"""The longest completion that trains on one GPU: TRL's own colocate mode beside this worker, and the plan's prediction.

    python benchmarks/capacity.py OUT_DIR [--held 0 --held 60] [--side trl] [--side ours]

The model is step_time.py's 7B. Two completions a step, each a micro-batch of its own, longer from step to step until
the device's memory is exhausted; the engine wakes, generates a few tokens and sleeps in every step, and what is missing
of each completion is random: only training is to be long. `--held` GiB of the device are somebody else's. A JSON line a
side and ballast; then a table, with the longest that a plan with the same settings admits.
"""

import argparse
import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import step_time  # noqa: E402

SIDES = ("trl", "ours")
GIB = 2**30
LENGTHS = [4096, 8192, 12288, 16384, 24576, 32768, 49152, 65536, 98304]
"""Tokens of the completions, from step to step."""
SETTINGS = {"num_generations": 2, "gradient_checkpointing": True, "top_p": 0.99}
"""Of both sides. With top_p the worker does not hold the engine's log-probabilities against the trainer's."""
OURS = {"tokens": 8192, "recompute": "full"}
UTILIZATION = 0.3
STEP = 256
"""Tokens to which the plan's longest completion is found."""


def case_of(asked: argparse.Namespace) -> argparse.Namespace:
    """As step_time.py has it."""
    return argparse.Namespace(
        work=asked.work, shape=asked.shape, completions=2, micro_batch=1, tokens=str(asked.tokens[-1]),
        steps=1 + len(asked.tokens), utilization=UTILIZATION, cpu=asked.cpu,
        trl=json.dumps(SETTINGS), ours=json.dumps(SETTINGS | OURS),
    )  # fmt: skip


def lengthen(engine: Any, lengths: Iterator[int]) -> None:
    """Have each rollout's completions as long as `lengths` says: what the engine generated, then random tokens."""
    generate, draw = engine.generate, random.Random(7)  # noqa: S311

    def generated(*args: Any, **kwargs: Any) -> Any:
        prompts, completions, scored, more = generate(*args, **kwargs)
        length = next(lengths)
        for values in scored:  # in place: the engine keeps them
            values += [[-12.0]] * (length - len(values))
        longer = [[*ids, *draw.choices(range(3, 256), k=length - len(ids))] for ids in completions]
        return prompts, longer, scored, more

    engine.generate = generated


def trained(asked: argparse.Namespace, side: str) -> Iterator[dict[str, Any]]:
    """What each length took, until one does not fit."""
    from colocated_runtime.worker import environment

    case = case_of(asked)
    environment.prepare(step_time.os.environ, "cpu" if asked.cpu else "cuda")
    import torch

    from colocated_runtime.worker.phases import cuda_usage

    ballast = torch.empty(int(asked.held[0] * GIB), dtype=torch.uint8, device="cpu" if asked.cpu else "cuda")
    trainer = step_time.BUILD[side](case)
    engine = trainer.vllm_generation
    step_time.tell_lengths(engine.llm, "enqueue" if hasattr(engine, "_run") else "generate", lambda _: 16)
    lengths = [step_time.WARM_UP, *asked.tokens]
    lengthen(engine, iter(lengths))
    done: list[dict[str, Any]] = []
    trainer.add_callback(Steps(lengths, done, None if asked.cpu else cuda_usage))
    try:
        trainer.train()
    except Exception as error:  # torch's own, or what the worker makes of it
        done.append({"failed": f"{type(error).__name__}: {error}"[:300]})
    yield from done
    del ballast


def Steps(lengths: Sequence[int], done: list[dict[str, Any]], usage: Any) -> Any:  # noqa: N802
    """A callback that keeps seconds and the device's peak of each step."""
    from transformers import TrainerCallback

    class Kept(TrainerCallback):
        def on_step_begin(self, *args: Any, **kwargs: Any) -> None:
            self.began = time.perf_counter()

        def on_step_end(self, _args: Any, state: Any, *args: Any, **kwargs: Any) -> None:
            took, peak = time.perf_counter() - self.began, usage().peak / GIB if usage else 0.0
            done.append(
                {"tokens": lengths[state.global_step - 1], "seconds": round(took, 1), "peak_gib": round(peak, 1)}
            )
            print(done[-1], file=sys.stderr, flush=True)

    return Kept()


def predicted(device_bytes: int, held: float) -> int:
    """Tokens of the longest completion that a plan with these settings admits."""
    from colocated_runtime.contract.job import JobSpec
    from colocated_runtime.planner.devices import hardware_of
    from colocated_runtime.planner.models import QWEN2_5_7B
    from colocated_runtime.planner.plan import make_plan

    def fits(tokens: int) -> bool:
        spec = JobSpec.model_validate({
            "model": {"source": "hf://Qwen/Qwen2.5-7B", "dtype": "bfloat16"}, "dataset": {"source": "hf://a/b"},
            "rewards": [{"name": "exact_match"}], "gpusPerNode": 1, "device": {"product": "NVIDIA-H200"},
            "trainer": {
                "max_steps": 1, "per_device_train_batch_size": 1, "gradient_accumulation_steps": 2,
                "max_completion_length": tokens, **SETTINGS,
            },
            "memory": {"gpuMemoryUtilization": UTILIZATION, "sleepLevel": 2},
        })  # fmt: skip
        hardware = hardware_of(spec)
        assert hardware is not None
        here = replace(hardware, device_bytes=device_bytes, used_bytes=int(held * GIB))
        return make_plan(spec, QWEN2_5_7B, here).fits

    low, high = 0, 2 * LENGTHS[-1] // STEP
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle * STEP) else (low, middle - 1)
    return low * STEP


def table(runs: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Markdown, a row an amount of memory."""
    yield "| GiB of the GPU | TRL | colocated-rl | predicted |"
    yield "|---|---|---|---|"
    for held in sorted({run["held_gib"] for run in runs}):
        of = {run["side"]: run for run in runs if run["held_gib"] == held}
        some = next(iter(of.values()))
        longest = [_said(of.get(side)) for side in SIDES]
        yield f"| {some['device_gib'] - held:.0f} | {' | '.join(longest)} | {some['predicted']} |"


def _said(run: dict[str, Any] | None) -> str:
    if run is None:
        return "not measured"
    most = max((step["tokens"] for step in run["steps"] if "tokens" in step), default=0)
    if not any("failed" in step for step in run["steps"]):
        return f"{most} and more"
    return str(most) if most > step_time.WARM_UP else "the second step fails"


def main() -> int:
    """Measure what is asked for, each in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--held", type=float, action="append", help="GiB that somebody else holds; several in turn")
    parser.add_argument("--side", action="append", choices=SIDES)
    parser.add_argument("--tokens", type=int, nargs="+", default=LENGTHS, help="of the completions, from step to step")
    parser.add_argument("--shape", choices=step_time.SHAPES, default="7b")
    parser.add_argument("--cpu", action="store_true", help="a dry run, with --shape tiny")
    parser.add_argument("--work", type=Path, default=Path("/tmp/step-time"), help="for models and scratch")  # noqa: S108
    parser.add_argument("--child", choices=("inputs", *SIDES), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    asked.held = asked.held or [0.0]
    asked.out.mkdir(parents=True, exist_ok=True)
    if asked.child == "inputs":
        step_time.write_inputs(case_of(asked))
        return 0
    if asked.child:
        import torch

        _, total = (0, 150_109_880_320) if asked.cpu else torch.cuda.mem_get_info()
        steps = list(trained(asked, asked.child))
        line = {
            "side": asked.child, "held_gib": asked.held[0], "device_gib": round(total / GIB, 1), "steps": steps,
            "device": "cpu" if asked.cpu else torch.cuda.get_device_name(),
            "predicted": predicted(total, asked.held[0]),
        }  # fmt: skip
        (asked.out / f"capacity-{asked.child}-{asked.held[0]:g}.json").write_text(json.dumps(line))
        return 0
    for child, held in [
        ("inputs", 0.0),
        *((side, held) for held in asked.held for side in asked.side or SIDES),
    ]:
        with (asked.out / f"capacity-{child}-{held:g}.log").open("w") as log:
            command = [
                sys.executable,
                __file__,
                str(asked.out),
                "--held",
                str(held),
                "--child",
                child,
                "--tokens",
                *map(str, asked.tokens),
            ]
            command += ["--shape", asked.shape, "--work", str(asked.work), *(["--cpu"] if asked.cpu else [])]
            code = subprocess.run(command, stdout=log, stderr=log).returncode
        if code:
            print((asked.out / f"capacity-{child}-{held:g}.log").read_text()[-3000:])
    runs = [json.loads(file.read_text()) for file in sorted(asked.out.glob("capacity-*.json"))]
    for run in runs:
        print(json.dumps(run))
    print("\n".join(table(runs)))
    return 0 if runs else 1


if __name__ == "__main__":
    sys.exit(main())
