"""The objects of one attempt: built from the spec, created once, never changed. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from colocated_operator.settings import Settings
from colocated_runtime.contract import names
from colocated_runtime.contract.grace import SHORTEST_SECONDS
from colocated_runtime.contract.job import JobSpec
from colocated_runtime.contract.plan import Plan


@dataclass(frozen=True)
class AttemptPlan:
    """What the objects of an attempt are made from."""

    name: str
    namespace: str
    uid: str
    generation: int
    labels: Mapping[str, str]
    """Of the ColocatedRLJob."""
    spec: JobSpec
    settings: Settings
    attempt: int
    restart_count: int
    seconds_left: int | None
    """Of the job's deadline."""
    memory: Plan | None = None
    """The memory plan, where model and device are known beforehand."""
    host_reserve: int = 0
    """Bytes below the pod's memory limit that the launcher's plan leaves free."""
    grace_seconds: int = SHORTEST_SECONDS
    """From SIGTERM to SIGKILL: the rest of a step and a save have to fit."""

    @property
    def key(self) -> str:
        """Name of the Service, and prefix of all other names."""
        return names.job_key(self.name, self.uid)

    @property
    def attempt_name(self) -> str:
        """Name of the Job and of the ConfigMap."""
        return names.attempt_name(self.name, self.uid, self.attempt)

    @property
    def claim(self) -> str | None:
        """The claim that holds the checkpoints; None for an emptyDir."""
        storage = self.spec.checkpoint.storage
        return storage.claim or (f"{self.key}-checkpoints" if storage.volume_claim_template else None)


def metadata(plan: AttemptPlan, name: str, **extra: Any) -> dict[str, Any]:
    """Metadata of an object that the ColocatedRLJob owns; `extra` adds to it, labels are merged."""
    labels = {names.LABEL_JOB: plan.name, names.LABEL_JOB_UID: plan.uid} | extra.pop("labels", {})
    return {
        "name": name,
        "namespace": plan.namespace,
        "labels": labels,
        "ownerReferences": [
            {
                "apiVersion": f"{names.GROUP}/{names.VERSION}",
                "kind": names.KIND,
                "name": plan.name,
                "uid": plan.uid,
                "controller": True,
                "blockOwnerDeletion": False,
            }
        ],
        **extra,
    }
