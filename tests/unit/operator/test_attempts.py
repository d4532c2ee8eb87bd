"""What stands in the way of an attempt, by what the API server answers."""

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.contract.bad_jobs import GOOD
from tests.unit.operator.cluster import SETTINGS, UID

from colocated_operator.attempts import Attempts
from colocated_operator.desired import AttemptPlan, objects
from colocated_operator.kube import Body, KubeError
from colocated_operator.observe import Obstacle
from colocated_runtime.contract.job import JobSpec

TAKEN = KubeError(409, "already exists", reason="AlreadyExists")
QUOTA_CONFLICT = KubeError(409, "Operation cannot be fulfilled on resourcequotas: modified", reason="Conflict")
TEMPLATE = {"checkpoint": {"storage": {"volumeClaimTemplate": {"storage": "1Gi"}}}}


class Server:
    """Answers creates with `errors`, by kind; `found` by name is what exists."""

    def __init__(self, errors: dict[str, KubeError] | None = None, found: dict[str, Body] | None = None) -> None:
        self.errors, self.found = errors or {}, found or {}

    async def create(self, body: Body, *, dry_run: bool = False) -> Body:
        error = self.errors.get(body["kind"])
        if error and not (dry_run and error is QUOTA_CONFLICT):
            raise error
        return body

    async def get(self, kind: str, namespace: str, name: str) -> Body | None:
        return self.found.get(name)


def plan(**spec: Any) -> AttemptPlan:
    return AttemptPlan(
        name="job", namespace="ns", uid=UID, generation=1, labels={}, spec=JobSpec.model_validate(GOOD | spec),
        settings=SETTINGS, attempt=1, restart_count=0, seconds_left=None,
    )  # fmt: skip


async def created(server: Server, **spec: Any) -> Body | Obstacle:
    return await Attempts(server).create(plan(**spec))  # type: ignore[arg-type]


async def obstacle(server: Server, **spec: Any) -> Obstacle:
    found = await created(server, **spec)
    assert isinstance(found, Obstacle)
    return found


@pytest.mark.parametrize("kind", ["Job", "Service"])
async def test_conflict_that_is_no_name_is_tried_again(kind: str) -> None:
    with pytest.raises(KubeError, match="resourcequotas"):
        await created(Server({kind: QUOTA_CONFLICT}))


async def test_object_that_went_between_two_calls_is_no_strangers() -> None:
    with pytest.raises(KubeError, match="already exists"):
        await created(Server({"Service": TAKEN}))


class Left(Server):
    """An operator was killed, or a quota hit, between the ConfigMap of this attempt and its Job."""

    def __init__(self, of: AttemptPlan) -> None:
        super().__init__()
        self.config_maps = [objects.config_map(of)]

    async def create(self, body: Body, *, dry_run: bool = False) -> Body:
        if body["kind"] == "ConfigMap":
            if self.config_maps:
                raise TAKEN
            self.config_maps.append(body)
        return await super().create(body, dry_run=dry_run)

    async def get(self, kind: str, namespace: str, name: str) -> Body | None:
        return self.config_maps[0] if kind == "ConfigMap" else None

    async def delete(self, kind: str, namespace: str, name: str) -> None:
        assert (kind, name) == ("ConfigMap", "job-abcde-1")
        self.config_maps.clear()


@pytest.mark.parametrize("edited", [False, True])
async def test_attempt_takes_the_spec_as_it_is_when_its_job_is_made(edited: bool) -> None:
    before = plan()
    server = Left(before)
    (left,) = server.config_maps
    now = replace(plan(resources={"limits": {"memory": "64Gi"}}), generation=2) if edited else before
    made = await Attempts(server).create(now)  # type: ignore[arg-type]
    assert isinstance(made, dict)
    (found,) = server.config_maps
    assert found == objects.config_map(now)
    assert (found is left) != edited


async def test_name_that_a_stranger_has_is_told() -> None:
    stranger = {"metadata": {"ownerReferences": []}}
    found = await obstacle(Server({"Service": TAKEN}, {"job-abcde": stranger}))
    assert (found.kind, found.reason) == ("Waiting", "NameTaken")
    assert found.message == "a Service named job-abcde exists that is not this job's; delete it"


@pytest.mark.parametrize(
    ("kind", "code", "reason", "where"),
    [
        ("Job", 422, "JobRefused", "see spec.runtime.podTemplate, spec.resources"),
        ("ConfigMap", 413, "ConfigMapRefused", "refuses the ConfigMap"),
        ("Service", 422, "ServiceRefused", "refuses the Service"),
        ("PersistentVolumeClaim", 422, "PersistentVolumeClaimRefused", "spec.checkpoint.storage.volumeClaimTemplate"),
    ],
)
async def test_refusal_names_the_kind_that_was_refused(kind: str, code: int, reason: str, where: str) -> None:
    found = await obstacle(Server({kind: KubeError(code, "spec.x: invalid")}), **TEMPLATE)
    assert (found.kind, found.reason) == ("Invalid", reason)
    assert where in found.message
    assert "spec.x: invalid" in found.message
    assert ("podTemplate" in found.message) == (kind == "Job")


def claim(*modes: str) -> Body:
    return {"spec": {"accessModes": list(modes)}}


SHARED = {"claim": "shared"}


@pytest.mark.parametrize(
    ("source", "field"),
    [
        ({"model": {"source": "pvc://data/qwen"}}, "model.source"),
        ({"dataset": {"source": "pvc://data/x.jsonl"}}, "dataset.source"),
        ({"rewards": [{"name": "exact_match"}, {"model": "pvc://data/judge"}]}, "rewards[1].model"),
    ],
)
async def test_source_on_a_claim_for_one_node_is_refused_for_two(source: dict[str, Any], field: str) -> None:
    both = {"nodes": 2, "checkpoint": {"storage": SHARED}}
    found = await obstacle(
        Server(found={"shared": claim("ReadWriteMany"), "data": claim("ReadWriteOnce")}), **both | source
    )
    assert (found.kind, found.reason) == ("Invalid", "SourceNotShared")
    assert found.message == (
        f"spec.{field}: claim data is ReadWriteOnce, which cannot serve nodes: 2; use a ReadWriteMany or ReadOnlyMany"
        " claim"
    )
    for many in ("ReadWriteMany", "ReadOnlyMany"):
        server = Server(found={"shared": claim("ReadWriteMany"), "data": claim("ReadWriteOnce", many)})
        assert not isinstance(await created(server, **both | source), Obstacle)
    server = Server(found={"shared": claim("ReadWriteOnce"), "data": claim("ReadWriteOnce")})
    assert not isinstance(await created(server, **both | source | {"nodes": 1}), Obstacle)


async def test_missing_config_map_of_a_reward_is_named_by_its_index() -> None:
    rewards = [{"name": "exact_match"}, *({"function": f"{n}:f", "configMap": n} for n in ("there", "missing"))]
    found = await obstacle(Server(found={"there": {}}), rewards=rewards)
    assert (found.kind, found.reason) == ("Waiting", "ConfigMapMissing")
    assert found.message.startswith("spec.rewards[2].configMap: there is no ConfigMap 'missing' in namespace ns;")


VOLUMES = [
    {"name": "a", "emptyDir": {}},
    {"name": "b", "configMap": {"name": "maybe", "optional": True}},
    {"name": "c", "configMap": {"name": "questions"}},
    {"name": "d", "persistentVolumeClaim": {"claimName": "data"}},
    {"name": "e", "configMap": None},
]


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ({}, "spec.runtime.podTemplate.spec.volumes[2].configMap: there is no ConfigMap 'questions' in namespace ns;"),
        ({"questions": {}}, "spec.runtime.podTemplate.spec.volumes[3].persistentVolumeClaim: there is no Persistent"),
    ],
)
async def test_what_a_volume_of_the_template_needs(found: dict[str, Body], message: str) -> None:
    missing = await obstacle(Server(found=found), runtime={"podTemplate": {"spec": {"volumes": VOLUMES}}})
    assert missing.kind == "Waiting"
    assert missing.message.startswith(message)


async def test_a_template_whose_volumes_have_all_they_need() -> None:
    server = Server(found={"questions": {}, "data": {}})
    assert not isinstance(await created(server, runtime={"podTemplate": {"spec": {"volumes": VOLUMES}}}), Obstacle)
    assert not isinstance(await created(Server(), runtime={"podTemplate": {"spec": None}}), Obstacle)
