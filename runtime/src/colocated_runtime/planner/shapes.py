"""What a model's config.json says, as the planner needs it: sizes, and the list of weights that follows from them.

Parameter counts are sums over that list, so they are exact where the list is: for the architectures in FAMILIES.
"""

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from colocated_runtime.contract.job import Model, ModelShape

LARGEST = 1_000_000_000
"""No size in a config.json is larger; also the bound of the spec's own model.shape."""
MOST_PARAMETERS = 100_000_000_000_000
"""No model has more."""


class Family(NamedTuple):
    """What the sizes in a config.json do not say, and transformers' modelling code does."""

    qkv_bias: bool = False
    """Bias of query, key and value; some families have a switch for it in the config."""
    qk_norm: bool = False
    """Query and key heads are normalised, with one weight vector each for a layer."""
    norms: int = 2
    """Norms of a layer."""
    float_norms: bool = False
    """Gemma multiplies by the weight in float32, so its norms keep more."""
    head_dim: int | None = None
    """Where config.json names none; hidden_size / num_attention_heads otherwise."""
    tied: bool = False
    """Whether the output layer is the embedding, where config.json does not say."""


FAMILIES: Mapping[str, Family] = {
    "llama": Family(),
    "mistral": Family(),
    "mixtral": Family(),
    "qwen2": Family(qkv_bias=True),
    "qwen3": Family(qk_norm=True, head_dim=128),
    "qwen3_moe": Family(qk_norm=True),
    "gemma": Family(float_norms=True, head_dim=256, tied=True),
    "gemma2": Family(norms=4, float_norms=True, head_dim=256, tied=True),
    "gemma3_text": Family(qk_norm=True, norms=4, float_norms=True, head_dim=256, tied=True),
}
"""By `model_type`. Others are planned as a Llama and marked as unverified."""


class Weight(NamedTuple):
    """One kind of weight: `number` equal tensors of [rows, columns]; vectors have one column."""

    name: str
    number: int
    rows: int
    columns: int

    @property
    def elements(self) -> int:
        """Of all tensors of this kind."""
        return self.number * self.rows * self.columns


@dataclass(frozen=True)
class Shape:
    """A decoder-only transformer. Names are those of config.json."""

    family: str
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    intermediate_size: int
    """Of a dense layer; 0 where all layers have experts."""
    vocab_size: int
    tie_word_embeddings: bool
    qkv_bias: bool = False
    output_bias: bool = False
    """Bias of the attention's output projection."""
    mlp_bias: bool = False
    num_experts: int = 0
    num_experts_per_tok: int = 0
    moe_intermediate_size: int = 0
    max_position_embeddings: int | None = None
    """Tokens of the longest sequence; None where nobody says, or the positions are scaled."""
    verified: bool = True
    """Whether the list of weights and the activations' formulas are those of this very architecture."""
    multimodal: bool = False
    """Whether there are weights for images or sound beside these, which are those of the text part."""
    quantization: str = ""
    """The method, where the weights are quantised; they are counted as if they were not."""

    def __post_init__(self) -> None:
        for name in _POSITIVE:
            _check_range(name, getattr(self, name), 1)
        for name in ("intermediate_size", "num_experts", "num_experts_per_tok", "moe_intermediate_size"):
            _check_range(name, getattr(self, name), 0)
        _check_consistent(self)
        if self.parameters > MOST_PARAMETERS:
            raise ValueError(f"a model of these sizes would have {self.parameters:.1e} parameters; correct them")

    @property
    def traits(self) -> Family:
        """Of the architecture; Llama's where it is not known."""
        return FAMILIES.get(self.family, FAMILIES["llama"])

    @property
    def query_size(self) -> int:
        """Width of all query heads together."""
        return self.num_attention_heads * self.head_dim

    @property
    def kv_size(self) -> int:
        """Width of all key heads together; that of the value heads is the same."""
        return self.num_key_value_heads * self.head_dim

    @functools.cached_property
    def weights(self) -> tuple[Weight, ...]:
        """Every parameter, once: a tied output layer is left out."""
        hidden, layers, query, kv = self.hidden_size, self.num_hidden_layers, self.query_size, self.kv_size
        found = [Weight("embed_tokens", 1, self.vocab_size, hidden)]
        if not self.tie_word_embeddings:
            found.append(Weight("lm_head", 1, self.vocab_size, hidden))
        found += [
            Weight("q_proj", layers, query, hidden),
            Weight("k_proj", layers, kv, hidden),
            Weight("v_proj", layers, kv, hidden),
            Weight("o_proj", layers, hidden, query),
            Weight("norm", layers * self.traits.norms + 1, hidden, 1),
        ]
        if self.qkv_bias:
            found += [Weight("q_proj.bias", layers, query, 1), Weight("kv_proj.bias", 2 * layers, kv, 1)]
        if self.output_bias:
            found.append(Weight("o_proj.bias", layers, hidden, 1))
        if self.traits.qk_norm:
            found.append(Weight("qk_norm", 2 * layers, self.head_dim, 1))
        return (*found, *self._feed_forward())

    def _feed_forward(self) -> list[Weight]:
        hidden, layers, experts = self.hidden_size, self.num_hidden_layers, self.num_experts
        if experts:  # transformers keeps the experts of a layer in two tensors
            wide = self.moe_intermediate_size
            return [
                Weight("experts.gate_up_proj", layers, experts * 2 * wide, hidden),
                Weight("experts.down_proj", layers, experts * hidden, wide),
                Weight("router", layers, experts, hidden),
            ]
        wide = self.intermediate_size
        found = [
            Weight("gate_proj", layers, wide, hidden),
            Weight("up_proj", layers, wide, hidden),
            Weight("down_proj", layers, hidden, wide),
        ]
        if self.mlp_bias:
            found += [Weight("gate_up_proj.bias", 2 * layers, wide, 1), Weight("down_proj.bias", layers, hidden, 1)]
        return found

    @functools.cached_property
    def parameters(self) -> int:
        """Exact for the architectures in FAMILIES."""
        return sum(weight.elements for weight in self.weights)

    @functools.cached_property
    def active_parameters(self) -> int:
        """Parameters that one token is multiplied with: all but the embedding's other rows and the idle experts."""
        looked_up = 0 if self.tie_word_embeddings else self.vocab_size * self.hidden_size
        idle = self.num_experts - self.num_experts_per_tok
        return (
            self.parameters
            - looked_up
            - 3 * self.num_hidden_layers * idle * self.moe_intermediate_size * self.hidden_size
        )

    @functools.cached_property
    def layer_parameters(self) -> int:
        """Of one layer."""
        outside = (1 if self.tie_word_embeddings else 2) * self.vocab_size * self.hidden_size + self.hidden_size
        return (self.parameters - outside) // self.num_hidden_layers

    @functools.cached_property
    def largest_weight(self) -> int:
        """Elements of the largest single tensor."""
        return max(weight.rows * weight.columns for weight in self.weights)

    def undivided(self, ranks: int) -> str:
        """What tensor parallelism over `ranks` cannot divide, e.g. `14 attention heads`; empty where it can.

        vLLM copies key and value heads where there are more ranks (QKVParallelLinear).
        """
        if self.num_attention_heads % ranks:
            return f"{self.num_attention_heads} attention heads"
        if self.num_key_value_heads % ranks and ranks % self.num_key_value_heads:
            return f"{self.num_key_value_heads} key and value heads, nor is it a multiple of them"
        wide = self.moe_intermediate_size or self.intermediate_size
        if wide % ranks:
            return f"{'moe_' if self.num_experts else ''}intermediate_size {wide}"
        return ""

    @property
    def kv_elements_per_token(self) -> int:
        """Keys and values that one token leaves in the cache, all layers and heads."""
        return 2 * self.num_hidden_layers * self.kv_size


_POSITIVE = (
    "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim", "vocab_size",
)  # fmt: skip


def shape_of_config(config: Mapping[str, Any]) -> Shape:
    """The shape that a config.json describes.

    Raise ValueError for sizes that are missing, impossible, or do not go together. An architecture whose formulas are
    not known here gives a shape with `verified` False.
    """
    family = str(config.get("model_type", ""))
    quantization = _quantization(config)
    multimodal = any(config.get(f"{part}_config") is not None for part in ("text", "vision", "audio"))
    text = config.get("text_config")
    if isinstance(text, Mapping):
        outside = {"tie_word_embeddings": config.get("tie_word_embeddings")}
        config = outside | {name: value for name, value in text.items() if value is not None}
        family = str(text.get("model_type", family))
    traits = FAMILIES.get(family, FAMILIES["llama"])
    hidden, heads = _size(config, "hidden_size"), _size(config, "num_attention_heads")
    experts = _size(config, "num_experts", "num_local_experts", default=0)
    bias, said = _flag(config, "attention_bias"), config.get("head_dim") is not None
    return Shape(
        family=family,
        hidden_size=hidden,
        num_hidden_layers=_size(config, "num_hidden_layers"),
        num_attention_heads=heads,
        num_key_value_heads=_size(config, "num_key_value_heads", default=heads),
        head_dim=_size(config, "head_dim", default=0) if said else traits.head_dim or _divided(hidden, heads),
        intermediate_size=0 if experts else _size(config, "intermediate_size"),
        vocab_size=_size(config, "vocab_size"),
        tie_word_embeddings=_flag(config, "tie_word_embeddings", default=traits.tied),
        qkv_bias=traits.qkv_bias or bias,
        output_bias=bias and not traits.qkv_bias,
        mlp_bias=_flag(config, "mlp_bias"),
        num_experts=experts,
        num_experts_per_tok=_size(config, "num_experts_per_tok") if experts else 0,
        moe_intermediate_size=_size(config, "moe_intermediate_size", "intermediate_size") if experts else 0,
        max_position_embeddings=_positions(config),
        verified=family in FAMILIES and _regular(config) and not multimodal and not quantization,
        multimodal=multimodal,
        quantization=quantization,
    )


def shape_of(model: Model) -> Shape | None:
    """The shape of the spec's model: model.shape, else that of a well-known model, else None.

    Raise ValueError where model.shape contradicts itself.
    """
    known = known_shape(model.source)
    if model.shape is None:
        return known
    if known and _same_sizes(model.shape, known):
        return replace(
            known, max_position_embeddings=model.shape.max_position_embeddings or known.max_position_embeddings
        )
    return _given(model.shape)


def known_shape(source: str) -> Shape | None:
    """The shape of a well-known model by its source, e.g. hf://Qwen/Qwen2.5-7B-Instruct."""
    from colocated_runtime.planner.models import SHAPES

    return SHAPES.get(source.removeprefix("hf://").rstrip("/").lower())


def _given(shape: ModelShape) -> Shape:
    """model.shape names no architecture: it is planned as a Llama, and marked as unverified."""
    experts = shape.num_experts
    return Shape(
        family="",
        hidden_size=shape.hidden_size,
        num_hidden_layers=shape.num_hidden_layers,
        num_attention_heads=shape.num_attention_heads,
        num_key_value_heads=shape.num_key_value_heads,
        head_dim=shape.head_dim or _divided(shape.hidden_size, shape.num_attention_heads),
        intermediate_size=0 if experts else shape.intermediate_size,
        vocab_size=shape.vocab_size,
        tie_word_embeddings=shape.tie_word_embeddings,
        num_experts=experts,
        num_experts_per_tok=shape.num_experts_per_tok if experts else 0,
        moe_intermediate_size=(shape.moe_intermediate_size or shape.intermediate_size) if experts else 0,
        max_position_embeddings=shape.max_position_embeddings,
        verified=False,
    )


def _same_sizes(given: ModelShape, known: Shape) -> bool:
    names = (
        "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "vocab_size",
        "tie_word_embeddings", "num_experts",
    )  # fmt: skip
    wide = given.moe_intermediate_size or given.intermediate_size if given.num_experts else given.intermediate_size
    return (
        all(getattr(given, name) == getattr(known, name) for name in names)
        and wide == (known.moe_intermediate_size or known.intermediate_size)
        and given.head_dim in (None, known.head_dim)
    )


def _size(config: Mapping[str, Any], *names: str, default: int | None = None) -> int:
    for name in names:
        value = config.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValueError(f"config.json: {name}: {value!r} is no whole number")  # noqa: TRY004
        return value
    if default is None:
        raise ValueError(f"config.json: {names[0]} is missing; only decoder-only transformers can be planned")
    return default


def _flag(config: Mapping[str, Any], name: str, *, default: bool = False) -> bool:
    value = config.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise ValueError(f"config.json: {name}: {value!r} is neither true nor false; write one, without quotes")  # noqa: TRY004
    return value


def _quantization(config: Mapping[str, Any]) -> str:
    found = config.get("quantization_config")
    if not found:
        return ""
    return str(found.get("quant_method") or "unnamed") if isinstance(found, Mapping) else "unnamed"


def _positions(config: Mapping[str, Any]) -> int | None:
    """max_position_embeddings; None where RoPE scaling stretches it: by how much, versions of vLLM do not agree."""
    scaling = config.get("rope_scaling") or config.get("rope_parameters")
    kind = (scaling.get("rope_type") or scaling.get("type")) if isinstance(scaling, Mapping) else None
    if kind not in (None, "default", "llama3"):
        return None
    return _size(config, "max_position_embeddings", default=0) or None


def _divided(hidden: int, heads: int) -> int:
    if heads < 1 or hidden % heads:
        raise ValueError(
            f"hidden_size: {hidden} is no multiple of num_attention_heads {heads}; set head_dim, or correct one of them"
        )
    return hidden // heads


def _regular(config: Mapping[str, Any]) -> bool:
    """Whether all layers are of one kind: some mixture-of-experts models have dense layers between."""
    return not config.get("mlp_only_layers") and config.get("decoder_sparse_step", 1) == 1


def _check_range(name: str, value: int, least: int) -> None:
    if not least <= value <= LARGEST:
        raise ValueError(f"{name}: {value} is not between {least} and {LARGEST}; correct it")


def _check_consistent(shape: Shape) -> None:
    if shape.num_attention_heads % shape.num_key_value_heads:
        raise ValueError(
            f"num_key_value_heads: {shape.num_key_value_heads} does not divide num_attention_heads"
            f" {shape.num_attention_heads}; correct one of them"
        )
    if not shape.num_experts:
        _check_range("intermediate_size", shape.intermediate_size, 1)
        return
    _check_range("moe_intermediate_size", shape.moe_intermediate_size, 1)
    if not 1 <= shape.num_experts_per_tok <= shape.num_experts:
        raise ValueError(
            f"num_experts_per_tok: {shape.num_experts_per_tok} is not between 1 and num_experts {shape.num_experts};"
            " correct one of them"
        )
