"""Predicted and measured memory side by side: each case is planned, then run on one NVIDIA GPU through `colocated run`.

    python benchmarks/memory_peaks.py OUT_DIR [CASE ...] [--plan-only]

Prints a Markdown table: GiB of the whole device at the peak of each phase, as planned / as seen. What was seen goes
to OUT_DIR/memory_peaks.jsonl as well, a line a case; those kept in benchmarks/results are in docs/memory.md. Weights
are random and completions run to their full length, so that both sides speak of the same job. A case ends with its
second step: nothing is saved, except where its name says so. Exit code 1 if a case did not come that far.
"""

import argparse
import json
import multiprocessing
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from colocated_runtime.contract.job import JobSpec
from colocated_runtime.contract.plan import Plan
from colocated_runtime.contract.report import Phase, RankState
from colocated_runtime.planner.devices import hardware_of
from colocated_runtime.planner.plan import make_plan
from colocated_runtime.planner.shapes import shape_of_config

ROOT = Path(__file__).parents[1]
GIB = 2**30
PROMPT_TOKENS = 64
STEPS = 2
"""The second has the optimizer's state on the device from its start."""
LIMIT_SECONDS = 240
QWEN = {
    "vocab_size": 151_936,
    "max_position_embeddings": 8192,
    "model_type": "qwen2",
    "architectures": ["Qwen2ForCausalLM"],
}
SHAPES = {
    "1.5b": QWEN | {
        "hidden_size": 1536, "intermediate_size": 8960, "num_hidden_layers": 28, "num_attention_heads": 12,
        "num_key_value_heads": 2, "tie_word_embeddings": True,
    },
    "7b": QWEN | {
        "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28, "num_attention_heads": 28,
        "num_key_value_heads": 4, "vocab_size": 152_064, "tie_word_embeddings": False,
    },
}  # fmt: skip
"""Qwen2.5's."""


def case(
    model: str, tokens: int, utilization: float, *, micro: int = 8, checkpointing: bool = True, beta: float = 0.0,
    **more: Any,
) -> dict[str, Any]:  # fmt: skip
    """64 completions a step; with `beta`, a reference model, and a reward model of the policy's size."""
    trainer = {
        "max_steps": STEPS, "num_generations": 8, "per_device_train_batch_size": micro,
        "gradient_accumulation_steps": 64 // micro, "max_completion_length": tokens, "learning_rate": 1e-6,
        "gradient_checkpointing": checkpointing, "generation_kwargs": {"ignore_eos": True}, "seed": 3,
        "beta": beta,
    }  # fmt: skip
    memory = {"gpuMemoryUtilization": utilization, "sleepLevel": 2, **more.pop("memory", {})}
    return {"model": model, "trainer": trainer, "memory": memory, **more}


CASES: dict[str, dict[str, Any]] = {
    "1.5b-512-sleep-saved": case("1.5b", 512, 0.3),
    "1.5b-512-no-sleep": case("1.5b", 512, 0.3, memory={"sleepLevel": 0}),
    "1.5b-2048-sleep": case("1.5b", 2048, 0.3),
    "1.5b-512-no-checkpointing": case("1.5b", 512, 0.3, checkpointing=False),
    "1.5b-512-lora": case("1.5b", 512, 0.3, lora={"r": 16}),
    "7b-512-sleep": case("7b", 512, 0.5),
    "7b-512-no-sleep": case("7b", 512, 0.4, memory={"sleepLevel": 0}),
    "7b-2048-sleep": case("7b", 2048, 0.5),
    "7b-512-level-1": case("7b", 512, 0.5, memory={"sleepLevel": 1}),
    "7b-512-lora": case("7b", 512, 0.5, lora={"r": 16}),
    "7b-512-reference-reward": case("7b", 512, 0.3, beta=0.04),
}


def scorer_of(model: str) -> str:
    """The directory of a reward model as large."""
    return f"{model}-reward"


def spec(name: str, models: Path) -> dict[str, Any]:
    settings = dict(CASES[name])
    model = settings.pop("model")
    scorer = (
        {"model": f"file://{models / scorer_of(model)}"} if settings["trainer"]["beta"] else {"name": "exact_match"}
    )
    return {
        "model": {"source": f"file://{models / model}", "dtype": "bfloat16"},
        "dataset": {"source": f"file://{models / 'prompts.jsonl'}", "conversational": False},
        "rewards": [scorer],
        "gpusPerNode": 1,
        "checkpoint": {"everySteps": 1000, "storage": {"emptyDir": {}}},
        **settings,
    }


def write_inputs(models: Path, wanted: set[str]) -> None:
    """Random models for the cases `wanted`, and prompts of `PROMPT_TOKENS` bytes, each a token.

    In a process of its own: it uses the GPU.
    """
    sys.path.insert(0, str(ROOT))
    import torch
    from tests.unit.worker import tiny_model
    from transformers import Qwen2Config, Qwen2ForCausalLM, Qwen2ForSequenceClassification

    models.mkdir(parents=True, exist_ok=True)
    rows = [{"prompt": f"{number:0{PROMPT_TOKENS}d}", "answer": "no"} for number in range(64)]
    (models / "prompts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    scorers = {scorer_of(CASES[name]["model"]) for name in wanted if CASES[name]["trainer"]["beta"]}
    for model in scorers | {CASES[name]["model"] for name in wanted}:
        if (models / model).exists():
            continue
        kind, more = (Qwen2ForSequenceClassification, {"num_labels": 1}) if model in scorers else (Qwen2ForCausalLM, {})
        sizes = SHAPES[model.removesuffix(scorer_of(""))]
        config = Qwen2Config(**sizes, **more, eos_token_id=2, bos_token_id=None, pad_token_id=0)
        with torch.device("cuda"):
            kind(config).to(torch.bfloat16).save_pretrained(models / model)
        tiny_model.tokenizer().save_pretrained(models / model)


def planned(name: str, models: Path, device_bytes: int, product: str) -> Plan:
    """What the launcher plans in front of this device. It does not know the prompts' lengths either."""
    job = JobSpec.model_validate(spec(name, models) | {"device": {"product": product, "memory": str(device_bytes)}})
    hardware = hardware_of(job)
    assert hardware is not None
    shape = shape_of_config(SHAPES[CASES[name]["model"]])
    rewards = {reward.model: shape for reward in job.rewards if reward.model}
    return make_plan(job, shape, replace(hardware, device_bytes=device_bytes), rewards=rewards)


def measured(name: str, out: Path, models: Path) -> RankState | None:
    """The rank's state once it has done its steps; None if it did not come that far."""
    job = {
        "apiVersion": "rl.colocated.dev/v1alpha1", "kind": "ColocatedRLJob", "metadata": {"name": "peaks"},
        "spec": spec(name, models),
    }  # fmt: skip
    saves = name.endswith("-saved")
    if not saves:
        job["spec"]["trainer"]["max_steps"] = 1000
    file = out / f"{name}.yaml"
    file.write_text(yaml.safe_dump(job))
    command = [sys.executable, "-m", "colocated_operator.cli", "run", str(file), "--storage", str(out / name)]
    with (out / f"{name}.txt").open("w") as said:
        process = subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT)
        try:
            return _wait(process, out / name, saves)
        finally:
            _end(process)


def _end(process: "subprocess.Popen[bytes]") -> None:
    """At once: launcher and ranks would save first."""
    import psutil  # comes with vLLM

    if process.poll() is None:
        for child in psutil.Process(process.pid).children(recursive=True):
            child.kill()
    process.kill()
    process.wait()


def _wait(process: "subprocess.Popen[bytes]", storage: Path, saves: bool) -> RankState | None:
    began = time.monotonic()
    while time.monotonic() - began < LIMIT_SECONDS:
        file = next(storage.rglob("rank-0.json"), None)
        state = RankState.model_validate_json(file.read_bytes()) if file else None
        ended = process.poll() is not None
        if state and state.progress.step >= STEPS and (ended or not saves):
            return state
        if ended:
            return None
        time.sleep(1)
    return None


def line(name: str, device_bytes: int, state: RankState) -> dict[str, Any]:
    """What is kept of a case: GiB by phase, seconds of a step."""
    import torch
    import transformers
    import trl
    import vllm

    return {
        "case": name, "device": torch.cuda.get_device_name(), "deviceBytes": device_bytes,
        "versions": {module.__name__: module.__version__ for module in (torch, vllm, trl, transformers)},
        "seen": {phase.value: round(peak.device_bytes / GIB, 1) for phase, peak in state.peaks.items()},
        "stepSeconds": state.metrics.get("step_time"),
    }  # fmt: skip


def row(name: str, plan: Plan, state: RankState | None) -> str:
    """One line of the table."""
    cells = []
    for phase in (Phase.ROLLOUT, Phase.SYNC, Phase.SCORE, Phase.TRAIN, Phase.CHECKPOINT):
        predicted = plan.phase(phase)
        wanted = f"{predicted.device_bytes / GIB:.1f}" if predicted else "-"
        peak = state.peaks.get(phase) if state else None
        cells.append(f"{wanted} / {peak.device_bytes / GIB:.1f}" if peak else f"{wanted} / -")
    seconds = state.metrics.get("step_time", 0.0) if state else 0.0
    return f"| {name} | " + " | ".join(cells) + f" | {plan.step_seconds:.1f} / {seconds:.1f} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("cases", nargs="*", default=list(CASES))
    parser.add_argument("--plan-only", action="store_true", help="for an H200, without a GPU")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    models, total, product = options.out / "models", int(139.8 * GIB), "NVIDIA-H200"
    if not options.plan_only:
        import torch

        device = torch.cuda.get_device_properties(0)
        total, product = device.total_memory, device.name.replace(" ", "-")
        writer = multiprocessing.get_context("spawn").Process(target=write_inputs, args=(models, set(options.cases)))
        writer.start()
        writer.join()
    print("| case | rollout | sync | score | train | checkpoint | step s |\n|---|---|---|---|---|---|---|", flush=True)
    complete = True
    for name in options.cases:
        plan = planned(name, models, total, product)
        state = None if options.plan_only else measured(name, options.out, models)
        complete = complete and (options.plan_only or state is not None)
        if state is not None:
            with (options.out / "memory_peaks.jsonl").open("a") as kept:
                kept.write(json.dumps(line(name, total, state)) + "\n")
        print(row(name, plan, state), flush=True)
    return 0 if complete else 1


if __name__ == "__main__":
    sys.exit(main())
