"""Tasks with verifiable answers from reasoning-gym, named by URIs such as reasoning-gym://chain_sum?size=500&seed=1."""

import warnings
from functools import lru_cache
from typing import Any

from colocated_runtime.contract import uris
from colocated_runtime.worker.errors import UserError

SOURCE_COLUMN = "reasoning_gym_source"
INDEX_COLUMN = "reasoning_gym_index"
"""With the source, they let a reward make the row's task again, in reasoning-gym's own Python types."""


@lru_cache(maxsize=8)
def tasks(uri: str, field: str = "dataset.source") -> Any:
    """The task generator of `uri`: indexable, deterministic. Raise UserError for a task or option it does not know."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)  # of a dependency, on its first import
        import reasoning_gym

    source = uris.parse(uri)
    options = {name: _value(text) for name, text in source.query.items()}
    try:
        return reasoning_gym.create_dataset(source.name, **options)
    except (ValueError, TypeError, AssertionError) as error:
        raise UserError(f"{field}: {uri}: reasoning-gym refuses it: {error}") from error


def rows(uri: str, field: str) -> list[dict[str, Any]]:
    """All rows of `uri`: prompt, question, answer, and what the reward needs."""
    generator = tasks(uri, field)
    return [
        {
            "prompt": (task := generator[index])["question"],
            "question": task["question"],
            "answer": str(task["answer"]),
            SOURCE_COLUMN: uri,
            INDEX_COLUMN: index,
        }
        for index in range(len(generator))
    ]


def score(uri: str, index: int, answer: str) -> float:
    """The task's own score of `answer`, 0 to 1."""
    generator = tasks(uri)
    return float(generator.score_answer(answer, generator[index]))


def _value(text: str) -> int | float | bool | str:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return text
