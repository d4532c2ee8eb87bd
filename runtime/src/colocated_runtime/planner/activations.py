"""What one micro-batch keeps on the device for its backward pass, and what that pass itself needs.

Counted in transformers' modelling code (5.17) and TRL's fused head (1.16), tensor by tensor: see docs/memory.md. All
sizes are bytes for one token of one layer unless said otherwise; 16-bit tensors but for the norms, which are float32.
"""

from dataclasses import dataclass

from colocated_runtime.planner.features import Checkpointing
from colocated_runtime.planner.items import Item, gib
from colocated_runtime.planner.shapes import Shape
from colocated_runtime.planner.states import adapted
from colocated_runtime.planner.workload import Workload

TILE_TOKENS, TILE_VOCABULARY = 4096, 32_768
"""Of TRL's chunked log-probabilities: kernels/chunked_logprob.py TOKEN_CHUNK_SIZE, trainer/utils.py."""


@dataclass(frozen=True)
class PerToken:
    """Bytes for one token of one layer."""

    kept: int
    """By the forward pass for the backward pass."""
    matmul_outputs: int
    """Outputs of matrix products and of attention alone: what selective checkpointing keeps."""
    layer_input: int
    """What full checkpointing keeps."""
    backward: int
    """At the peak of a layer's backward pass, what `kept` holds of that layer included."""
    forward: int
    """At the peak of a layer's forward pass without gradients."""


def per_token(shape: Shape, *, lora: bool, flash: bool, element: int) -> PerToken:
    """For one layer of `shape`; `element` is the bytes of a weight's number."""
    hidden, query, kv = shape.hidden_size, shape.query_size, shape.kv_size
    wide, experts = _wide(shape)
    # Of a norm: its input in float32, what its weight multiplies, and its output where a matrix product reads it.
    multiplied = 0 if lora else (4 if shape.traits.float_norms else element)
    norms = (4 + multiplied) * shape.traits.norms * hidden + (0 if lora else 2 * element * hidden)
    if shape.traits.qk_norm:
        norms += (4 + multiplied) * (query + kv)
    # Queries, keys and values as attention saves them, and its output. With a padding mask, transformers repeats keys
    # and values for every query head (integrations/sdpa_attention.py).
    attention = element * (2 * query + 2 * (kv if flash else query))
    feed_forward = element * 4 * wide  # gate, its activation, up, and their product
    routed = element * 2 * hidden * experts if shape.num_experts else 0  # rows copied for each expert, and back
    copies = element * (5 * hidden + query) if lora else 0  # each adapter casts its own copy of the input
    kept = norms + attention + feed_forward + routed + copies
    gradients = element * (2 * wide + 2 * hidden)
    return PerToken(
        kept=kept,
        matmul_outputs=element * (2 * query + 2 * kv + 2 * hidden + 2 * wide) + routed,
        layer_input=element * hidden,
        backward=kept + gradients,
        forward=element * (3 * wide + 4 * hidden + 2 * query) + routed,
    )


@dataclass(frozen=True)
class Activations:
    """Of one micro-batch."""

    kept: Item
    """From the forward pass until the backward pass."""
    workspace: Item
    """The larger of the loss's own peak and one layer's backward pass: they are not there at the same time."""

    @property
    def bytes(self) -> int:
        """Of both."""
        return self.kept.bytes + self.workspace.bytes


def activations(job: Workload, rows: int, checkpointing: Checkpointing) -> Activations:
    """For a micro-batch of `rows` completions, each as long as the longest can be: padding is computed too."""
    shape = job.shape
    tokens = rows * job.lengths.total
    token = per_token(shape, lora=job.lora is not None, flash=job.flash_attention, element=job.dtype_bytes)
    whole, part = _kept_layers(checkpointing, shape.num_hidden_layers)
    small = token.matmul_outputs + token.layer_input if checkpointing == "selective" else token.layer_input
    mask, experts = attention_mask(job, rows), adapted_experts(job)
    kept = tokens * (whole * token.kept + part * small) + whole * (mask + experts) + mask // job.dtype_bytes
    layer = tokens * token.backward + mask + 3 * experts - (0 if part else tokens * token.kept + mask + experts)
    loss = loss_peak(job, rows)
    inner = Item(
        "loss" if loss >= layer else "recomputedLayer",
        max(loss, layer),
        lambda: f"the larger of loss {gib(loss)} and one layer's backward pass {gib(layer)}",
    )
    return Activations(
        Item(
            "activations",
            kept,
            lambda: (
                f"{rows} x {job.lengths.total} tokens x ({whole} layers x {token.kept} B + {part} x {small} B) + masks"
            ),
        ),
        inner,
    )


def loss_peak(job: Workload, rows: int) -> int:
    """TRL's fused head: a tile of logits; float32 gradients of hidden states and of the head, and their 16-bit copy."""
    shape, tokens = job.shape, rows * job.lengths.completion
    tile = min(tokens, TILE_TOKENS) * min(TILE_VOCABULARY, shape.vocab_size) * job.dtype_bytes
    hidden = tokens * shape.hidden_size * (4 + 2 * job.dtype_bytes)
    head = 0 if job.lora else shape.vocab_size * shape.hidden_size * (4 + job.dtype_bytes)
    return tile + hidden + head


def full_logits(tokens: int, vocabulary: int) -> int:
    """What is never built here, and was by TRL before its fused head: logits in float32."""
    return tokens * vocabulary * 4


def full_loss_peak(tokens: int, vocabulary: int) -> int:
    """Of a loss on full logits: they, their log-softmax, and its gradient."""
    return 3 * full_logits(tokens, vocabulary)


def scoring(job: Workload, rows: int) -> int:
    """A forward pass without gradients: one layer at a time, then one tile of logits."""
    shape, tokens = job.shape, rows * job.lengths.total
    token = per_token(shape, lora=job.lora is not None, flash=job.flash_attention, element=job.dtype_bytes)
    scored = rows * job.lengths.completion
    tile = min(scored, TILE_TOKENS) * min(TILE_VOCABULARY, shape.vocab_size) * job.dtype_bytes
    head = tile + scored * shape.hidden_size * job.dtype_bytes
    layer = tokens * token.forward + attention_mask(job, rows) + adapted_experts(job)
    return tokens * token.layer_input + max(layer, head)


def attention_mask(job: Workload, rows: int) -> int:
    """Rows are padded, so every layer's attention has a mask [rows, tokens, tokens] of its own in the weights' type."""
    return 0 if job.flash_attention else rows * job.lengths.total**2 * job.dtype_bytes


def adapted_experts(job: Workload) -> int:
    """PEFT adds the product of the adapters to a layer's experts, whatever tokens pass them: a copy of all of them."""
    shape = job.shape
    experts = 3 * shape.num_experts * shape.moe_intermediate_size * shape.hidden_size
    if job.lora is None or not shape.num_experts:
        return 0
    of_experts = any(weight.name.startswith("experts.") for weight in adapted(shape, job.lora.target_modules))
    return experts * job.dtype_bytes if of_experts else 0


def _kept_layers(checkpointing: Checkpointing, layers: int) -> tuple[int, int]:
    """How many layers keep everything, and how many only a part."""
    if checkpointing == "none":
        return layers, 0
    if checkpointing == "half":
        return layers - layers // 2, layers // 2
    return 0, layers


def _wide(shape: Shape) -> tuple[int, int]:
    """Width of the feed-forward layers that one token passes, and how many of them there are."""
    if shape.num_experts:
        return shape.moe_intermediate_size * shape.num_experts_per_tok, shape.num_experts_per_tok
    return shape.intermediate_size, 1
