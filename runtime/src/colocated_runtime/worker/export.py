"""The final model directory: what the engine sampled from last, as transformers and vLLM load it."""

from pathlib import Path
from typing import Any

from colocated_runtime.worker.weights import policy_weights


def export_model(model: Any, tokenizer: Any, directory: Path) -> None:
    """Write weights, config and tokenizer to `directory`; under LoRA merged, the adapter beside them.

    Call on one rank.
    """
    adapted = hasattr(model, "peft_config")
    base = model.get_base_model() if adapted else model
    # Contiguous copies, because safetensors refuses views; merged ones, which are new, leave the device at once.
    weights = {name: (tensor.cpu() if adapted else tensor).contiguous() for name, tensor in policy_weights(model)}
    base.save_pretrained(directory, state_dict=weights)
    tokenizer.save_pretrained(directory)
    if adapted:
        model.save_pretrained(directory / "adapter")
    for file in directory.rglob("*.safetensors"):
        file.chmod(0o644)  # safetensors lets nobody else read them; a model is for others
