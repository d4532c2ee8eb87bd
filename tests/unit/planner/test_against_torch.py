"""The formulas against the libraries themselves: small models, counted parameter by parameter and tensor by tensor."""

from typing import Any

import pytest

from colocated_runtime.planner.activations import per_token
from colocated_runtime.planner.shapes import shape_of_config
from colocated_runtime.planner.states import adapter_parameters

pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]  # the libraries take long to import on a busy machine

ROWS, TOKENS, RANK = 4, 64, 2
SIZES: dict[str, Any] = {
    "hidden_size": 128, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
    "intermediate_size": 384, "vocab_size": 64, "max_position_embeddings": 256, "tie_word_embeddings": True,
}  # fmt: skip
EXPERTS = {"num_experts_per_tok": 2}
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {"attention_bias": True, "mlp_bias": True},
    "mistral": {},
    "qwen2": {},
    "qwen3": {},
    "gemma": {},
    "gemma2": {},
    "gemma3_text": {},
    "mixtral": {"num_local_experts": 4, **EXPERTS},
    "qwen3_moe": {"num_experts": 4, "moe_intermediate_size": 96, **EXPERTS},
}


def config_of(family: str, layers: int = 3) -> dict[str, Any]:
    return {**SIZES, **FAMILIES[family], "model_type": family, "num_hidden_layers": layers}


def model_of(family: str, *, lora: bool, layers: int = 3) -> Any:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model(**config_of(family, layers))
    if getattr(config, "layer_types", None):
        config.layer_types = ["full_attention"] * layers
    model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    if lora:
        from peft import LoraConfig, get_peft_model

        model = get_peft_model(model, LoraConfig(r=RANK, target_modules="all-linear", task_type="CAUSAL_LM"))
        model.enable_input_require_grads()
    return model.train()


@pytest.mark.parametrize("family", FAMILIES)
def test_parameters_and_adapters(family: str) -> None:
    shape = shape_of_config(config_of(family))
    assert shape.verified
    assert sum(p.numel() for p in model_of(family, lora=False).parameters()) == shape.parameters
    adapters = sum(p.numel() for p in model_of(family, lora=True).parameters() if p.requires_grad)
    assert adapters == adapter_parameters(shape, RANK, ["all-linear"])


def kept_for_backward(family: str, *, lora: bool, layers: int) -> int:
    """Bytes of all storages that autograd keeps, parameters left out."""
    import torch

    model = model_of(family, lora=lora, layers=layers)
    parameters = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    kept: dict[int, torch.Tensor] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        address = tensor.untyped_storage().data_ptr()
        if address not in parameters:
            kept[address] = tensor
        return tensor

    mask = torch.ones(ROWS, TOKENS, dtype=torch.long)
    mask[0, :5] = 0
    backbone = model.base_model.model.model if lora else model.model
    hooks = torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor)
    with hooks, torch.autocast("cpu", dtype=torch.bfloat16):
        output = backbone(input_ids=torch.ones_like(mask), attention_mask=mask, use_cache=False)
    assert output.last_hidden_state.requires_grad
    return sum(tensor.untyped_storage().nbytes() for tensor in kept.values())


@pytest.mark.parametrize("lora", [False, True], ids=["full", "lora"])
@pytest.mark.parametrize("family", FAMILIES)
def test_activations_of_a_layer(family: str, lora: bool) -> None:
    layer = kept_for_backward(family, lora=lora, layers=3) - kept_for_backward(family, lora=lora, layers=2)
    shape = shape_of_config(config_of(family))
    tokens = ROWS * TOKENS
    planned = tokens * (per_token(shape, lora=lora, flash=False, element=2).kept + 2 * TOKENS)
    if lora and shape.num_experts:
        planned += 2 * 3 * shape.num_experts * shape.moe_intermediate_size * shape.hidden_size
    assert planned == pytest.approx(layer, rel=0.05)
