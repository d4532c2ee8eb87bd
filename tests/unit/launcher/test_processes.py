import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

from colocated_runtime.launcher import processes, supervisor

ORPHAN = """
import os, subprocess, sys, time
from colocated_runtime.launcher import processes
processes.adopt_orphans()
# A shell that leaves two sleepers in a session of their own and dies.
shell = subprocess.Popen(["sh", "-c", "sleep 60 & setsid sleep 60 & exit 7"])
assert shell.wait() == 7
time.sleep(0.2)
sleepers = processes.descendants()
assert len(sleepers) == 2, sleepers
processes.signal_all(9)
time.sleep(0.2)
assert processes.descendants() == []  # dead, though not yet buried
mine = subprocess.Popen(["sh", "-c", "exit 5"])
time.sleep(0.2)
processes.reap({mine.pid})
assert not any(os.path.exists(f"/proc/{pid}") for pid in sleepers)
assert mine.wait() == 5
"""


def test_orphans_are_found_ended_and_buried() -> None:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run([sys.executable, "-c", ORPHAN], env=environment, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr


def test_the_launcher_waits_before_it_kills(tmp_path: Path) -> None:
    script = f"""
import asyncio, subprocess
from colocated_runtime.launcher.supervisor import end_all
save = "trap 'echo saved > {tmp_path}/saved; exit 0' TERM; touch {tmp_path}/up; sleep 60 & wait"
child = subprocess.Popen(["sh", "-c", save])
import os, time
while not os.path.exists("{tmp_path}/up"): time.sleep(0.05)
asyncio.run(end_all(child))
"""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", script], env=environment, check=True, timeout=30)
    assert (tmp_path / "saved").read_text() == "saved\n"
    assert time.monotonic() - began < 20


def test_what_cannot_be_killed_is_given_up(monkeypatch) -> None:
    """As a process is that waits for a disk."""
    monkeypatch.setattr(supervisor, "DYING_SECONDS", 0.0)
    monkeypatch.setattr(supervisor, "DEAD_SECONDS", 0.2)
    monkeypatch.setattr(processes, "descendants", lambda: [2**30])
    process = subprocess.Popen(["true"])
    process.wait()
    asyncio.run(asyncio.wait_for(supervisor.end_all(process), 10))
