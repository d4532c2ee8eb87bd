"""Processes below this one: PID 1 has to bury orphans, and has to be able to end everything that it started."""

import contextlib
import ctypes
import os
import signal
from collections.abc import Collection
from pathlib import Path

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
LIBC = ctypes.CDLL(None, use_errno=True)
NOTABLE = {"T": " (stopped by a signal)", "D": " (waits for a disk or a device and cannot be interrupted)"}
"""State letters that explain why a process does not come on."""


def adopt_orphans() -> None:
    """Become the parent of orphaned descendants, as PID 1 is anyway; so that none is lost outside a pod either."""
    LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_with_parent() -> None:
    """Called in a new process: the kernel kills it when its parent is gone, as the end of PID 1 does in a pod."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def reap(known: Collection[int]) -> None:
    """Bury dead children that nobody waits for; those in `known` are left to their Popen objects."""
    for pid in _children():
        if pid in known:
            continue
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


def descendants() -> list[int]:
    """All living processes below this one: torchrun starts each rank in a session of its own."""
    parents = _parents()
    found, frontier = [], {os.getpid()}
    while frontier:
        frontier = {pid for pid, (parent, _) in parents.items() if parent in frontier}
        found += [pid for pid in frontier if parents[pid][1] != "Z"]
    return found


def states() -> dict[int, str]:
    """The state letter (proc(5)) of every living process below this one."""
    letters = {pid: letter for pid, (_, letter) in _parents().items()}
    return {pid: letters[pid] for pid in descendants() if pid in letters}


def signal_all(number: signal.Signals) -> None:
    """Send a signal to every descendant."""
    for pid in descendants():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _children() -> list[int]:
    own = os.getpid()
    return [pid for pid, (parent, _) in _parents().items() if parent == own]


def _parents() -> dict[int, tuple[int, str]]:
    """Of every process: its parent and its state letter."""
    found: dict[int, tuple[int, str]] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError, ValueError):
            # The name stands in parentheses and may hold anything, further parentheses included.
            state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
            found[int(entry.name)] = int(parent), state
    return found
