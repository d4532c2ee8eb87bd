"""Compile caches on the checkpoint volume: whole, of these versions, and never in the way."""

import tarfile
from pathlib import Path

import pytest

from colocated_runtime.launcher import caches
from colocated_runtime.launcher.caches import VARIABLES, Caches


def pod(root: Path, number: int) -> dict[str, str]:
    """A new pod's variables: the directories are not there yet."""
    return {name: str(root / f"pod-{number}" / name.lower()) for name in VARIABLES}


def compile_into(env: dict[str, str], *names: str) -> None:
    for name in names:
        path = Path(env[VARIABLES[0]]) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"code of {name}")


def contents(env: dict[str, str]) -> dict[str, str]:
    place = Path(env[VARIABLES[0]])
    return {str(path.relative_to(place)): path.read_text() for path in place.rglob("*") if path.is_file()}


def test_a_new_pod_finds_what_another_has_compiled(tmp_path: Path) -> None:
    first, second = pod(tmp_path, 1), pod(tmp_path, 2)
    made = Caches(tmp_path / "volume", first)
    made.restore()
    compile_into(first, "a/kernel", "b")
    (Path(first[VARIABLES[2]]) / "deep").mkdir(parents=True)
    (Path(first[VARIABLES[2]]) / "deep/triton.so").write_bytes(b"1")
    made.keep()
    Caches(tmp_path / "volume", second).restore()
    assert contents(second) == contents(first) == {"a/kernel": "code of a/kernel", "b": "code of b"}
    assert (Path(second[VARIABLES[2]]) / "deep/triton.so").read_bytes() == b"1"


def test_it_is_written_again_only_where_something_is_new(tmp_path: Path) -> None:
    first, second = pod(tmp_path, 1), pod(tmp_path, 2)
    compile_into(first, "a")
    made = Caches(tmp_path / "volume", first)
    made.keep()
    (kept,) = (tmp_path / "volume").iterdir()
    before = kept.stat().st_ino
    again = Caches(tmp_path / "volume", second)
    again.restore()
    again.keep()
    assert kept.stat().st_ino == before
    compile_into(second, "b")
    again.keep()
    assert kept.stat().st_ino != before
    assert [path.name for path in (tmp_path / "volume").iterdir()] == [kept.name]


def test_other_versions_have_caches_of_their_own_and_drop_the_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = pod(tmp_path, 1), pod(tmp_path, 2)
    compile_into(first, "a")
    Caches(tmp_path / "volume", first).keep()
    monkeypatch.setattr(caches, "PACKAGES", ("structlog",))
    newer = Caches(tmp_path / "volume", second)
    newer.restore()
    assert contents(second) == {}
    compile_into(second, "b")
    newer.keep()
    assert len(list((tmp_path / "volume").iterdir())) == 1


@pytest.mark.parametrize("share", [0.0, 0.3, 0.7, 0.99])
def test_a_torn_archive_restores_nothing(tmp_path: Path, share: float) -> None:
    first, second = pod(tmp_path, 1), pod(tmp_path, 2)
    compile_into(first, *(f"kernel-{number}" for number in range(30)))
    Caches(tmp_path / "volume", first).keep()
    (kept,) = (tmp_path / "volume").iterdir()
    with tarfile.open(kept) as archive:
        end = max(member.offset_data + member.size for member in archive)
    kept.write_bytes(kept.read_bytes()[: int(share * end)])
    Caches(tmp_path / "volume", second).restore()
    assert contents(second) == {}


def test_a_directory_in_use_is_its_owners(tmp_path: Path) -> None:
    first, second = pod(tmp_path, 1), pod(tmp_path, 2)
    compile_into(first, "a")
    Caches(tmp_path / "volume", first).keep()
    compile_into(second, "own")
    used = Caches(tmp_path / "volume", second)
    used.restore()
    assert contents(second) == {"own": "code of own"}
    (kept,) = (tmp_path / "volume").iterdir()
    before = kept.read_bytes()
    used.keep()
    assert kept.read_bytes() == before


def test_nothing_leaves_its_directory(tmp_path: Path) -> None:
    env = pod(tmp_path, 1)
    made = Caches(tmp_path / "volume", env)
    compile_into(env, "a")
    made.keep()
    (kept,) = (tmp_path / "volume").iterdir()
    with tarfile.open(kept, "w") as archive:
        member = tarfile.TarInfo(f"{VARIABLES[0]}/../../../outside")
        archive.addfile(member)
    Caches(tmp_path / "volume", pod(tmp_path, 2)).restore()
    assert not (tmp_path / "outside").exists()


def test_what_is_too_much_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caches, "LIMIT", 5)
    env = pod(tmp_path, 1)
    compile_into(env, "a")
    Caches(tmp_path / "volume", env).keep()
    assert not (tmp_path / "volume").exists()


def test_without_directories_of_its_own_it_does_nothing(tmp_path: Path) -> None:
    made = Caches(tmp_path / "volume", {})
    made.restore()
    made.keep()
    assert list(tmp_path.iterdir()) == []
