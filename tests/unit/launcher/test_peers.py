"""Peers that are real report servers on loopback addresses."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack

import pytest

from colocated_runtime.contract.attempt import Attempt
from colocated_runtime.contract.report import Report, Stage
from colocated_runtime.launcher import peers
from colocated_runtime.launcher.server import serving


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "QUIET_SECONDS", 0.1)
    monkeypatch.setattr(peers, "INTERVAL_SECONDS", 0.05)


def report(attempt: Attempt, stage: Stage = Stage.WAITING, number: int = 1) -> Report:
    return Report(name="job", uid=attempt.uid, attempt=number, node=1, stage=stage, started=0, updated=0)


async def test_one_host_does_not_wait(make_attempt: Callable[..., Attempt]) -> None:
    told: list[str] = []
    await asyncio.wait_for(peers.wait_for_peers(make_attempt(), 0, told.append), 0.05)
    assert told == []


async def test_the_missing_are_named_until_they_answer(make_attempt: Callable[..., Attempt]) -> None:
    attempt = make_attempt(hosts=("127.0.0.1", "127.0.0.2", "127.0.0.3"))
    told: list[str] = []
    waiting = asyncio.ensure_future(peers.wait_for_peers(attempt, 0, told.append))
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(serving(lambda: report(attempt), "127.0.0.2", attempt.report_port))
        await asyncio.sleep(0.4)
        assert not waiting.done()
        assert told[0] == "waiting for pod 1 (127.0.0.2), pod 2 (127.0.0.3)"
        assert told[-1] == "waiting for pod 2 (127.0.0.3)"
        await stack.enter_async_context(serving(lambda: report(attempt), "127.0.0.3", attempt.report_port))
        await asyncio.wait_for(waiting, 5)


@pytest.mark.parametrize(("stage", "number"), [(Stage.FETCHING, 1), (Stage.FINISHED, 1), (Stage.WAITING, 2)])
async def test_a_peer_that_is_not_ready(make_attempt: Callable[..., Attempt], stage: Stage, number: int) -> None:
    attempt = make_attempt(hosts=("127.0.0.1", "127.0.0.2"))
    async with serving(lambda: report(attempt, stage, number), "127.0.0.2", attempt.report_port):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(peers.wait_for_peers(attempt, 0, lambda _: None), 0.4)
