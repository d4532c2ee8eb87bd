"""The life of this node's ranks: started, watched, told to stop, ended where they do not come on, accounted for."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import structlog

from colocated_runtime import host_memory
from colocated_runtime.contract.attempt import Attempt
from colocated_runtime.contract.report import Pressure, Report, Stage
from colocated_runtime.files import state_volume_failure
from colocated_runtime.launcher import classify, logs, processes, ranks, stacks, watch
from colocated_runtime.launcher.classify import Facts
from colocated_runtime.launcher.environment import Environment
from colocated_runtime.launcher.patience import within

TICK_SECONDS = 0.25
DYING_SECONDS = 5.0
"""From SIGTERM to SIGKILL."""
DEAD_SECONDS = 30.0
"""From SIGKILL to giving up: a process that waits for a device or a disk does not die."""
LEAVING_SECONDS = 30.0
"""For an interpreter to end after its rank has said how it went."""
SLOW_SAVE_SHARE = 0.25
"""Of stallTimeoutSeconds: a save that takes longer is reported while it runs."""
STORAGE_SECONDS = 10.0
"""For what must be read from the volume with the logs; it may be what hangs."""
STACK_SECONDS = 2.0
"""Time for the ranks to write their stacks."""
UNKILLABLE = -int(signal.SIGKILL)
"""Exit code of a torchrun that does not die of SIGKILL."""
DUMP_BYTES = 64_000
"""Of what a rank writes of its threads, the main one at the end."""
STACK_BYTES = 4000
"""Of each rank's main thread: some 30 calls."""

log = structlog.get_logger()


class StopRequest:
    """SIGTERM asks the ranks to save and leave; a second one ends them at once."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.urgent = False

    def ask(self) -> None:
        """Called at every SIGTERM and SIGINT."""
        self.urgent = self.asked.is_set()
        self.asked.set()


class Supervisor:
    """Runs torchrun once. `publish` is given the report at every look at the ranks.

    `began`: when the launcher did, as time.monotonic() says it.
    """

    def __init__(
        self, attempt: Attempt, environment: Environment, stop: StopRequest, began: float, report: Report,
        publish: Callable[[Report], None],
    ) -> None:  # fmt: skip
        self._attempt, self._environment, self._stop = attempt, environment, stop
        self._report, self._publish = report, publish
        self._paths, self._node = environment.paths, environment.node
        self._own_worker = not attempt.spec.runtime.command
        self._log_dir = self._paths.logs(attempt.attempt)
        self._pressure = watch.PressureLog()
        self._gauge = host_memory.Gauge(attempt.spec.memory.host_pressure)
        self._host_before = host_memory.read()
        watchdog = attempt.spec.watchdog
        self._watchdog = watch.Watchdog(
            start_seconds=watchdog.start_timeout_seconds,
            stall_seconds=watchdog.stall_timeout_seconds,
            began=began,
        )
        self._slow_save_seconds = SLOW_SAVE_SHARE * watchdog.stall_timeout_seconds
        self._ranks = ranks.global_ranks(attempt, environment.node)
        self._started = False
        self._deadline: float | None = None
        self._overran = False
        self._hung = self._stacks = ""

    async def run(self) -> Facts:
        """Start the ranks and return once all are gone. Raise OSError where their logs cannot be written."""
        await within(STORAGE_SECONDS, lambda: logs.drop_old(self._log_dir.parent, self._attempt.attempt), None)
        own = self._ranks
        names = {ranks.rank_log(rank): f"[rank {rank}] " if len(own) > 1 else "" for rank in own}
        copier = logs.Copier(logs.Tail(self._log_dir, names, sys.stdout.buffer), TICK_SECONDS)
        torchrun = self._log_dir / ranks.torchrun_log(self._node)
        told_before = await within(STORAGE_SECONDS, lambda: logs.size(torchrun), 0)
        process = ranks.start(self._attempt, self._node, self._paths.state, self._log_dir)
        log.info("ranks started", ranks=f"{own.start}-{own.stop - 1}", logs=str(self._log_dir))
        copier.start()
        try:
            while process.poll() is None:
                processes.reap({process.pid})
                self._observe()
                if await self._intervene(process):
                    break  # also where it cannot be ended
                await asyncio.sleep(TICK_SECONDS)
        except BaseException:
            await end_all(process)
            raise
        self._observe()
        await asyncio.to_thread(copier.finish, STORAGE_SECONDS)
        return await self._facts(UNKILLABLE if process.returncode is None else process.returncode, told_before)

    def _observe(self) -> None:
        """Look at the ranks' files and at the container's memory, and publish what they say."""
        now, states = time.time(), watch.read_ranks(self._paths.state)
        self._pressure.add_ranks(states)
        self._look_at_memory(now)
        self._started = self._started or watch.all_have_started(states, self._ranks)
        stage = self._stage(silent=not states)
        if stage is not self._report.stage:
            log.info(stage.value)
        volume = state_volume_failure(self._paths.state)
        if volume and volume != self._report.message:
            log.error(volume)
        merged = watch.merge(self._report, states, now)
        changes = {
            "stage": stage,
            "pressure": self._pressure.events,
            "message": volume,
            "slow_save": watch.slow_save(states, now, self._slow_save_seconds),
        }
        self._report = merged.model_copy(update=changes)
        self._publish(self._report)

    def _stage(self, *, silent: bool) -> Stage:
        if self._stop.asked.is_set():
            return Stage.STOPPING
        # A command of the user's that writes no state files just runs.
        return Stage.RUNNING if self._started or (silent and not self._own_worker) else Stage.STARTING

    def _look_at_memory(self, now: float) -> None:
        host = host_memory.read()
        if host is None:
            return
        self._report = self._report.model_copy(update={"host_used_bytes": host.used})
        if host.limit is None or not self._gauge.rises(host.share):
            return
        message = f"the pod uses {host.share:.0%} of its memory limit ({host.limit / 2**30:.1f} GiB)"
        log.warning("memory pressure", message=message)
        event = Pressure(
            sequence=0, time=now, kind="Host", phase=self._report.phase,
            used_bytes=host.used, limit_bytes=host.limit, message=message,
        )  # fmt: skip
        self._pressure.add(event)

    async def _intervene(self, process: subprocess.Popen[bytes]) -> bool:
        """Whether the ranks have been ended, or cannot be: there is no more to wait for."""
        now = time.monotonic()
        if self._stop.asked.is_set():
            if self._deadline is None:
                self._deadline = now + self._environment.grace_seconds
                self._paths.stop_file.touch()
                log.info("told the ranks to save and leave", grace_seconds=self._environment.grace_seconds)
            if now >= self._deadline or self._stop.urgent:
                self._overran = True
                await end_all(process)
            return self._overran
        states = watch.read_ranks(self._paths.state)
        if watch.all_have_ended(states, self._ranks):
            if time.time() - max(state.updated for state in states) > LEAVING_SECONDS:
                log.warning("the ranks are done but do not leave; ending them")
                await end_all(process)
                return True
            return False
        self._hung = self._watchdog.complaint(states, self._report.stage, now)
        if self._hung:
            if self._report.message:  # the ranks may come on, but cannot say so
                self._hung += f"; {self._report.message}"
            log.error("hung", message=self._hung)
            self._stacks = await self._dump_stacks([state.rank for state in states], [state.pid for state in states])
            await end_all(process)
        return bool(self._hung)

    async def _dump_stacks(self, own: list[int], pids: list[int]) -> str:
        """Have each rank write its threads' stacks to its log (faulthandler, SIGUSR1) and return the main threads'.

        The handler needs no interpreter: it answers also while the user's code holds Python's lock. A stopped process
        is waken, to the very instruction at which it stopped.
        """
        files = {rank: self._log_dir / ranks.rank_log(rank) for rank in own}
        nothing: dict[int, int] = {}
        sizes = await within(STORAGE_SECONDS, lambda: {rank: logs.size(path) for rank, path in files.items()}, nothing)
        states = processes.states()
        for pid in pids:
            if pid in states:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGUSR1)
                    os.kill(pid, signal.SIGCONT)
        await asyncio.sleep(STACK_SECONDS)
        silence: dict[int, str] = {}
        said = await within(
            STORAGE_SECONDS,
            lambda: {rank: logs.end_of(files[rank], DUMP_BYTES, size) for rank, size in sizes.items()},
            silence,
        )
        return "\n".join(
            f"rank {rank}{processes.NOTABLE.get(states.get(pid, ''), '')}:\n"
            f"{stacks.main_thread(said.get(rank, ''), STACK_BYTES)}"
            for rank, pid in zip(own, pids, strict=True)
        )

    async def _facts(self, exit_code: int, told_before: int) -> Facts:
        host = host_memory.read()
        if host and self._host_before:
            host = host.since(self._host_before)
        torchrun = self._log_dir / ranks.torchrun_log(self._node)
        told = await within(STORAGE_SECONDS, lambda: logs.end_of(torchrun, 20_000, told_before), "")
        failed, code = classify.failed_rank(told)
        failed_log = ""
        if failed is not None:
            path = self._log_dir / ranks.rank_log(failed)
            failed_log = await within(STORAGE_SECONDS, lambda: logs.end_of(path), "")
        return Facts(
            exit_code=exit_code,
            ranks=watch.read_ranks(self._paths.state),
            failed_rank=failed,
            failed_code=code,
            failed_log=failed_log,
            torchrun_log=told,
            hung=self._hung,
            stacks=self._stacks,
            stopping=self._stop.asked.is_set(),
            overran=self._overran,
            oom_kills=host.oom_kills if host else 0,
            memory_limit=host.limit if host else None,
            memory_peak=host.peak if host else None,
            limit_failures=host.limit_failures if host else None,
            state_volume=self._report.message,
            own_worker=self._own_worker,
        )


async def end_all(process: subprocess.Popen[bytes]) -> None:
    """End `process` and every other process below the launcher: SIGTERM, then SIGKILL; give up where that fails."""
    began = time.monotonic()
    processes.signal_all(signal.SIGTERM)
    while left := processes.descendants():
        took = time.monotonic() - began
        if took > DYING_SECONDS + DEAD_SECONDS:
            log.error("processes cannot be ended: they wait for a device or a disk", pids=left)
            break
        if took > DYING_SECONDS:
            processes.signal_all(signal.SIGKILL)
        process.poll()
        processes.reap({process.pid})
        await asyncio.sleep(0.05)
    process.poll()
