"""YAML as kubectl reads it: numbers such as 1e-6, and no key twice."""

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


class Loader(yaml.SafeLoader):
    """PyYAML's safe one but for these two."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Raise ConstructorError for a key that is there already."""
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(None, None, f"{key.value} is there twice", key.start_mark)
                seen.add(key.value)
        return super().construct_mapping(node, deep)


Loader.add_implicit_resolver("tag:yaml.org,2002:float", FLOAT, list("-+.0123456789"))


def documents(text: str) -> list[Any]:
    """All documents of `text` but empty ones. Raise ValueError with the reason in one line."""
    try:
        return [entry for entry in yaml.load_all(text, Loader) if entry is not None]
    except (KeyError, IndexError, AttributeError):  # from PyYAML's constructors
        raise ValueError("a value is not what its !! tag says") from None
    except (yaml.YAMLError, ValueError) as error:
        raise ValueError(" ".join(str(error).split())) from error
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
