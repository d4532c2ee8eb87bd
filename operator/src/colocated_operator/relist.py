"""Lists that fill the store before the watches start, and that find what no watch has told."""

from typing import Any

import structlog

from colocated_operator import observe
from colocated_operator.drivers import Drivers, World
from colocated_operator.kube import KubeError
from colocated_runtime.contract import names
from colocated_runtime.contract.job import JobSpec

log = structlog.get_logger()

KINDS = (names.KIND, "Job", "Pod")
DENIED = (403, 404)


async def seed(world: World) -> None:
    """Fill the store, so that no pass sees a job without its pods. Raise KubeError, saying what is forbidden.

    Of several namespaces, those that cannot be listed are left out: one that was deleted, its Role with it, must not
    stop the jobs of the others.
    """
    namespaces = world.settings.namespaces
    if not namespaces:
        await _fill(world, None)
    for namespace in namespaces:
        try:
            await _fill(world, namespace)
            world.store.left_out.discard(namespace)
        except KubeError as error:
            _leave_out(world, namespace, error)
            if world.store.left_out >= set(namespaces):
                raise
    log.info("seeded", jobs=len(world.store.jobs))


async def reopen(world: World, drivers: Drivers) -> None:
    """Take namespaces in that were left out and can be listed again. Raise KubeError."""
    for namespace in sorted(world.store.left_out):
        try:
            await _fill(world, namespace)
        except KubeError as error:
            _leave_out(world, namespace, error)
            continue
        world.store.left_out.remove(namespace)
        log.info("namespace taken in", namespace=namespace)
        drivers.wake_all(uid for uid, job in list(world.store.jobs.items()) if job.namespace == namespace)


async def prune(world: World, drivers: Drivers) -> None:
    """Compare the store with fresh lists; wake the jobs of which something is gone. Raise KubeError."""
    lost = world.store.uids()  # what is created from now on may be missing in the lists
    for namespace in world.settings.namespaces or (None,):
        try:
            for kind in KINDS:
                lost -= {body["metadata"]["uid"] for body in await _listed(world, kind, namespace)}
        except KubeError as error:
            for uid in _leave_out(world, namespace, error):
                drivers.end(uid)
    for uid in world.store.prune_jobs(lost):
        drivers.end(uid)
    drivers.wake_all(world.store.prune_children(lost) | world.store.prune_pods(lost))


async def _fill(world: World, namespace: str | None) -> None:
    for body in await _listed(world, names.KIND, namespace):
        world.store.put_job(observe.rl_job(body))
    for body in await _listed(world, "Job", namespace):
        world.store.put_child(observe.child_job(body))
    for body in await _listed(world, "Pod", namespace):
        world.store.put_pod(observe.child_pod(body))


def _leave_out(world: World, namespace: str | None, error: KubeError) -> set[str]:
    """Drop a namespace whose objects cannot be listed; returns the uids of its jobs. Raise any other `error`."""
    if namespace is None or error.code not in DENIED:
        raise error
    if namespace not in world.store.left_out:
        log.warning("namespace left out until it can be listed", namespace=namespace, reason=error.message)
    return world.store.leave_out(namespace)


async def refuse_old_schema(world: World) -> None:
    """Raise SystemExit if the served schema lacks a field of `spec` that this operator knows: it would be lost."""
    known = {field.alias or name for name, field in JobSpec.model_fields.items()}
    try:
        missing = known - await world.kube.served_fields()
    except KubeError as error:
        if error.code == 403:
            log.warning("the served schema cannot be checked", reason=error.message)
            return
        raise
    if missing:
        raise SystemExit(
            f"the installed CustomResourceDefinition is older than this operator: it lacks {sorted(missing)};"
            " upgrade it (chart: crds.install=true, or kubectl apply -f crds/)"
        )


async def _listed(world: World, kind: str, namespace: str | None) -> list[dict[str, Any]]:
    label = "" if kind == names.KIND else names.LABEL_JOB_UID
    try:
        return await world.kube.list(kind, namespace, label)
    except KubeError as error:
        if error.code == 403:
            where = f"in namespace {namespace}" if namespace else "in all namespaces"
            raise KubeError(403, f"list {kind} {where} is forbidden: {error.message}") from error
        raise
