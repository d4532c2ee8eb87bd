"""What a pod answers is not trusted: huge, slow, malformed, redirecting and lying reports, from real servers."""

import asyncio
import gzip
import json
import socket
import time
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from tests.unit.operator.cluster import START, UID, pod, report

from colocated_operator import reports
from colocated_operator.observe import Pulled
from colocated_operator.reports import Reports
from colocated_runtime.contract import names
from colocated_runtime.contract.report import REPORT_LIMIT

IP = "127.83.0.1"
GOOD = report(4).model_dump_json(by_alias=True)
Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def serving(handler: Handler) -> AsyncIterator[None]:
    runner = web.ServerRunner(web.Server(handler), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, IP, names.REPORT_PORT).start()
    yield
    await runner.cleanup()


async def pulled(handler: Handler, before: Pulled | None = None) -> Pulled:
    """The answer of one pod that `handler` is."""
    client = Reports(lambda: START)
    known = {"pod-1-0": before} if before else {}
    async with serving(handler):
        try:
            return (await client.pull([pod(ip=IP)], UID, known))["pod-1-0"]
        finally:
            await client.close()


def says(text: str | bytes, status: int = 200, **headers: str) -> Handler:
    async def handler(_: web.BaseRequest) -> web.Response:
        return web.Response(body=text, status=status, headers=headers)

    return handler


def lie(**changes: Any) -> str:
    return json.dumps(json.loads(GOOD) | changes)


async def test_good_report() -> None:
    answer = await pulled(says(GOOD))
    assert answer.error == ""
    assert answer.report is not None
    assert answer.report.progress.step == 4


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "does not parse"),
        ("{", "does not parse"),
        ("null", "does not parse"),
        ("[" * 100_000, "does not parse"),
        ('{"a":' * 20_000, "does not parse"),
        (b"\xff\xfe\x00", "does not parse"),
        (GOOD.replace('"step":4', '"step":' + "9" * 5_000), "does not parse"),
        (lie(uid="someone-else"), "another's"),
        (lie(attempt=7), "another's"),
        (lie(node=1), "another's"),
        (lie(metrics={"reward": float("nan")}), "does not parse"),
        (lie(metrics={"reward": float("inf")}), "does not parse"),
        (lie(progress={"step": -1}), "does not parse"),
        (lie(stage="Winning"), "does not parse"),
        (lie(outcome="Rich"), "does not parse"),
        (lie(checkpoints=[{"step": 1, "uri": "x", "time": 1e300}]), "does not parse"),
        (lie(metrics={str(number): 0 for number in range(2_000)}), "does not parse"),
    ],
    ids=lambda value: str(value)[:20],
)
async def test_malformed_or_lying_report_is_an_error_and_the_last_good_one_stays(text: str, words: str) -> None:
    before = Pulled(report(3))
    answer = await pulled(says(text), before)
    assert words in answer.error
    assert answer.report == before.report
    assert answer.since == START


async def test_answer_that_is_no_report_is_no_silence() -> None:
    silent = (
        Pulled(None).unanswered("x", START, reached=True).unanswered("x", START + timedelta(seconds=9), reached=True)
    )
    assert (silent.in_vain, silent.reached) == (timedelta(seconds=9), 2)
    answer = await pulled(says("{"), silent)
    assert (answer.since, answer.in_vain, answer.reached) == (START, timedelta(0), 0)


async def test_launcher_that_is_stopped_is_told_from_a_network_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports, "TIMEOUT", aiohttp.ClientTimeout(total=0.6, sock_connect=0.3))

    async def ask(ip: str) -> Pulled:
        client = Reports(lambda: START)
        try:
            return (await client.pull([pod(ip=ip)], UID, {}))["pod-1-0"]
        finally:
            await client.close()

    assert (await ask(IP)).reached == 1, "nobody listens"
    with socket.create_server((IP, names.REPORT_PORT), backlog=0):
        assert (await ask(IP)).reached == 1, "taken by the kernel alone"
        away = await ask(IP)  # its queue is full
    assert (away.reached, away.error) == (0, "no connection within 2 s")


@pytest.mark.parametrize("status", [204, 301, 302, 404, 500])
async def test_status_other_than_200(status: int) -> None:
    answer = await pulled(says(GOOD, status, Location="http://169.254.169.254/latest"))
    assert f"HTTP {status}" in answer.error


async def test_redirect_is_not_followed() -> None:
    asked = []

    async def handler(request: web.BaseRequest) -> web.Response:
        asked.append(request.path)
        return web.Response(status=302, headers={"Location": "/elsewhere"})

    await pulled(handler)
    assert asked == ["/report"]


async def test_huge_report() -> None:
    assert "larger than" in (await pulled(says(b" " * (REPORT_LIMIT + 1)))).error


async def test_endless_report_is_cut_at_the_limit() -> None:
    sent = 0

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        nonlocal sent
        response = web.StreamResponse()
        await response.prepare(request)
        while sent < 100 * REPORT_LIMIT:
            await response.write(b" " * 65536)
            sent += 65536
        return response

    assert "larger than" in (await pulled(handler)).error
    assert sent < 50 * REPORT_LIMIT


async def test_compressed_report_is_not_blown_up() -> None:
    bomb = gzip.compress(b" " * (64 << 20))
    assert len(bomb) < REPORT_LIMIT
    tracemalloc.start()
    answer = await pulled(says(bomb, **{"Content-Encoding": "gzip"}))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert answer.error
    assert peak < 16 << 20


async def test_slow_report_ends_at_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports, "TIMEOUT", reports.aiohttp.ClientTimeout(total=0.5))

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for letter in GOOD:
            await response.write(letter.encode())
            await asyncio.sleep(0.1)
        return response

    began = time.monotonic()
    answer = await pulled(handler)
    assert time.monotonic() - began < 5
    assert "no answer" in answer.error


async def test_one_silent_pod_does_not_delay_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports, "TIMEOUT", reports.aiohttp.ClientTimeout(total=0.5))
    client = Reports(lambda: START)
    silent = await asyncio.start_server(lambda *_: asyncio.sleep(5), "127.83.0.2", names.REPORT_PORT)
    async with serving(says(GOOD)):
        pods = [pod(ip=IP), pod(index=1, ip="127.83.0.2")]
        answers = await client.pull(pods, UID, {})
    silent.close()
    await client.close()
    assert answers["pod-1-0"].report is not None
    assert "no answer" in answers["pod-1-1"].error


async def test_nobody_listens() -> None:
    client = Reports(lambda: START)
    answer = await client.pull([pod(ip="127.83.0.9")], UID, {})
    await client.close()
    assert answer["pod-1-0"].error


@pytest.mark.parametrize(
    "garbage", [b"\x00\x01\x02\r\n\r\n", b"SSH-2.0-OpenSSH_9.2\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"]
)
async def test_server_that_speaks_something_else(garbage: bytes) -> None:
    async def speak(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(garbage)
        await writer.drain()
        writer.close()

    client = Reports(lambda: START)
    server = await asyncio.start_server(speak, IP, names.REPORT_PORT)
    answer = await client.pull([pod(ip=IP)], UID, {})
    server.close()
    await client.close()
    assert answer["pod-1-0"].error
