import aiohttp

from colocated_runtime.contract.report import Report, Stage
from colocated_runtime.launcher.server import serving


async def test_each_request_gets_the_report_of_its_moment(make_attempt) -> None:
    port = make_attempt().report_port
    now = Report(name="job", uid="u", attempt=1, node=0, stage=Stage.FETCHING, started=1, updated=1)
    async with serving(lambda: now, "127.0.0.1", port), aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
        assert await (await session.get("/healthz")).text() == "ok"
        assert (await (await session.get("/report")).json())["stage"] == "Fetching"
        now = now.model_copy(update={"stage": Stage.FINISHED, "exit_code": 3})
        answer = await session.get("/report")
        assert answer.content_type == "application/json"
        assert Report.model_validate(await answer.json()) == now
        assert (await session.post("/report")).status == 405
