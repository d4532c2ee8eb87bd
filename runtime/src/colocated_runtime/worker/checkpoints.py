"""Checkpoints on the volume: written aside, sealed by a manifest, renamed; so a partial one never has a final name.

<job directory>/
  fence-<n>                    attempt n has taken the directory; the highest n owns it
  .incoming-<n>/               what attempt n is writing
  checkpoints/checkpoint-<n>/  complete, with manifest.json
  model/                       the final model
  evaluation.jsonl

Whatever an attempt publishes it renames out of its own `.incoming-<n>`, which the next attempt takes away: an old
attempt that was paused between any two of its instructions and goes on finds nothing that it could rename.
"""

import hashlib
import shutil
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ValidationError

from colocated_runtime.files import fsync
from colocated_runtime.worker.errors import Fenced

PREFIX = "checkpoint-"
MANIFEST = "manifest.json"
REJECTED = "rejected.json"
"""Its manifest from when its contents turned out to be others than were written: then it is no checkpoint any more."""
MODEL = "model"
FENCE = "fence-"
INCOMING = ".incoming-"
REPLACED = ".replaced-"
"""Inside `.incoming-<n>`: what a publication is about to replace."""
REMOVED = ".removed-"


class File(BaseModel):
    """What a file of a checkpoint must be."""

    size: int
    sha256: str


class Manifest(BaseModel):
    """Written last; a directory without a whole one is no checkpoint."""

    step: int
    attempt: int
    files: dict[str, File]


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
        self.incoming = directory / f"{INCOMING}{attempt}"
        self._attempt = attempt
        self._keep = keep

    def take(self) -> None:
        """Make this attempt the directory's owner; raise Fenced if a newer one is. Removes half-done saves."""
        self.checkpoints.mkdir(parents=True, exist_ok=True)
        with self._owned():
            self._remove_leftovers()  # before anything is written: they may be what fills the volume
            (self.directory / f"{FENCE}{self._attempt}").touch()
            fsync(self.directory)
            self._remove_leftovers()  # whatever an older attempt wrote before it could see the fence

    def check_fence(self) -> None:
        """Raise Fenced if a newer attempt owns the directory."""
        owner = max(_numbers(_named(self.directory, FENCE)), default=0)
        if owner > self._attempt:
            raise Fenced(f"attempt {owner} owns {self.directory}; attempt {self._attempt} writes nothing more")

    def discard(self) -> None:
        """Remove what was being written. Raise Fenced if a newer attempt owns the directory."""
        self.check_fence()
        shutil.rmtree(self.incoming, ignore_errors=True)

    def commit(self, step: int) -> Saved:
        """Seal the checkpoint that lies in `incoming`, give it its name and delete all but the newest `keep`."""
        target = self.checkpoints / f"{PREFIX}{step}"
        with self._owned():
            publish(self.incoming / target.name, target, step=step, attempt=self._attempt)
            complete, _ = self.scan()
            for old in complete[: -self._keep]:
                self._remove(old.path)
        self.discard()
        return next(saved for saved in complete if saved.step == step)

    def commit_model(self, step: int) -> None:
        """Seal the model that lies in `incoming` and let it replace that of an earlier attempt."""
        with self._owned():
            publish(self.incoming / MODEL, self.directory / MODEL, step=step, attempt=self._attempt)
        self.discard()

    def write(self, name: str, text: str) -> None:
        """Replace the file `name` of the job's directory. Raise Fenced if a newer attempt owns it."""
        with self._owned():
            self._open()
            aside = self.incoming / name
            aside.write_text(text)
            fsync(aside)
            aside.replace(self.directory / name)
            fsync(self.directory)

    def scan(self) -> tuple[list[Saved], list[str]]:
        """Complete checkpoints, oldest first, and for each other one why it is not taken. Looks at sizes only.

        Raise OSError where the directory cannot be read: that says nothing of what is in it.
        """
        complete, torn = [], []
        for path in _named(self.checkpoints, PREFIX):
            step = path.name.removeprefix(PREFIX)
            if not step.isdecimal():
                continue  # somebody's copy: neither taken nor deleted
            if reason := defect(path):
                torn.append(f"{path.name}: {reason}")
            elif (saved := _saved(path)).step == int(step):
                complete.append(saved)
            else:
                torn.append(f"{path.name}: its manifest is of step {saved.step}")
        return sorted(complete, key=lambda saved: saved.step), sorted(torn)

    def newest(self) -> tuple[Saved | None, list[str]]:
        """The newest complete checkpoint whose contents have their checksums, and why others are passed over.

        Those of other contents count as torn from now on; they stay for the user to look at.
        """
        complete, passed_over = self.scan()
        for saved in reversed(complete):
            reason = corruption(saved.path)
            if not reason:
                return saved, passed_over
            passed_over.append(f"{saved.path.name}: {reason}")
            with suppress(OSError):  # else it stays what it was: a report would name it as the newest
                (saved.path / MANIFEST).rename(saved.path / REJECTED)
        return None, passed_over

    @contextmanager
    def _owned(self) -> Iterator[None]:
        """Raise Fenced if a newer attempt owns the directory, or takes it meanwhile and `incoming` with it."""
        self.check_fence()
        try:
            yield
        except OSError:
            self.check_fence()
            raise

    def _open(self) -> None:
        """Make `incoming`; the fence is looked at last, since nothing after it makes `incoming` again."""
        self.incoming.mkdir(parents=True, exist_ok=True)
        self.check_fence()

    def _remove(self, path: Path) -> None:
        """Delete a checkpoint; killed meanwhile, it leaves nothing that looks like a torn one."""
        self._open()
        aside = self.incoming / f"{REMOVED}{path.name}"
        path.rename(aside)
        shutil.rmtree(aside)

    def _remove_leftovers(self) -> None:
        """Take away what earlier attempts left half done; what they were about to replace gets its name back."""
        for number in _numbers(_named(self.directory, INCOMING)):
            if number <= self._attempt:
                aside = self.directory / f"{REMOVED}{number}-{time.time_ns()}"
                (self.directory / f"{INCOMING}{number}").rename(aside)
        for removed in _named(self.directory, REMOVED):
            for replaced in _named(removed, REPLACED):
                name = replaced.name.removeprefix(REPLACED)
                target = (self.checkpoints if name.startswith(PREFIX) else self.directory) / name
                if not target.exists():
                    replaced.rename(target)
            shutil.rmtree(removed, ignore_errors=True)


def defect(path: Path) -> str:
    """Why the directory at `path` is no complete checkpoint; empty if it is one. Looks at names and sizes."""
    try:
        files = _manifest(path).files
    except FileNotFoundError:
        return "its contents are not what was written" if (path / REJECTED).exists() else f"no {MANIFEST}"
    except (ValidationError, OSError):
        return f"unreadable {MANIFEST}"
    for name, entry in files.items():
        file = path / name
        if not file.exists():
            return f"{name} is missing"
        if file.stat().st_size != entry.size:
            return f"{name} has {file.stat().st_size} bytes instead of {entry.size}"
    return ""


def corruption(path: Path) -> str:
    """Which file of a complete checkpoint has other contents than were written; empty if none has. Reads all."""
    files = _manifest(path).files
    with ThreadPoolExecutor(max_workers=4) as pool:
        digests = pool.map(_digest, (path / name for name in files))
        wrong = [name for name, digest in zip(files, digests, strict=True) if digest != files[name].sha256]
    return f"{wrong[0]} has not the contents that were written" if wrong else ""


def publish(aside: Path, target: Path, *, step: int, attempt: int) -> None:
    """Seal the directory `aside` with a manifest and rename it to `target`, replacing one that is there.

    Everything is on the disk before the name appears, also after a power cut. What is replaced is moved beside
    `aside` first, since a directory cannot be renamed over a full one: a reader between the two renames finds none,
    never a mixture.
    """
    files = sorted(path for path in aside.rglob("*") if path.is_file() and path.name != MANIFEST)
    with ThreadPoolExecutor(max_workers=4) as pool:
        entries = dict(zip((str(f.relative_to(aside)) for f in files), pool.map(_sealed, files), strict=True))
    manifest = aside / MANIFEST
    manifest.write_text(Manifest(step=step, attempt=attempt, files=entries).model_dump_json(indent=1))
    fsync(manifest)
    for directory in {file.parent for file in files} | {aside}:
        fsync(directory)
    replaced = aside.with_name(f"{REPLACED}{target.name}")
    if target.exists():
        target.rename(replaced)
    aside.rename(target)
    fsync(target.parent)
    shutil.rmtree(replaced, ignore_errors=True)


def _manifest(path: Path) -> Manifest:
    return Manifest.model_validate_json((path / MANIFEST).read_bytes())


def _sealed(file: Path) -> File:
    digest = _digest(file)
    fsync(file)
    return File(size=file.stat().st_size, sha256=digest)


def _digest(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _saved(path: Path) -> Saved:
    manifest = _manifest(path)
    size = sum(entry.size for entry in manifest.files.values())
    return Saved(step=manifest.step, path=path, size_bytes=size, time=(path / MANIFEST).stat().st_mtime)


def _named(directory: Path, prefix: str) -> list[Path]:
    """What lies in the directory under names that begin so. Not by glob, which takes an unreadable one for empty."""
    return [path for path in directory.iterdir() if path.name.startswith(prefix)]


def _numbers(paths: Iterable[Path]) -> list[int]:
    """The numbers at the ends of names."""
    ends = (path.name.rpartition("-")[2] for path in paths)
    return [int(end) for end in ends if end.isdigit()]
