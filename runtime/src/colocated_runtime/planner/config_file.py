"""A model's config.json, read in the same way wherever it is needed."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from colocated_runtime.planner.shapes import Shape, shape_of_config

NAME = "config.json"
WAY_OUT = "give a model's config.json as transformers' save_pretrained writes it"
LENGTH = "max_position_embeddings"


class NoConfig(ValueError):
    """The file cannot be a model's config.json; the message names it."""


def read_config(path: Path) -> dict[str, Any]:
    """What the file says.

    Raise NoConfig where it cannot be read, holds no JSON object, or says a length that no engine takes.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise NoConfig(f"{path}: cannot be read: {error.strerror}; {WAY_OUT}") from error
    except (ValueError, RecursionError) as error:
        raise NoConfig(f"{path}: is no JSON: {error}; {WAY_OUT}") from error
    if not isinstance(found, dict):
        raise NoConfig(f"{path}: holds {type(found).__name__}, no object; {WAY_OUT}")
    for part in (found, found.get("text_config")):
        if isinstance(part, Mapping) and not _is_length(part.get(LENGTH)):
            raise NoConfig(
                f"{path}: {LENGTH}: {part[LENGTH]!r} is no number of tokens; write how many the model takes, or leave"
                " it out"
            )
    return found


def _is_length(value: Any) -> bool:
    return value is None or (isinstance(value, int) and not isinstance(value, bool) and value > 0)


def read_shape(path: Path) -> Shape:
    """The shape that the file describes. Raise NoConfig, or ValueError, naming it, where it describes none."""
    config = read_config(path)
    try:
        return shape_of_config(config)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
