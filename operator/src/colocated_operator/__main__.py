"""`python -m colocated_operator`: watches ColocatedRLJobs until it is told to end."""

import asyncio
import contextlib
import errno
import functools
import logging
import os
import random
import signal
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import get_args

import kopf
import prometheus_client
import structlog

from colocated_operator import handlers, metrics, relist
from colocated_operator.drivers import Drivers, World
from colocated_operator.kube import Kube, KubeError
from colocated_operator.reports import Reports
from colocated_operator.settings import from_environment
from colocated_operator.store import Store
from colocated_runtime.contract.status import JobPhase

log = structlog.get_logger()

PRUNE_SECONDS = 300.0
REOPEN_SECONDS = 60.0


def main() -> None:
    """Run the operator."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("kopf").setLevel(logging.WARNING)
    logging.getLogger("aiohttp.access").setLevel(logging.WARNING)  # each probe of /healthz
    # Of a namespace that was deleted, its watches would say so every 10 s; `relist` says it once.
    logging.getLogger("kopf._cogs.clients.watching").addFilter(lambda r: "APIForbiddenError" not in r.getMessage())
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.KeyValueRenderer(key_order=["timestamp", "level", "event"]),
        ],
        cache_logger_on_first_use=True,
    )
    try:
        asyncio.run(operate())
    except OSError as error:
        raise SystemExit(f"{error}; COLOCATED_LIVENESS_PORT and COLOCATED_METRICS_PORT name others") from None


async def operate() -> None:
    """Seed, watch, and begin again after whatever ends the watches, until SIGTERM. Raise OSError for a port in use."""
    settings = from_environment(os.environ)
    clock = utc_now
    world = World(Kube(), Store(clock), Reports(clock), settings, clock)
    for phase in get_args(JobPhase):
        metrics.JOBS.labels(phase=phase).set_function(functools.partial(world.store.count, phase))
    prometheus_client.start_http_server(settings.metrics_port)
    stopped = asyncio.Event()
    while not stopped.is_set():
        _listen(stopped)
        try:
            await _watch(world, stopped)
        except KubeError as error:
            log.warning("begins again", reason=error.message)
        except Exception as error:
            if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
                raise
            log.exception("begins again")
        if not stopped.is_set():
            await _pause(stopped, random.uniform(1, 5))  # noqa: S311
    await world.reports.close()


def _listen(stopped: asyncio.Event) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)


async def _watch(world: World, stopped: asyncio.Event) -> None:
    """One life of kopf's watches."""
    await relist.refuse_old_schema(world)
    await relist.seed(world)
    drivers = Drivers(world)
    registry, settings = kopf.OperatorRegistry(), kopf.OperatorSettings()
    handlers.configure(settings)
    handlers.register(registry, drivers, functools.partial(_listen, stopped))
    drivers.wake_all(world.store.jobs)
    lists = [
        asyncio.create_task(_every(PRUNE_SECONDS, relist.prune, world, drivers)),
        asyncio.create_task(_every(REOPEN_SECONDS, relist.reopen, world, drivers)),
    ]
    namespaces = world.settings.namespaces
    try:
        await kopf.operator(
            registry=registry,
            settings=settings,
            standalone=True,
            clusterwide=not namespaces,
            namespaces=namespaces,
            stop_flag=stopped,
            liveness_endpoint=f"http://0.0.0.0:{world.settings.liveness_port}/healthz",
        )
        stopped.set()  # it returns only when it is told to end
    finally:
        for task in lists:
            task.cancel()
        await drivers.stop()


async def _every(
    seconds: float, act: Callable[[World, Drivers], Awaitable[None]], world: World, drivers: Drivers
) -> None:
    while True:
        await asyncio.sleep(seconds * random.uniform(0.9, 1.1))  # noqa: S311
        try:
            await act(world, drivers)
        except KubeError as error:
            log.warning("not listed", reason=error.message)


async def _pause(stopped: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(stopped.wait(), seconds)


def utc_now() -> datetime:
    """The present, in UTC."""
    return datetime.now(UTC)


if __name__ == "__main__":
    main()
