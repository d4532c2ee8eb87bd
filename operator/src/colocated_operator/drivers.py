"""One task for each ColocatedRLJob: it waits to be woken, then makes one pass: observe, decide, act, write status."""

import asyncio
import contextlib
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import structlog

from colocated_operator import metrics, observe
from colocated_operator.attempts import Attempts
from colocated_operator.decide import Action, CreateAttempt, Decision, DeleteAttempt, DeleteJob, Sweep, decide
from colocated_operator.desired import AttemptPlan
from colocated_operator.kube import Body, Kube, KubeError
from colocated_operator.observe import ChildJob, Observation, Obstacle, Pulled
from colocated_operator.policies.waiting import lacking_pods
from colocated_operator.reports import Reports
from colocated_operator.settings import Settings
from colocated_operator.status.events import Event, body, events
from colocated_operator.status.patch import merge_patch, without_empty
from colocated_operator.store import Store
from colocated_runtime.contract import names

log = structlog.get_logger()

BUSY_SECONDS = 2.0
"""Between passes while pods report."""
BUSY = ("Starting", "Running", "Restarting", "Suspending")
IDLE_SECONDS = 60.0
LONGEST_BACKOFF_SECONDS = 10.0
"""As long as the watches' own (`handlers.Endless`): where the API server was away and nothing has changed meanwhile,
they go on where they were and wake nobody."""
LONGEST_CREATE_PAUSE_SECONDS = 30.0
NO_EVENT = (400, 403, 422)
"""Refusals of an Event that end no pass: the namespace ends, an edited status made it invalid."""
SILENT_AFTER = timedelta(seconds=10)
ASK_AGAIN_SECONDS = 10.0
"""Between looks at the Events of a Job whose pods do not come."""
LOOK_AGAIN_SECONDS = 60.0
"""Between look-ups of a job whose pods do not answer."""
WRITE_SECONDS = 3.0
"""Between status writes that change neither phase nor a condition."""


@dataclass
class World:
    """What all drivers share."""

    kube: Kube
    store: Store
    reports: Reports
    settings: Settings
    clock: Callable[[], datetime]


@dataclass
class Driver:
    """The passes of one job. Everything it remembers can be lost: it is found again in the cluster."""

    uid: str
    world: World
    event: asyncio.Event = field(default_factory=asyncio.Event)
    pulled: dict[str, Pulled] = field(default_factory=dict)
    obstacle: Obstacle | None = None
    retry_create: float = 0.0
    """Loop time before which an attempt that met an obstacle is not tried again."""
    tries: int = 0
    """Attempts to create the present attempt that met an obstacle."""
    swept: bool = False
    """Whether what belonged to the job has been deleted since it was over."""
    refusal: str = ""
    """What keeps the present attempt's Job from its pods, by its Events."""
    asked: float = float("-inf")
    """Loop time of the last look at these."""
    looked: float = float("-inf")
    """Loop time of the last look-up."""
    failures: int = 0
    written: float = 0.0
    posted: set[str] = field(default_factory=set)

    async def run(self) -> None:
        """Pass after pass, until the job is gone."""
        self.event.set()
        wait = 0.0
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.event.wait(), wait or None)
            self.event.clear()
            try:
                with metrics.PASS_SECONDS.time():
                    again = await self.one_pass()
            except KubeError as error:
                self._tell(error)
                wait = max(error.retry_after or 0.0, self._back_off())
                continue
            except Exception:
                log.exception("pass failed", job=self.uid)
                wait = self._back_off()
                continue
            self.failures = 0
            if again is None:
                return
            wait = again * random.uniform(0.9, 1.1)  # noqa: S311

    async def one_pass(self) -> float | None:
        """Returns the seconds to the next one, or None if the job is gone."""
        observation = self._observation()
        if observation is None:
            return None
        observation = await self._with_trace(await self._with_refusal(await self._with_reports(observation)))
        decision = decide(observation, self.world.clock(), self.world.settings)
        for action in decision.actions:
            if isinstance(action, CreateAttempt):
                await self._create(observation, action.plan)
        late = await self._write(observation, decision)
        for action in decision.actions:
            await self._delete(observation, action)
        await self._post(observation, decision)
        self.world.store.forget(self.uid, before=decision.status.attempt - 1)
        busy = bool(decision.actions) or decision.status.phase in BUSY
        pause = min(BUSY_SECONDS if busy else IDLE_SECONDS, late or IDLE_SECONDS)
        return max(0.05, min(pause, IDLE_SECONDS if decision.again_in is None else decision.again_in))

    def _observation(self) -> Observation | None:
        found = self.world.store.snapshot(self.uid)
        return replace(found, reports=self.pulled, obstacle=self.obstacle, swept=self.swept) if found else None

    async def _with_reports(self, observation: Observation) -> Observation:
        """Ask the pods that run; forget the answers of those that are gone."""
        present = {pod.uid for pod in observation.pods}
        known = {uid: answer for uid, answer in self.pulled.items() if uid in present}
        asked = [pod for pod in observation.pods if pod.running and pod.ip]
        answers = await self.world.reports.pull(asked, self.uid, known)
        self.pulled = known | answers
        if self._may_be_gone(answers.values()):
            await self._look_up(observation)
        return self._observation() or observation

    def _may_be_gone(self, answers: Iterable[Pulled]) -> bool:
        """Whether a pod has not answered for long, and was not looked up lately."""
        now, lately = self.world.clock(), self.looked + LOOK_AGAIN_SECONDS
        silent = any(answer.since and now - answer.since > SILENT_AFTER for answer in answers)
        return silent and asyncio.get_running_loop().time() > lately

    async def _look_up(self, observation: Observation) -> None:
        """The job's objects from the API server: of what is deleted during a re-list, no watch ever tells."""
        self.looked = asyncio.get_running_loop().time()
        known = {child.uid for child in observation.children if not child.gone}
        known |= {pod.uid for pod in observation.pods if not pod.gone}
        selected = f"{names.LABEL_JOB_UID}={self.uid}"
        jobs = await self.world.kube.list("Job", observation.job.namespace, selected)
        pods = await self.world.kube.list("Pod", observation.job.namespace, selected)
        for found in jobs:
            self.world.store.put_child(observe.child_job(found))
        for found in pods:
            self.world.store.put_pod(observe.child_pod(found))
        lost = known - {found["metadata"]["uid"] for found in (*jobs, *pods)}
        self.world.store.prune_children(lost)
        self.world.store.prune_pods(lost)

    async def _with_refusal(self, observation: Observation) -> Observation:
        """Read the Events of a Job whose pods do not come, now and then: nothing else tells why."""
        child = lacking_pods(observation, self.world.clock())
        if child is None:
            self.refusal = ""
            return observation
        time = asyncio.get_running_loop().time()
        if time > self.asked + ASK_AGAIN_SECONDS:
            self.asked = time
            self.refusal = observe.refusal(await self._events_of(child), child)
        return replace(observation, refusal=self.refusal)

    async def _events_of(self, child: ChildJob) -> list[Body]:
        """Those of the reason that is looked for; none where an older chart gives no right to them."""
        selected = f"involvedObject.uid={child.uid},reason={observe.NOT_CREATED}"
        try:
            return await self.world.kube.list("Event", child.namespace, field=selected)
        except KubeError as error:
            if error.code != 403:
                raise
            return []

    async def _with_trace(self, observation: Observation) -> Observation:
        """Look for earlier attempts where nothing speaks of one: the job is new, or somebody wiped its status."""
        if observation.job.status or observation.children:
            return observation
        traces = [observe.trace(body) for body in await self._config_maps(observation.job.namespace)]
        return replace(observation, trace=max(traces, default=None))

    # Acting

    async def _delete(self, observation: Observation, action: Action) -> None:
        """After the write: once a Job is gone, only the status knows that its attempt existed."""
        kube, namespace = self.world.kube, observation.job.namespace
        match action:
            case DeleteJob(name):
                await kube.delete("Job", namespace, name)
            case DeleteAttempt(name):
                await kube.delete("ConfigMap", namespace, name)
                await kube.delete("Job", namespace, name)
            case Sweep(service):
                for body in await self._config_maps(namespace):
                    await kube.delete("ConfigMap", namespace, body["metadata"]["name"])
                await kube.delete("Service", namespace, service)
                self.swept = True

    async def _config_maps(self, namespace: str) -> list[Body]:
        """Those of this job's attempts."""
        found = await self.world.kube.list("ConfigMap", namespace, f"{names.LABEL_JOB_UID}={self.uid}")
        return [body for body in found if observe.controller(body, names.KIND) == self.uid]

    async def _create(self, observation: Observation, plan: AttemptPlan) -> None:
        """Create the attempt, or remember what is in the way; tried again with growing pauses."""
        loop = asyncio.get_running_loop()
        same_spec = self.obstacle is not None and self.obstacle.generation == plan.generation
        if same_spec and loop.time() < self.retry_create:
            return
        await self._refuse_if_behind(observation)
        outcome = await Attempts(self.world.kube).create(plan)
        if isinstance(outcome, Obstacle):
            changed = outcome != self.obstacle
            self.obstacle = outcome
            self.tries += 1
            self.retry_create = loop.time() + min(LONGEST_CREATE_PAUSE_SECONDS, 2.0 * 2 ** min(self.tries, 5))
            if changed:
                self.event.set()  # the next pass says so
        else:
            self.obstacle, self.tries, self.swept = None, 0, False
            self.world.store.put_child(observe.child_job(outcome))
            metrics.ATTEMPTS.inc()
            self.event.set()

    async def _refuse_if_behind(self, observation: Observation) -> None:
        """Raise KubeError unless `observation` has the job as it is: on an older one an attempt could be made again."""
        job = observation.job
        found = await self.world.kube.get(names.KIND, job.namespace, job.name)
        fresh = observe.rl_job(found) if found else None
        if fresh and (fresh.uid, fresh.version) == (job.uid, job.version):
            return
        if fresh and fresh.uid == job.uid:
            self.world.store.put_job(fresh)
            await self._look_up(observation)
        raise KubeError(409, "the watches are behind: no attempt is made of what they have told")

    # Writing

    async def _write(self, observation: Observation, decision: Decision) -> float | None:
        """One merge patch, if anything changed. Returns the seconds left where it is too early for a small change."""
        job = observation.job
        wanted = decision.status.model_dump(by_alias=True, mode="json", exclude_none=True)
        patch = merge_patch(job.status, without_empty(wanted))
        if not patch or job.deleting:
            return None
        loop = asyncio.get_running_loop()
        if not {"phase", "conditions", "restarts", "attempt"} & patch.keys():
            early = self.written + WRITE_SECONDS - loop.time()
            if early > 0:
                return early
        wrote = await self.world.kube.patch_status(job.namespace, job.name, job.version, patch)
        self.written = loop.time()
        new = observe.rl_job(wrote)
        self.world.store.put_job(new)
        self.world.store.wrote(self.uid, new.version)
        if "phase" in patch:
            log.info("phase", job=job.name, namespace=job.namespace, phase=decision.status.phase)
        return None

    async def _post(self, observation: Observation, decision: Decision) -> None:
        """Events of what is written; each once, by its name."""
        now = self.world.clock()
        for event in events(decision.status, now):
            if event.name not in self.posted and not observation.job.deleting:
                await self._post_one(observation, event)
                self.posted.add(event.name)

    async def _post_one(self, observation: Observation, event: Event) -> None:
        try:
            await self.world.kube.create(body(event, observation.job))
        except KubeError as error:
            if error.code not in NO_EVENT and not error.exists_already:
                raise

    def _tell(self, error: KubeError) -> None:
        """Count the error, and log it unless it passes by itself: a conflict means that the watch will wake us."""
        metrics.API_ERRORS.labels(code=str(error.code)).inc()
        if error.code not in (0, 409, 429):
            log.warning("pass failed", job=self.uid, code=error.code, message=error.message)

    def _back_off(self) -> float:
        """Seconds until the next try; twice as many after each failure."""
        self.failures += 1
        pause = 0.5 * (1 << min(self.failures, 7))
        return min(pause, LONGEST_BACKOFF_SECONDS) * random.uniform(0.5, 1.0)  # noqa: S311


class Drivers:
    """The tasks, by the job's uid."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._drivers: dict[str, tuple[Driver, asyncio.Task[None]]] = {}

    def wake(self, uid: str) -> None:
        """Have the job `uid` make a pass soon; starts its task if it has none and its pods are known."""
        if uid in self._drivers and not self._drivers[uid][1].done():
            self._drivers[uid][0].event.set()
        elif (job := self.world.store.jobs.get(uid)) and job.namespace not in self.world.store.left_out:
            driver = Driver(uid, self.world)
            self._drivers[uid] = (driver, asyncio.create_task(driver.run(), name=f"driver-{uid}"))

    def wake_all(self, uids: Iterable[str]) -> None:
        """Wake several."""
        for uid in uids:
            self.wake(uid)

    def end(self, uid: str) -> None:
        """The job is gone: end its task."""
        entry = self._drivers.pop(uid, None)
        if entry:
            entry[1].cancel()

    async def stop(self) -> None:
        """End all tasks."""
        tasks = [task for _, task in self._drivers.values()]
        self._drivers.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
