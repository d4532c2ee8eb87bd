import io
import threading
import time
from pathlib import Path

from colocated_runtime.launcher.logs import Copier, Tail, drop_old, end_of


def test_whole_lines_are_copied_with_their_prefix(tmp_path: Path) -> None:
    out = io.BytesIO()
    tail = Tail(tmp_path, {"a.log": "[a] ", "b.log": "[b] "}, out)
    tail.pump()
    (tmp_path / "a.log").write_text("one\ntw")
    (tmp_path / "b.log").write_text("x\n")
    tail.pump()
    assert out.getvalue() == b"[a] one\n[b] x\n"
    with (tmp_path / "a.log").open("a") as file:
        file.write("o\nend")
    tail.pump()
    tail.pump(last=True)
    assert out.getvalue() == b"[a] one\n[b] x\n[a] two\n[a] end\n"


def test_what_was_there_before_is_not_copied_again(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("old\n")
    out = io.BytesIO()
    tail = Tail(tmp_path, {"a.log": ""}, out)
    with (tmp_path / "a.log").open("a") as file:
        file.write("new\n")
    tail.pump()
    assert out.getvalue() == b"new\n"


def test_the_end_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "log"
    assert end_of(path) == ""
    path.write_text("0123456789")
    assert end_of(path, limit=4) == "6789"
    assert end_of(path, limit=4, start=8) == "89"


def test_logs_of_the_last_two_attempts_are_kept(tmp_path: Path) -> None:
    for name in ("attempt-1", "attempt-2", "attempt-3", "attempt-x"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "rank-0.log").write_text("x")
    drop_old(tmp_path, attempt=4)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["attempt-3", "attempt-x"]


def test_a_copier_copies_until_the_end(tmp_path: Path) -> None:
    out = io.BytesIO()
    copier = Copier(Tail(tmp_path, {"a.log": ""}, out), 0.01)
    copier.start()
    (tmp_path / "a.log").write_text("one\ntwo")
    copier.finish(5)
    assert out.getvalue() == b"one\ntwo\n"


def test_storage_that_hangs_or_fails_hangs_nobody(tmp_path: Path) -> None:
    class Broken(Tail):
        def pump(self, *, last: bool = False) -> None:
            calls.append(last)
            if len(calls) < 3:
                raise OSError("stale file handle")
            threading.Event().wait(60)

    calls: list[bool] = []
    copier = Copier(Broken(tmp_path, {}, io.BytesIO()), 0.001)
    copier.start()
    while len(calls) < 3:
        time.sleep(0.01)
    began = time.monotonic()
    copier.finish(0.1)
    assert time.monotonic() - began < 5
