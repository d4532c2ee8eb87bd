"""Jobs with one mistake each, and what is said about it: by the API server, and by `refusals` without one."""

import copy
from typing import Any, NamedTuple

GOOD: dict[str, Any] = {
    "model": {"source": "hf://Qwen/Qwen2.5-0.5B-Instruct"},
    "dataset": {"source": "reasoning-gym://chain_sum?size=500"},
    "rewards": [{"name": "reasoning_gym"}],
    "trainer": {"num_generations": 8, "per_device_train_batch_size": 8},
}


class BadJob(NamedTuple):
    """`changes` over GOOD, by dotted path; None removes."""

    name: str
    changes: dict[str, Any]
    at_apply: str
    """Part of the API server's message."""
    refusal: str
    """Part of the refusal's text."""

    @property
    def spec(self) -> dict[str, Any]:
        return changed(GOOD, self.changes)


def changed(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """A copy of `base` with values set, or removed by None, at dotted paths."""
    made = copy.deepcopy(base)
    for path, value in changes.items():
        *parents, last = path.split(".")
        node = made
        for parent in parents:
            node = node.setdefault(parent, {})
        if value is None:
            node.pop(last, None)
        else:
            node[last] = value
    return made


def _owned(option: str, value: Any, field: str) -> BadJob:
    told = f"{option} does not belong here"
    return BadJob(f"owned-{option}", {f"trainer.{option}": value}, told, field)


BAD_JOBS = [
    BadJob("no-model", {"model": None}, "give model, dataset and at least one reward", "model: missing"),
    BadJob("no-dataset", {"dataset": None}, "give model, dataset and at least one reward", "dataset: missing"),
    BadJob("no-reward", {"rewards": []}, "give model, dataset and at least one reward", "rewards: missing"),
    BadJob(
        "model-source",
        {"model.source": "Qwen/Qwen2.5-0.5B"},
        "'Qwen/Qwen2.5-0.5B': use hf://ORGANISATION/NAME",
        "model.source: 'Qwen",
    ),
    BadJob("hub-path", {"model.source": "hf://Qwen/Qwen2.5/main"}, "use hf://ORGANISATION/NAME", "model.source: 'hf:"),
    BadJob("hub-space", {"model.source": "hf://Qwen/Qwen 2.5"}, "use hf://ORGANISATION/NAME", "model.source: 'hf:"),
    BadJob("hub-slash", {"dataset.source": "hf://openai/"}, "use hf://ORGANISATION/NAME", "dataset.source: 'hf:"),
    BadJob("gym-model", {"model.source": "reasoning-gym://gcd"}, "use hf://ORGANISATION/NAME", "it holds no model"),
    BadJob("data-source", {"dataset.source": "s3://bucket/x"}, "or reasoning-gym://TASK", "dataset.source: 's3://"),
    BadJob(
        "revision",
        {"model": {"source": "file:///models/x", "revision": "main"}},
        "only an hf:// source has revisions",
        "model.revision: main",
    ),
    BadJob(
        "system-prompt",
        {"dataset.conversational": False, "dataset.systemPrompt": "Be brief.", "dataset.promptTemplate": "{question}"},
        "a system prompt needs a chat",
        "dataset.systemPrompt needs a chat",
    ),
    BadJob(
        "two-kinds", {"rewards": [{"name": "exact_match", "function": "m:f"}]}, "exactly one of name", "rewards[0]:"
    ),
    BadJob("no-kind", {"rewards": [{"weight": 2}]}, "exactly one of name", "rewards[0]: give exactly one"),
    BadJob(
        "config-map",
        {"rewards": [{"name": "exact_match", "configMap": "code"}]},
        "configMap holds the code of a function",
        "rewards[0].configMap: code",
    ),
    BadJob("reward-model", {"rewards": [{"model": "s3://x"}]}, "use hf://ORGANISATION/NAME", "rewards[0].model: 's3"),
    BadJob(
        "gym-reward",
        {"dataset.source": "hf://openai/gsm8k"},
        "scores tasks of reasoning-gym:// datasets",
        "dataset.source: hf://openai/gsm8k",
    ),
    BadJob(
        "gym-evaluation",
        {"evaluation": {"dataset": {"source": "hf://openai/gsm8k"}}},
        "scores tasks of reasoning-gym:// datasets",
        "evaluation.dataset.source",
    ),
    BadJob(
        "processes-beside-gpus",
        {"gpusPerNode": 2, "processesPerNode": 2},
        "a GPU has one rank",
        "processesPerNode: 2 beside gpusPerNode 2",
    ),
    BadJob("no-gpus", {"device.backend": "cuda"}, "this backend needs GPUs", "device.backend: cuda needs GPUs"),
    BadJob(
        "gpus-in-resources",
        {"gpusPerNode": 1, "resources.limits": {"nvidia.com/gpu": 1}},
        "GPUs are set by gpusPerNode",
        "resources.limits: nvidia.com/gpu",
    ),
    BadJob(
        "resource-name",
        {"gpusPerNode": 1, "resourceName": "cpu"},
        "resourceName must be an extended resource",
        "resourceName: cpu is no extended resource",
    ),
    BadJob(
        "image",
        {"runtime.image": "my image:1"},
        "'my image:1': image must be a reference",
        "runtime.image: 'my image:1'",
    ),
    BadJob("no-image", {"runtime.image": ""}, "image must be a reference", "runtime.image: ''"),
    BadJob("command", {"runtime.command": [""]}, "command begins with a program", "runtime.command: begins with ''"),
    BadJob(
        "no-steps",
        {"trainer.max_steps": 0},
        "max_steps must be above 0",
        "trainer.max_steps: 0 is out of range; use a value above 0",
    ),
    BadJob(
        "tensor-parallel",
        {"gpusPerNode": 6, "parallelism.tensorParallel": 4, "trainer.per_device_train_batch_size": 4},
        "tensorParallel 4 does not divide the 6 ranks of a node",
        "parallelism.tensorParallel: 4 does not divide the 6 ranks",
    ),
    BadJob("sharding", {"parallelism.sharding": "zero3"}, "use fsdp", "parallelism.sharding: zero3"),
    BadJob(
        "sharding-one-rank",
        {"parallelism.sharding": "fsdp"},
        "this job has one",
        "parallelism.sharding: fsdp: this job has one rank",
    ),
    BadJob(
        "sharding-offload",
        {"gpusPerNode": 2, "parallelism.sharding": "fsdp", "memory.offload": "optimizer"},
        "leave one of them out",
        "memory.offload: optimizer: not with parallelism.sharding: fsdp",
    ),
    BadJob(
        "offload", {"memory.offload": "optimizerAndGradients"}, "use optimizer", "memory.offload: optimizerAndGradients"
    ),
    BadJob(
        "nodes-empty-dir", {"nodes": 2}, "several nodes need storage that they share", "checkpoint.storage: an emptyDir"
    ),
    BadJob(
        "nodes-read-write-once",
        {"nodes": 2, "checkpoint.storage.volumeClaimTemplate": {"accessModes": ["ReadWriteOnce"]}},
        "several nodes need storage that they share",
        "accessModes: ReadWriteOnce cannot serve 2 nodes",
    ),
    BadJob(
        "two-storages",
        {"checkpoint.storage": {"claim": "c", "emptyDir": {}}},
        "give exactly one of claim, volumeClaimTemplate and emptyDir",
        "checkpoint.storage: give exactly one",
    ),
    BadJob(
        "claim-name",
        {"checkpoint.storage": {"claim": "A b"}},
        "no name that a PersistentVolumeClaim can have",
        "checkpoint.storage.claim: 'A b' is no name",
    ),
    BadJob(
        "config-map-name",
        {"rewards": [{"function": "code:score", "configMap": "Bad Name"}]},
        "'Bad Name': no name that a ConfigMap can have",
        "rewards[0].configMap: 'Bad Name' is no name",
    ),
    BadJob("claim-source", {"model.source": "pvc://a-/m"}, "use hf://ORGANISATION/NAME", "model.source: 'pvc:"),
    *(
        BadJob(f"path-above-{name}", {field: value}, "a path with .. leaves the claim", refusal)
        for name, field, value, refusal in (
            ("model", "model.source", "pvc://c/../other", "model.source: 'pvc://c/../other'"),
            ("data", "dataset.source", "pvc://c/a/..", "dataset.source: 'pvc://c/a/..'"),
            ("reward", "rewards", [{"model": "pvc://c/.."}], "rewards[0].model: 'pvc://c/..'"),
        )
    ),
    BadJob(
        "product",
        {"gpusPerNode": 1, "device.product": "NVIDIA H200"},
        "'NVIDIA H200': no value of a node's label",
        "device.product: 'NVIDIA H200' is no value",
    ),
    BadJob(
        "request-above-limit",
        {"resources": {"requests": {"cpu": 4, "memory": "2Gi"}, "limits": {"cpu": "3500m", "memory": "2048Mi"}}},
        "requests.cpu: 4 is more than its limit 3500m",
        "resources.requests.cpu: 4 is more than its limit 3500m",
    ),
    BadJob(
        "size-limit",
        {"checkpoint.storage": {"emptyDir": {"sizeLimit": "10 Gi"}}},
        "'10 Gi': not a quantity; write e.g. 16Gi",
        "'10 Gi' is no quantity",
    ),
    BadJob("sleep-on-cpu", {"memory.sleepLevel": 1}, "the engine cannot sleep on CPUs", "memory.sleepLevel: 1"),
    BadJob("float16", {"model.dtype": "float16"}, "float16 cannot be trained in full", "model.dtype: float16"),
    BadJob("lm-head", {"lora.target_modules": ["q_proj", "lm_head"]}, "leave lm_head out", "lora.target_modules: an"),
    BadJob("all-linear", {"lora.target_modules": ["q_proj", "all-linear"]}, "all-linear stands alone", "stands alone"),
    BadJob(
        "variable",
        {"runtime.env": [{"name": "A", "value": "1", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]},
        "give exactly one of value and valueFrom",
        "runtime.env[0]: A",
    ),
    BadJob(
        "batch",
        {"trainer.num_generations": 7},
        "the generation batch 8 (per_device_train_batch_size x all ranks x steps_per_generation",
        "trainer.num_generations: 7 does not divide the generation batch 8",
    ),
    BadJob(
        "batch-of-all-ranks",
        {"trainer.num_generations": 5, "gpusPerNode": 4, "trainer.gradient_accumulation_steps": 2},
        "the generation batch 64",
        "trainer.num_generations: 5 does not divide the generation batch 64",
    ),
    BadJob(
        "generation-batch",
        {"trainer.generation_batch_size": 12},
        "generation_batch_size 12 is no multiple of per_device_train_batch_size x all ranks = 8",
        "trainer.generation_batch_size: 12 is no multiple",
    ),
    BadJob(
        "both-batches",
        {"trainer.generation_batch_size": 16, "trainer.steps_per_generation": 2},
        "set only one of generation_batch_size and steps_per_generation",
        "trainer.generation_batch_size: 16 beside steps_per_generation 2",
    ),
    BadJob(
        "one-generation",
        {"trainer.num_generations": 1},
        "'1': num_generations must be at least 2",
        "trainer.num_generations: 1 is too small; use at least 2",
    ),
    BadJob(
        "no-batch",
        {"trainer.per_device_train_batch_size": 0},
        "per_device_train_batch_size must be at least 1",
        "trainer.per_device_train_batch_size: 0 is too small",
    ),
    BadJob(
        "lengths",
        {"trainer.max_completion_length": 512, "trainer.vllm_max_model_length": 512},
        "max_completion_length 512 leaves no room for a prompt in vllm_max_model_length 512",
        "trainer.vllm_max_model_length: 512",
    ),
    BadJob("type", {"trainer.num_generations": "eight"}, "must be of type integer", "'eight' is not a whole number"),
    BadJob("quantity", {"device.memory": "80GB"}, "not a quantity; write e.g. 16Gi", "'80GB' is no quantity"),
    BadJob("unknown-field", {"nodez": 2}, "unknown field", "nodez"),
    BadJob(
        "unknown-variable-source",
        {"runtime.envFrom": [{"secret": {"name": "x"}}]},
        "unknown field",
        "secret",
    ),
    _owned("vllm_gpu_memory_utilization", 0.4, "memory.gpuMemoryUtilization"),
    _owned("vllm_tensor_parallel_size", 2, "parallelism.tensorParallel"),
    _owned("save_steps", 10, "checkpoint.everySteps"),
    _owned("save_total_limit", 2, "checkpoint.keep"),
    _owned("output_dir", "/tmp/x", "checkpoint.storage"),
    _owned("use_vllm", True, "vLLM generates"),
    _owned("vllm_mode", "server", "vLLM generates"),
    _owned("reward_weights", [1.0], "rewards[].weight"),
    _owned("bf16", True, "model.dtype"),
    _owned("fp16", True, "model.dtype"),
    _owned("resume_from_checkpoint", "/x", "newest complete checkpoint"),
    _owned("deepspeed", {"zero_optimization": {"stage": 3}}, "parallelism.sharding"),
    _owned("report_to", "wandb", "status"),
    _owned("eval_strategy", "steps", "evaluation.everySteps"),
    _owned("auto_find_batch_size", True, "per_device_train_batch_size"),
    _owned("enable_jit_checkpoint", True, "saves by itself"),
]
"""Each is refused at `kubectl apply`, and by `refusals`."""
