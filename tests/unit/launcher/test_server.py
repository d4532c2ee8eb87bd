import aiohttp

from colocated_runtime.contract.report import REPORT_LIMIT, Checkpoint, Evaluation, Pressure, Report, Stage
from colocated_runtime.launcher.server import serving


async def test_the_longest_report_is_served_within_the_operators_limit(make_attempt) -> None:
    port = make_attempt().report_port
    full = Report(
        name="job", uid="u", attempt=1, node=0, stage=Stage.RUNNING, started=1, updated=1, traceback="t" * 300_000,
        evaluations=[Evaluation(step=n, mean=1 / 3, low=1 / 7, high=2 / 3, prompts=64) for n in range(10_000)],
        pressure=[Pressure(sequence=n, time=1.0, kind="Host", message="m" * 100) for n in range(10_000)],
        checkpoints=[Checkpoint(step=n, uri="pvc://claim/" + "x" * 100, time=1.0) for n in range(1000)],
        metrics={f"metric/{n}": 1 / 3 for n in range(64)},
    )  # fmt: skip
    async with serving(lambda: full, "127.0.0.1", port), aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
        body = await (await session.get("/report")).read()
    assert len(body) <= REPORT_LIMIT
    told = Report.model_validate_json(body)
    assert [entry.step for entry in told.evaluations] == [0, *range(9801, 10_000)]
    assert told.pressure[-1].sequence == 9999
    assert told.checkpoints[-1].step == 999
    assert told.metrics == full.metrics


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
