"""Is an engine with other weights than the trainer's found before the step ends, and a right one left in peace?

    python benchmarks/stale_weights.py OUT_DIR [--faults 100] [--good 1000] [--dtype float32] [--noise 1.0] [--seed 1]

The real engine on a CPU, in this process, with the tiny model of the tests. First so many good syncs after a step of
the trainer, each with a rollout; then so many faults, each followed by one rollout as in a step: either the sync is
left out, or one tensor of the engine, drawn at random, is spoilt after it: one bit of one number where checksums see
the tensor; where they do not, since the CPU's kernels pack it or it was all zeros at first, every number, by noise of
`--noise` times the spread of the model's matrices. Prints what found them. Exit code 1 if one was missed, or a good
sync raised an alarm.
"""

import argparse
import json
import logging
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "operator/src"), str(ROOT / "runtime/src")]

from colocated_runtime.worker import environment  # noqa: E402

environment.prepare(os.environ, "cpu")

import torch  # noqa: E402
from tests.unit.worker import tiny_model  # noqa: E402
from transformers import AutoModelForCausalLM  # noqa: E402

from colocated_runtime.planner.settings import EngineSettings  # noqa: E402
from colocated_runtime.worker import engine as engines  # noqa: E402
from colocated_runtime.worker.callbacks import DIFFERENCE_LIMITS, judge  # noqa: E402
from colocated_runtime.worker.importance import differences  # noqa: E402
from colocated_runtime.worker.phases import Phases, no_device  # noqa: E402
from colocated_runtime.worker.state import StateFile  # noqa: E402
from colocated_runtime.worker.stopping import StopSignal  # noqa: E402

PROMPTS, TOKENS = 8, 12
STEP = 1e-6
"""Of an optimizer with that learning rate, in its first steps: so far each number moves."""
SKIPPED = 0.1
"""Of the faults, are syncs that are left out."""


class Trial:
    """A trainer's model and an engine that has read it."""

    def __init__(self, out: Path, dtype: str, noise: float, seed: int) -> None:
        path = tiny_model.write("policy", out / "policy")
        self.model = AutoModelForCausalLM.from_pretrained(path, dtype=getattr(torch, dtype))
        self.limit = DIFFERENCE_LIMITS[dtype]
        self.alarms: list[str] = []
        self.engine = engines.Engine(
            self.model, path,
            settings=EngineSettings(0.3, sleep_level=0, max_model_len=64, max_num_seqs=PROMPTS),
            sampling=engines.Sampling(1.0, 1.0, 0, None, 1.0, TOKENS),
            phases=Phases(StateFile(out / "state.json", 0), no_device),
            stop=StopSignal(out / "stop", torch.device("cpu")),
            tensor_parallel=1, seed=seed, dtype=dtype, trust_remote_code=False,
            on_stale=lambda message: self.alarms.append(message) if message else None,
        )  # fmt: skip
        logging.getLogger(engines.__name__).setLevel(logging.CRITICAL)  # each fault would be logged
        self.draw = random.Random(seed)  # noqa: S311
        torch.manual_seed(seed)
        self.seen = {part for parts in self.engine._comparable for part in parts}
        matrices = torch.cat([p.detach().flatten().float() for p in self.model.parameters() if p.ndim > 1])
        self.noise = noise * float(matrices.std())

    @torch.no_grad()
    def step(self) -> None:
        """As an optimizer does it, in bfloat16 with the numbers that are too large for so small a step left alone."""
        for parameter in self.model.parameters():
            parameter += STEP * torch.randn_like(parameter).sign()

    def rollout(self) -> str:
        """What found other weights in the engine: checksums, log-probabilities, or nothing."""
        self.alarms.clear()
        prompts = [[self.draw.randrange(3, 250) for _ in range(6)] for _ in range(PROMPTS)]
        _, completions, sampled, _ = self.engine.generate(prompts, None, 1)
        if self.alarms:
            return "checksums"
        found = [
            differences(self.log_probs(prompt, ids), torch.tensor(values)[:, 0], torch.ones(len(ids)))
            for prompt, ids, values in zip(prompts, completions, sampled, strict=True)
        ]
        return "" if judge(float(torch.cat(found).mean()), 1, self.limit).in_sync else "log-probabilities"

    @torch.no_grad()
    def log_probs(self, prompt: list[int], completion: list[int]) -> torch.Tensor:
        """The trainer's, of each token of a completion."""
        logits = self.model(torch.tensor([prompt + completion])).logits[0, len(prompt) - 1 : -1].float()
        return logits.log_softmax(-1).gather(-1, torch.tensor(completion)[:, None])[:, 0]

    def fault(self) -> tuple[str, str]:
        """Make one; its kind and what it hit."""
        self.step()
        if self.draw.random() < SKIPPED:
            return "sync left out", ""
        self.engine.sync_weights()
        name = self.draw.choice([name for name, _ in self.model.named_parameters()])
        if name in self.seen:
            self.engine.llm.apply_model(lambda model: self.flip(model.get_parameter(name)))
            return "one bit of a tensor under checksums", name
        self.engine.llm.collective_rpc("reload_weights", kwargs={"weights_iterator": self.spoilt(name)})
        self.engine.llm.apply_model(engines._repack_heads)
        return "noise in a tensor that is packed or was zero", name

    def flip(self, parameter: torch.Tensor) -> None:
        """The lowest bit of one number."""
        numbers = parameter.data.view(torch.int16 if parameter.element_size() == 2 else torch.int32).view(-1)
        numbers[self.draw.randrange(len(numbers))] ^= 1

    def spoilt(self, name: str) -> Iterator[tuple[str, torch.Tensor]]:
        """All weights, with noise in one."""
        for other, parameter in self.model.named_parameters():
            value = parameter.detach()
            yield other, value + self.noise * torch.randn_like(value) if other == name else value


def run(out: Path, faults: int, good: int, dtype: str, noise: float, seed: int) -> dict[str, Any]:
    """False alarms, and by kind of fault what found how many of them ("" where nothing did)."""
    trial = Trial(out, dtype, noise, seed)
    began = time.monotonic()
    false_alarms = 0
    for _ in range(good):
        trial.step()
        trial.engine.sync_weights()
        false_alarms += bool(trial.rollout())
    seconds = time.monotonic() - began
    found: dict[str, Counter[str]] = {}
    missed = []
    for _ in range(faults):
        kind, name = trial.fault()
        by = trial.rollout()
        found.setdefault(kind, Counter())[by] += 1
        missed += [] if by else [name or kind]
        trial.engine.sync_weights()
    trial.engine.shutdown()
    return {
        "dtype": dtype, "good": good, "false alarms": false_alarms,
        "seconds a sync and rollout": seconds / max(1, good), "faults": faults, "found": found, "missed": missed,
        "tensors under checksums": len(trial.engine._comparable),
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description="Are stale weights found?")
    parser.add_argument("out", type=Path)
    parser.add_argument("--faults", type=int, default=100)
    parser.add_argument("--good", type=int, default=1000)
    parser.add_argument("--dtype", default="float32", choices=DIFFERENCE_LIMITS)
    parser.add_argument("--noise", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    result = run(**vars(asked))
    (asked.out / "result.json").write_text(json.dumps(result))
    print(json.dumps(result, indent=2))
    return int(bool(result["missed"] or result["false alarms"]))


if __name__ == "__main__":
    sys.exit(main())
