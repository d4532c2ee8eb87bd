"""Where a model or a dataset comes from: hf://, pvc://, file:// and reasoning-gym:// URIs."""

import re
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import parse_qsl

from colocated_runtime.contract import names

REPOSITORY = r"[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)?"
"""NAME or ORGANISATION/NAME of a model hub; for Python and for CEL."""
TASK = r"[a-z0-9_]+"
Scheme = Literal["hf", "pvc", "file", "reasoning-gym"]


@dataclass(frozen=True)
class Source:
    """A parsed URI. `name` is the repository, claim or task; `path` the part inside a claim or file system."""

    scheme: Scheme
    name: str = ""
    path: str = ""
    query: dict[str, str] = field(default_factory=dict)

    @property
    def local_path(self) -> str | None:
        """Path inside the pod, or None where the source has to be fetched or generated first."""
        if self.scheme == "file":
            return self.path
        if self.scheme == "pvc":
            return f"{names.VOLUMES_DIR}/{self.name}/{self.path}".rstrip("/")
        return None


def parse(uri: str) -> Source:
    """Parse `uri`; raise ValueError with the accepted forms if it is none of them.

    Only a task has a query: elsewhere ? and # are letters of a path.
    """
    scheme, _, rest = uri.partition("://")
    name, slash, path = rest.partition("/")
    match scheme:
        case "hf" if re.fullmatch(REPOSITORY, rest):
            return Source("hf", rest)
        case "pvc" if re.fullmatch(names.OBJECT_NAME, name) and ".." not in path.split("/"):
            return Source("pvc", name, path.strip("/"))
        case "file" if not name and slash:
            return Source("file", path=f"/{path}")
        case "reasoning-gym":
            task, _, query = rest.partition("?")
            if re.fullmatch(TASK, task):
                return Source("reasoning-gym", task, query=dict(parse_qsl(query)))
    raise ValueError(
        f"{uri!r} is no source: use hf://ORGANISATION/NAME, pvc://CLAIM/PATH, file:///ABSOLUTE/PATH"
        " or, for a dataset, reasoning-gym://TASK?size=N&seed=N"
    )
