"""Real attempts of a tiny model: the same variables and files as in a pod, under torchrun or, faster, forked."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.ports import free_port

from colocated_runtime.contract.attempt import Attempt
from colocated_runtime.contract.plan import Plan
from colocated_runtime.contract.report import RankState

HERE = Path(__file__).parent
REWARDS = HERE / "reward_files"
"""A directory for each ConfigMap, as the pods have them mounted."""


@dataclass(frozen=True)
class Run:
    """What an attempt left behind."""

    exit_code: int
    output: str
    states: list[RankState]
    records: list[dict[str, Any]]
    """Each call of the recorder: rank, step, held_out, prompts, completion_ids."""
    directory: Path
    """The job's own, on the checkpoint volume."""

    @property
    def state(self) -> RankState:
        return self.states[0]

    def completions(self, *, held_out: bool, first_step: int = 0) -> list[list[list[int]]]:
        """Token ids of each call from `first_step` on, of held-out prompts or of those trained on."""
        calls = [call for call in self.records if call["held_out"] is held_out and call["step"] >= first_step]
        return [call["completion_ids"] for call in calls]


class Nursery:
    """Forks ranks from a process that has everything imported; `nursery.py` is that process."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def run(self, script: str, ranks: int, variables: dict[str, str], log: Path) -> int:
        """The largest exit code of `ranks` ranks; their output is in `log`."""
        if self._process is None:
            command = [sys.executable, str(HERE / "nursery.py")]
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdin
        assert self._process.stdout
        common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(ranks)}
        common |= {"LOCAL_WORLD_SIZE": str(ranks), **variables}
        each = [common | {"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(ranks)]
        print(json.dumps({"script": script, "ranks": each, "log": str(log)}), file=self._process.stdin, flush=True)
        return int(self._process.stdout.readline())

    def close(self) -> None:
        if self._process:
            self._process.kill()
            self._process.wait()


@dataclass
class Workplace:
    """A directory with what a job needs: models, prompts, storage; runs attempts of one job."""

    root: Path
    models: Path
    nursery: Nursery
    storage: Path = field(init=False)
    recorder = {"function": "recorder:record", "configMap": "recorder"}  # noqa: RUF012
    """Rewards half of the vocabulary; writes down everything that it is given."""

    def __post_init__(self) -> None:
        self.storage = self.root / "storage"
        self.storage.mkdir()
        self.write_prompts("train", 16)
        self.write_prompts("held-out", 5)

    def write_prompts(self, kind: str, count: int) -> None:
        rows = [{"question": f"{kind} {index}: say it", "answer": str(index)} for index in range(count)]
        (self.root / f"{kind}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def spec(self, **changes: Any) -> dict[str, Any]:
        """A job of 3 steps with evaluation; `changes` replace its fields, in `trainer` option by option."""
        trainer = {
            "max_steps": 3, "per_device_train_batch_size": 8, "num_generations": 4, "max_completion_length": 12,
            "learning_rate": 1e-3, "seed": 11,
        }  # fmt: skip
        trainer.update(changes.pop("trainer", {}))
        spec = {
            "algorithm": "grpo",
            "model": {"source": f"file://{self.models}/policy", "dtype": "float32"},
            "dataset": {"source": f"file://{self.root}/train.jsonl", "promptColumn": "question"},
            "evaluation": {
                "dataset": {"source": f"file://{self.root}/held-out.jsonl", "promptTemplate": "held-out {question}"}
            },
            "rewards": [self.recorder],
            "trainer": trainer,
        }
        return {**spec, **changes}

    def run(
        self, spec: dict[str, Any], *, attempt: int = 1, script: str = "", stop_at: int | None = None,
        plan: Plan | None = None, torchrun: bool = True, **variables: str,
    ) -> Run:  # fmt: skip
        """Run one attempt to its end, under torchrun or forked.

        `script` replaces the worker's module; `stop_at` asks to stop in the rollout of that step; `plan` is the
        launcher's.
        """
        place = self.root / f"attempt-{attempt}"
        (place / "state").mkdir(parents=True)
        if plan:
            (place / "state" / "plan.json").write_text(plan.model_dump_json(by_alias=True))
        described = Attempt(
            name="tiny", namespace="default", uid="0123456789", generation=1, attempt=attempt, hosts=["localhost"],
            storage_uri="pvc://claim", spec=spec,
        )  # fmt: skip
        (place / "attempt.json").write_text(described.model_dump_json(by_alias=True, exclude_unset=True))
        what = [script] if script else ["-m", "colocated_runtime.worker"]
        ranks = described.spec.world_size
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", *what]
        own = {
            "COLOCATED_ATTEMPT_FILE": str(place / "attempt.json"),
            "COLOCATED_STATE_DIR": str(place / "state"),
            "COLOCATED_STORAGE_DIR": str(self.storage),
            "COLOCATED_REWARDS_DIR": str(REWARDS),
            "RECORDER_DIR": str(place),
            "RECORDER_STOP_AT": "" if stop_at is None else str(stop_at),
            **variables,
        }
        log = place / "output"
        if torchrun:
            with log.open("w") as file:
                code = subprocess.run(command, env=os.environ | own, stdout=file, stderr=file).returncode
        else:
            code = self.nursery.run(script, ranks, own, log)
        return Run(
            exit_code=code,
            output=log.read_text(),
            states=[
                RankState.model_validate_json((place / "state" / f"rank-{rank}.json").read_text())
                for rank in range(ranks)
            ],
            records=[
                json.loads(line)
                for file in sorted(place.glob("recorder-*.jsonl"))
                for line in file.read_text().splitlines()
            ],
            directory=self.storage / described.directory,
        )


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    made = Nursery()
    yield made
    made.close()


@pytest.fixture(scope="session")
def make_workplace(tmp_path_factory: pytest.TempPathFactory, models: Path, nursery: Nursery) -> Callable[[], Workplace]:
    """Makes one for each job."""
    return lambda: Workplace(tmp_path_factory.mktemp("workplace"), models, nursery)


@pytest.fixture(scope="module")
def workplace(make_workplace: Callable[[], Workplace]) -> Workplace:
    """Shared by the tests of one module."""
    return make_workplace()


@pytest.fixture(scope="session")
def greedy():
    """greedy(model directory, chats, tokens): the most likely completions by transformers alone, token ids."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    def generate(directory: Path, chats: list[Any], tokens: int) -> list[list[int]]:
        tokenizer = AutoTokenizer.from_pretrained(directory)
        model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
        completions = []
        for chat in chats:
            prompt = tokenizer.apply_chat_template(
                chat, add_generation_prompt=True, return_tensors="pt", return_dict=True
            )
            output = model.generate(**prompt, max_new_tokens=tokens, do_sample=False)
            completions.append(output[0, prompt["input_ids"].shape[1] :].tolist())
        return completions

    return generate
