"""YAML as kubectl reads it: numbers such as 1e-6, no key twice, and nothing that JSON cannot hold."""

import math
import re
from typing import Any

import yaml

FLOAT = re.compile(
    r"""^(?:[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?
    |[-+]?[0-9]+[eE][-+]?[0-9]+
    |[-+]?\.(?:inf|Inf|INF)
    |\.(?:nan|NaN|NAN))$""",
    re.VERBOSE,
)
"""YAML 1.2's; PyYAML's own wants a point in the mantissa and a sign in the exponent."""


LETTERS, LETTERS_OF_A_VALUE = 10_000_000, 10
"""The most that a document may have with its anchors written out; a ConfigMap, the largest part, has 1 MiB."""
DEPTH = 100
"""Lists and objects in each other; JSON's readers and writers end at two hundred and more."""


class Refused(ValueError):
    """It is YAML, but no job can be made of it."""

    def __init__(self, node: yaml.Node, reason: str) -> None:
        super().__init__(f"line {node.start_mark.line + 1}: {reason}")


class Loader(yaml.SafeLoader):
    """PyYAML's safe one but for these."""

    def construct_document(self, node: yaml.Node) -> Any:
        """Raise Refused before anything is made of a document that would take for ever."""
        _measured(node, {})
        return super().construct_document(node)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Raise ConstructorError for a key that is there already."""
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(None, None, f"{key.value} is there twice", key.start_mark)
                seen.add(key.value)
        return super().construct_mapping(node, deep)

    def finite(self, node: yaml.ScalarNode) -> float:
        """Raise Refused for what would come to the job as null."""
        number = float(self.construct_yaml_float(node))
        if not math.isfinite(number):
            raise Refused(node, f"{node.value} is no number that JSON can hold; give a finite one")
        return number

    def binary(self, node: yaml.ScalarNode) -> None:
        """Raise Refused."""
        raise Refused(node, "!!binary is not read here; give text")


Loader.add_implicit_resolver("tag:yaml.org,2002:float", FLOAT, list("-+.0123456789"))
Loader.add_constructor("tag:yaml.org,2002:float", Loader.finite)
Loader.add_constructor("tag:yaml.org,2002:binary", Loader.binary)


def _measured(node: yaml.Node, seen: dict[int, tuple[int, int] | None]) -> tuple[int, int]:
    """Letters and depth of what an anchor or a value stands for, each counted once. Raise Refused.

    `seen` has those of the nodes that are done, and None for those that `node` is in.
    """
    if isinstance(node, yaml.ScalarNode):
        return _letters(node), 0
    if id(node) in seen:
        known = seen[id(node)]
        if known is None:
            raise Refused(node, "an anchor (&) is used within what it stands for, which has no end; write it out")
        return known
    seen[id(node)] = None
    parts = [_measured(part, seen) for part in _parts(node)]
    letters = LETTERS_OF_A_VALUE + sum(count for count, _ in parts)
    depth = 1 + max((below for _, below in parts), default=0)
    if depth > DEPTH:
        raise Refused(node, f"more than {DEPTH} lists and objects are in each other; make it flatter")
    if letters > LETTERS:
        raise Refused(node, f"it has more than {LETTERS:,} letters with its anchors (&) written out; make it smaller")
    seen[id(node)] = letters, depth
    return letters, depth


def _letters(node: yaml.ScalarNode) -> int:
    try:
        node.value.encode()
    except UnicodeEncodeError as error:
        letter = f"\\u{ord(node.value[error.start]):04x}"
        raise Refused(node, f"{letter} is half a letter, which UTF-8 cannot hold; write the letter itself") from None
    return LETTERS_OF_A_VALUE + len(node.value)


def _parts(node: yaml.Node) -> list[yaml.Node]:
    """In the order of the text: an anchor is done before it is used, so recursion is as deep as the text."""
    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    return list(node.value)


def documents(text: str) -> list[Any]:
    """All documents of `text` but empty ones. Raise ValueError with the reason in one line; Refused if it is YAML."""
    try:
        return [entry for entry in yaml.load_all(text, Loader) if entry is not None]
    except Refused:
        raise
    except (KeyError, IndexError, AttributeError):  # from PyYAML's constructors
        raise ValueError("a value is not what its !! tag says") from None
    except (yaml.YAMLError, ValueError) as error:
        raise ValueError(" ".join(str(error).split())) from error
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
