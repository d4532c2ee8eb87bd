"""What a pass asks of the API server and does there."""

import asyncio
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from tests.unit.contract.bad_jobs import GOOD
from tests.unit.operator.cluster import SETTINGS
from tests.unit.operator.simulated import NAMESPACE, Client, Cluster, Fault, Reports

from colocated_operator import metrics, observe, relist
from colocated_operator.desired import AttemptPlan, objects
from colocated_operator.drivers import Driver, World
from colocated_operator.kube import KubeError
from colocated_operator.store import Store
from colocated_runtime.contract import names
from colocated_runtime.contract.job import JobSpec


@dataclass
class Listed(Client):
    """Remembers which kinds were listed."""

    cluster: Cluster
    kinds: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(self.cluster)

    async def list(self, kind: str, namespace: str | None, label: str = "", field: str = "") -> list[dict[str, Any]]:
        self.kinds.append(kind)
        return await super().list(kind, namespace, label, field)


async def new_operator(cluster: Cluster) -> tuple[Driver, Listed]:
    """A driver that knows what the lists at its start have told, and its client."""
    client = Listed(cluster)
    world = World(client, Store(lambda: cluster.now), Reports(cluster), SETTINGS, lambda: cluster.now)  # type: ignore[arg-type]
    await relist.seed(world)
    client.kinds.clear()
    client.calls = 0
    return Driver(cluster.job["metadata"]["uid"], world), client


def cluster_with(status: dict[str, Any] | None = None, **spec: Any) -> Cluster:
    cluster = Cluster()
    cluster.put({**cluster.apply(GOOD | spec), "status": status or {}})
    return cluster


def plan(cluster: Cluster, attempt: int, restarts: int = 0) -> AttemptPlan:
    return AttemptPlan(
        name="job", namespace=NAMESPACE, uid=cluster.job["metadata"]["uid"], generation=1, labels={},
        spec=JobSpec.model_validate(GOOD), settings=SETTINGS, attempt=attempt, restart_count=restarts,
        seconds_left=None,
    )  # fmt: skip


async def test_attempt_number_survives_a_status_wiped_while_suspended() -> None:
    cluster = cluster_with(suspend=True)
    for number in (2, 3):
        cluster.put(objects.config_map(plan(cluster, number, restarts=1)))
    driver, _ = await new_operator(cluster)
    await driver.one_pass()
    status = cluster.job["status"]
    assert (status["phase"], status["attempt"], status["restartCount"]) == ("Suspended", 3, 1)


async def test_config_maps_are_asked_for_only_where_nothing_else_tells_the_attempt() -> None:
    cluster = cluster_with()
    driver, client = await new_operator(cluster)
    await driver.one_pass()
    assert client.kinds == ["ConfigMap"]
    for status in (cluster.job["status"], {}):
        cluster.put({**cluster.job, "status": status})
        driver, client = await new_operator(cluster)
        await driver.one_pass()
        assert client.kinds == [], "the status tells it, or the Job"


QUOTA = 'pods "x-0-" is forbidden: exceeded quota: q, requested: pods=1, used: pods=0, limited: pods=0'


def failed_create(cluster: Cluster, name: str, message: str, time: str, uid: str = "") -> None:
    """An Event of the Job controller's."""
    (job,) = cluster.of_kind("Job")
    cluster.put({
        "kind": "Event", "metadata": {"name": name, "namespace": NAMESPACE}, "reason": "FailedCreate",
        "involvedObject": {"kind": "Job", "uid": uid or job["metadata"]["uid"]}, "message": message,
        "lastTimestamp": time,
    })  # fmt: skip


async def without_pods() -> tuple[Cluster, Driver, Listed]:
    """A Job that was made a minute ago and has none."""
    cluster = cluster_with()
    driver, client = await new_operator(cluster)
    await driver.one_pass()
    client.kinds.clear()
    cluster.now += timedelta(seconds=60)
    return cluster, driver, client


def told(cluster: Cluster, condition: str = "Reconciling") -> dict[str, Any]:
    return next(entry for entry in cluster.job["status"]["conditions"] if entry["type"] == condition)


async def test_why_a_job_is_given_no_pods_is_read_from_its_own_newest_event() -> None:
    cluster, driver, client = await without_pods()
    failed_create(cluster, "a", f"Error creating: {QUOTA}", "2026-01-01T00:00:30Z")
    failed_create(cluster, "b", "Error creating: older", "2026-01-01T00:00:20Z")
    failed_create(cluster, "c", "Error creating: another Job's", "2026-01-01T00:00:50Z", uid="other")
    for _ in range(3):
        await driver.one_pass()
    assert client.kinds == ["Event"], "not at every pass"
    assert (told(cluster)["reason"], told(cluster, "Running")["reason"]) == ("PodsRefused", "PodsRefused")
    assert told(cluster)["message"] == f"0 of 1 pods exist, for the API server says: {QUOTA}"
    assert [event["reason"] for event in cluster.events] == ["PodsRefused"]
    cluster.control()
    driver.world.store.put_pod(observe.child_pod(cluster.of_kind("Pod")[0]))
    await driver.one_pass()
    assert (told(cluster)["reason"], driver.refusal) == ("PodsPending", "")


async def test_events_that_may_not_be_listed_end_no_pass() -> None:
    cluster, driver, client = await without_pods()
    client.calls = 0
    client.fault = Fault(1, before=KubeError(403, "events is forbidden"))
    await driver.one_pass()
    assert told(cluster)["reason"] == "PodsPending"
    assert "kubectl describe job" in told(cluster)["message"]


async def test_two_rewards_of_one_module_name_make_no_pod() -> None:
    cluster = cluster_with(rewards=[{"function": "score:f", "configMap": name} for name in ("a", "b")])
    for name in ("a", "b"):
        meta = {"name": name, "namespace": NAMESPACE}
        cluster.put({"kind": "ConfigMap", "metadata": meta, "data": {"score.py": ""}})
    driver, _ = await new_operator(cluster)
    for _ in range(2):
        await driver.one_pass()
    assert cluster.of_kind("Job") == []
    (reconciling,) = [entry for entry in cluster.job["status"]["conditions"] if entry["type"] == "Reconciling"]
    assert reconciling["reason"] == "RewardsClash"
    assert reconciling["message"].startswith("spec.rewards[].configMap: a and b hold score.py")


async def test_event_that_the_server_refuses_ends_no_pass() -> None:
    cluster = cluster_with(suspend=True)
    driver, client = await new_operator(cluster)
    await driver.one_pass()
    assert cluster.events
    driver, client = await new_operator(cluster)
    client.fault = Fault(1, before=KubeError(422, "reason: too long"))
    await driver.one_pass()
    assert client.calls == 1


async def test_time_to_live_removes_the_jobs_own_and_nothing_of_strangers() -> None:
    over = {"phase": "Complete", "observedGeneration": 1, "attempt": 3, "completionTime": "2026-01-01T00:00:00Z"}
    cluster = cluster_with(over, ttlSecondsAfterFinished=60)
    labels = {names.LABEL_JOB_UID: cluster.job["metadata"]["uid"]}
    stranger = {"kind": "ConfigMap", "metadata": {"name": "theirs", "namespace": NAMESPACE, "labels": labels}}
    for body in (objects.config_map(plan(cluster, 3)), objects.service(plan(cluster, 3)), stranger):
        cluster.put(body)
    cluster.now += timedelta(seconds=61)
    driver, client = await new_operator(cluster)
    await driver.one_pass()
    assert [body["metadata"]["name"] for body in cluster.of_kind("ConfigMap", "Service")] == ["theirs"]
    client.calls = 0
    await driver.one_pass()
    assert client.calls == 0


def api_errors() -> float:
    return sum(sample.value for sample in metrics.API_ERRORS.collect()[0].samples if sample.name.endswith("_total"))


async def test_only_the_api_servers_errors_are_counted_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    driver, _ = await new_operator(cluster_with())
    before = api_errors()
    for error, counted in ((ZeroDivisionError(), 0), (KubeError(500, "etcd"), 1)):

        async def failing(error: Exception = error) -> float | None:
            raise error

        monkeypatch.setattr(driver, "one_pass", failing)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(driver.run(), 0.1)
        assert api_errors() - before == counted
    assert driver.failures == 2


async def test_after_a_long_outage_a_job_is_soon_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """No watch wakes it where nothing has changed: its own pauses are all that it comes back by."""
    driver, _ = await new_operator(cluster_with())
    waits: list[float] = []

    async def pass_by(waiting: Any, seconds: float | None) -> None:
        waiting.close()
        waits.append(seconds or 0.0)
        raise TimeoutError

    async def away() -> float | None:
        if sum(waits) < 120:
            raise KubeError(503, "the API server is away")
        return None

    monkeypatch.setattr(asyncio, "wait_for", pass_by)
    monkeypatch.setattr(driver, "one_pass", away)
    await driver.run()
    assert 5 <= max(waits) <= 10
    assert waits[1] <= 1
