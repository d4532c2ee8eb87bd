"""`spec` of a ColocatedRLJob. The CRD is generated from these models; field docs are what `kubectl explain` prints.

Bounds on every list, map and string keep CEL's cost budget (the API server estimates it from them).
"""

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, StringConstraints

from colocated_runtime.contract.base import Contract
from colocated_runtime.contract.values import AccessMode, Name, PositiveInt, Quantity, Text, Uri
from colocated_runtime.contract.variables import EnvironmentSource, EnvVar


class ModelShape(Contract):
    """Facts of the model's config.json, for planning before the model can be read; transformers' own names."""

    model_config = ConfigDict(alias_generator=None)

    hidden_size: PositiveInt
    """Width of the residual stream."""
    num_hidden_layers: PositiveInt
    """Decoder layers."""
    num_attention_heads: PositiveInt
    """Query heads."""
    num_key_value_heads: PositiveInt
    """Key and value heads; fewer than query heads with grouped attention."""
    head_dim: PositiveInt | None = None
    """Width of a head; hidden_size / num_attention_heads unless set."""
    intermediate_size: PositiveInt
    """Width of the feed-forward layer."""
    vocab_size: PositiveInt
    """Rows of the embedding."""
    tie_word_embeddings: bool = False
    """Whether embedding and output layer are one matrix."""
    num_experts: int = Field(default=0, ge=0, le=4096)
    """Experts of a layer; 0 for a dense model."""
    num_experts_per_tok: int = Field(default=0, ge=0, le=4096)
    """Experts that a token passes."""
    moe_intermediate_size: int = Field(default=0, ge=0, le=1_000_000)
    """Width of an expert's feed-forward layer."""
    max_position_embeddings: PositiveInt | None = None
    """Tokens of the longest sequence; not checked unless set."""


class Model(Contract):
    """The policy model."""

    source: Uri = Field(description="hf://ORGANISATION/NAME, pvc://CLAIM/PATH or file:///PATH/IN/IMAGE.")
    revision: Name | None = Field(default=None, description="Branch, tag or commit of an hf:// source.")
    dtype: Literal["bfloat16", "float16", "float32"] = Field(
        default="bfloat16", description="Of the trainer's and the engine's weights."
    )
    shape: ModelShape | None = Field(default=None, description="Facts of config.json, for planning before a pod runs.")
    trust_remote_code: bool = Field(default=False, description="Run code that comes with the model. Off unless asked.")


class Dataset(Contract):
    """Prompts. Every column is passed to the reward functions."""

    source: Uri = Field(
        description="hf://ORGANISATION/NAME, pvc://CLAIM/PATH, file:///PATH (.json, .jsonl, .parquet, .csv or a saved"
        " dataset's directory), or reasoning-gym://TASK?size=N&seed=N&OPTION=VALUE (tasks with verifiable answers)."
    )
    config: Name | None = Field(default=None, description="Configuration name of an hf:// dataset.")
    split: Name = Field(default="train", description="Split, slices such as train[:1000] included.")
    revision: Name | None = Field(default=None, description="Branch, tag or commit of an hf:// source.")
    prompt_column: Name = Field(
        default="prompt",
        description="Column with the prompt: text, or a list of chat messages. Ignored with promptTemplate.",
    )
    prompt_template: Text | None = Field(
        default=None, description="Builds the prompt of each row from its columns, e.g. 'Solve: {question}'."
    )
    system_prompt: Text | None = Field(default=None, description="Put before each prompt as the chat's system message.")
    conversational: bool = Field(
        default=True,
        description="Text prompts become a chat's user message, through the tokenizer's chat template.",
    )
    max_samples: PositiveInt | None = Field(default=None, description="Use only the first rows.")


class Evaluation(Contract):
    """Mean reward of held-out prompts, decoded greedily by the same engine, before and after training."""

    dataset: Dataset
    every_steps: int = Field(
        default=0,
        ge=0,
        le=1_000_000,
        description="Also during training, every so many steps; 0: only before and after.",
    )
    max_prompts: int = Field(default=64, ge=1, le=100_000, description="Number of prompts.")


class Reward(Contract):
    """One reward: exactly one of name, function and model."""

    name: Literal["reasoning_gym", "exact_match", "think_format"] | None = Field(
        default=None,
        description="Built-in. reasoning_gym: the task's own score of the answer. exact_match: 1 where the answer"
        " column stands in the completion's last line or <answer>. think_format: 1 for <think>…</think> before the"
        " answer.",
    )
    function: Annotated[str, StringConstraints(max_length=253, pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")] | None = (
        Field(
            default=None,
            description="module:function with TRL's signature: f(prompts, completions, **columns) -> list of floats.",
        )
    )
    config_map: Name | None = Field(default=None, description="ConfigMap whose keys are the function's Python files.")
    model: Uri | None = Field(
        default=None,
        description="hf://, pvc:// or file:// sequence-classification model that scores prompt + completion.",
    )
    weight: float = Field(
        # No default in the CRD: what the server adds to an item makes server-side apply conflict over the list.
        default_factory=lambda: 1.0, ge=-1000, le=1000, description="Factor in the sum of rewards; 1 unless set.",
    )  # fmt: skip


class Lora(Contract):
    """Low-rank adapters instead of full fine-tuning; PEFT's own names."""

    model_config = ConfigDict(alias_generator=None)

    r: int = Field(default=16, ge=1, le=1024)
    """Rank of the adapters."""
    lora_alpha: int = Field(default=32, ge=1, le=100_000)
    """Scale: the adapters' product is multiplied by lora_alpha / r."""
    lora_dropout: float = Field(default=0.0, ge=0.0, lt=1.0)
    """Dropout before the adapters."""
    target_modules: list[Name] = Field(
        default_factory=lambda: ["all-linear"],
        max_length=64,
        description="Module names, or all-linear alone.",
    )


class Device(Contract):
    """The device that the job expects."""

    backend: Literal["cuda", "rocm", "cpu"] | None = Field(
        default=None, description="Follows from resourceName unless said; cpu without GPUs."
    )
    product: Name | None = Field(
        default=None,
        description="Value of the node label nvidia.com/gpu.product (amd.com/gpu.product-name); becomes node affinity.",
    )
    memory: Quantity | None = Field(default=None, description="Memory of one device, e.g. 80Gi, for planning.")


class Resources(Contract):
    """CPU and memory of a pod. GPUs are set by gpusPerNode."""

    requests: dict[Name, Quantity] = Field(default_factory=dict, max_length=16)
    """What the scheduler reserves, e.g. cpu: 8, memory: 64Gi."""
    limits: dict[Name, Quantity] = Field(default_factory=dict, max_length=16)
    """What the pod may use at most; /dev/shm counts as memory."""


class Parallelism(Contract):
    """How the model is spread over the ranks."""

    tensor_parallel: int = Field(
        default=1, ge=1, le=64, description="Ranks that share one engine; divides the ranks of a node."
    )
    sharding: Literal["none", "zero1", "zero2", "zero3", "fsdp"] = Field(
        default="none",
        description="How the trainer's weights, gradients and optimizer states are shared out over the ranks. none:"
        " each rank has all of them; fsdp: its part (FSDP2). ZeRO is not supported yet.",
    )


class Memory(Contract):
    """How the GPU's memory is shared between training and generation."""

    policy: Literal["Auto", "Manual"] = Field(
        default="Auto",
        description="Auto: the plan chooses, and the training step runs in pieces that fit, with TRL's gradients."
        " Manual: what is set here, and TRL's own training step.",
    )
    gpu_memory_utilization: float | None = Field(
        default=None, gt=0.0, lt=1.0, description="The engine's share of the device."
    )
    sleep_level: int | None = Field(
        default=None, ge=0, le=2, description="0: the engine keeps its memory while training."
    )
    offload: Literal["none", "optimizer", "optimizerAndGradients"] | None = Field(
        default=None, description="optimizer: its states are in host memory but for its updates."
    )
    headroom: Annotated[float, Field(ge=0.0, lt=0.9)] = Field(
        default=0.05, description="Share of the device left unplanned."
    )
    host_pressure: Annotated[float, Field(gt=0.0, le=1.0)] = Field(
        default=0.9,
        description="MemoryPressure is reported above this share of the container's memory limit.",
    )


class VolumeClaimTemplate(Contract):
    """A claim that the operator creates for this job; it goes when the job's object is deleted."""

    storage_class_name: Name | None = None
    """The cluster's default class unless set."""
    access_modes: list[AccessMode] = Field(default=["ReadWriteOnce"], min_length=1, max_length=3)
    """Several nodes need ReadWriteMany."""
    storage: Quantity = Field(default="50Gi", description="Requested size.")


class EmptyDir(Contract):
    """The pod's own disk: every attempt has a new one, so nothing can be resumed; for trials."""

    size_limit: Quantity | None = None
    """The pod is evicted above it."""


class Storage(Contract):
    """Where checkpoints go: exactly one of claim, volumeClaimTemplate and emptyDir."""

    claim: Name | None = Field(default=None, description="An existing PersistentVolumeClaim in the job's namespace.")
    volume_claim_template: VolumeClaimTemplate | None = None
    empty_dir: EmptyDir | None = None


class CheckpointPolicy(Contract):
    """Checkpoints are written aside, then renamed: a partial one is never resumed from."""

    storage: Storage = Field(
        # No default in the CRD: emptyDir would stay beside a claim that is added later.
        default_factory=lambda: Storage(empty_dir=EmptyDir()),
        description="Where checkpoints go: exactly one of claim, volumeClaimTemplate and emptyDir (if unset).",
    )
    every_steps: int = Field(default=50, ge=1, le=1_000_000)
    """Optimizer steps between checkpoints. The last step is always saved."""
    keep: int = Field(default=2, ge=1, le=1000, description="Complete checkpoints kept; the newest are.")


class Restart(Contract):
    """When a failed attempt is followed by another. Preemption and lost nodes are not counted."""

    max_restarts: int = Field(default=3, ge=0, le=1000)
    """Counted restarts, after which the job is Failed."""
    backoff_seconds: int = Field(
        default=10, ge=0, le=3600, description="Doubles with each counted restart, up to 10 minutes."
    )


class Watchdog(Contract):
    """When a silent job is taken for hung."""

    stall_timeout_seconds: int = Field(default=1800, ge=10, le=604_800)
    """Without progress of any rank for so long, the attempt is ended and restarted."""
    start_timeout_seconds: int = Field(default=3600, ge=10, le=604_800)
    """The same for downloads, imports, model and engine, up to the first rollout."""


class Runtime(Contract):
    """The pods."""

    image: Annotated[str, StringConstraints(max_length=512)] | None = Field(
        default=None, description="The operator's default unless set."
    )
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = None
    """As in a pod."""
    command: list[Text] = Field(
        default_factory=list, max_length=64,
        description="Runs instead of our worker, under the same launcher and torchrun.",
    )  # fmt: skip
    env: list[EnvVar] = Field(default_factory=list, max_length=128)
    """Variables of the pods' container. Secrets by valueFrom only."""
    env_from: list[EnvironmentSource] = Field(default_factory=list, max_length=32)
    """Variables from whole Secrets and ConfigMaps."""
    pod_template: dict[str, Any] = Field(
        default={},
        description="Merged over the pod that the operator builds: maps by key, containers and volumes by name."
        " A change takes effect with the next attempt.",
    )


class JobSpec(Contract):
    """A colocated RL job: TRL trains and vLLM generates in the same processes on the same GPUs."""

    algorithm: Literal["grpo", "rloo"] = "grpo"
    """TRL's trainer: GRPO or RLOO."""
    model: Model | None = None
    dataset: Dataset | None = None
    evaluation: Evaluation | None = None
    rewards: list[Reward] = Field(default_factory=list, max_length=16)
    """Their weighted sum is what training raises."""
    trainer: dict[str, Any] = Field(
        default={}, description="Options of TRL's GRPOConfig or RLOOConfig, under TRL's own names."
    )
    lora: Lora | None = None
    nodes: int = Field(default=1, ge=1, le=1024, description="Pods, one a node.")
    gpus_per_node: int = Field(default=0, ge=0, le=64, description="GPUs of a pod, one rank each. 0: a job on CPUs.")
    resource_name: Name = Field(default="nvidia.com/gpu", description="Extended resource of the GPUs.")
    processes_per_node: int | None = Field(
        default=None, ge=1, le=64, description="Ranks of a pod where there are no GPUs."
    )
    device: Device = Device()
    resources: Resources = Resources()
    parallelism: Parallelism = Parallelism()
    memory: Memory = Memory()
    checkpoint: CheckpointPolicy = CheckpointPolicy()
    restart: Restart = Restart()
    watchdog: Watchdog = Watchdog()
    suspend: bool = Field(
        default=False, description="Save, then free the GPUs; false again resumes from the checkpoint."
    )
    active_deadline_seconds: PositiveInt | None = Field(
        default=None, description="Of the whole job, from its first attempt."
    )
    ttl_seconds_after_finished: int | None = Field(
        default=None, ge=0, le=315_360_000,
        description="Then Jobs, Services and ConfigMaps are removed, never this object.",
    )  # fmt: skip
    runtime: Runtime = Runtime()

    @property
    def ranks_per_node(self) -> int:
        """One rank a GPU; processesPerNode (default 1) without GPUs."""
        return self.gpus_per_node or self.processes_per_node or 1

    @property
    def world_size(self) -> int:
        """Ranks of the whole job."""
        return self.nodes * self.ranks_per_node

    @property
    def backend(self) -> Literal["cuda", "rocm", "cpu"]:
        """The device's backend: said, or following from the GPUs that are asked for."""
        if self.device.backend:
            return self.device.backend
        if not self.gpus_per_node:
            return "cpu"
        return "rocm" if self.resource_name.startswith("amd.com/") else "cuda"
