"""`colocated watch` against an API server of one page."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

PATH = "/apis/rl.colocated.dev/v1alpha1/namespaces/{namespace}/colocatedrljobs/{name}"


class Server:
    """Answers each GET of the job with the next status; the last one stays. None: 503."""

    def __init__(self) -> None:
        self.statuses: list[dict[str, Any] | None] = []
        self.generation = 1

    async def get(self, request: web.Request) -> web.Response:
        if request.match_info["namespace"] != "team":
            return web.json_response({"message": "not found"}, status=404)
        status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
        if status is None:
            return web.json_response({"message": "busy"}, status=503)
        return web.json_response({"metadata": {"name": "job", "generation": self.generation}, "status": status})


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    made = Server()
    app = web.Application()
    app.add_routes([web.get(PATH, made.get)])
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    config = {
        "apiVersion": "v1", "kind": "Config", "current-context": "here",
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{runner.addresses[0][1]}"}}],
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "team"}}],
        "users": [{"name": "u", "user": {}}],
    }  # fmt: skip
    (tmp_path / "kubeconfig").write_text(json.dumps(config))
    yield made
    await runner.cleanup()


async def start(tmp_path: Path, *options: str) -> asyncio.subprocess.Process:
    environment = os.environ | {
        "KUBECONFIG": str(tmp_path / "kubeconfig"), "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "COLUMNS": "200",
    }  # fmt: skip
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "colocated_operator.cli", "watch", "job", *options,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # ignored where tests run in the background
        env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip


async def watched(tmp_path: Path, *options: str) -> tuple[int | None, str]:
    process = await start(tmp_path, *options)
    output, _ = await asyncio.wait_for(process.communicate(), 30)
    return process.returncode, output.decode()


def status(phase: str, step: int = 0, generation: int = 1, **more: Any) -> dict[str, Any]:
    return {"phase": phase, "observedGeneration": generation, "progress": {"step": step, "totalSteps": 4}} | more


async def test_until_complete_over_a_server_that_is_away(server: Server, tmp_path: Path) -> None:
    server.statuses = [
        status("Running", 1), None, status("Running", 2),
        status("Complete", 4, output={"model": "pvc://c/model"}),
    ]  # fmt: skip
    code, output = await watched(tmp_path)
    assert code == 0
    assert "Running, step 1 of 4" in output
    assert "Running, step 2 of 4" in output
    assert output.rstrip().endswith("Complete\n  model       pvc://c/model")


async def test_failed(server: Server, tmp_path: Path) -> None:
    failed = {"type": "Failed", "status": "True", "reason": "UserError", "message": "bad", "lastTransitionTime": ""}
    server.statuses = [status("Failed", conditions=[failed])]
    code, output = await watched(tmp_path)
    assert code == 1
    assert "Failed: UserError: bad" in output


async def test_the_end_of_an_older_spec_is_not_the_end(server: Server, tmp_path: Path) -> None:
    server.generation = 2
    server.statuses = [status("Failed"), status("Complete", generation=2)]
    assert (await watched(tmp_path))[0] == 0


async def test_a_job_that_is_not_there(server: Server, tmp_path: Path) -> None:
    server.statuses = [status("Running")]
    code, output = await watched(tmp_path, "-n", "other")
    assert code == 1
    assert "there is no ColocatedRLJob job in namespace other" in output


async def test_no_cluster(tmp_path: Path) -> None:
    code, output = await watched(tmp_path)
    assert code == 2
    assert output.startswith("error: no cluster: ")
    assert "Traceback" not in output


async def test_ctrl_c_leaves_the_job_alone(server: Server, tmp_path: Path) -> None:
    server.statuses = [status("Running", 1)]
    process = await start(tmp_path)
    assert process.stdout
    await asyncio.wait_for(process.stdout.readline(), 20)
    process.send_signal(signal.SIGINT)
    output, _ = await asyncio.wait_for(process.communicate(), 20)
    assert process.returncode == 130
    assert output.decode().strip() == "the job goes on; colocated watch job -n team follows it again"
