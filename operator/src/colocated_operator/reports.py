"""Pulls the launchers' reports. What a pod answers is not trusted: limits on time, size and redirects."""

import asyncio
import errno
from collections.abc import Callable, Iterable
from datetime import datetime

import aiohttp
from pydantic import ValidationError

from colocated_operator.observe import ChildPod, Pulled
from colocated_runtime.contract import names
from colocated_runtime.contract.report import REPORT_LIMIT, Report

TIMEOUT = aiohttp.ClientTimeout(total=3.0, sock_connect=2.0)
"""Connecting has less, so that the network's silence can be told from the launcher's."""
AT_ONCE = 64


class Reports:
    """One session for all pods."""

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self._clock = clock
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._session = aiohttp.ClientSession(
            timeout=TIMEOUT, trust_env=False, connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=30)
        )

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()

    async def pull(self, pods: Iterable[ChildPod], job_uid: str, known: dict[str, Pulled]) -> dict[str, Pulled]:
        """The answers of `pods` by pod uid; where one does not answer, its last report with the error beside it."""
        asked = list(pods)
        answers = await asyncio.gather(*(self._ask(pod, job_uid, known.get(pod.uid)) for pod in asked))
        return {pod.uid: answer for pod, answer in zip(asked, answers, strict=True)}

    async def _ask(self, pod: ChildPod, job_uid: str, before: Pulled | None) -> Pulled:
        try:
            async with self._slots:
                report = _own(Report.model_validate_json(await self._get(pod.ip)), pod, job_uid)
        except ValueError as error:
            return (before or Pulled(None)).unreadable(_words(error), self._clock())
        except (aiohttp.ClientError, OSError) as error:  # a timeout is an OSError
            known = before or Pulled(None)
            return known.unanswered(_words(error), self._clock(), reached=_came_to_pod(error))
        return Pulled(report)

    async def _get(self, ip: str) -> bytes:
        host = f"[{ip}]" if ":" in ip else ip
        url = f"http://{host}:{names.REPORT_PORT}/report"
        async with self._session.get(url, allow_redirects=False) as response:
            if response.status != 200:
                raise ValueError(f"HTTP {response.status}")
            body = b""
            async for chunk in response.content.iter_chunked(REPORT_LIMIT):
                body += chunk
                if len(body) > REPORT_LIMIT:
                    raise ValueError(f"the report is larger than {REPORT_LIMIT} bytes")
            return body


def _own(report: Report, pod: ChildPod, job_uid: str) -> Report:
    if report.uid != job_uid or report.attempt != pod.attempt or report.node != pod.index:
        raise ValueError(f"the report is another's: attempt {report.attempt}, node {report.node}")
    return report


def _came_to_pod(error: Exception) -> bool:
    """Whether the pod's own kernel took or refused the connection: only the launcher is missing."""
    if isinstance(error, aiohttp.ClientConnectorError):
        return error.os_error.errno == errno.ECONNREFUSED
    return isinstance(error, TimeoutError) and not isinstance(error, aiohttp.ConnectionTimeoutError)


def _words(error: Exception) -> str:
    if isinstance(error, ValidationError):
        return "the report does not parse"
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return "no connection within 2 s"
    if isinstance(error, TimeoutError):
        return "no answer within 3 s"
    return str(error)[:200] or type(error).__name__
