"""The phases a rank goes through, and the memory each of them needs."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from colocated_runtime.contract.report import PRESSURE_KEPT, Phase, PhasePeak, Pressure
from colocated_runtime.worker import errors
from colocated_runtime.worker.state import StateFile

SELF = Path("/proc/self")
BEAT_SECONDS = 2.0


class Phases:
    """One place for every change of phase: `with phases(Phase.TRAIN): …`, nested as the trainers nest them.

    Written to the state file at each change, together with the peaks of the phase that is left.
    """

    def __init__(self, state: StateFile, device_peak: Callable[[], int], device_limit: int = 0) -> None:
        """`device_limit`: bytes of the device, 0 without one."""
        self._state = state
        self._device_peak = device_peak
        self._device_limit = device_limit
        self._current = Phase.START
        reset_host_peak()

    @contextmanager
    def __call__(self, phase: Phase) -> Iterator[None]:
        outer = self._current
        self._enter(phase)
        try:
            yield
        except Exception as error:
            errors.mark(error, phase)
            raise
        finally:
            self._enter(outer)

    def sample(self) -> None:
        """Record the peaks of the current phase so far; call it before memory is given back."""
        before = self._state.state.peaks.get(self._current, PhasePeak())
        peak = PhasePeak(
            device_bytes=max(before.device_bytes, self._device_peak()),
            host_bytes=max(before.host_bytes, host_peak()),
        )
        self._state.state.peaks = {**self._state.state.peaks, self._current: peak}

    def pressure(self, message: str, kind: str = "Device") -> None:
        """Report that the device's memory did not suffice in the present phase; call it before memory is given back.

        `kind` "Sleep": the sleeping engine kept more than planned.
        """
        self.sample()
        known = self._state.state.pressure
        peak = self._state.state.peaks[self._current].device_bytes
        event = Pressure(
            sequence=known[-1].sequence + 1 if known else 1, time=time.time(), kind=kind, phase=self._current,
            used_bytes=peak, limit_bytes=self._device_limit, message=message,
        )  # fmt: skip
        self._state.update(pressure=[*known, event][-PRESSURE_KEPT:])

    def beat(self) -> None:
        """Show the launcher's watchdog, every few seconds, that a long phase comes on."""
        if time.time() - self._state.state.updated > BEAT_SECONDS:
            self._state.update()

    def _enter(self, phase: Phase) -> None:
        self.sample()
        reset_host_peak()
        self._current = phase
        self._state.enter(phase)


def host_peak() -> int:
    """High-water mark of this process's resident memory since `reset_host_peak`, in bytes."""
    for line in (SELF / "status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def reset_host_peak() -> None:
    """Start a new high-water mark; where the kernel refuses, the mark stays that of the whole process."""
    with suppress(OSError):
        (SELF / "clear_refs").write_text("5")


def no_device() -> int:
    """The device peak of a rank without a device."""
    return 0


def cuda_peak() -> int:
    """Largest use of the whole device since the last call, engine included, in bytes.

    torch counts only its own memory and the driver only the present, so: what is used now, plus how far torch's
    own reserve was above its present one.
    """
    import torch

    free, total = torch.cuda.mem_get_info()
    above = torch.cuda.max_memory_reserved() - torch.cuda.memory_reserved()
    torch.cuda.reset_peak_memory_stats()
    return total - free + max(0, above)


def cuda_limit() -> int:
    """Memory of the whole device, in bytes."""
    import torch

    return int(torch.cuda.mem_get_info()[1])
