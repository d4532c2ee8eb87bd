"""What the fault tests share: an operator that can be killed, a running job, what must hold, and the record."""

import os
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.cluster.kube import Object, events, eventually, items, status
from tests.cluster.process import Process
from tests.cluster.proxy import Proxy
from tests.unit import fault_rows

LONG = bool(os.environ.get("CHAOS_LONG"))
"""Whether faults are injected in all their variants; else one of each kind."""
ONCE = ("Running", "Complete", "Failed", "Crash", "Preempted", "NodeLost", "Suspended")
"""Reasons of Events that tell of something that happens once an attempt, or once a job."""


@dataclass
class Chaos:
    """An operator behind a proxy, for namespaces of its own."""

    proxy: Proxy
    operator: Process
    namespace: str


def record(fault: str, how: str, seconds: float | None = None, lost: str = "nothing") -> None:
    """One row for the table of docs/reliability.md; `seconds`: from the fault to the recovery."""
    fault_rows.record(fault, how, lost, seconds=[] if seconds is None else [seconds])


def recovers(namespace: str, name: str, since: float | None = None, seconds: float = 120) -> float:
    """Seconds from `since` (now) until the status shows another step than now."""
    since = since or time.monotonic()
    before = status(namespace, name).get("progress", {}).get("step", 0)

    def moves() -> bool:
        return status(namespace, name).get("progress", {}).get("step", 0) > before

    eventually(moves, seconds, 0.2)
    return time.monotonic() - since


def nothing_doubled(namespace: str) -> None:
    """No attempt has two Jobs, no Event is repeated, and each Job belongs to the attempt that its name says."""
    jobs = items("jobs", namespace)
    numbers = Counter(
        (job["metadata"]["labels"]["rl.colocated.dev/job"], job["metadata"]["labels"]["rl.colocated.dev/attempt"])
        for job in jobs
    )
    assert not [key for key, count in numbers.items() if count > 1]
    told = Counter(
        (event["involvedObject"]["name"], event["reason"], event["message"])
        for event in items("events", namespace)
        if event["involvedObject"]["kind"] == "ColocatedRLJob" and event["reason"] in ONCE
    )
    assert not [key for key, count in told.items() if count > 1]


def undisturbed(namespace: str, name: str) -> None:
    """The job has never noticed anything: its first attempt still runs, or is complete."""
    now = status(namespace, name)
    assert (now["attempt"], now.get("restartCount", 0), now.get("restarts", [])) == (1, 0, []), now
    nothing_doubled(namespace)


def has_told(namespace: str, name: str, *reasons: str) -> bool:
    """Whether each of these Events has come."""
    return set(reasons) <= {event["reason"] for event in events(namespace, name)}


class Monotone:
    """Follows a job's status; fails where it goes backwards."""

    def __init__(self) -> None:
        self._last: dict[str, Any] = {}

    def look_at_all(self, namespace: str) -> None:
        for job in items("crj", namespace):
            self._see(job["metadata"]["name"], job.get("status", {}))

    def look(self, namespace: str, name: str) -> Object:
        now = status(namespace, name)
        self._see(name, now)
        return now

    def _see(self, name: str, now: Object) -> None:
        last = self._last.get(name, {})
        for number in ("attempt", "restartCount"):
            assert now.get(number, 0) >= last.get(number, 0), (last, now)
        if last.get("phase") in ("Complete", "Failed"):
            assert now["phase"] == last["phase"], (last, now)
        ended = [entry["attempt"] for entry in now.get("restarts", [])]
        assert ended == sorted(set(ended)), now
        if now.get("attempt") == last.get("attempt"):
            before, after = (entry.get("progress", {}).get("step", 0) for entry in (last, now))
            assert after >= before, (last, now)
        self._last[name] = now


def passing(seconds: float, what: Callable[[], Any], pause: float = 0.3) -> None:
    """Do `what` again and again for so long."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        what()
        time.sleep(pause)
