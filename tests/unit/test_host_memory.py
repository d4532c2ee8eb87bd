from pathlib import Path

from colocated_runtime.host_memory import Gauge, HostMemory, read

GIB = 2**30


def write(directory: Path, **files: str) -> None:
    directory.mkdir(exist_ok=True)
    for name, text in files.items():
        (directory / name.replace("__", ".")).write_text(text)


def test_version_2(tmp_path: Path) -> None:
    write(
        tmp_path, memory__current=f"{3 * GIB}\n", memory__max=f"{4 * GIB}\n",
        memory__stat=f"anon 1\ninactive_file {GIB}\n", memory__events="low 0\noom 2\noom_kill 1\n",
        memory__peak=f"{7 * GIB // 2}\n",
    )  # fmt: skip
    assert read(tmp_path) == HostMemory(used=2 * GIB, limit=4 * GIB, peak=7 * GIB // 2, oom_kills=1, limit_failures=2)


def test_version_2_without_limit(tmp_path: Path) -> None:
    write(tmp_path, memory__current="5\n", memory__max="max\n", memory__stat="", memory__events="")
    memory = read(tmp_path)
    assert memory == HostMemory(used=5, limit=None, peak=None, oom_kills=0), "Linux before 5.19 keeps no peak"
    assert memory.share == 0.0


def test_version_1(tmp_path: Path) -> None:
    write(
        tmp_path / "memory", memory__usage_in_bytes=f"{3 * GIB}", memory__limit_in_bytes=f"{4 * GIB}",
        memory__stat=f"inactive_file 7\ntotal_inactive_file {GIB}\n",
        memory__oom_control="oom_kill_disable 0\nunder_oom 0\noom_kill 3\n", memory__max_usage_in_bytes=f"{4 * GIB}",
    )  # fmt: skip
    assert read(tmp_path) == HostMemory(used=2 * GIB, limit=4 * GIB, peak=4 * GIB, oom_kills=3)


def test_version_1_without_limit(tmp_path: Path) -> None:
    write(
        tmp_path / "memory", memory__usage_in_bytes="1", memory__limit_in_bytes="9223372036854771712",
        memory__stat="", memory__oom_control="",
    )  # fmt: skip
    memory = read(tmp_path)
    assert memory
    assert memory.limit is None


def test_counts_since_a_start() -> None:
    before = HostMemory(used=1, limit=None, peak=None, oom_kills=2, limit_failures=3)
    after = HostMemory(used=5, limit=None, peak=7, oom_kills=3, limit_failures=3)
    assert after.since(before) == HostMemory(used=5, limit=None, peak=7, oom_kills=1, limit_failures=0)


def test_no_cgroup(tmp_path: Path) -> None:
    assert read(tmp_path) is None


def test_an_event_is_told_once_until_use_has_fallen_clearly() -> None:
    gauge = Gauge(0.9)
    shares = [0.5, 0.91, 0.95, 0.89, 0.91, 0.84, 0.89, 0.92]
    assert [gauge.rises(share) for share in shares] == [False, True, False, False, False, False, False, True]
