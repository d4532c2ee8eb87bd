"""Which hf:// repositories a job needs, the key under which the worker finds each, and how the download goes."""

from dataclasses import dataclass

from colocated_runtime.contract import uris
from colocated_runtime.contract.base import Message
from colocated_runtime.contract.job import JobSpec
from colocated_runtime.contract.outcome import Outcome
from colocated_runtime.contract.sources import Kind, named_sources, source_key, source_name


class FetchState(Message):
    """What the download tells the launcher, in `<state>/fetch.json`. `outcome` is set once it failed."""

    message: str
    outcome: Outcome | None = None


@dataclass(frozen=True)
class HubSource:
    """One repository on the hub. `field` is where the spec names it."""

    field: str
    uri: str
    repo: str
    kind: Kind
    revision: str | None = None

    @property
    def key(self) -> str:
        """See `source_key`."""
        return source_key(self.kind, self.uri, self.revision)

    @property
    def name(self) -> str:
        """As messages call it."""
        return source_name(self.uri, self.revision)


def hub_sources(spec: JobSpec) -> list[HubSource]:
    """Each repository once. Raise ValueError, naming the field, where a source is none."""
    found: dict[str, HubSource] = {}
    for field, uri, kind, revision in named_sources(spec):
        try:
            source = uris.parse(uri)
        except ValueError as error:
            raise ValueError(f"{field}: {error}") from error
        if source.scheme == "hf":
            wanted = HubSource(field, uri, source.name, kind, revision)
            found.setdefault(wanted.key, wanted)
    return list(found.values())
