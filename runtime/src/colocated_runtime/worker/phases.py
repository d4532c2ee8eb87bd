"""The phases a rank goes through, and the memory each of them needs."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from colocated_runtime.contract.report import PRESSURE_KEPT, Phase, PhasePeak, Pressure
from colocated_runtime.worker import errors
from colocated_runtime.worker.picture import History, larger
from colocated_runtime.worker.state import StateFile
from colocated_runtime.worker.trace import Trace, Track

SELF = Path("/proc/self")
BEAT_SECONDS = 2.0


class Usage(NamedTuple):
    """Bytes, now and at most since the last look."""

    now: int = 0
    peak: int = 0


@dataclass
class Moved:
    """Memory that changed hands; `bytes` is filled in while it does."""

    bytes: int = 0
    seconds: float = 0.0


Handover = Callable[[str], AbstractContextManager[Moved]]
"""`Phases.handover`."""


class Phases:
    """One place for every change of phase: `with phases(Phase.TRAIN): …`, nested as the trainers nest them.

    Written to the state file at each change, together with the peaks of the phase that is left; and to the trace,
    where a phase's slice ends as soon as another begins, inner or outer.
    """

    def __init__(
        self, state: StateFile, device: Callable[[], Usage], device_limit: int = 0, trace: Trace | None = None
    ) -> None:
        """`device` tells how much of it is used, `device_limit` how many bytes it has, 0 without one."""
        self._state = state
        self._device = device
        self._trace = trace
        self.device_limit = device_limit
        self._current = Phase.START
        self._since = state.state.phase_since
        self._visit = PhasePeak()
        """The peak since the present phase began."""
        self._spent = dict.fromkeys(Phase, 0.0)
        self._step_began = self._since
        self._step_peaks: dict[Phase, PhasePeak] = {}
        self.history = History()
        self.moved = Moved()
        """All of it so far; replaced, not changed."""
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
        device, host = self._device(), host_usage()
        seen = PhasePeak(device_bytes=device.peak, host_bytes=host.peak)
        self._visit = larger(self._visit, seen)
        peaks = self._state.state.peaks
        self._state.state.peaks = {**peaks, self._current: larger(peaks.get(self._current, seen), seen)}
        if self._trace:
            self._count("used", time.time(), device.now, host.now)

    def seconds(self) -> dict[Phase, float]:
        """Spent in each phase so far, the present one included."""
        return {**self._spent, self._current: self._spent[self._current] + time.time() - self._since}

    def step_begins(self) -> None:
        """The trainer begins a step."""
        self._step_began = time.time()

    def step_ends(self, step: int) -> None:
        """Step number `step` is done."""
        self.sample()
        self._keep_peak()
        self.history.add(step, self._step_peaks)
        self._step_peaks = {}
        if self._trace:
            self._trace.slice(Track.STEPS, f"step {step}", self._step_began, time.time())
            self._trace.write()

    def finish(self) -> None:
        """The rank's work is done, or has failed: write the rest."""
        self.sample()
        self._leave(time.time())
        self.history.add_to_last(self._step_peaks)
        if self._trace:
            self._trace.finish()

    @contextmanager
    def handover(self, what: str) -> Iterator[Moved]:
        """Memory changes hands, e.g. `with phases.handover("sleep") as moved: moved.bytes = …`."""
        moved, began = Moved(), time.time()
        try:
            yield moved
        finally:
            now = time.time()
            self.moved = Moved(self.moved.bytes + moved.bytes, self.moved.seconds + now - began)
            if self._trace:
                self._trace.slice(Track.HANDOVERS, what, began, now, seconds=round(now - began, 6), bytes=moved.bytes)

    def pressure(self, message: str, kind: str = "Device") -> None:
        """Report that the device's memory did not suffice in the present phase; call it before memory is given back.

        `kind` "Sleep": the sleeping engine kept more than planned.
        """
        self.sample()
        known = self._state.state.pressure
        peak = self._state.state.peaks[self._current].device_bytes
        event = Pressure(
            sequence=known[-1].sequence + 1 if known else 1, time=time.time(), kind=kind, phase=self._current,
            used_bytes=peak, limit_bytes=self.device_limit, message=message,
        )  # fmt: skip
        if self._trace:
            self._trace.mark(f"MemoryPressure: {message}", event.time)
        self._state.update(pressure=[*known, event][-PRESSURE_KEPT:])

    def beat(self) -> None:
        """Show the launcher's watchdog, every few seconds, that a long phase comes on."""
        if time.time() - self._state.state.updated > BEAT_SECONDS:
            self._state.update()

    def _enter(self, phase: Phase) -> None:
        self.sample()
        reset_host_peak()
        if phase is not self._current:
            self._leave(time.time())
            self._current = phase
        self._state.enter(phase)

    def _leave(self, now: float) -> None:
        self._spent[self._current] += now - self._since
        self._keep_peak()
        if self._trace:
            device, host = self._visit.device_bytes, self._visit.host_bytes
            self._trace.slice(Track.PHASES, self._current, self._since, now, devicePeakBytes=device, hostPeakBytes=host)
            self._count("peak of the phase", self._since, device, host)
            self._trace.write()
        self._since, self._visit = now, PhasePeak()

    def _keep_peak(self) -> None:
        self._step_peaks[self._current] = larger(self._step_peaks.get(self._current, self._visit), self._visit)

    def _count(self, name: str, when: float, device: int, host: int) -> None:
        assert self._trace
        values = {"device": device, "host": host} if self.device_limit else {"host": host}
        self._trace.counter(name, when, **values)


def host_usage() -> Usage:
    """This process's resident memory, and its high-water mark since `reset_host_peak`."""
    found = {"VmRSS:": 0, "VmHWM:": 0}
    for line in (SELF / "status").read_text().splitlines():
        name, _, value = line.partition("\t")
        if name in found:
            found[name] = int(value.split()[0]) * 1024
    return Usage(found["VmRSS:"], found["VmHWM:"])


def reset_host_peak() -> None:
    """Start a new high-water mark; where the kernel refuses, the mark stays that of the whole process."""
    with suppress(OSError):
        (SELF / "clear_refs").write_text("5")


def no_device() -> Usage:
    """Of a rank without a device."""
    return Usage()


def cuda_usage() -> Usage:
    """Of the whole device, engine included; the peak is the largest use since the last call.

    torch counts only its own memory and the driver only the present, so: what is used now, plus how far torch's
    own reserve was above its present one.
    """
    import torch

    free, total = torch.cuda.mem_get_info()
    above = torch.cuda.max_memory_reserved() - torch.cuda.memory_reserved()
    torch.cuda.reset_peak_memory_stats()
    return Usage(total - free, total - free + max(0, above))


def cuda_limit() -> int:
    """Memory of the whole device, in bytes."""
    import torch

    return int(torch.cuda.mem_get_info()[1])
