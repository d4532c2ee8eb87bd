"""What one micro-batch keeps on the device for its backward pass, and what that pass itself needs.

Counted in transformers' modelling code (5.17) and TRL's fused head (1.16), tensor by tensor: see docs/memory.md. All
sizes are bytes for one token of one layer unless said otherwise; 16-bit tensors but for the norms, which are float32.
"""

from dataclasses import dataclass

from colocated_runtime.planner.features import Checkpointing
from colocated_runtime.planner.items import Item, gib
from colocated_runtime.planner.shapes import Shape
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
    norms = shape.traits.norms * _norm(shape, lora=lora, element=element) * hidden
    if shape.traits.qk_norm:
        norms += _norm(shape, lora=lora, element=element) * (query + kv)
    # Queries, keys and values as attention saves them, and its output. With a padding mask, transformers repeats keys
    # and values for every query head (integrations/sdpa_attention.py).
    attention = element * (2 * query + 2 * (kv if flash else query))
    feed_forward = element * 4 * wide  # gate, its activation, up, and their product
    routed = element * 3 * hidden * experts if experts > 1 else 0  # rows copied to experts, and back
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
    layers = shape.num_hidden_layers
    whole, part = _kept_layers(checkpointing, layers)
    small = token.matmul_outputs + token.layer_input if checkpointing == "selective" else token.layer_input
    kept = tokens * (whole * token.kept + part * small)
    layer = tokens * (token.backward - (token.kept if part == 0 else 0)) + attention_mask(job, rows)
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
            lambda: f"{rows} x {job.lengths.total} tokens x ({whole} layers x {token.kept} B + {part} x {small} B)",
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


def scoring(job: Workload, rows: int) -> int:
    """A forward pass without gradients: one layer at a time, then one tile of logits."""
    shape, tokens = job.shape, rows * job.lengths.total
    token = per_token(shape, lora=job.lora is not None, flash=job.flash_attention, element=job.dtype_bytes)
    scored = rows * job.lengths.completion
    tile = min(scored, TILE_TOKENS) * min(TILE_VOCABULARY, shape.vocab_size) * job.dtype_bytes
    head = tile + scored * shape.hidden_size * job.dtype_bytes
    return tokens * token.layer_input + max(tokens * token.forward + attention_mask(job, rows), head)


def attention_mask(job: Workload, rows: int) -> int:
    """Rows are padded, so every pass builds a mask of [rows, tokens, tokens]: one byte, and attention's own copy."""
    return 0 if job.flash_attention else rows * job.lengths.total**2 * (1 + job.dtype_bytes)


def _kept_layers(checkpointing: Checkpointing, layers: int) -> tuple[int, int]:
    """How many layers keep everything, and how many only a part."""
    if checkpointing == "none":
        return layers, 0
    if checkpointing == "half":
        return layers - layers // 2, layers // 2
    return 0, layers


def _norm(shape: Shape, *, lora: bool, element: int) -> int:
    """Bytes for each number that a norm reads: its float32 copy, what the weight multiplies, and its output."""
    multiplied = 4 if shape.traits.float_norms else element
    return 4 + (0 if lora else multiplied) + (0 if lora else element)


def _wide(shape: Shape) -> tuple[int, int]:
    """Width of the feed-forward layers that one token passes, and how many of them there are."""
    if shape.num_experts:
        return shape.moe_intermediate_size * shape.num_experts_per_tok, shape.num_experts_per_tok
    return shape.intermediate_size, 1
