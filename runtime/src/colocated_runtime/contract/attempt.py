"""What the operator tells the launcher of one attempt: the content of its ConfigMap."""

from pydantic import Field

from colocated_runtime.contract.base import Contract
from colocated_runtime.contract.job import JobSpec
from colocated_runtime.contract.names import REPORT_PORT, job_key
from colocated_runtime.contract.plan import Plan


class Attempt(Contract):
    """One attempt of a job. Written once by the operator (or by `colocated run`), read by launcher and worker."""

    name: str
    namespace: str
    uid: str
    generation: int
    attempt: int = Field(ge=1)
    hosts: list[str]
    """Fully qualified names of the nodes' pods, index by index; rank 0 lives on the first."""
    report_port: int = REPORT_PORT
    storage_uri: str
    """The checkpoint volume as a user names it (pvc://claim, emptydir://, file:///dir): prefix of reported paths."""
    spec: JobSpec
    plan: Plan | None = None
    """The operator's memory plan; null where it knew model or device too little, and on CPUs."""
    host_reserve: int = Field(0, ge=0)
    """Bytes of the pod's memory that a plan leaves free, since earlier attempts were killed at its limit."""

    @property
    def directory(self) -> str:
        """The job's own directory on the checkpoint volume."""
        return job_key(self.name, self.uid)
