"""kopf's side: each event is put into the store, slimmed, and wakes its job. Nothing is decided or written here."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import kopf

from colocated_operator import observe
from colocated_operator.drivers import Drivers
from colocated_runtime.contract import names

JOBS = (names.GROUP, names.VERSION, names.PLURAL)
CHILDREN = ("batch", "v1", "jobs")
PODS = ("", "v1", "pods")
SILENCE_LIMIT_SECONDS = 90.0


class Endless:
    """Back-offs that never run out: an API server that is away for minutes must not end the operator."""

    def __iter__(self) -> Iterator[int]:
        """1, 2, 4, 8, then 10 s for ever."""
        yield from (1, 2, 4, 8)
        while True:
            yield 10


def configure(settings: kopf.OperatorSettings) -> None:
    """Watch only what carries our label; write nothing to the objects; never give up."""
    settings.posting.enabled = False
    settings.scanning.disabled = True  # nothing but our kinds is looked at, so no right to list others is needed
    settings.networking.error_backoffs = Endless()
    settings.watching.label_selectors["pods"] = names.LABEL_JOB_UID
    settings.watching.label_selectors[CHILDREN] = names.LABEL_JOB_UID


def _login(**kwargs: Any) -> kopf.ConnectionInfo | None:
    return kopf.login_with_service_account(**kwargs) or kopf.login_with_kubeconfig(**kwargs)


def register(registry: kopf.OperatorRegistry, drivers: Drivers, listen: Callable[[], None]) -> None:
    """Put the handlers into `registry`; `listen` is called once kopf listens to signals."""
    store = drivers.world.store
    kopf.on.login(registry=registry)(_login)

    @kopf.on.event(*JOBS, registry=registry)
    async def job_event(body: kopf.Body, type: str | None, **_: Any) -> None:  # noqa: A002
        job = observe.rl_job(body)
        if type == "DELETED":
            store.forget_job(job.uid)
            drivers.end(job.uid)
        else:
            store.put_job(job)
            store.watched(job.uid, job.version)
            drivers.wake(job.uid)

    @kopf.on.event(*CHILDREN, registry=registry)
    async def child_event(body: kopf.Body, type: str | None, **_: Any) -> None:  # noqa: A002
        child = observe.child_job(body, gone=type == "DELETED")
        store.put_child(child)
        drivers.wake(child.owner)

    @kopf.on.event(*PODS, registry=registry)
    async def pod_event(body: kopf.Body, type: str | None, **_: Any) -> None:  # noqa: A002
        pod = observe.child_pod(body, gone=type == "DELETED")
        store.put_pod(pod)
        owner = store.owner_of(pod.job_uid)
        if owner:
            drivers.wake(owner)

    @kopf.on.startup(registry=registry)
    async def start(**_: Any) -> None:
        await asyncio.sleep(0.1)  # its own handlers of signals come right after; they are deaf once it ends
        listen()

    @kopf.on.probe(id="watches", registry=registry)
    async def watches(**_: Any) -> float:
        silence = store.longest_silence()
        if silence > SILENCE_LIMIT_SECONDS:
            raise kopf.PermanentError(f"a status written {silence:.0f} s ago has not come back through its watch")
        return silence

    @kopf.on.cleanup(registry=registry)
    async def stop(**_: Any) -> None:
        await drivers.stop()
        await asyncio.sleep(0)
