"""One attempt on one node: download, wait for the other nodes, run the ranks, say how it ended."""

import asyncio
import errno
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Awaitable
from typing import Any

import structlog

from colocated_runtime.contract.attempt import Attempt
from colocated_runtime.contract.outcome import Outcome
from colocated_runtime.contract.report import Report, Stage
from colocated_runtime.files import state_volume_failure, volume_failure
from colocated_runtime.launcher import caches, finish, planning
from colocated_runtime.launcher.classify import Ending, classify
from colocated_runtime.launcher.environment import Environment
from colocated_runtime.launcher.patience import in_thread, within
from colocated_runtime.launcher.peers import wait_for_peers
from colocated_runtime.launcher.server import serving
from colocated_runtime.launcher.sources import FetchState, hub_sources
from colocated_runtime.launcher.supervisor import STORAGE_SECONDS, TICK_SECONDS, StopRequest, Supervisor, end_all

CAUSE_FIRST_SECONDS = 3.0
"""A node that only lost another one ends this much later: the operator looks at the pod that ended first."""

NOT_FOR_US = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST)
"""Errors of a volume that is not meant to be written, or not by us."""

log = structlog.get_logger()


class Launcher:
    """`report` is what GET /report answers at any moment."""

    def __init__(self, attempt: Attempt, environment: Environment, began: float) -> None:
        """`began`: time.monotonic() from which watchdog.startTimeoutSeconds counts, up to the first rollout."""
        self._attempt, self._environment, self._began = attempt, environment, began
        self._paths, self._node = environment.paths, environment.node
        self._stop = StopRequest()
        self._caches = caches.Caches(self._paths.compiled, os.environ)
        self._keeping: asyncio.Task[None] | None = None
        now = time.time()
        self.report = Report(
            name=attempt.name, uid=attempt.uid, attempt=attempt.attempt, node=environment.node,
            stage=Stage.FETCHING, started=now, updated=now, grace_seconds=environment.grace_seconds,
        )  # fmt: skip

    async def run(self) -> int:
        """The pod's exit code: 0 Complete, 143 Preempted, 1 otherwise. Raise OSError where the port is taken."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.ask)
        async with serving(lambda: self.report, self._environment.report_host, self._attempt.report_port):
            ending = await self._ending()
            self.report = finish.final(self.report, ending, time.time())
            await within(STORAGE_SECONDS, lambda: finish.write(self.report, self._paths), None)
        log.info("finished", outcome=ending.outcome.value, message=ending.message)
        return finish.EXIT_CODES.get(ending.outcome, 1)

    async def _ending(self) -> Ending:
        try:
            ending = await self._prepare() or await self._fetch() or await self._plan() or await self._meet()
            ending = ending or await self._train()
        except Exception as error:
            log.exception("launcher failed")
            if volume := volume_failure(error, self._paths.storage):
                return Ending(Outcome.TRANSIENT, volume)
            if isinstance(error, OSError) and (volume := state_volume_failure(self._paths.state)):
                return Ending(Outcome.TRANSIENT, f"{volume}: {error}")
            return Ending(Outcome.CRASH, f"launcher: {error!r}", traceback=traceback.format_exc()[-4000:])
        if ending.secondary and len(self._attempt.hosts) > 1:
            await asyncio.sleep(CAUSE_FIRST_SECONDS)
        return ending

    async def _prepare(self) -> Ending | None:
        """Make the directories, forget what an earlier run left in the state directory."""
        try:
            return await self._unless_stopped(in_thread(self._make_directories), "making the attempt's directories")
        except OSError as error:
            said = f"checkpoint.storage: a directory of the attempt cannot be used: {error}"
            # What an earlier attempt could use is no mistake of the user's.
            mistake = self._attempt.attempt == 1 and error.errno in NOT_FOR_US
            return Ending(Outcome.USER_ERROR if mistake else Outcome.TRANSIENT, said)

    def _make_directories(self) -> None:
        state = self._paths.state
        state.mkdir(parents=True, exist_ok=True)
        files = (self._paths.stop_file, self._paths.sources_file, self._paths.fetch_file, self._paths.plan_file)
        stale = [*files, *state.glob("rank-*.json")]
        for path in stale:
            path.unlink(missing_ok=True)
        self._paths.logs(self._attempt.attempt).mkdir(parents=True, exist_ok=True)

    async def _fetch(self) -> Ending | None:
        """Download the hf:// sources in a process of their own."""
        try:
            wanted = hub_sources(self._attempt.spec)
        except ValueError as error:
            return Ending(Outcome.USER_ERROR, str(error))
        if not wanted:
            self._paths.sources_file.write_text("{}")
            return None
        process = _start_fetch()
        interrupted = await self._unless_stopped(self._watch_fetch(process), "downloading")
        if interrupted:
            await end_all(process)
            return interrupted
        if process.returncode == 0:
            return None
        said = self._fetch_state()
        code = f"the download ended with exit code {process.returncode}"
        return Ending(said.outcome or Outcome.CRASH, said.message if said.outcome else code, process.returncode)

    async def _watch_fetch(self, process: subprocess.Popen[bytes]) -> None:
        while process.poll() is None:
            self._tell(Stage.FETCHING, self._fetch_state().message)
            await asyncio.sleep(TICK_SECONDS)

    def _fetch_state(self) -> FetchState:
        path = self._paths.fetch_file
        return FetchState.model_validate_json(path.read_bytes()) if path.exists() else FetchState(message="")

    async def _plan(self) -> Ending | None:
        """Plan the memory; an ending if the job does not fit, before any rank costs minutes to find it out."""
        return await self._unless_stopped(self._planned(), "planning the memory")

    async def _planned(self) -> Ending | None:
        # It reads the model's config.json, which may lie on a claim.
        plan, ending = await in_thread(lambda: planning.plan_here(self._attempt, self._paths.sources_file))
        if plan:
            self._paths.plan_file.write_text(plan.model_dump_json(by_alias=True))
        if self._node == 0:  # whose word counts: one copy is enough to read
            self.report = self.report.model_copy(update={"plan": plan})
        return ending

    async def _meet(self) -> Ending | None:
        """Wait for the other nodes."""
        self._tell(Stage.WAITING, "")
        waiting = wait_for_peers(self._attempt, self._node, lambda message: self._tell(Stage.WAITING, message))
        return await self._unless_stopped(waiting, "waiting for the other pods")

    async def _train(self) -> Ending:
        self._tell(Stage.STARTING, f"starting {self._attempt.spec.ranks_per_node} ranks")
        await within(caches.SECONDS, self._caches.restore, None)
        facts = await Supervisor(
            self._attempt, self._environment, self._stop, self._began, self.report, publish=self._publish
        ).run()
        return classify(facts)

    def _publish(self, report: Report) -> None:
        """Let the report be seen; after a first step all is compiled, and node 0 keeps it."""
        self.report = report
        trained = report.progress.step > (report.resumed_from_step or 0)
        if trained and self._node == 0 and self._keeping is None:
            self._keeping = asyncio.ensure_future(within(caches.SECONDS, self._caches.keep, None))

    async def _unless_stopped(self, work: Awaitable[Ending | None], doing: str) -> Ending | None:
        """What `work` says once it is done; an ending of our own if SIGTERM or the start timeout came before."""
        tasks: list[asyncio.Future[Any]] = [asyncio.ensure_future(work), asyncio.ensure_future(self._stop.asked.wait())]
        seconds = self._attempt.spec.watchdog.start_timeout_seconds
        left = max(0.0, self._began + seconds - time.monotonic())
        try:
            done, _ = await asyncio.wait(tasks, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
        if tasks[0] in done:
            said: Ending | None = tasks[0].result()
            return said
        if done:
            return Ending(Outcome.PREEMPTED, f"stopped as asked while {doing}", 143)
        waited = f"still {doing} after watchdog.startTimeoutSeconds ({seconds} s)"
        return Ending(Outcome.TRANSIENT, f"{waited}: {self.report.message}")

    def _tell(self, stage: Stage, message: str) -> None:
        if (stage, message) != (self.report.stage, self.report.message):
            log.info(message or stage.value)
        self.report = self.report.model_copy(update={"stage": stage, "message": message, "updated": time.time()})


def _start_fetch() -> subprocess.Popen[bytes]:
    quiet = {"HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    return subprocess.Popen([sys.executable, "-m", "colocated_runtime.launcher.fetch"], env=quiet | os.environ)
