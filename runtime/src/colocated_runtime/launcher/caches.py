"""What vLLM, inductor and Triton have compiled, kept on the checkpoint volume: a restart in a new pod finds it there.

As one file, since thousands of small ones would be slow on network storage. It holds code that the ranks run, so it is
to be trusted as the volume's checkpoints are.
"""

import hashlib
import tarfile
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from shutil import rmtree

import structlog

VARIABLES = ("VLLM_CACHE_ROOT", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
"""Of the environment: the directories. Where one is not set, its library uses a place that outlives the attempt."""
PACKAGES = ("torch", "triton", "vllm")
SECONDS = 30.0
"""To wait for them: to compile anew takes no longer."""
LIMIT = 4 << 30
"""Bytes of all files; more is not kept."""

log = structlog.get_logger()


class Caches:
    """The compile caches of one node, for those versions of the libraries that are installed."""

    def __init__(self, directory: Path, env: Mapping[str, str]) -> None:
        """`directory`: where they are kept, on the volume."""
        self._kept = directory / f"{_versions()}.tar"
        self._places = {name: Path(env[name]) for name in VARIABLES if name in env}
        self._found: set[Path] = set()

    def restore(self) -> None:
        """Put what is kept in place. A directory with something in it is its owner's, now and later.

        Raise OSError where the volume fails.
        """
        self._places = {name: place for name, place in self._places.items() if not _files(place)}
        if not self._places or not self._kept.exists():
            return
        try:
            with tarfile.open(self._kept) as archive:
                for name, place in self._places.items():
                    members = [member for member in archive if member.name.startswith(f"{name}/")]
                    _extract(archive, members, name, place)
        except (tarfile.TarError, EOFError) as error:
            log.warning("compile caches", reason=f"{self._kept} cannot be read: {error}")
            return
        self._found = set(self._members())
        log.info("compile caches restored", files=len(self._found))

    def keep(self) -> None:
        """Write down what is in the directories, unless that was restored. Raise OSError where it cannot be done."""
        members = self._members()
        if members.keys() == self._found:
            return
        size = sum(path.stat().st_size for path in members)
        if size > LIMIT:
            log.warning("compile caches", reason=f"not kept: they have {size / 2**30:.1f} GiB")
            return
        self._kept.parent.mkdir(parents=True, exist_ok=True)
        aside = self._kept.with_suffix(".tmp")
        with tarfile.open(aside, "w") as archive:
            for path, member in members.items():
                archive.add(path, member, recursive=False)
        aside.replace(self._kept)
        self._found = set(members)
        for other in self._kept.parent.glob("*.tar"):
            if other != self._kept:
                other.unlink(missing_ok=True)
        log.info("compile caches kept", files=len(members), bytes=size)

    def _members(self) -> dict[Path, str]:
        """The files in the directories, each with its name in the archive."""
        return {
            path: f"{name}/{path.relative_to(place)}" for name, place in self._places.items() for path in _files(place)
        }


def _extract(archive: tarfile.TarFile, members: list[tarfile.TarInfo], name: str, place: Path) -> None:
    """Aside first: half a cache is none."""
    aside = place.with_name(f".{place.name}.restored")
    rmtree(aside, ignore_errors=True)
    archive.extractall(aside, members, filter="data")
    if (aside / name).exists():
        if place.exists():
            place.rmdir()  # raises OSError where the ranks, tired of waiting, have begun to fill it
        (aside / name).replace(place)
    rmtree(aside, ignore_errors=True)


def _files(place: Path) -> list[Path]:
    return sorted(path for path in place.rglob("*") if path.is_file() and not path.is_symlink())


def _versions() -> str:
    """Of what compiles, as the name of a file; a package that is missing counts as such."""
    words = [f"{name} {_version(name)}" for name in PACKAGES]
    return hashlib.sha256("\n".join(words).encode()).hexdigest()[:12]


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
