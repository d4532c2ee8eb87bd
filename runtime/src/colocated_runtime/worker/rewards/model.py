"""A reward model beside the policy: one copy a rank, on the device only while it scores."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from colocated_runtime.planner.phases import REWARD_ROWS
from colocated_runtime.worker.errors import RewardError, UserError
from colocated_runtime.worker.guest import Guest
from colocated_runtime.worker.phases import Handover
from colocated_runtime.worker.rewards.builtin import text_of


class RewardModel:
    """Scores prompt + completion with a sequence-classification model's only output."""

    def __init__(self, path: Path, field: str, *, dtype: str, device: str, handover: Handover) -> None:
        self.__name__ = path.name
        self._field = field
        self._device = device
        self._tokenizer = AutoTokenizer.from_pretrained(path, padding_side="right", truncation_side="left")
        self._model, loading = AutoModelForSequenceClassification.from_pretrained(
            path, dtype=getattr(torch, dtype), output_loading_info=True
        )
        if self._model.config.num_labels != 1:
            raise UserError(f"{field}: the model has {self._model.config.num_labels} outputs; a reward model has one")
        if loading["missing_keys"]:
            missing = ", ".join(sorted(loading["missing_keys"])[:3])
            raise UserError(f"{field}: {path} is no trained reward model: it has no weights for {missing}")
        if self._tokenizer.pad_token is None:
            self._tokenizer.pad_token = self._tokenizer.eos_token
        # The model scores the last token that is not padding, so both must mean the same token.
        self._model.config.get_text_config().pad_token_id = self._tokenizer.pad_token_id
        self._model.eval().requires_grad_(False)
        self._guest = Guest(self._model, torch.device(device), f"reward model {path.name}", handover)

    @torch.no_grad()
    def __call__(self, prompts: Sequence[Any], completions: Sequence[Any], **_columns: Any) -> list[float]:
        """One score a completion. Raise RewardError where one is no number."""
        texts = [self._text(prompt, completion) for prompt, completion in zip(prompts, completions, strict=True)]
        pieces = [texts[start : start + REWARD_ROWS] for start in range(0, len(texts), REWARD_ROWS)]
        with self._guest.here():
            scores = [score for piece in pieces for score in self._score(piece)]
        odd = [score for score in scores if not math.isfinite(score)]
        if odd:
            raise RewardError(
                f"{self._field}: the model scored a completion as {odd[0]};"
                " model.dtype bfloat16 or float32 may hold what float16 does not"
            )
        return scores

    def _score(self, texts: list[str]) -> list[float]:
        batch = self._tokenizer(
            texts, return_tensors="pt", padding=True, truncation=True, add_special_tokens=False,
            max_length=self._model.config.get_text_config().max_position_embeddings,
        ).to(self._device)  # fmt: skip
        scores: list[float] = self._model(**batch).logits[:, 0].float().tolist()
        return scores

    def _text(self, prompt: Any, completion: Any) -> str:
        if isinstance(prompt, str):
            return prompt + text_of(completion)
        if self._tokenizer.chat_template:
            return str(self._tokenizer.apply_chat_template([*prompt, *completion], tokenize=False))
        return "\n".join(turn["content"] for turn in [*prompt, *completion])
