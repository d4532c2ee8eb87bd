"""Checkpoints on the volume: written aside, sealed by a manifest, renamed; so a partial one never has a final name.

<job directory>/
  fence                        highest attempt that has taken the directory
  checkpoints/.incoming/       what is being written
  checkpoints/checkpoint-<n>/  complete, with manifest.json
  model/                       the final model
"""

import hashlib
import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from colocated_runtime.files import fsync, replace_text
from colocated_runtime.worker.errors import Fenced

PREFIX = "checkpoint-"
MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Saved:
    """A complete checkpoint."""

    step: int
    path: Path
    size_bytes: int
    """Of all files, by the manifest."""
    time: float
    """When its manifest was written, Unix seconds."""


class CheckpointStore:
    """The job's directory, as one attempt may use it."""

    def __init__(self, directory: Path, attempt: int, keep: int) -> None:
        self.directory = directory
        self.checkpoints = directory / "checkpoints"
        self.incoming = self.checkpoints / ".incoming"
        self._attempt = attempt
        self._keep = keep

    def take(self) -> None:
        """Make this attempt the directory's owner; raise Fenced if a newer one is. Removes half-done saves."""
        self.checkpoints.mkdir(parents=True, exist_ok=True)
        self.check_fence()
        replace_text(self.directory / "fence", str(self._attempt), durable=True)
        self.discard()

    def check_fence(self) -> None:
        """Raise Fenced if a newer attempt owns the directory."""
        fence = self.directory / "fence"
        owner = int(fence.read_text() or 0) if fence.exists() else 0
        if owner > self._attempt:
            raise Fenced(f"attempt {owner} owns {self.directory}; attempt {self._attempt} writes nothing more")

    def discard(self) -> None:
        """Remove what was being written."""
        shutil.rmtree(self.incoming, ignore_errors=True)

    def commit(self, step: int) -> Saved:
        """Seal `.incoming/checkpoint-<step>`, give it its name and delete all but the newest `keep`."""
        self.check_fence()
        target = self.checkpoints / f"{PREFIX}{step}"
        publish(self.incoming / target.name, target, {"step": step, "attempt": self._attempt})
        complete, _ = self.scan()
        for old in complete[: -self._keep]:
            shutil.rmtree(old.path)
        return next(saved for saved in complete if saved.step == step)

    def scan(self) -> tuple[list[Saved], list[str]]:
        """Complete checkpoints, oldest first, and for each other one why it is not taken."""
        complete, torn = [], []
        for path in self.checkpoints.glob(f"{PREFIX}*"):
            reason = defect(path)
            if reason:
                torn.append(f"{path.name}: {reason}")
            else:
                complete.append(_saved(path))
        return sorted(complete, key=lambda saved: saved.step), sorted(torn)


def defect(path: Path) -> str:
    """Why the directory at `path` is no complete checkpoint; empty if it is one."""
    try:
        files = json.loads((path / MANIFEST).read_text())["files"]
    except FileNotFoundError:
        return f"no {MANIFEST}"
    except (ValueError, KeyError, TypeError):
        return f"unreadable {MANIFEST}"
    for name, entry in files.items():
        file = path / name
        if not file.exists():
            return f"{name} is missing"
        if file.stat().st_size != entry["size"]:
            return f"{name} has {file.stat().st_size} bytes instead of {entry['size']}"
    return ""


def publish(aside: Path, target: Path, facts: dict[str, int]) -> None:
    """Seal the directory `aside` with a manifest and rename it to `target`, replacing one that is there.

    Everything is on the disk before the name appears, also after a power cut.
    """
    files = sorted(path for path in aside.rglob("*") if path.is_file() and path.name != MANIFEST)
    with ThreadPoolExecutor(max_workers=4) as pool:
        entries = dict(zip((str(f.relative_to(aside)) for f in files), pool.map(_sealed, files), strict=True))
    replace_text(aside / MANIFEST, json.dumps({**facts, "files": entries}, indent=1), durable=True)
    for directory in {file.parent for file in files} | {aside}:
        fsync(directory)
    if target.exists():
        # A directory cannot be renamed over a full one. A reader between the two renames finds none, never a mixture.
        old = aside.parent / f".old-{target.name}"
        shutil.rmtree(old, ignore_errors=True)
        target.rename(old)
        aside.rename(target)
        shutil.rmtree(old)
    else:
        aside.rename(target)
    fsync(target.parent)


def _sealed(file: Path) -> dict[str, int | str]:
    with file.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    fsync(file)
    return {"size": file.stat().st_size, "sha256": digest}


def _saved(path: Path) -> Saved:
    manifest = path / MANIFEST
    facts = json.loads(manifest.read_text())
    size = sum(entry["size"] for entry in facts["files"].values())
    return Saved(step=facts["step"], path=path, size_bytes=size, time=manifest.stat().st_mtime)
