"""CEL rules of the CRD, by the model on whose schema node they stand. Each message says what to do instead.

`refusals` says the same in Python, for what comes without an API server; a test holds the two together.
"""

import json
from dataclasses import dataclass

from colocated_runtime.contract.names import NAME_MAX, OBJECT_NAME
from colocated_runtime.contract.options import MINIMUM, OWNED
from colocated_runtime.contract.uris import REPOSITORY, TASK


@dataclass(frozen=True)
class Rule:
    """One entry of x-kubernetes-validations."""

    rule: str
    message: str
    """What is said where `expression` is not given, or fails."""
    path: str = ""
    """JSON path below the node, for the error's field; must be declared in the schema."""
    expression: str = ""
    """CEL for a message with the values in it."""
    value: str = ""
    """CEL for the value that is wrong: the message begins with it."""
    forbidden: bool = False
    """The field must not be there (or not change), rather than have another value."""

    def as_dict(self) -> dict[str, str]:
        """As the API server reads it."""
        entry = {"rule": self.rule, "message": self.message}
        if self.value:
            # Of string(), the API server cannot estimate the cost.
            entry["messageExpression"] = json.dumps(f"'%s': {self.message}") + f".format([{self.value}])"
        elif self.expression:
            entry["messageExpression"] = self.expression
        if self.path:
            entry["fieldPath"] = self.path
        if self.forbidden:
            entry["reason"] = "FieldValueForbidden"
        return entry


# Pieces of expressions, on the node `spec`

RANKS = "(self.gpusPerNode > 0 ? self.gpusPerNode : (has(self.processesPerNode) ? self.processesPerNode : 1))"
ON_CPU = "(has(self.device.backend) ? self.device.backend == 'cpu' : self.gpusPerNode == 0)"
BATCH = "(has(self.trainer.per_device_train_batch_size) ? self.trainer.per_device_train_batch_size : 8)"
STEPS = (
    "(has(self.trainer.steps_per_generation) ? self.trainer.steps_per_generation"
    " : (has(self.trainer.gradient_accumulation_steps) ? self.trainer.gradient_accumulation_steps : 1))"
)
GENERATIONS = "(has(self.trainer.num_generations) ? self.trainer.num_generations : (self.algorithm == 'rloo' ? 2 : 8))"
GENERATION_BATCH = (
    "(has(self.trainer.generation_batch_size) ? self.trainer.generation_batch_size"
    f" : {BATCH} * self.nodes * {RANKS} * {STEPS})"
)
COMPLETION = "(has(self.trainer.max_completion_length) ? self.trainer.max_completion_length : 512)"

READ_BY_RULES = (
    "per_device_train_batch_size", "steps_per_generation", "gradient_accumulation_steps", "num_generations",
    "generation_batch_size", "max_completion_length", "vllm_max_model_length",
)  # fmt: skip
"""Options whose null is dropped (TRL's default holds), so that the pieces above need not ask for it."""

FETCHED = rf"hf://{REPOSITORY}|pvc://{OBJECT_NAME}(/.*)?|file:///.+"
MODEL_SOURCE = f"^({FETCHED})$"
DATASET_SOURCE = rf"^({FETCHED}|reasoning-gym://{TASK}(\\?.*)?)$"
RESOURCE_NAME = "[a-z0-9]([a-z0-9.-]*[a-z0-9])?/[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?"
"""Of an extended resource: the others are not a device's."""
LABEL = "[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
"""A value of a node's label: device.product becomes node affinity."""
IMAGE = "[A-Za-z0-9][A-Za-z0-9_./:@-]*"


def object_name(field: str, kind: str) -> Rule:
    """`field`, where it is there, is a name that an object can have."""
    return Rule(
        f"!has(self.{field}) || self.{field}.matches('^{OBJECT_NAME}$')",
        f"no name that a {kind} can have; use that of an existing one: lower-case letters, digits, - and .",
        f".{field}",
        value=f"self.{field}",
    )


def exactly_one(*fields: str) -> str:
    """CEL: one of `fields` is there, and no other."""
    return f"[{', '.join(f'has(self.{field})' for field in fields)}].filter(given, given).size() == 1"


def inside_claim(field: str) -> Rule:
    """`field`, where it is there and names a claim, stays inside it."""
    return Rule(
        f"!has(self.{field}) || !self.{field}.startsWith('pvc://') || !self.{field}.matches('/[.][.](/|$)')",
        "a path with .. leaves the claim; use pvc://CLAIM/PATH",
        f".{field}",
        value=f"self.{field}",
    )


QUANTITY = Rule(
    "type(self) == int || isQuantity(string(self))",
    "not a quantity; write e.g. 16Gi, 500m or 4",
    value="self",
)


def not_above(name: str) -> Rule:
    """The request of resource `name` is at most its limit. By name: a message about all would cost CEL too much."""
    request, limit = f"string(self.requests['{name}'])", f"string(self.limits['{name}'])"
    return Rule(
        f"!has(self.requests) || !has(self.limits) || !('{name}' in self.requests) || !('{name}' in self.limits)"
        f" || !isQuantity({request}) || !isQuantity({limit}) || !quantity({request}).isGreaterThan(quantity({limit}))",
        f"requests.{name} is more than its limit; lower it, or raise limits.{name}",
        ".requests",
        expression=f"'requests.{name}: ' + {request} + ' is more than its limit ' + {limit}"
        f" + '; lower it, or raise limits.{name}'",
    )


MODEL_SOURCE_MESSAGE = "use hf://ORGANISATION/NAME, pvc://CLAIM/PATH or file:///PATH/IN/IMAGE"

BY_MODEL: dict[str, tuple[Rule, ...]] = {
    "Model": (
        Rule(f"self.source.matches('{MODEL_SOURCE}')", MODEL_SOURCE_MESSAGE, ".source", value="self.source"),
        Rule(
            "!has(self.revision) || self.source.startsWith('hf://')",
            "only an hf:// source has revisions; leave revision out",
            ".revision",
            value="self.revision",
        ),
        inside_claim("source"),
    ),
    "Dataset": (
        inside_claim("source"),
        Rule(
            f"self.source.matches('{DATASET_SOURCE}')",
            "use hf://ORGANISATION/NAME, pvc://CLAIM/PATH, file:///PATH or reasoning-gym://TASK?size=N&seed=N",
            ".source",
            value="self.source",
        ),
        Rule(
            "!has(self.revision) || self.source.startsWith('hf://')",
            "only an hf:// source has revisions; leave revision out",
            ".revision",
            value="self.revision",
        ),
        Rule(
            "self.conversational || !has(self.systemPrompt) || !has(self.promptTemplate)",
            "a system prompt needs a chat: set conversational: true, or put it into promptTemplate",
            ".systemPrompt",
        ),
    ),
    "Reward": (
        Rule(exactly_one("name", "function", "model"), "give exactly one of name, function and model"),
        Rule(
            "!has(self.configMap) || has(self.function)",
            "configMap holds the code of a function; set function too, or leave configMap out",
            ".configMap",
        ),
        object_name("configMap", "ConfigMap"),
        Rule(
            f"!has(self.model) || self.model.matches('{MODEL_SOURCE}')",
            MODEL_SOURCE_MESSAGE,
            ".model",
            value="self.model",
        ),
        inside_claim("model"),
    ),
    "Device": (
        Rule(
            f"!has(self.product) || self.product.matches('^{LABEL}$')",
            "no value of a node's label; write it as the label does, e.g. NVIDIA-H100-80GB-HBM3",
            ".product",
            value="self.product",
        ),
    ),
    "Resources": tuple(map(not_above, ("cpu", "memory", "ephemeral-storage"))),
    "Lora": (
        Rule(
            "!has(self.target_modules) || size(self.target_modules) == 1 || !('all-linear' in self.target_modules)",
            "all-linear stands alone: leave it out, or all other names",
            ".target_modules",
        ),
        Rule(
            "!has(self.target_modules) || !self.target_modules.exists(name, name == 'lm_head')",
            "an adapter on lm_head would never be trained; leave lm_head out",
            ".target_modules",
        ),
    ),
    "Parallelism": (
        Rule(
            "!has(self.sharding) || self.sharding in ['none', 'fsdp']",
            "DeepSpeed's ZeRO is not supported yet; use fsdp, which shares the trainer's states out as zero3 does",
            ".sharding",
        ),
    ),
    "Memory": (
        Rule(
            "!has(self.offload) || self.offload != 'optimizerAndGradients'",
            "offload of gradients is not supported yet; use optimizer",
            ".offload",
        ),
    ),
    "Storage": (
        Rule(
            exactly_one("claim", "volumeClaimTemplate", "emptyDir"),
            "give exactly one of claim, volumeClaimTemplate and emptyDir; set the one you do not mean to null",
        ),
        object_name("claim", "PersistentVolumeClaim"),
    ),
    "EnvVar": (
        Rule(exactly_one("value", "valueFrom"), "give exactly one of value and valueFrom"),
    ),
    "ValueSource": (
        Rule(
            exactly_one("secretKeyRef", "configMapKeyRef", "fieldRef", "resourceFieldRef"),
            "give exactly one of secretKeyRef, configMapKeyRef, fieldRef and resourceFieldRef",
        ),
    ),
    "EnvironmentSource": (
        Rule(exactly_one("secretRef", "configMapRef"), "give exactly one of secretRef and configMapRef"),
    ),
    "Runtime": (
        Rule(
            f"!has(self.image) || self.image.matches('^{IMAGE}$')",
            "image must be a reference, such as registry.example/team/name:tag; leave it out for the operator's own",
            ".image",
            value="self.image",
        ),
        Rule(
            "!has(self.command) || size(self.command) == 0 || self.command[0].trim() != ''",
            "command begins with a program; leave command out to run our worker",
            ".command",
        ),
    ),
    "JobSpec": (
        Rule(
            f"self.resourceName.matches('^{RESOURCE_NAME}$')",
            "resourceName must be an extended resource, such as nvidia.com/gpu; for a job on CPUs leave it out",
            ".resourceName",
            value="self.resourceName",
        ),
        Rule(
            "(has(self.runtime.command) && size(self.runtime.command) > 0)"
            " || (has(self.model) && has(self.dataset) && has(self.rewards) && size(self.rewards) > 0)",
            "give model, dataset and at least one reward; or runtime.command, to run your own program",
        ),
        Rule(
            "self.gpusPerNode == 0 || !has(self.processesPerNode)",
            "a GPU has one rank: leave processesPerNode out, or set gpusPerNode to 0",
            ".processesPerNode",
        ),
        Rule(
            "self.gpusPerNode > 0 || !has(self.device.backend) || self.device.backend == 'cpu'",
            "this backend needs GPUs: set gpusPerNode, or device.backend to cpu",
            ".device.backend",
        ),
        Rule(
            "(!has(self.resources.limits) || !(self.resourceName in self.resources.limits))"
            " && (!has(self.resources.requests) || !(self.resourceName in self.resources.requests))",
            "GPUs are set by gpusPerNode; leave them out of resources",
            ".resources",
            forbidden=True,
        ),
        Rule(
            f"{RANKS} % self.parallelism.tensorParallel == 0",
            "tensorParallel must divide the ranks of a node (gpusPerNode, or processesPerNode without GPUs)",
            ".parallelism.tensorParallel",
            expression="'tensorParallel %d does not divide the %d ranks of a node; use a divisor of it, or change"
            f" gpusPerNode'.format([self.parallelism.tensorParallel, {RANKS}])",
        ),
        Rule(
            f"self.parallelism.sharding == 'none' || self.nodes * {RANKS} > 1",
            "sharding shares the trainer's states out over the ranks, and this job has one; use none, or a larger"
            " gpusPerNode",
            ".parallelism.sharding",
        ),
        Rule(
            "self.parallelism.sharding == 'none' || !has(self.memory.offload) || self.memory.offload == 'none'",
            "offload does not go with sharding; leave one of them out",
            ".memory.offload",
        ),
        Rule(
            "self.nodes == 1 || (has(self.checkpoint.storage) && (has(self.checkpoint.storage.claim)"
            " || (has(self.checkpoint.storage.volumeClaimTemplate)"
            " && 'ReadWriteMany' in self.checkpoint.storage.volumeClaimTemplate.accessModes)))",
            "several nodes need storage that they share: a claim, or a volumeClaimTemplate with accessModes:"
            " [ReadWriteMany]; an emptyDir is one pod's own",
            ".checkpoint.storage",
        ),
        Rule(
            "!has(self.memory.sleepLevel) || self.memory.sleepLevel == 0 || !" + ON_CPU,
            "the engine cannot sleep on CPUs; leave sleepLevel out",
            ".memory.sleepLevel",
        ),
        Rule(
            "!has(self.model) || self.model.dtype != 'float16' || has(self.lora)",
            "float16 cannot be trained in full; use bfloat16, or float16 with lora",
            ".model.dtype",
        ),
        Rule(
            "!has(self.trainer.generation_batch_size) || !has(self.trainer.steps_per_generation)",
            "set only one of generation_batch_size and steps_per_generation: each follows from the other",
            ".trainer.generation_batch_size",
        ),
        Rule(
            "!has(self.trainer.generation_batch_size) || self.trainer.generation_batch_size <= 0"
            f" || {BATCH} <= 0 || self.trainer.generation_batch_size % ({BATCH} * self.nodes * {RANKS}) == 0",
            "generation_batch_size must be a multiple of per_device_train_batch_size x all ranks",
            ".trainer.generation_batch_size",
            expression="'generation_batch_size %d is no multiple of per_device_train_batch_size x all ranks = %d;"
            f" use a multiple of it'.format([self.trainer.generation_batch_size, {BATCH} * self.nodes * {RANKS}])",
        ),
        Rule(
            f"{GENERATIONS} < 2 || {GENERATION_BATCH} % {GENERATIONS} == 0",
            "the generation batch (per_device_train_batch_size x all ranks x steps_per_generation, which defaults to"
            " gradient_accumulation_steps) must be a multiple of num_generations",
            ".trainer.num_generations",
            expression="'the generation batch %d (per_device_train_batch_size x all ranks x steps_per_generation, which"
            " defaults to gradient_accumulation_steps) is no multiple of num_generations %d; change one of them'"
            f".format([{GENERATION_BATCH}, {GENERATIONS}])",
        ),
        Rule(
            f"!has(self.trainer.vllm_max_model_length) || {COMPLETION} < self.trainer.vllm_max_model_length",
            "max_completion_length leaves no room for a prompt: raise vllm_max_model_length (prompt + completion), or"
            " lower max_completion_length",
            ".trainer.vllm_max_model_length",
            expression=f"'max_completion_length %d leaves no room for a prompt in vllm_max_model_length %d: raise the"
            f" latter (prompt + completion), or lower the former'.format([{COMPLETION},"
            " self.trainer.vllm_max_model_length])",
        ),
        Rule(
            "!has(self.rewards) || !self.rewards.exists(r, has(r.name) && r.name == 'reasoning_gym')"
            " || ((!has(self.dataset) || self.dataset.source.startsWith('reasoning-gym://'))"
            " && (!has(self.evaluation) || self.evaluation.dataset.source.startsWith('reasoning-gym://')))",
            "the reward reasoning_gym scores tasks of reasoning-gym:// datasets; use such a dataset (in evaluation"
            " too), or another reward",
            ".rewards",
        ),
    ),
}  # fmt: skip

TRAINER = (
    *(
        Rule(f"!has(self.{name})", f"{name} does not belong here: {instead}", f".{name}", forbidden=True)
        for name, instead in OWNED.items()
    ),
    *(
        Rule(
            f"!has(self.{name}) || self.{name} >= {least}",
            f"{name} must be at least {least}",
            f".{name}",
            value=f"self.{name}",
        )
        for name, least in MINIMUM.items()
    ),
    Rule(
        "!has(self.max_steps) || self.max_steps > 0 || self.max_steps == -1",
        "max_steps must be above 0; leave it out to train num_train_epochs",
        ".max_steps",
        value="self.max_steps",
    ),
)
"""On the node `spec.trainer`."""

NAME = Rule(
    f"self.metadata.name.size() <= {NAME_MAX} && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
    f"metadata.name: at most {NAME_MAX} characters: lower-case letters, digits and -, beginning with a letter, ending"
    " with a letter or digit. The names of the job's pods and Service are made from it",
    expression=f"'metadata.name: at most {NAME_MAX} characters: lower-case letters, digits and -, beginning with a"
    " letter, ending with a letter or digit; \\'%s\\' has %d'.format([self.metadata.name, self.metadata.name.size()])",
)

IMMUTABLE = (
    "algorithm", "model", "dataset", "evaluation", "rewards", "trainer", "lora", "nodes", "gpusPerNode",
    "resourceName", "processesPerNode", "device", "parallelism", "memory", "checkpoint",
)  # fmt: skip
"""Fields of spec that cannot change once an attempt was started. Not: resources and runtime, which the next attempt
takes as they are then; restart, watchdog, suspend and the deadlines."""

STARTED = "has(oldSelf.status) && has(oldSelf.status.attempt) && oldSelf.status.attempt > 0"


def unchanged(path: str) -> Rule:
    """`path` stays once an attempt was started. On the root, where status is seen; adding and removing are changes."""
    new, old = f"self.{path}", f"oldSelf.{path}"
    return Rule(
        f"!({STARTED}) || (has({new}) ? has({old}) && {new} == {old} : !has({old}))",
        f"{path} cannot change once the job was started; apply the change under another name, or delete this job, and"
        " the claim of its volumeClaimTemplate with it, and apply it again",
        f".{path}",
        forbidden=True,
    )


ROOT = (
    NAME,
    *(unchanged(f"spec.{name}") for name in IMMUTABLE),
    unchanged("spec.runtime.command"),
)
"""On the root, the only node that sees metadata.name and status."""
