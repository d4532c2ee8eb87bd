"""A reverse proxy between an operator and the API server, for faults that no hook in the product could make honestly.

It counts calls, may refuse, cut or delay each, and may do something before a call is forwarded or after the API server
has carried it out but before the answer goes back: kill the operator, for one. Watch streams can be cut, left silent,
or given an event that the API server never sent.
"""

import asyncio
import base64
import json
import ssl
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from aiohttp import web

HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "content-encoding", "host", "upgrade"}


@dataclass(frozen=True)
class Call:
    """One request of the operator's."""

    method: str
    path: str
    query: dict[str, str]
    body: Any

    @property
    def watch(self) -> bool:
        return self.query.get("watch") in ("true", "1")

    @property
    def mutating(self) -> bool:
        return self.method not in ("GET", "HEAD")

    @property
    def kind(self) -> str:
        """Method and resource, and whether it is only tried."""
        return " ".join(filter(None, (self.method, self._named[0], self.query.get("dryRun"))))

    @property
    def _named(self) -> tuple[str, str]:
        """Resource and name in the path."""
        resource, _, name = self.path.partition("/namespaces/")[2].partition("/")[2].partition("/")
        return resource, name

    @property
    def what(self) -> str:
        """The call in words: method, resource and what it writes, without what changes from run to run."""
        resource, name = self._named
        body = self.body or {}
        name = body.get("metadata", {}).get("name") or name
        phase = body.get("status", {}).get("phase", "")
        return " ".join(filter(None, (self.method, resource, name, phase, self.query.get("dryRun"))))


@dataclass(frozen=True)
class Fault:
    """What befalls one call; nothing, if it has no field."""

    status: int | None = None
    """Answered instead of forwarding."""
    retry_after: int | None = None
    cut: bool = False
    """The connection ends without an answer."""
    delay: float = 0.0
    before: Callable[[], None] | None = None
    after: Callable[[], None] | None = None


Judge = Callable[[Call], Fault | None]


@dataclass
class Proxy:
    """Forwards to the cluster of `kubeconfig`. Runs in a thread of its own; its methods may be called from any."""

    kubeconfig: Path
    judge: Judge = lambda _: None
    calls: list[Call] = field(default_factory=list)
    """Every call that was forwarded and answered below 300."""

    def __post_init__(self) -> None:
        self._streams: dict[web.StreamResponse, web.BaseRequest] = {}
        self._silent: set[web.StreamResponse] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._thread.start()
        self.port = self._run(self._start())

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def close(self) -> None:
        """End the proxy."""
        self._run(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()

    # Streams

    @property
    def watching(self) -> int:
        """Watch streams that are open and not silent."""
        return len(self._open())

    def cut_streams(self) -> int:
        """End all watch streams in the middle; returns how many."""
        return self._run(self._cut())

    def silence_streams(self) -> None:
        """All present watch streams stay open and say nothing any more."""
        self._silent |= set(self._streams)

    def inject(self, event: dict[str, Any]) -> int:
        """Send an event on all watch streams; returns how many."""
        return self._run(self._inject(json.dumps(event).encode() + b"\n"))

    # In the proxy's own loop

    def _run(self, what: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(what, self._loop).result(30)

    async def _start(self) -> int:
        self._server, tls = _cluster(self.kubeconfig)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=tls, limit=0), timeout=aiohttp.ClientTimeout(total=None),
            auto_decompress=False,
        )  # fmt: skip
        # A call of an operator that is gone is no longer forwarded.
        self._runner = web.ServerRunner(web.Server(self._handle, handler_cancellation=True), shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        return int(self._runner.addresses[0][1])

    async def _stop(self) -> None:
        await self._cut()
        await self._runner.cleanup()
        await self._session.close()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        data = await request.read()
        call = Call(request.method, request.path, dict(request.query), json.loads(data) if data else None)
        fault = self.judge(call) or Fault()
        await asyncio.sleep(fault.delay)
        if fault.before:
            fault.before()
        if fault.cut:
            return _broken(request)
        if fault.status:
            return _refusal(fault)
        headers = {name: value for name, value in request.headers.items() if name.lower() not in HOP_BY_HOP}
        url = f"{self._server}{request.path_qs}"
        try:
            async with self._session.request(request.method, url, headers=headers, data=data or None) as answer:
                if call.watch and answer.status == 200:
                    return await self._stream(request, call, answer)
                body = await answer.read()
        except aiohttp.ClientError:
            return _broken(request)
        if answer.status < 300:
            self.calls.append(call)
        if fault.after:
            fault.after()
            return _broken(request)
        return web.Response(status=answer.status, body=body, headers=_kept(answer.headers))

    async def _stream(self, request: web.BaseRequest, call: Call, answer: aiohttp.ClientResponse) -> web.StreamResponse:
        response = web.StreamResponse(headers=_kept(answer.headers))
        await response.prepare(request)
        self.calls.append(call)
        self._streams[response] = request
        try:
            async for line in answer.content:
                if response not in self._silent:
                    await response.write(line)
        except (aiohttp.ClientError, ConnectionError):
            pass
        finally:
            del self._streams[response]
        return response

    def _open(self) -> list[web.StreamResponse]:
        return [
            response
            for response, request in list(self._streams.items())
            if response not in self._silent and request.transport and not request.transport.is_closing()
        ]

    async def _cut(self) -> int:
        open_ones = self._open()
        for request in list(self._streams.values()):
            _broken(request)
        return len(open_ones)

    async def _inject(self, line: bytes) -> int:
        open_ones = self._open()
        for response in open_ones:
            await response.write(line)
        return len(open_ones)


def _cluster(kubeconfig: Path) -> tuple[str, ssl.SSLContext]:
    """Address of the API server, and our identity there."""
    config = yaml.safe_load(kubeconfig.read_text())
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    tls = ssl.create_default_context(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())
    pem = kubeconfig.parent / f"{kubeconfig.name}.proxy.pem"
    pem.touch(mode=0o600)
    pem.write_bytes(b"\n".join(base64.b64decode(user[f"client-{part}-data"]) for part in ("key", "certificate")))
    tls.load_cert_chain(pem)
    pem.unlink()
    return cluster["server"], tls


def _kept(headers: Any) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in HOP_BY_HOP - {"content-encoding"}}


def _refusal(fault: Fault) -> web.Response:
    headers = {"Retry-After": str(fault.retry_after)} if fault.retry_after is not None else {}
    status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "injected", "code": fault.status}
    return web.json_response(status, status=fault.status or 500, headers=headers)


def _broken(request: web.BaseRequest) -> web.Response:
    """The connection ends before the answer."""
    if request.transport:
        request.transport.abort()
    return web.Response(status=503)
