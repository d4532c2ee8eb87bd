"""The container's own memory, as its cgroup (version 1 or 2) counts it."""

from dataclasses import dataclass, replace
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")
UNLIMITED = 1 << 60
"""Version 1 says "no limit" with a number near 2^63."""
HYSTERESIS = 0.05
"""After an event, use must fall this share of the limit below the threshold before the next one."""


@dataclass(frozen=True)
class HostMemory:
    """Bytes. `used` is the working set that the kubelet looks at: all but page cache that is easily dropped."""

    used: int
    limit: int | None
    peak: int | None
    """The most ever charged, page cache included; None where the kernel does not keep it."""
    oom_kills: int
    limit_failures: int | None = None
    """How often the kernel found no more to give below the container's own limit; None where it does not count that."""

    @property
    def share(self) -> float:
        """Use as a share of the limit; 0 without one."""
        return self.used / self.limit if self.limit else 0.0

    def since(self, before: "HostMemory") -> "HostMemory":
        """With what was counted after `before` alone."""
        failures = None
        if self.limit_failures is not None:
            failures = self.limit_failures - (before.limit_failures or 0)
        return replace(self, oom_kills=self.oom_kills - before.oom_kills, limit_failures=failures)


def read(root: Path = CGROUP) -> HostMemory | None:
    """The container's memory now; None where no memory cgroup is to be seen (a host without containers)."""
    try:
        if (root / "memory.current").exists():
            return _read(root, "memory.current", "memory.max", "memory.peak", "memory.events", "inactive_file")
        if (root / "memory" / "memory.usage_in_bytes").exists():
            return _read(
                root / "memory", "memory.usage_in_bytes", "memory.limit_in_bytes", "memory.max_usage_in_bytes",
                "memory.oom_control", "total_inactive_file",
            )  # fmt: skip
    except OSError:
        return None
    return None


def _read(directory: Path, usage: str, limit: str, peak: str, events: str, inactive: str) -> HostMemory:
    used = int((directory / usage).read_text())
    most = (directory / limit).read_text().strip()
    cache = _fields((directory / "memory.stat").read_text()).get(inactive, 0)
    happened = _fields((directory / events).read_text())
    return HostMemory(
        used=max(0, used - cache),
        limit=None if most == "max" or int(most) >= UNLIMITED else int(most),
        peak=int((directory / peak).read_text()) if (directory / peak).exists() else None,
        oom_kills=happened.get("oom_kill", 0),
        limit_failures=happened.get("oom"),
    )


def _fields(text: str) -> dict[str, int]:
    pairs = (line.split() for line in text.splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2}


class Gauge:
    """Says when use rises above the threshold: once, until it has fallen clearly below it."""

    def __init__(self, threshold: float) -> None:
        self._threshold = threshold
        self._high = False

    def rises(self, share: float) -> bool:
        """Whether `share` of the limit is a new event."""
        was_high = self._high
        self._high = share > (self._threshold - HYSTERESIS if was_high else self._threshold)
        return self._high and not was_high
