"""The operator's copy of what the watches have told: jobs, their Jobs and their pods."""

from collections import defaultdict
from collections.abc import Callable, Collection
from dataclasses import replace
from datetime import datetime
from typing import TypeVar

from colocated_operator.observe import ChildJob, ChildPod, Observation, RLJob

T = TypeVar("T", ChildJob, ChildPod)


class Store:
    """Filled by handlers and by the answers to our own writes; only newer states replace older ones.

    A Job or pod that was deleted stays as it was last seen: its DELETED event carries the final report. It is
    dropped with `forget`, once its attempt is closed.
    """

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self._clock = clock
        self.jobs: dict[str, RLJob] = {}
        self._children: dict[str, dict[str, ChildJob]] = defaultdict(dict)
        """By owner, then by uid."""
        self._pods: dict[str, dict[str, ChildPod]] = defaultdict(dict)
        """By the Job that controls them, then by uid."""
        self._owners: dict[str, str] = {}
        """Owner of each Job."""
        self._awaited: dict[str, tuple[int, datetime]] = {}
        self.left_out: set[str] = set()
        """Namespaces that could not be listed: what the watches tell of them is kept, but may be a part only."""
        self._shown: dict[str, int] = {}
        """Newest version of each job that its watch has shown: it may be faster than the answer to the write."""

    # Written by handlers and drivers

    def put_job(self, job: RLJob) -> None:
        """Keep `job`."""
        old = self.jobs.get(job.uid)
        if old is None or job.version >= old.version:
            self.jobs[job.uid] = job

    def put_child(self, child: ChildJob) -> None:
        """Keep `child`, a Job."""
        self._owners[child.uid] = child.owner
        _keep_newer(self._children[child.owner], child)

    def put_pod(self, pod: ChildPod) -> None:
        """Keep `pod`."""
        _keep_newer(self._pods[pod.job_uid], pod)

    def forget_job(self, uid: str) -> None:
        """Drop a ColocatedRLJob with everything that belongs to it."""
        self.jobs.pop(uid, None)
        self._awaited.pop(uid, None)
        self._shown.pop(uid, None)
        for child in self._children.pop(uid, {}).values():
            self._forget_pods(child)

    def leave_out(self, namespace: str) -> set[str]:
        """Drop the jobs of a namespace that cannot be listed; returns their uids."""
        self.left_out.add(namespace)
        dropped = {uid for uid, job in self.jobs.items() if job.namespace == namespace}
        for uid in dropped:
            self.forget_job(uid)
        return dropped

    def forget(self, uid: str, before: int) -> None:
        """Drop what was deleted of a job's attempts before number `before`."""
        children = self._children[uid]
        for child in [child for child in children.values() if child.gone and child.attempt < before]:
            del children[child.uid]
            self._forget_pods(child)

    def _forget_pods(self, child: ChildJob) -> None:
        self._pods.pop(child.uid, None)
        self._owners.pop(child.uid, None)

    # Read by drivers

    def count(self, phase: str) -> int:
        """Jobs in `phase`; called from the metrics' thread."""
        return sum((job.status.get("phase") or "Pending") == phase for job in list(self.jobs.values()))

    def owner_of(self, job_uid: str) -> str | None:
        """uid of the ColocatedRLJob that owns the Job `job_uid`."""
        return self._owners.get(job_uid)

    def snapshot(self, uid: str) -> Observation | None:
        """What the cluster holds of the job `uid`; None if it is gone.

        A pod counts only if a Job that this ColocatedRLJob controls controls it, in the same namespace: labels alone
        could be anyone's.
        """
        job = self.jobs.get(uid)
        if job is None:
            return None
        children = [child for child in self._children[uid].values() if child.namespace == job.namespace]
        pods = (pod for child in children for pod in self._pods[child.uid].values() if pod.namespace == job.namespace)
        return Observation(
            job=job,
            children=tuple(sorted(children, key=lambda child: (child.attempt, child.created))),
            pods=tuple(pods),
        )

    # What no event has told: deletes during a re-list of the watch

    def uids(self) -> set[str]:
        """Of everything that is taken to exist; note them before the fresh lists are asked for."""
        children = {child.uid for each in self._children.values() for child in each.values() if not child.gone}
        pods = {pod.uid for each in self._pods.values() for pod in each.values() if not pod.gone}
        return set(self.jobs) | children | pods

    def prune_jobs(self, lost: Collection[str]) -> set[str]:
        """Drop jobs of which a fresh list knows nothing; returns their uids."""
        gone = self.jobs.keys() & set(lost)
        for uid in gone:
            self.forget_job(uid)
        return gone

    def prune_children(self, lost: Collection[str]) -> set[str]:
        """Mark Jobs of which a fresh list knows nothing as gone; returns the uids of their owners.

        What came after its owner had been deleted is dropped.
        """
        for owner in self._children.keys() - self.jobs.keys():
            for child in self._children.pop(owner).values():
                self._forget_pods(child)
        return {
            owner
            for owner, children in self._children.items()
            for child in list(children.values())
            if _mark_gone(children, child, lost)
        }

    def prune_pods(self, lost: Collection[str]) -> set[str]:
        """Mark pods of which a fresh list knows nothing as gone; returns the uids of the jobs that they belong to."""
        for stray in self._pods.keys() - self._owners.keys():
            del self._pods[stray]
        return {
            self._owners[job_uid]
            for job_uid, pods in self._pods.items()
            for pod in list(pods.values())
            if _mark_gone(pods, pod, lost)
        }

    # Liveness: every write of ours must come back through its watch

    def wrote(self, uid: str, version: int) -> None:
        """A status of the job `uid` was written and became `version`."""
        if version > self._shown.get(uid, 0):
            self._awaited.setdefault(uid, (version, self._clock()))

    def watched(self, uid: str, version: int) -> None:
        """The watch showed `version` of the job `uid`."""
        self._shown[uid] = version
        if uid in self._awaited and version >= self._awaited[uid][0]:
            del self._awaited[uid]

    def longest_silence(self) -> float:
        """Seconds since the oldest write that its watch has not shown; 0 if there is none."""
        now = self._clock()
        return max(((now - since).total_seconds() for _, since in self._awaited.values()), default=0.0)


def _keep_newer(kept: dict[str, T], new: T) -> None:
    old = kept.get(new.uid)
    if old is None or new.version >= old.version:
        kept[new.uid] = new


def _mark_gone(kept: dict[str, T], item: T, lost: Collection[str]) -> bool:
    if item.gone or item.uid not in lost:
        return False
    kept[item.uid] = replace(item, gone=True)
    return True
