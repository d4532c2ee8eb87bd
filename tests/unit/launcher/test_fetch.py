"""Downloads from a small hub on loopback that is not always well."""

import asyncio
import errno
import json
import os
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from aiohttp import web
from huggingface_hub.errors import HfHubHTTPError

from colocated_runtime.contract.outcome import Outcome
from colocated_runtime.contract.report import Report
from colocated_runtime.launcher import fetch

COMMIT = "0123456789abcdef0123456789abcdef01234567"
FILES = {"config.json": b"{}", "model.safetensors": b"weights", "pytorch_model.bin": b"the same weights"}


class Hub:
    """Serves one model and one dataset, `org/tiny`, after the answers in `bad`: (status, Retry-After)."""

    def __init__(self) -> None:
        self.bad: list[tuple[int, str]] = []
        self.asked: Counter[str] = Counter()
        self.tokens: set[str] = set()

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/api/{kind}/org/tiny/revision/{revision}", self.info),
            web.get("/api/{kind}/org/tiny", self.info),
            web.get("/api/{kind}/org/tiny/tree/{revision}", self.tree),
            web.get("/org/tiny/resolve/{revision}/{file}", self.file),
            web.get("/datasets/org/tiny/resolve/{revision}/{file}", self.file),
        ]

    async def info(self, request: web.Request) -> web.Response:
        self.tokens.add(request.headers.get("Authorization", ""))
        self.asked["info"] += 1
        if self.bad:
            status, retry_after = self.bad.pop(0)
            return web.Response(status=status, headers={"Retry-After": retry_after} if retry_after else {})
        siblings = [{"rfilename": name} for name in FILES]
        return web.json_response({"id": "org/tiny", "sha": COMMIT, "siblings": siblings})

    async def tree(self, request: web.Request) -> web.Response:
        return web.json_response(
            [{"type": "file", "path": name, "size": len(data), "oid": name} for name, data in FILES.items()]
        )

    async def file(self, request: web.Request) -> web.Response:
        name = request.match_info["file"]
        if request.method == "GET":
            self.asked[name] += 1
        return web.Response(body=FILES[name], headers={"ETag": f'"{name}"', "X-Repo-Commit": COMMIT})


@pytest.fixture
async def hub(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Hub]:
    made = Hub()
    app = web.Application()
    app.add_routes(made.routes())
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{runner.addresses[0][1]}")
    for name in ("HF_TOKEN", "HF_HUB_CACHE", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    yield made
    await runner.cleanup()


async def ended(running) -> Report:
    return await asyncio.to_thread(running.finish)


def job(make_attempt, *, model: str = "hf://org/tiny", dataset: str = "hf://org/tiny", number: int = 1, **model_fields):
    """An attempt whose ranks leave at once, without torch: what is tested here comes before."""
    return make_attempt(
        number=number, model={"source": model, **model_fields}, dataset={"source": dataset},
        runtime={"command": [sys.executable, "-c", ""]},
    )  # fmt: skip


async def test_a_hub_that_is_busy_is_asked_again_and_each_file_once(hub: Hub, launch, make_attempt) -> None:
    hub.bad = [(429, "2"), (503, ""), (522, "")]
    running = launch(attempt=job(make_attempt))
    report = await asyncio.to_thread(running.wait_for, lambda report: "next try in 2 s" in report.message)
    assert "model.source: the hub does not give hf://org/tiny now" in report.message
    await ended(running)

    assert hub.asked["model.safetensors"] == 2  # of the model, and of the dataset of the same name
    assert hub.asked["pytorch_model.bin"] == 1  # of the dataset only
    assert hub.tokens == {""}
    found = json.loads((running.directory / "state-0" / "sources.json").read_text())
    assert set(found) == {"model hf://org/tiny", "dataset hf://org/tiny"}
    assert found["dataset hf://org/tiny"] != found["model hf://org/tiny"]
    snapshot = Path(found["model hf://org/tiny"])
    assert "config.json" in os.listdir(snapshot)
    assert running.storage / "hub" / "node-0" in snapshot.parents

    hub.asked.clear()
    await ended(launch(attempt=job(make_attempt, number=2)))
    assert [hub.asked[name] for name in FILES] == [0, 0, 0]


@pytest.mark.parametrize(("token", "words"), [("", "HF_TOKEN is not set"), ("secret", "HF_TOKEN may not read it")])
async def test_a_closed_repository(hub: Hub, launch, make_attempt, monkeypatch, token: str, words: str) -> None:
    if token:
        monkeypatch.setenv("HF_TOKEN", token)
    hub.bad = [(401, "")] * 9
    final = await ended(launch(attempt=job(make_attempt)))
    assert final.outcome is Outcome.USER_ERROR
    assert final.message.startswith("model.source: hf://org/tiny does not exist on the hub or is closed to you")
    assert words in final.message
    assert "secret" not in final.model_dump_json()


async def test_an_unknown_repository(hub: Hub, launch, make_attempt) -> None:
    final = await ended(launch(attempt=job(make_attempt, model="file:///x", dataset="hf://org/typo")))
    assert (final.outcome, final.exit_code) == (Outcome.USER_ERROR, 1)
    assert "dataset.source: hf://org/typo does not exist" in final.message


async def test_sigterm_ends_a_download(hub: Hub, launch, make_attempt) -> None:
    hub.bad = [(429, "200")] * 9
    running = launch(attempt=job(make_attempt))
    await asyncio.to_thread(running.wait_for, lambda report: "next try in 200 s" in report.message)
    running.stop()
    final = await ended(running)
    assert running.process.returncode == 143
    assert (final.outcome, final.message) == (Outcome.PREEMPTED, "stopped as asked while downloading")


async def test_a_hub_that_is_down_does_not_keep_a_restart_waiting(hub: Hub, launch, make_attempt) -> None:
    await ended(launch(attempt=job(make_attempt)))
    hub.bad = [(503, "300")] * 20
    began = time.monotonic()
    running = launch(attempt=job(make_attempt, number=2))
    await ended(running)
    found = json.loads((running.directory / "state-0" / "sources.json").read_text())
    assert "model.safetensors" in os.listdir(found["model hf://org/tiny"])
    assert time.monotonic() - began < 60


async def test_half_a_model_in_the_cache_is_none(hub: Hub, launch, make_attempt) -> None:
    running = launch(attempt=job(make_attempt))
    await ended(running)
    for path in running.storage.rglob("model.safetensors"):
        path.unlink()
    hub.bad = [(503, "200")] * 20
    again = launch(attempt=job(make_attempt, number=2))
    await asyncio.to_thread(again.wait_for, lambda report: "next try in 200 s" in report.message)
    again.stop()
    await ended(again)


@pytest.mark.parametrize(
    ("error", "transient"),
    [
        (httpx.ConnectError("refused"), True),
        (httpx.RemoteProtocolError("half a file"), True),
        (RuntimeError("Data processing error: File reconstruction error"), True),
        (OSError(errno.ENOSPC, "No space left"), False),
        (json.JSONDecodeError("a proxy's page", "<html>", 0), True),
        (KeyError("a mistake of ours"), False),
        (TypeError("a mistake of ours"), False),
    ],
)
def test_what_is_tried_again(error: Exception, transient: bool) -> None:
    assert fetch.is_transient(error) is transient


@pytest.mark.parametrize(("header", "seconds"), [("17", 17.0), ("²", 0.0), ("9" * 400, 0.0), ("Thu, 1 Jan", 0.0)])
def test_the_patience_that_a_hub_asks_for(header: str, seconds: float) -> None:
    request = httpx.Request("GET", "http://hub")
    answer = httpx.Response(429, headers={"Retry-After": header.encode()}, request=request)
    assert fetch.retry_after(HfHubHTTPError("busy", response=answer)) == seconds


async def test_offline_takes_what_is_in_the_cache(hub: Hub, launch, make_attempt, monkeypatch) -> None:
    await ended(launch(attempt=job(make_attempt)))
    hub.asked.clear()
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    final = await ended(launch(attempt=job(make_attempt, number=2)))
    assert "HF_HUB_OFFLINE" not in final.message
    assert not hub.asked


async def test_offline_is_the_users_word(launch, make_attempt, monkeypatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    final = await ended(launch(attempt=job(make_attempt)))
    assert final.outcome is Outcome.USER_ERROR
    assert "HF_HUB_OFFLINE forbids" in final.message
