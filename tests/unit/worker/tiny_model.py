"""Makes models of a few hundred kilobytes, random but deterministic, with a byte-level tokenizer and a chat template.

python tiny_model.py DIRECTORY   (writes DIRECTORY/policy and DIRECTORY/reward)
"""

import sys
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen2ForSequenceClassification,
)

SPECIAL = ["<|pad|>", "<|im_start|>", "<|im_end|>"]
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def tokenizer() -> PreTrainedTokenizerFast:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: index for index, token in enumerate([*SPECIAL, *alphabet])}
    bytes_only = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    bytes_only.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bytes_only.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=bytes_only, eos_token="<|im_end|>", pad_token="<|pad|>", chat_template=CHAT_TEMPLATE,
        additional_special_tokens=["<|im_start|>"],
    )  # fmt: skip


def config(vocabulary: int, **changes: object) -> Qwen2Config:
    return Qwen2Config(
        vocab_size=vocabulary, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, head_dim=32, max_position_embeddings=512, tie_word_embeddings=True,
        bos_token_id=None, eos_token_id=2, pad_token_id=0,
        initializer_range=0.3,  # large, so that greedy tokens hang on the prompt and not on rounding
        **changes,
    )  # fmt: skip


def write(kind: str, directory: Path) -> Path:
    torch.manual_seed(7)
    words = tokenizer()
    # vLLM's kernels want a vocabulary that is a multiple of 64.
    size = -(-len(words) // 64) * 64
    if kind == "reward":
        model = Qwen2ForSequenceClassification(config(size, num_labels=1))
    else:
        model = Qwen2ForCausalLM(config(size))
    model.save_pretrained(directory)
    words.save_pretrained(directory)
    return directory


if __name__ == "__main__":
    for kind in ("policy", "reward"):
        write(kind, Path(sys.argv[1]) / kind)
