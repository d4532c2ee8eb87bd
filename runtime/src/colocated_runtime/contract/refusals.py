"""What cannot run, said before a pod exists: each refusal names field, value and way out. Pure.

All that `rules` says in CEL, for jobs that no API server has seen, and what CEL cannot tell.
"""

import re
from collections.abc import Collection, Iterator, Mapping

from colocated_runtime.contract import devices, pod_resources, pod_template, template, trainer, uris
from colocated_runtime.contract.batches import batches
from colocated_runtime.contract.job import Dataset, JobSpec, Lora, Reward, Runtime
from colocated_runtime.contract.names import ENV_MASTER_PORT, OBJECT_NAME, OPERATORS_VARIABLES
from colocated_runtime.contract.pod_resources import MOST_BYTES
from colocated_runtime.contract.rules import IMAGE, LABEL, RESOURCE_NAME
from colocated_runtime.contract.sources import named_sources
from colocated_runtime.contract.values import port, quantity_bytes

LEAST_DEVICE = 1 << 30
"""No device that a model is trained on has less."""
LEAST_BYTES = 1 << 20
"""Nobody means less as the memory of a pod, or as a volume: the unit is missing."""
MOST_ROWS = 10_000_000
"""Of a reasoning-gym dataset, all of which are made before training."""
REASONING_GYM_SIZE = 500
"""Rows of a reasoning-gym dataset that says no size."""

SHARDING_VARIABLES = {
    "ACCELERATE_USE_DEEPSPEED": "DeepSpeed's ZeRO is not supported yet",
    "ACCELERATE_USE_FSDP": "FSDP is switched on by parallelism.sharding: fsdp",
    "ACCELERATE_USE_MEGATRON_LM": "TRL has no code for Megatron-LM, whose backward pass would silently do nothing",
    "ACCELERATE_USE_PARALLELISM_CONFIG": "tensor and context parallel training are not supported",
}
"""By which accelerate would spread the trainer's model over the ranks, past parallelism.sharding."""
WAYS_OUT = (
    "leave it out: parallelism.sharding: fsdp shares the trainer's states out over the ranks,"
    " parallelism.tensorParallel divides the engine's weights, and lora or memory.offload: optimizer make room"
)


def sharding_variables(env: Mapping[str, str]) -> list[str]:
    """Of SHARDING_VARIABLES those that are on in `env`."""
    return [name for name in SHARDING_VARIABLES if env.get(name, "false").lower() in ("true", "1", "yes", "on")]


def refusals(spec: JobSpec) -> list[str]:
    """All that is wrong with `spec`; empty where it can run. With runtime.command only the pods are looked at."""
    found = [*_pods(spec), *_sources(spec)]
    if spec.runtime.command:
        return found
    found += [*_complete(spec), *_model(spec), *_rewards(spec), *_datasets(spec), *trainer.refusals(spec)]
    return found or list(_rows(spec))


def clash(config_maps: Mapping[str, Collection[str]]) -> str:
    """What is wrong with the keys of the rewards' ConfigMaps, by name; empty where nothing is."""
    for key in sorted({key for keys in config_maps.values() for key in keys if key.endswith(".py")}):
        *others, last = sorted(name for name, keys in config_maps.items() if key in keys)
        if others:
            return (
                f"rewards[].configMap: {', '.join(others)} and {last} hold {key}, and Python imports only one of a"
                " name; rename the others"
            )
    return ""


def no_size(amount: str, least: int) -> str:
    """What is wrong with `amount`, a quantity, as the size of a memory or a disk; empty where nothing is."""
    size = quantity_bytes(amount)
    if 0 < size < least:
        meant = f"{amount}Gi" if amount.isdecimal() and size < 1024 else "e.g. 80Gi"
        return f"{amount} is {size} bytes, too few to mean it; write {meant}"
    return "" if 0 < size < MOST_BYTES else f"{amount} is no size of a memory; write e.g. 80Gi"


def _complete(spec: JobSpec) -> Iterator[str]:
    needed = {"model": spec.model, "dataset": spec.dataset, "rewards": spec.rewards}
    for field, value in needed.items():
        if not value:
            yield f"{field}: missing; give model, dataset and at least one reward, or runtime.command"


def _pods(spec: JobSpec) -> Iterator[str]:
    if spec.gpus_per_node and spec.processes_per_node is not None:
        yield (
            f"processesPerNode: {spec.processes_per_node} beside gpusPerNode {spec.gpus_per_node}; a GPU has one rank:"
            " leave one of them out"
        )
    if spec.backend != "cpu" and not spec.gpus_per_node:
        yield f"device.backend: {spec.backend} needs GPUs; set gpusPerNode, or device.backend to cpu"
    if spec.backend == "rocm" and spec.runtime.image is None:
        yield "device.backend: rocm has no image yet; set runtime.image to your own, or use cuda"
    if spec.device.product is not None and not re.fullmatch(LABEL, spec.device.product):
        yield (
            f"device.product: {spec.device.product!r} is no value of a node's label; write it as the label does, e.g."
            " NVIDIA-H100-80GB-HBM3"
        )
    else:
        yield from devices.refusals(spec)
    if not re.fullmatch(RESOURCE_NAME, spec.resource_name):
        yield (
            f"resourceName: {spec.resource_name} is no extended resource; use e.g. nvidia.com/gpu, or leave it out for"
            " a job on CPUs"
        )
    yield from _memory(spec)
    yield from pod_template.refusals(spec.runtime.pod_template)
    yield from pod_resources.refusals(spec)
    if spec.ranks_per_node % spec.parallelism.tensor_parallel:
        yield (
            f"parallelism.tensorParallel: {spec.parallelism.tensor_parallel} does not divide the {spec.ranks_per_node}"
            " ranks of a node; use a divisor of it, or change gpusPerNode"
        )
    yield from _runtime(spec.runtime)
    yield from _storage(spec)
    yield from _names(spec)


def _runtime(runtime: Runtime) -> Iterator[str]:
    if runtime.image is not None and not re.fullmatch(IMAGE, runtime.image):
        yield (
            f"runtime.image: {runtime.image!r} is no reference; use e.g. registry.example/team/name:tag, or leave it"
            " out"
        )
    if runtime.command and not runtime.command[0].strip():
        yield f"runtime.command: begins with {runtime.command[0]!r}; begin with a program, or leave it out"
    for index, variable in enumerate(runtime.env):
        if (variable.value is None) == (variable.value_from is None):
            yield f"runtime.env[{index}]: {variable.name}: give exactly one of value and valueFrom"
        if variable.name in OPERATORS_VARIABLES:
            yield f"runtime.env[{index}]: {variable.name} is the operator's own; leave it out"
        if variable.name == ENV_MASTER_PORT and variable.value is not None:
            try:
                port(variable.value)
            except ValueError as error:
                yield f"runtime.env[{index}]: {variable.name}: {error}, or leave it out"


def _memory(spec: JobSpec) -> Iterator[str]:
    storage, resources = spec.checkpoint.storage, spec.resources
    amounts = {
        "device.memory": spec.device.memory,
        "resources.requests.memory": resources.requests.get("memory"),
        "resources.limits.memory": resources.limits.get("memory"),
        "checkpoint.storage.volumeClaimTemplate.storage": storage.volume_claim_template
        and storage.volume_claim_template.storage,
        "checkpoint.storage.emptyDir.sizeLimit": storage.empty_dir and storage.empty_dir.size_limit,
    }
    for field, amount in amounts.items():
        wrong = amount and no_size(amount, LEAST_DEVICE if field == "device.memory" else LEAST_BYTES)
        if wrong:
            yield f"{field}: {wrong}"


def _storage(spec: JobSpec) -> Iterator[str]:
    storage = spec.checkpoint.storage
    kinds = (storage.claim, storage.volume_claim_template, storage.empty_dir)
    if sum(kind is not None for kind in kinds) != 1:
        yield "checkpoint.storage: give exactly one of claim, volumeClaimTemplate and emptyDir"
        return
    if spec.nodes == 1 or storage.claim:
        return
    if storage.empty_dir:
        yield (
            f"checkpoint.storage: an emptyDir is one pod's own, and nodes is {spec.nodes}; use a claim, or a"
            " volumeClaimTemplate with accessModes: [ReadWriteMany]"
        )
    elif storage.volume_claim_template and "ReadWriteMany" not in storage.volume_claim_template.access_modes:
        modes = ", ".join(storage.volume_claim_template.access_modes)
        yield (
            f"checkpoint.storage.volumeClaimTemplate.accessModes: {modes} cannot serve {spec.nodes} nodes; use"
            " [ReadWriteMany]"
        )


def _names(spec: JobSpec) -> Iterator[str]:
    """What no object can be called, and would be waited for without end."""
    for field, kind, name in named_objects(spec):
        if not re.fullmatch(OBJECT_NAME, name):
            yield (
                f"{field}: {name!r} is no name that a {kind} can have; use that of an existing one: lower-case letters,"
                " digits, - and ."
            )


def named_objects(spec: JobSpec) -> Iterator[tuple[str, str, str]]:
    """Field, kind and name of the objects that have to exist; claims of sources are part of their URIs."""
    if spec.checkpoint.storage.claim is not None:
        yield "checkpoint.storage.claim", "PersistentVolumeClaim", spec.checkpoint.storage.claim
    for index, reward in enumerate(spec.rewards):
        if reward.config_map is not None:
            yield f"rewards[{index}].configMap", "ConfigMap", reward.config_map
    for index, variable in enumerate(spec.runtime.env):
        source = variable.value_from or {}
        if secret := source.get("secretKeyRef"):
            yield f"runtime.env[{index}].valueFrom.secretKeyRef.name", "Secret", secret["name"]
        if config_map := source.get("configMapKeyRef"):
            yield f"runtime.env[{index}].valueFrom.configMapKeyRef.name", "ConfigMap", config_map["name"]
    for index, keys in enumerate(spec.runtime.env_from):
        if whole := keys.get("secretRef"):
            yield f"runtime.envFrom[{index}].secretRef.name", "Secret", whole["name"]
        if whole := keys.get("configMapRef"):
            yield f"runtime.envFrom[{index}].configMapRef.name", "ConfigMap", whole["name"]


def _sources(spec: JobSpec) -> Iterator[str]:
    for named in named_sources(spec):
        yield from _source(*named)


def _source(field: str, uri: str, kind: str, revision: str | None) -> Iterator[str]:
    try:
        source = uris.parse(uri)
    except ValueError as error:
        yield f"{field}: {error}"
        return
    if source.scheme == "reasoning-gym" and kind == "model":
        yield f"{field}: {uri} makes tasks, it holds no model; use hf://, pvc:// or file://"
    size = source.query.get("size", "1")
    if source.scheme == "reasoning-gym" and not (size.isdecimal() and 1 <= int(size[:20]) <= MOST_ROWS):
        yield f"{field}: size={size} in {uri} is no number of rows up to {MOST_ROWS}; use e.g. size=1000"
    if revision and source.scheme != "hf":
        yield f"{field.rpartition('.')[0]}.revision: {revision}: only an hf:// source has revisions; leave it out"


def _all_datasets(spec: JobSpec) -> Iterator[tuple[str, Dataset]]:
    if spec.dataset:
        yield "dataset", spec.dataset
    if spec.evaluation:
        yield "evaluation.dataset", spec.evaluation.dataset


def _datasets(spec: JobSpec) -> Iterator[str]:
    scored = any(reward.name == "reasoning_gym" for reward in spec.rewards)
    for field, dataset in _all_datasets(spec):
        wrong = dataset.prompt_template and template.flaw(dataset.prompt_template)
        if wrong:
            yield f"{field}.promptTemplate: {wrong}"
        if dataset.system_prompt and dataset.prompt_template and not dataset.conversational:
            yield f"{field}.systemPrompt needs a chat; set conversational: true, or put it into promptTemplate"
        if scored and not dataset.source.startswith("reasoning-gym://"):
            yield (
                f"{field}.source: {dataset.source} has no reasoning-gym tasks, which the reward reasoning_gym scores;"
                " use reasoning-gym://TASK, or another reward"
            )


def _model(spec: JobSpec) -> Iterator[str]:
    model = spec.model
    yield from _sharding(spec)
    for name in sharding_variables({variable.name: variable.value or "true" for variable in spec.runtime.env}):
        yield f"runtime.env: {name}: {SHARDING_VARIABLES[name]}; {WAYS_OUT}"
    if spec.memory.offload == "optimizerAndGradients":
        yield "memory.offload: optimizerAndGradients is not supported yet; use optimizer"
    if spec.memory.offload == "optimizer" and spec.backend == "cpu":
        yield "memory.offload: optimizer: on CPUs there is no device memory to free; leave it out"
    if spec.memory.sleep_level and spec.backend == "cpu":
        yield f"memory.sleepLevel: {spec.memory.sleep_level}: the engine cannot sleep on CPUs; leave it out"
    if model and model.dtype == "float16" and spec.lora is None:
        yield "model.dtype: float16 cannot be trained in full; use bfloat16, or float16 with lora"
    if model and spec.backend == "cuda":
        yield from devices.wrong_dtype(model.dtype, spec.device.product)
    if spec.lora:
        yield from _lora(spec.lora)


def _sharding(spec: JobSpec) -> Iterator[str]:
    sharding = spec.parallelism.sharding
    if sharding == "none":
        return
    if sharding != "fsdp":
        yield (
            f"parallelism.sharding: {sharding} is not supported yet; use fsdp, which shares weights, gradients and"
            " optimizer states out over the ranks as zero3 does"
        )
    if spec.world_size == 1:
        yield f"parallelism.sharding: {sharding}: this job has one rank; use none, or a larger gpusPerNode"
    if spec.memory.offload == "optimizer":
        yield f"memory.offload: optimizer: not with parallelism.sharding: {sharding}; leave one of them out"


def _lora(lora: Lora) -> Iterator[str]:
    if not lora.target_modules:
        yield "lora.target_modules: empty; name modules, or leave it out for all linear layers"
    if "all-linear" in lora.target_modules and len(lora.target_modules) > 1:
        yield f"lora.target_modules: {', '.join(lora.target_modules)}: all-linear stands alone; leave the others out"
    if any(name.rpartition(".")[2] == "lm_head" for name in lora.target_modules):
        yield "lora.target_modules: an adapter on lm_head would never be trained; leave lm_head out"


def _rewards(spec: JobSpec) -> Iterator[str]:
    for index, reward in enumerate(spec.rewards):
        yield from _reward(f"rewards[{index}]", reward)


def _reward(field: str, reward: Reward) -> Iterator[str]:
    if sum(kind is not None for kind in (reward.name, reward.function, reward.model)) != 1:
        yield f"{field}: give exactly one of name, function and model"
    if reward.config_map and reward.function is None:
        yield f"{field}.configMap: {reward.config_map} holds the code of a function; set function too, or leave it out"


def _rows(spec: JobSpec) -> Iterator[str]:
    """Too few prompts for one rollout, where their number is known."""
    known = spec.dataset and spec.dataset.max_samples
    if spec.dataset and spec.dataset.source.startswith("reasoning-gym://"):
        size = uris.parse(spec.dataset.source).query.get("size", "")
        made = int(size) if size.isdecimal() else REASONING_GYM_SIZE
        known = min(made, known or made)
    few = known and batches(spec.trainer, spec.algorithm, spec.world_size).too_few(known)
    if few:
        yield few
