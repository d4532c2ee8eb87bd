"""From a URI of the spec to a directory or file on this machine."""

import json
from pathlib import Path

from colocated_runtime.contract import uris
from colocated_runtime.contract.sources import Kind, source_key, source_name
from colocated_runtime.worker.errors import UserError


class Sources:
    """Where each source lies. hf:// sources were downloaded by the launcher, which left a map behind."""

    def __init__(self, sources_file: Path) -> None:
        self._fetched: dict[str, str] = json.loads(sources_file.read_text()) if sources_file.exists() else {}

    def local(self, kind: Kind, uri: str, field: str, revision: str | None = None) -> Path:
        """Path of `uri`; raise UserError, naming `field`, where there is none."""
        try:
            source = uris.parse(uri)
        except ValueError as error:
            raise UserError(f"{field}: {error}") from error
        if source.scheme == "hf":
            return self._downloaded(kind, uri, field, revision)
        if source.local_path is None:
            raise UserError(f"{field}: {uri} is no file or directory; use hf://, pvc:// or file://")
        path = Path(source.local_path)
        if not path.exists():
            where = (
                f"claim {source.name!r} is mounted at {path.parent}, in pods only"
                if source.scheme == "pvc"
                else "file:// names a path inside the image"
            )
            raise UserError(f"{field}: {uri} is not there: {path} does not exist ({where})")
        return path

    def _downloaded(self, kind: Kind, uri: str, field: str, revision: str | None) -> Path:
        key = source_key(kind, uri, revision)
        if key not in self._fetched:
            raise UserError(
                f"{field}: {source_name(uri, revision)} was not downloaded; the launcher fetched"
                f" {sorted(self._fetched) or 'nothing'}"
            )
        return Path(self._fetched[key])
