"""The final model directory: what the engine sampled from last, as transformers and vLLM load it."""

import itertools
from pathlib import Path
from typing import Any

from colocated_runtime.worker.weights import adapter_weights, policy_weights, shared_out


def take_part(model: Any) -> None:
    """What the other ranks do while one exports: gather, where they share the weights out."""
    if shared_out(model):
        for _ in itertools.chain(policy_weights(model), adapter_weights(model)):
            pass


def export_model(model: Any, tokenizer: Any, directory: Path) -> None:
    """Write weights, config and tokenizer to `directory`; under LoRA merged, the adapter beside them.

    Call on one rank; the others `take_part`.
    """
    adapted = hasattr(model, "peft_config")
    base = model.get_base_model() if adapted else model
    made = adapted or shared_out(model)
    # Contiguous copies, because safetensors refuses views; what is merged or gathered leaves the device at once.
    weights = {name: (tensor.cpu() if made else tensor).contiguous() for name, tensor in policy_weights(model)}
    adapter = {name: tensor.cpu() for name, tensor in adapter_weights(model)}
    base.save_pretrained(directory, state_dict=weights)
    tokenizer.save_pretrained(directory)
    if adapted:
        model.save_pretrained(directory / "adapter", state_dict=adapter)
    for file in directory.rglob("*.safetensors"):
        file.chmod(0o644)  # safetensors lets nobody else read them; a model is for others
