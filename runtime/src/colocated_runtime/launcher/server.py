"""Serves the report: GET /report for the operator, GET /healthz for the kubelet."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aiohttp import web

from colocated_runtime.contract.report import REPORT_LIMIT, Report


@asynccontextmanager
async def serving(report: Callable[[], Report], host: str | None, port: int) -> AsyncIterator[None]:
    """Serve what `report()` returns at each request, until the block ends. Raise OSError where the port is taken."""

    async def get_report(_: web.Request) -> web.Response:
        return web.Response(text=report().within(REPORT_LIMIT), content_type="application/json")

    async def get_healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok")

    app = web.Application()
    app.add_routes([web.get("/report", get_report), web.get("/healthz", get_healthz)])
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        yield
    finally:
        await runner.cleanup()
