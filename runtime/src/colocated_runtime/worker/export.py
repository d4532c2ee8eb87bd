"""The final model directory: what the engine sampled from last, as transformers and vLLM load it."""

import shutil
from pathlib import Path
from typing import Any

from colocated_runtime.worker.checkpoints import publish
from colocated_runtime.worker.weights import policy_weights


def export_model(model: Any, tokenizer: Any, directory: Path, step: int) -> Path:
    """Write `directory`/model with weights, config and tokenizer; under LoRA merged, the adapter beside them.

    Written aside and renamed, replacing that of an earlier attempt. Call on one rank.
    """
    aside = directory / ".incoming-model"
    shutil.rmtree(aside, ignore_errors=True)
    adapted = hasattr(model, "peft_config")
    base = model.get_base_model() if adapted else model
    # Contiguous copies: safetensors refuses views, and merged weights exist only in this stream.
    weights = {name: tensor.contiguous() for name, tensor in policy_weights(model)}
    base.save_pretrained(aside, state_dict=weights)
    tokenizer.save_pretrained(aside)
    if adapted:
        model.save_pretrained(aside / "adapter")
    target = directory / "model"
    publish(aside, target, {"step": step})
    return target
