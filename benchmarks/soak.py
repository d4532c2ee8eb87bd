"""Does a job leak? Trains a tiny model for many steps, and prints how memory and open files grow with them.

    python benchmarks/soak.py OUT_DIR [--steps 2000] [--minutes 60] [--cuda] [--every 100]

One worker, as in a pod, that saves every `--every` steps, and is asked to leave after so many minutes. After each step
its resident memory, its open files and, with --cuda, the memory in use on the whole device are written down; the engine
sleeps and wakes in every step there. The first fifth of the steps is left out: caches fill. Exit code 1 if the job
fails or something grows.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "operator/src"), str(ROOT / "runtime/src")]

from colocated_runtime.contract import names  # noqa: E402
from colocated_runtime.contract.attempt import Attempt  # noqa: E402
from colocated_runtime.contract.outcome import Outcome  # noqa: E402
from colocated_runtime.contract.report import RankState  # noqa: E402

MIB = 2**20
LIMITS = {"host MiB": 10.0, "device MiB": 10.0, "open files": 0.5}
"""Growth in 100 steps that is still called flat."""
WARM_UP = 0.2
REWARD = """
def reward(completions, **columns):
    return [float(str(completion).count("e")) for completion in completions]
"""
"""Differs between completions, so that there are gradients from the first step on."""


class Sample(NamedTuple):
    """What a rank held at the end of a step."""

    step: int
    values: dict[str, float]


def slope(samples: Sequence[Sample], name: str) -> float:
    """Growth of a value in 100 steps, by least squares."""
    steps, values = [sample.step for sample in samples], [sample.values[name] for sample in samples]
    middle, mean = sum(steps) / len(steps), sum(values) / len(values)
    spread = sum((step - middle) ** 2 for step in steps)
    return 100 * sum((s - middle) * (v - mean) for s, v in zip(steps, values, strict=True)) / spread


def warm(samples: Sequence[Sample]) -> list[Sample]:
    """Those after the first fifth of the steps."""
    return [sample for sample in samples if sample.step > WARM_UP * samples[-1].step]


def measure(step: int, pid: int, *, cuda: bool) -> Sample:
    """Raise OSError where the process is gone."""
    resident = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    values = {"host MiB": resident / MIB, "open files": float(len(os.listdir(f"/proc/{pid}/fd")))}
    if cuda:
        query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
        values["device MiB"] = float(
            subprocess.run(query, capture_output=True, text=True, check=True).stdout.split()[0]
        )
    return Sample(step, values)


def watch(process: subprocess.Popen[bytes], state_dir: Path, seconds: float, *, cuda: bool) -> list[Sample]:
    """A sample at each step that the rank reports, until its process ends; after so many seconds it is asked to."""
    samples: list[Sample] = []
    began, file = time.monotonic(), state_dir / "rank-0.json"
    while process.poll() is None:
        time.sleep(0.02)
        if time.monotonic() - began > seconds:
            (state_dir / "stop").touch()
        try:
            state = RankState.model_validate_json(file.read_bytes())
            step = state.progress.step
            if step and (not samples or step > samples[-1].step):
                samples.append(measure(step, state.pid, cuda=cuda))
        except OSError:
            continue
    return samples


def spec(out: Path, steps: int, every: int, *, cuda: bool, reward: dict[str, str]) -> dict[str, Any]:
    """The job: completions of 16 tokens, 8 in a step."""
    return {
        "model": {"source": f"file://{out / 'model'}", "dtype": "bfloat16" if cuda else "float32"},
        "dataset": {"source": "reasoning-gym://chain_sum?size=64&seed=1"},
        "rewards": [reward],
        "trainer": {
            "max_steps": steps, "per_device_train_batch_size": 8, "num_generations": 4, "max_completion_length": 16,
            "learning_rate": 1e-5, "seed": 3,
        },
        "checkpoint": {"everySteps": every, "keep": 1},
        **({"gpusPerNode": 1} if cuda else {}),
    }  # fmt: skip


def run(
    out: Path, steps: int, every: int, *, cuda: bool, reward: dict[str, str], rewards: Path, seconds: float = 1e9
) -> list[Sample]:
    """Train for so many seconds at most, and return the samples. Raise RuntimeError where the job fails."""
    state = out / "state"
    state.mkdir(parents=True)
    described = Attempt(
        name="soak", namespace="default", uid="0123456789", generation=1, attempt=1, hosts=["localhost"],
        storage_uri=f"file://{out}", spec=spec(out, steps, every, cuda=cuda, reward=reward),
    )  # fmt: skip
    (out / names.ATTEMPT_KEY).write_text(described.model_dump_json(by_alias=True, exclude_unset=True))
    environment = os.environ | {
        names.ENV_ATTEMPT_FILE: str(out / names.ATTEMPT_KEY),
        names.ENV_STATE_DIR: str(state),
        names.ENV_STORAGE_DIR: str(out),
        names.ENV_REWARDS_DIR: str(rewards),
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
    with (out / "log").open("wb") as log:
        command = [sys.executable, "-m", "colocated_runtime.worker"]
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)
        samples = watch(process, state, seconds, cuda=cuda)
    ended = RankState.model_validate_json((state / "rank-0.json").read_bytes())
    if ended.outcome not in (Outcome.COMPLETE, Outcome.PREEMPTED):
        raise RuntimeError(f"{ended.outcome}: {ended.message}; {out / 'log'} has the rest")
    return samples


def growth(samples: Sequence[Sample]) -> dict[str, float]:
    """Of each value, in 100 steps, once it is warm."""
    return {name: slope(warm(samples), name) for name in samples[-1].values}


def main() -> int:
    parser = argparse.ArgumentParser(description="Does a job leak?")
    parser.add_argument("out", type=Path)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--every", type=int, default=100)
    parser.add_argument("--cuda", action="store_true")
    asked = parser.parse_args()
    out = asked.out.absolute()
    out.mkdir(parents=True, exist_ok=True)
    subprocess.run([sys.executable, "-c", MODEL, str(out / "model")], check=True, cwd=ROOT)
    rewards = out / "rewards"
    (rewards / "soak").mkdir(parents=True)
    (rewards / "soak/letters.py").write_text(REWARD)
    reward = {"function": "letters:reward", "configMap": "soak"}
    began = time.monotonic()
    samples = run(
        out, asked.steps, asked.every, cuda=asked.cuda, reward=reward, rewards=rewards, seconds=60 * asked.minutes
    )
    (out / "samples.json").write_text(json.dumps(samples))
    first, last = warm(samples)[0], samples[-1]
    print(f"{last.step} steps in {time.monotonic() - began:.0f} s; growth from step {first.step} on:")
    grown = growth(samples)
    for name, by in grown.items():
        now = f"{first.values[name]:8.1f} -> {last.values[name]:8.1f}"
        print(f"{name:12} {now}   {by:+.3f} in 100 steps{'' if by < LIMITS[name] else '   GROWS'}")
    return int(any(by >= LIMITS[name] for name, by in grown.items()))


MODEL = """
import sys
from pathlib import Path
from tests.unit.worker import tiny_model
tiny_model.write("policy", Path(sys.argv[1]))
"""
"""In a process of its own: it need not keep torch."""

if __name__ == "__main__":
    sys.exit(main())
