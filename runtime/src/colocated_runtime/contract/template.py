"""What is wrong with a prompt template before any row is there."""

import re
from string import Formatter

WIDEST = 10_000
"""Characters that one column is padded to, or digits that it has: a wider one would fill the memory for every row."""


def flaw(template: str) -> str:
    """Why `template` cannot be filled from columns, and what to write instead; empty where it can."""
    try:
        fields = [(name, spec or "") for _, name, spec, _ in Formatter().parse(template) if name is not None]
    except ValueError as error:
        return f"{error}; write {{column}} for a column and {{{{ }}}} for braces"
    for name, spec in fields:
        if re.match(r"\d|[.\[]|$", name):
            return f"{{{name}}} names no column; write {{column}} for a column and {{{{ }}}} for braces"
        if "{" in spec:
            return f"the format {spec!r} of {name} holds a column; write a number"
        for number in re.findall(r"\d+", spec):
            if int(number) > WIDEST:
                return f"the format {spec!r} of {name} is wider than {WIDEST} characters; use a smaller number, or none"
    return ""
