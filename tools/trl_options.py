"""Write TRL's option names, types, defaults and help into the contract, so that nothing else has to import TRL.

Run where TRL is installed: python tools/trl_options.py. A test marked `torch` compares the files with TRL.
"""

import dataclasses
import enum
import json
import re
import types
import typing
from pathlib import Path
from typing import Any

from trl.trainer.grpo_config import GRPOConfig
from trl.trainer.rloo_config import RLOOConfig

DIRECTORY = Path(__file__).parents[1] / "runtime/src/colocated_runtime/contract/options"
CONFIGS: dict[str, type] = {"grpo": GRPOConfig, "rloo": RLOOConfig}
MACHINE_DEPENDENT = {"optim", "bf16"}
"""Options whose default TRL computes from the installed torch or the machine."""


def main() -> None:
    """Write one JSON file per algorithm."""
    for algorithm, config in CONFIGS.items():
        text = json.dumps(describe(config), indent=1, ensure_ascii=False)
        (DIRECTORY / f"{algorithm}.json").write_text(text + "\n")


def describe(config: type) -> list[dict[str, Any]]:
    """Name, annotation, choices of enumerations, default and help of each field, in TRL's order."""
    return [_option(field) for field in dataclasses.fields(config) if field.init]


def _option(field: dataclasses.Field[Any]) -> dict[str, Any]:
    option: dict[str, Any] = {"name": field.name, "annotation": annotation_text(field.type)}
    choices = [member.value for kind in _members(field.type) if _is_enum(kind) for member in kind]
    if choices:
        option["choices"] = choices
    if field.name not in MACHINE_DEPENDENT and field.default is not dataclasses.MISSING:
        option["default"] = field.default.value if isinstance(field.default, enum.Enum) else field.default
    option["help"] = re.sub(r"\s+", " ", field.metadata.get("help", "")).replace("%%", "%").strip()
    return option


def annotation_text(annotation: Any) -> str:
    """`int | None`, `list[str] | str`, …: short names without modules; an enumeration is written as str."""
    names = dict.fromkeys("str" if _is_enum(kind) else _name(kind) for kind in _members(annotation))
    return " | ".join(sorted(names, key=lambda name: name == "None"))


def _members(annotation: Any) -> tuple[Any, ...]:
    if isinstance(annotation, types.UnionType) or typing.get_origin(annotation) is typing.Union:
        return typing.get_args(annotation)
    return (annotation,)


def _is_enum(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, enum.Enum)


def _name(kind: Any) -> str:
    if kind is types.NoneType:
        return "None"
    text = kind.__name__ if isinstance(kind, type) and not typing.get_args(kind) else str(kind)
    return re.sub(r"\b(?:\w+\.)+(?=\w)", "", text)


if __name__ == "__main__":
    main()
