"""Where a model or a dataset comes from: hf://, pvc://, file:// and reasoning-gym:// URIs."""

import re
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import parse_qsl, urlsplit

from colocated_runtime.contract import names

REPOSITORY = r"[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)?"
"""NAME or ORGANISATION/NAME of a model hub; for Python and for CEL."""
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
    """Parse `uri`; raise ValueError with the accepted forms if it is none of them."""
    parts = urlsplit(uri)
    path = parts.path
    match parts.scheme:
        case "hf" if re.fullmatch(REPOSITORY, parts.netloc + path):
            return Source("hf", parts.netloc + path)
        case "pvc" if parts.netloc and ".." not in path.split("/"):
            return Source("pvc", parts.netloc, path.strip("/"))
        case "file" if not parts.netloc and path.startswith("/"):
            return Source("file", path=path)
        case "reasoning-gym" if parts.netloc and not path.strip("/"):
            return Source("reasoning-gym", parts.netloc, query=dict(parse_qsl(parts.query)))
    raise ValueError(
        f"{uri!r} is no source: use hf://ORGANISATION/NAME, pvc://CLAIM/PATH, file:///ABSOLUTE/PATH"
        " or, for a dataset, reasoning-gym://TASK?size=N&seed=N"
    )
