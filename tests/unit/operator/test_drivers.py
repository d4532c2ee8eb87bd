"""What a pass asks of the API server and does there; the server is a dict."""

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from tests.unit.contract.bad_jobs import GOOD
from tests.unit.operator.cluster import SETTINGS, START, UID, child, rl_job

from colocated_operator import observe
from colocated_operator.desired import AttemptPlan, objects
from colocated_operator.desired.merge import merged
from colocated_operator.drivers import Driver, World
from colocated_operator.kube import KubeError
from colocated_operator.store import Store
from colocated_runtime.contract import names
from colocated_runtime.contract.job import JobSpec
from colocated_runtime.contract.status import JobStatus


@dataclass
class Server:
    """The calls of `Kube` that these passes make."""

    job: observe.RLJob
    status: dict[str, Any] = field(default_factory=dict)
    objects: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    refuses: dict[str, int] = field(default_factory=dict)

    def add(self, body: dict[str, Any]) -> None:
        self.objects[body["kind"], body["metadata"]["name"]] = body

    async def list(self, kind: str, namespace: str, label: str) -> list[dict[str, Any]]:
        self.calls.append(f"list {kind}")
        name, _, value = label.partition("=")
        return [
            body for (each, _), body in self.objects.items()
            if each == kind and body["metadata"]["labels"].get(name) == value
        ]  # fmt: skip

    async def get(self, kind: str, namespace: str, name: str) -> dict[str, Any] | None:
        return self.objects.get((kind, name))

    async def delete(self, kind: str, namespace: str, name: str) -> None:
        self.calls.append(f"delete {kind} {name}")
        self.objects.pop((kind, name), None)

    async def create(self, body: dict[str, Any]) -> dict[str, Any]:
        if body["kind"] in self.refuses:
            raise KubeError(self.refuses[body["kind"]], "invalid")
        self.add(body)
        return body

    async def patch_status(self, namespace: str, name: str, version: int, patch: dict[str, Any]) -> dict[str, Any]:
        self.status = merged({**self.job.status, **self.status}, patch)
        meta = {"name": name, "namespace": namespace, "uid": UID, "resourceVersion": str(version + 1), "generation": 1}
        return {"metadata": meta, "spec": self.job.spec, "status": self.status}


class Silence:
    async def pull(self, *_: Any) -> dict[str, Any]:
        return {}


def plan(attempt: int, restarts: int = 0) -> AttemptPlan:
    return AttemptPlan(
        name="job", namespace="ns", uid=UID, generation=1, labels={}, spec=JobSpec.model_validate(GOOD),
        settings=SETTINGS, attempt=attempt, restart_count=restarts, seconds_left=None,
    )  # fmt: skip


def driver(server: Server, now: timedelta = timedelta()) -> Driver:
    store = Store(lambda: START)
    store.put_job(server.job)
    return Driver(UID, World(server, store, Silence(), SETTINGS, lambda: START + now))  # type: ignore[arg-type]


async def test_attempt_number_survives_a_status_wiped_while_suspended() -> None:
    server = Server(rl_job(GOOD | {"suspend": True}))
    for number in (2, 3):
        server.add(objects.config_map(plan(number, restarts=1)))
    await driver(server).one_pass()
    assert (server.status["phase"], server.status["attempt"], server.status["restartCount"]) == ("Suspended", 3, 1)


async def test_config_maps_are_asked_for_only_where_nothing_else_tells_the_attempt() -> None:
    running = driver(Server(rl_job()))
    running.world.store.put_child(child())
    suspended = driver(Server(rl_job(GOOD | {"suspend": True}, {"phase": "Suspended", "observedGeneration": 1})))
    for each in (running, suspended):
        await each.one_pass()
        assert each.world.kube.calls == []  # type: ignore[attr-defined]


async def test_two_rewards_of_one_module_name_make_no_pod() -> None:
    rewards = [{"function": "score:f", "configMap": name} for name in ("a", "b")]
    server = Server(rl_job(GOOD | {"rewards": rewards}))
    for name in ("a", "b"):
        server.add({"kind": "ConfigMap", "metadata": {"name": name, "labels": {}}, "data": {"score.py": ""}})
    job = driver(server)
    for _ in range(2):
        await job.one_pass()
    assert ("Job", "job-abcde-1") not in server.objects
    (reconciling,) = [entry for entry in server.status["conditions"] if entry["type"] == "Reconciling"]
    assert reconciling["reason"] == "RewardsClash"
    assert reconciling["message"].startswith("rewards[].configMap: a and b hold score.py")


async def test_event_that_the_server_refuses_ends_no_pass() -> None:
    forged = {"attempt": 1, "outcome": "x" * 200, "time": "2026-01-01T00:00:00Z"}
    server = Server(rl_job(GOOD | {"suspend": True}, {"observedGeneration": 1, "attempt": 1, "restarts": [forged]}))
    server.refuses = {"Event": 422}
    await driver(server).one_pass()
    assert server.status["phase"] == "Suspended"


async def test_time_to_live_removes_the_jobs_own_and_nothing_of_strangers() -> None:
    status = JobStatus(phase="Complete", observed_generation=1, attempt=3, completion_time="2026-01-01T00:00:00Z")
    known = status.model_dump(by_alias=True, exclude_defaults=True)
    server = Server(rl_job(GOOD | {"ttlSecondsAfterFinished": 60}, known))
    stranger = objects.config_map(plan(1)) | {"metadata": {"name": "theirs", "labels": {names.LABEL_JOB_UID: UID}}}
    for body in (objects.config_map(plan(3)), objects.service(plan(3)), stranger):
        server.add(body)
    over = driver(server, timedelta(seconds=61))
    await over.one_pass()
    assert list(server.objects) == [("ConfigMap", "theirs")]
    server.calls.clear()
    await over.one_pass()
    assert server.calls == []
