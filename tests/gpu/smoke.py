"""The worker on one NVIDIA GPU: real jobs of random models through `colocated run`, and what they reported.

    python tests/gpu/smoke.py OUT_DIR [CASE ...]     prints a JSON line a case; logs and reports go to OUT_DIR

No model hub is needed: weights are random, the tokenizer knows bytes only. Exit code 1 if a case did not complete.
"""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch
import yaml

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from tests.unit.worker import tiny_model  # noqa: E402
from transformers import Qwen2Config, Qwen2ForCausalLM  # noqa: E402

TRAINER = {
    "max_steps": 4, "num_generations": 8, "per_device_train_batch_size": 16, "max_completion_length": 64,
    "learning_rate": 1.0e-4, "seed": 3,
}  # fmt: skip
QWEN_1_5B = {
    "hidden_size": 1536, "intermediate_size": 8960, "num_hidden_layers": 28, "num_attention_heads": 12,
    "num_key_value_heads": 2, "vocab_size": 151936, "tie_word_embeddings": True, "max_position_embeddings": 4096,
}  # fmt: skip
LARGE = TRAINER | {
    "per_device_train_batch_size": 16, "gradient_accumulation_steps": 4, "max_completion_length": 512,
    "gradient_checkpointing": True, "learning_rate": 1.0e-6,
}  # fmt: skip
CASES: dict[str, dict[str, Any]] = {
    "grpo": {},
    "rloo-beta": {"algorithm": "rloo", "trainer": TRAINER | {"beta": 0.05}},
    "lora": {"lora": {"r": 8}},
    "sleep-level-1": {"memory": {"sleepLevel": 1}},
    "qwen-1b5": {"model": "large", "trainer": LARGE, "memory": {"gpuMemoryUtilization": 0.3}},
}


def write_models(where: Path) -> None:
    """tiny: two layers. large: Qwen2.5-1.5B's shape, random."""
    tiny_model.write("policy", where / "tiny")
    if not (where / "large").exists():
        config = Qwen2Config(**QWEN_1_5B, eos_token_id=2, bos_token_id=None, pad_token_id=0)
        with torch.device("cuda"):
            Qwen2ForCausalLM(config).to(torch.bfloat16).save_pretrained(where / "large")
        tiny_model.tokenizer().save_pretrained(where / "large")


def job(name: str, where: Path, changes: dict[str, Any]) -> dict[str, Any]:
    spec = {
        "dataset": {"source": "reasoning-gym://chain_sum?size=64&seed=1"},
        "evaluation": {"dataset": {"source": "reasoning-gym://chain_sum?size=16&seed=2"}, "maxPrompts": 16},
        "rewards": [{"name": "reasoning_gym"}],
        "trainer": TRAINER,
        "gpusPerNode": 1,
        "checkpoint": {"everySteps": 4, "keep": 1, "storage": {"emptyDir": {}}},
        **changes,
    }
    spec["model"] = {"source": f"file://{where / changes.get('model', 'tiny')}", "dtype": "bfloat16"}
    return {
        "apiVersion": "rl.colocated.dev/v1alpha1", "kind": "ColocatedRLJob", "metadata": {"name": name}, "spec": spec,
    }  # fmt: skip


def run(name: str, out: Path, models: Path) -> bool:
    file = out / f"{name}.yaml"
    file.write_text(yaml.safe_dump(job(name, models, CASES[name])))
    began = time.monotonic()
    command = [sys.executable, "-m", "colocated_operator.cli", "run", str(file), "--storage", str(out / name)]
    with (out / f"{name}.txt").open("w") as said:
        code = subprocess.run(command, stdout=said, stderr=subprocess.STDOUT, timeout=300).returncode
    state = next((out / name).rglob("rank-0.json"), None)
    told = json.loads(state.read_text()) if state else {}
    line = {
        "case": name, "exit": code, "seconds": round(time.monotonic() - began, 1), "outcome": told.get("outcome"),
        "message": told.get("message"), "weights": told.get("weights"), "throughput": told.get("throughput"),
        "GiB": {phase: round(peak["deviceBytes"] / 2**30, 2) for phase, peak in told.get("peaks", {}).items()},
    }  # fmt: skip
    print(json.dumps(line), flush=True)
    for heavy in (out / name).rglob("*.safetensors"):
        heavy.unlink()
    return code == 0


def main() -> int:
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    models = Path("/tmp/gpu-smoke-models")
    models.mkdir(exist_ok=True)
    write_models(models)
    completed = [run(name, out, models) for name in sys.argv[2:] or CASES]
    return 0 if all(completed) else 1


if __name__ == "__main__":
    sys.exit(main())
