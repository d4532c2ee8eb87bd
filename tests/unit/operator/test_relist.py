"""Namespaces that come and go under an operator that watches several."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.contract.bad_jobs import GOOD
from tests.unit.operator.cluster import SETTINGS, START

from colocated_operator import relist
from colocated_operator.drivers import Drivers, World
from colocated_operator.kube import KubeError
from colocated_operator.observe import rl_job
from colocated_operator.store import Store
from colocated_runtime.contract import names


class Server:
    """Lists one job a namespace; of those in `denied` nothing."""

    def __init__(self, *denied: str, code: int = 403) -> None:
        self.denied, self.code = set(denied), code

    async def list(self, kind: str, namespace: str | None, label: str = "") -> list[dict[str, Any]]:
        if namespace in self.denied:
            raise KubeError(self.code, "no Role")
        return [job(str(namespace))] if kind == names.KIND else []


def job(namespace: str) -> dict[str, Any]:
    meta = {"name": "job", "namespace": namespace, "uid": f"uid-{namespace}", "resourceVersion": "1"}
    return {"metadata": meta, "spec": GOOD | {"suspend": True}}


def world(server: Server, *namespaces: str) -> World:
    made = Store(lambda: START)
    return World(server, made, None, replace(SETTINGS, namespaces=namespaces), lambda: START)  # type: ignore[arg-type]


class Told(Drivers):
    """Remembers which jobs were awoken and ended, and drives none."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.woken: list[str] = []
        self.ended: list[str] = []

    def wake(self, uid: str) -> None:
        self.woken.append(uid)

    def end(self, uid: str) -> None:
        self.ended.append(uid)


@pytest.mark.parametrize("code", [403, 404])
async def test_deleted_namespace_stops_no_other_and_is_taken_in_when_it_comes_back(code: int) -> None:
    server = Server("gone", code=code)
    here = world(server, "gone", "team-a")
    await relist.seed(here)
    assert set(here.store.jobs) == {"uid-team-a"}
    drivers = Told(here)
    await relist.prune(here, drivers)
    await relist.reopen(here, drivers)
    assert (drivers.ended, drivers.woken, here.store.left_out) == ([], [], {"gone"})
    server.denied.clear()
    await relist.reopen(here, drivers)
    assert (drivers.woken, here.store.left_out) == (["uid-gone"], set())
    assert set(here.store.jobs) == {"uid-gone", "uid-team-a"}


async def test_namespace_deleted_under_a_running_operator_ends_its_jobs_alone() -> None:
    server = Server()
    here = world(server, "team-a", "team-b")
    await relist.seed(here)
    server.denied.add("team-a")
    drivers = Told(here)
    await relist.prune(here, drivers)
    assert drivers.ended == ["uid-team-a"]
    assert set(here.store.jobs) == {"uid-team-b"}
    server.denied.clear()
    await relist.seed(here)
    assert (set(here.store.jobs), here.store.left_out) == ({"uid-team-a", "uid-team-b"}, set())


@pytest.mark.parametrize(
    ("namespaces", "denied", "code"), [(("a", "b"), ("a", "b"), 403), ((), ("None",), 403), (("a", "b"), ("a",), 500)]
)
async def test_operator_that_may_list_nothing_says_what_is_forbidden(
    namespaces: tuple[str, ...], denied: tuple[str, ...], code: int
) -> None:
    server = Server(*denied, code=code)
    server.denied |= {None} if "None" in denied else set()  # type: ignore[arg-type]
    with pytest.raises(KubeError, match=r"list ColocatedRLJob in .* is forbidden|no Role"):
        await relist.seed(world(server, *namespaces))


async def test_job_of_a_namespace_that_is_left_out_is_not_driven_although_its_watch_tells_of_it() -> None:
    """Its Jobs and pods may be unknown: they would be taken for gone."""
    here = world(Server("gone"), "gone", "team-a")
    await relist.seed(here)
    here.store.put_job(rl_job(job("gone")))
    drivers = Drivers(here)
    drivers.wake("uid-gone")
    assert not [task for task in asyncio.all_tasks() if task.get_name() == "driver-uid-gone"]
    drivers.wake("uid-team-a")
    assert [task for task in asyncio.all_tasks() if task.get_name() == "driver-uid-team-a"]
    await drivers.stop()
