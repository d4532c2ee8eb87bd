"""Creates the objects of an attempt, in an order that a killed operator can take up again: the Job comes last."""

from colocated_operator.desired import AttemptPlan, objects
from colocated_operator.desired.volumes import source_claims, template_volumes
from colocated_operator.kube import Body, Kube, KubeError
from colocated_operator.observe import Obstacle, controller
from colocated_runtime.contract import names
from colocated_runtime.contract.refusals import clash

INVALID_CODES = (400, 413, 422)
FIELDS = {
    "Job": " (see spec.runtime.podTemplate, spec.resources)",
    "PersistentVolumeClaim": " (see spec.checkpoint.storage.volumeClaimTemplate)",
}
"""Where the spec says what an object of a kind is to be."""


class Attempts:
    """What has to be asked and done before an attempt runs."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube

    async def create(self, plan: AttemptPlan) -> Body | Obstacle:
        """The created Job, or what is in the way. Raise KubeError where the API server fails."""
        missing = await self._missing(plan)
        if missing:
            return missing
        try:
            job = objects.job(plan)
        except ValueError as error:
            return Obstacle("Invalid", "JobRefused", f"spec.{error}", plan.generation)
        body = job
        try:
            if await self._made(job):  # an operator was killed before it could say so
                return await self._owned(plan, job)
            body = objects.config_map(plan)
            await self._described(plan, body)
            parts = (objects.service(plan), objects.volume_claim(plan))
            for body in (*filter(None, parts), job):
                made = await self._ensure(plan, body)
        except NameTakenError as error:
            return Obstacle("Waiting", "NameTaken", str(error), plan.generation)
        except KubeError as error:
            return self._refusal(plan, body["kind"], error)
        return made

    async def _made(self, job: Body) -> bool:
        """Whether a Job of that name exists; where none does, its fields are checked. Raise KubeError."""
        try:
            await self._kube.create(job, dry_run=True)
        except KubeError as error:
            if not error.exists_already:
                raise
            return True
        return False

    async def _described(self, plan: AttemptPlan, config_map: Body) -> None:
        """Create the ConfigMap. One that was left by a try on an older spec is replaced: no Job has read it."""
        found = await self._ensure(plan, config_map)
        if _generation(found) != _generation(config_map):
            await self._kube.delete("ConfigMap", plan.namespace, config_map["metadata"]["name"])
            await self._kube.create(config_map)

    async def _ensure(self, plan: AttemptPlan, body: Body) -> Body:
        try:
            return await self._kube.create(body)
        except KubeError as error:
            if not error.exists_already:
                raise
        return await self._owned(plan, body)

    async def _owned(self, plan: AttemptPlan, body: Body) -> Body:
        """The object that has `body`'s name already, if it is this job's. Raise KubeError where it has gone again."""
        meta = body["metadata"]
        found = await self._kube.get(body["kind"], meta["namespace"], meta["name"])
        if found is None:
            raise KubeError(409, f"{body['kind']} {meta['name']} already exists, and is gone")
        if controller(found, names.KIND) != plan.uid:
            raise NameTakenError(f"a {body['kind']} named {meta['name']} exists that is not this job's; delete it")
        return found

    async def _missing(self, plan: AttemptPlan) -> Obstacle | None:
        """Claims and ConfigMaps that the spec names and that do not exist, or cannot serve it."""
        found = await self._rewards(plan) or await self._sources(plan) or await self._storage(plan)
        return found or await self._template(plan)

    async def _rewards(self, plan: AttemptPlan) -> Obstacle | None:
        files: dict[str, Body] = {}
        for index, reward in enumerate(plan.spec.rewards):
            name = reward.config_map
            if name is None or name in files:
                continue
            found = await self._kube.get("ConfigMap", plan.namespace, name)
            if found is None:
                return self._absent(plan, "ConfigMap", name, f"rewards[{index}].configMap")
            files[name] = found.get("data") or {}
        clashing = clash(files)
        return Obstacle("Waiting", "RewardsClash", f"spec.{clashing}", plan.generation) if clashing else None

    async def _sources(self, plan: AttemptPlan) -> Obstacle | None:
        for claim, field in source_claims(plan.spec).items():
            found = await self._kube.get("PersistentVolumeClaim", plan.namespace, claim)
            if found is None:
                return self._absent(plan, "PersistentVolumeClaim", claim, field)
            if not _serves(found, plan.spec.nodes, "ReadWriteMany", "ReadOnlyMany"):
                return _not_shared(plan, "SourceNotShared", f"{field}: claim {claim}", found, "or ReadOnlyMany ")
        return None

    async def _storage(self, plan: AttemptPlan) -> Obstacle | None:
        claim, field = plan.spec.checkpoint.storage.claim, "checkpoint.storage.claim"
        if claim is None:
            return None
        found = await self._kube.get("PersistentVolumeClaim", plan.namespace, claim)
        if found is None:
            return self._absent(plan, "PersistentVolumeClaim", claim, field)
        if not _serves(found, plan.spec.nodes, "ReadWriteMany"):
            return _not_shared(plan, "StorageNotShared", f"{field}: {claim}", found)
        return None

    async def _template(self, plan: AttemptPlan) -> Obstacle | None:
        for kind, name, field in template_volumes(plan.spec):
            if await self._kube.get(kind, plan.namespace, name) is None:
                return self._absent(plan, kind, name, field)
        return None

    @staticmethod
    def _absent(plan: AttemptPlan, kind: str, name: str, field: str) -> Obstacle:
        where = f"{kind} {name!r} in namespace {plan.namespace}"
        message = f"spec.{field}: there is no {where}; the job starts once it exists"
        return Obstacle("Waiting", f"{kind}Missing", message, plan.generation)

    @staticmethod
    def _refusal(plan: AttemptPlan, kind: str, error: KubeError) -> Obstacle:
        """A refused create: for good if the object is invalid, else waiting for quota, a webhook, permissions."""
        if error.code in INVALID_CODES:
            message = f"the API server refuses the {kind}{FIELDS.get(kind, '')}: {error.message}"
            return Obstacle("Invalid", f"{kind}Refused", message, plan.generation)
        if error.code == 403:
            return Obstacle("Waiting", "CreateForbidden", error.message, plan.generation)
        if error.code == 500 and "webhook" in error.message:
            return Obstacle("Waiting", "WebhookFailed", error.message, plan.generation)
        raise error


def _generation(body: Body) -> str | None:
    """Of the ColocatedRLJob that `body` was made from, as it says."""
    annotations = body["metadata"].get("annotations") or {}
    return annotations.get(names.ANNOTATION_GENERATION)


def _serves(claim: Body, nodes: int, *shared: str) -> bool:
    """Whether pods on so many nodes can mount the claim; `shared` are the access modes for several."""
    return nodes == 1 or any(mode in shared for mode in _modes(claim))


def _modes(claim: Body) -> list[str]:
    return claim["spec"].get("accessModes") or []


def _not_shared(plan: AttemptPlan, reason: str, what: str, claim: Body, other: str = "") -> Obstacle:
    message = (
        f"spec.{what} is {', '.join(_modes(claim))}, which cannot serve nodes: {plan.spec.nodes};"
        f" use a ReadWriteMany {other}claim"
    )
    return Obstacle("Invalid", reason, message, plan.generation)


class NameTakenError(Exception):
    """An object of the name that we need belongs to someone else."""
