"""The real thing in real pods: TRL and vLLM train SmolLM2-135M-Instruct."""

import json

import pytest
import yaml
from tests.cluster.kube import ROOT, apply, events, eventually, items, job, kubectl, reaches, status

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("operator")]

PHASES = {"Start", "Rollout", "Score", "Train", "Sync", "Checkpoint", "Evaluate"}
LOAD_AFRESH = """
import os, pathlib, torch, transformers
from colocated_runtime.contract.job import JobSpec
from colocated_runtime.worker.dataset import load_prompts
from colocated_runtime.worker.rewards.builtin import BUILTIN
from colocated_runtime.worker.sources import Sources

spec, nowhere = JobSpec.model_validate_json(os.environ["SPEC"]), pathlib.Path("/nowhere")
rows = load_prompts(spec.evaluation.dataset, Sources(nowhere), "evaluation.dataset", limit=64)
where = next(pathlib.Path("/storage").glob("*/model"))
tokenizer = transformers.AutoTokenizer.from_pretrained(where, padding_side="left")
model = transformers.AutoModelForCausalLM.from_pretrained(where, dtype=torch.float32)
batch = tokenizer(list(rows["prompt"]), return_tensors="pt", padding=True)
ids = model.generate(**batch, max_new_tokens=spec.trainer["max_completion_length"], do_sample=False)
texts = tokenizer.batch_decode(ids[:, batch["input_ids"].shape[1]:], skip_special_tokens=True)
columns = {name: list(rows[name]) for name in rows.column_names if name != "prompt"}
scores = BUILTIN[spec.rewards[0].name](prompts=list(rows["prompt"]), completions=texts, **columns)
print("mean reward", sum(scores) / len(scores))
"""


def test_demo_learns_and_leaves_a_model_that_loads(namespace: str) -> None:
    (demo,) = yaml.safe_load_all((ROOT / "examples/smollm2-arithmetic.yaml").read_text())
    apply(namespace, demo)
    name, steps = demo["metadata"]["name"], demo["spec"]["trainer"]["max_steps"]
    end = reaches(namespace, name, "Complete", seconds=600)
    assert end["progress"]["step"] == steps
    before, after = end["evaluations"][0], end["evaluations"][-1]
    assert (before["step"], after["step"]) == (0, steps)
    assert (before["prompts"], after["prompts"]) == (64, 64)
    assert after["mean"] > before["high"], "the reward on held-out prompts rises beyond its interval"
    assert {peak["phase"] for peak in end["memory"]["peaks"]} == PHASES
    assert all(peak["hostBytes"] > 200 << 20 for peak in end["memory"]["peaks"])
    assert end["checkpoints"]["kept"][-1]["sizeBytes"] > 500 << 20
    assert end["throughput"]["tokensPerSecond"] > 0
    weights = next(entry for entry in end["conditions"] if entry["type"] == "WeightsInSync")
    assert weights["status"] == "True"
    told = {"Running", "CheckpointSaved", "Complete"}
    eventually(lambda: told <= {entry["reason"] for entry in events(namespace, name)})
    # The same greedy tokens but for near ties, which rounding decides one way or the other.
    assert loaded_afresh(namespace, demo["spec"]) == pytest.approx(after["mean"], abs=0.05)


def loaded_afresh(namespace: str, spec: dict[str, object]) -> float:
    """Mean reward on the held-out prompts of the saved model, loaded by transformers in a pod that mounts the claim."""
    (claim,) = items("pvc", namespace)
    (pod,) = items("pods", namespace)
    container = pod["spec"]["containers"][0]
    mounts = [mount for mount in container["volumeMounts"] if mount["name"] in ("storage", "scratch", "tmp")]
    volumes = [
        {"name": "storage", "persistentVolumeClaim": {"claimName": claim["metadata"]["name"]}},
        {"name": "scratch", "emptyDir": {}},
        {"name": "tmp", "emptyDir": {}},
    ]
    only = {key: container[key] for key in ("name", "image", "securityContext", "env")}
    only["env"] = [*only["env"], {"name": "SPEC", "value": json.dumps(spec)}]
    only |= {"command": ["python", "-c", LOAD_AFRESH], "volumeMounts": mounts}
    spec = {"securityContext": pod["spec"]["securityContext"], "containers": [only], "volumes": volumes,
            "restartPolicy": "Never"}  # fmt: skip
    apply(namespace, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "afresh"}, "spec": spec})
    kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/afresh", "-n", namespace, "--timeout=110s")
    said = kubectl("logs", "afresh", "-n", namespace)
    return next(float(line.split()[-1]) for line in said.splitlines() if line.startswith("mean reward"))


REWARD = """
def score(completions, answer, **columns):
    return [float(right in completion[0]["content"]) for completion, right in zip(completions, answer)]
"""


def test_two_pods_train_together_over_gloo_on_own_data_with_an_own_reward(namespace: str) -> None:
    """The data come as docs/quickstart.md says; each pod has a half of weights, gradients and optimizer states."""
    rows = [{"question": f"What is {number} + 1?", "answer": str(number + 1)} for number in range(32)]
    files = {"questions": {"train.jsonl": "\n".join(map(json.dumps, rows))}, "my-reward": {"mine.py": REWARD}}
    for name, data in files.items():
        apply(namespace, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})
    template = {
        "volumes": [{"name": "data", "configMap": {"name": "questions"}}],
        "containers": [{"name": "colocated", "volumeMounts": [{"name": "data", "mountPath": "/data"}]}],
    }
    spec = {
        "model": {"source": "file:///models/SmolLM2-135M-Instruct", "dtype": "float32"},
        "dataset": {"source": "file:///data/train.jsonl", "promptColumn": "question"},
        "rewards": [{"function": "mine:score", "configMap": "my-reward"}],
        "trainer": {
            "max_steps": 2, "num_generations": 4, "per_device_train_batch_size": 2, "max_completion_length": 8,
        },
        "nodes": 2,
        "parallelism": {"sharding": "fsdp"},
        # Each pod sees all CPUs of the one machine that both are on.
        "runtime": {
            "env": [{"name": "COLOCATED_CPU_THREADS", "value": "1"}],
            "podTemplate": {"spec": template},
        },
        "resources": {"requests": {"cpu": "500m", "memory": "3Gi"}},
        "checkpoint": {"storage": {"volumeClaimTemplate": {"storage": "5Gi", "accessModes": ["ReadWriteMany"]}}},
    }  # fmt: skip
    apply(namespace, job("two-nodes", spec))
    end = reaches(namespace, "two-nodes", "Complete", seconds=600)
    assert end["progress"]["step"] == 2
    assert end["output"]["model"]
    assert len(items("pods", namespace)) == 2
    assert status(namespace, "two-nodes")["restartCount"] == 0
