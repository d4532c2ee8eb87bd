"""Waits until the launchers of all other nodes are ready to start their ranks."""

import asyncio
from collections.abc import Callable

import aiohttp
from pydantic import ValidationError

from colocated_runtime.contract.attempt import Attempt
from colocated_runtime.contract.report import Report, Stage

QUIET_SECONDS = 2.0
"""No look-up before that: a DNS name that is asked for too early is cached as unknown, for up to half a minute."""
INTERVAL_SECONDS = 1.0
TIMEOUT = aiohttp.ClientTimeout(total=3.0)
READY = (Stage.WAITING, Stage.STARTING, Stage.RUNNING)


async def wait_for_peers(attempt: Attempt, node: int, tell: Callable[[str], None]) -> None:
    """Return once every other node's launcher answers and has its downloads; `tell` is told who is awaited."""
    missing = [index for index in range(len(attempt.hosts)) if index != node]
    if not missing:
        return
    tell("waiting for " + _named(attempt, missing))
    await asyncio.sleep(QUIET_SECONDS)
    async with aiohttp.ClientSession(timeout=TIMEOUT, trust_env=False) as session:
        while True:
            answers = await asyncio.gather(*(_ready(session, attempt, index) for index in missing))
            missing = [index for index, ready in zip(missing, answers, strict=True) if not ready]
            if not missing:
                return
            tell("waiting for " + _named(attempt, missing))
            await asyncio.sleep(INTERVAL_SECONDS)


async def _ready(session: aiohttp.ClientSession, attempt: Attempt, node: int) -> bool:
    url = f"http://{attempt.hosts[node]}:{attempt.report_port}/report"
    try:
        async with session.get(url, allow_redirects=False) as response:
            report = Report.model_validate_json(await response.read())
    except (aiohttp.ClientError, TimeoutError, ValidationError):
        return False
    return (report.uid, report.attempt) == (attempt.uid, attempt.attempt) and report.stage in READY


def _named(attempt: Attempt, nodes: list[int]) -> str:
    shown = ", ".join(f"pod {index} ({attempt.hosts[index]})" for index in nodes[:3])
    return shown + (f" and {len(nodes) - 3} more" if len(nodes) > 3 else "")
