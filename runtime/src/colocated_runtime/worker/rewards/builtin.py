"""Built-in rewards."""

import re
from collections.abc import Sequence
from typing import Any

from colocated_runtime.worker import reasoning_gym as gym
from colocated_runtime.worker.errors import UserError

ANSWER = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)
THINK = re.compile(
    r"\s*<think>(?:(?!</?think>).)+</think>(?:(?!</?think>).)*(?!</?think>)\S(?:(?!</?think>).)*", re.DOTALL
)


def text_of(completion: Any) -> str:
    """The completion's text: chat messages or plain text."""
    return completion if isinstance(completion, str) else str(completion[-1]["content"])


def answer_of(text: str) -> str:
    """What stands in the last <answer>…</answer>, else the whole text; without surrounding white space."""
    tagged = ANSWER.findall(text)
    return (tagged[-1] if tagged else text).strip()


def reasoning_gym(completions: Sequence[Any], **columns: Any) -> list[float]:
    """The score that the row's own reasoning-gym task gives to the answer."""
    if gym.SOURCE_COLUMN not in columns:
        raise UserError("rewards[].name: reasoning_gym needs rows of a reasoning-gym:// dataset")
    rows = zip(columns[gym.SOURCE_COLUMN], columns[gym.INDEX_COLUMN], completions, strict=True)
    return [gym.score(uri, index, answer_of(text_of(completion))) for uri, index, completion in rows]


def exact_match(completions: Sequence[Any], **columns: Any) -> list[float]:
    """1 where the `answer` column stands, as a whole word, in <answer>…</answer> or else in the last line."""
    if "answer" not in columns:
        raise UserError(
            f"rewards[].name: exact_match needs a column 'answer'; the dataset has {', '.join(_data(columns))}"
        )
    return [
        float(_stands_in(str(answer).strip(), text_of(completion)))
        for answer, completion in zip(columns["answer"], completions, strict=True)
    ]


def think_format(completions: Sequence[Any], **_columns: Any) -> list[float]:
    """1 for exactly one <think>…</think> at the start, with an answer behind it."""
    return [float(THINK.fullmatch(text_of(completion)) is not None) for completion in completions]


def _stands_in(answer: str, text: str) -> bool:
    tagged = ANSWER.findall(text)
    place = tagged[-1] if tagged else (text.strip().splitlines() or [""])[-1]
    # 5 stands in "x = 5." and "5 apples", not in 15, -5, 2.5 or 5.1.
    return re.search(rf"(?<![\w.,-]){re.escape(answer)}(?!\w|[.,]\d)", place.strip()) is not None


def _data(columns: dict[str, Any]) -> list[str]:
    trl_own = ("prompts", "completion_ids", "trainer_state", "log_extra", "log_metric")
    return [name for name in columns if name not in trl_own]


BUILTIN = {"reasoning_gym": reasoning_gym, "exact_match": exact_match, "think_format": think_format}
