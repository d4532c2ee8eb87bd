"""Every name that two parts must agree on: the API, labels, objects, ports, paths and environment variables."""

GROUP = "rl.colocated.dev"
VERSION = "v1alpha1"
KIND = "ColocatedRLJob"
PLURAL = "colocatedrljobs"
SINGULAR = "colocatedrljob"
SHORT_NAME = "crj"

LABEL_JOB = f"{GROUP}/job"
"""Name of the ColocatedRLJob; on every object that the operator creates."""
LABEL_JOB_UID = f"{GROUP}/job-uid"
LABEL_ATTEMPT = f"{GROUP}/attempt"
ANNOTATION_RESTARTS = f"{GROUP}/restart-count"
"""On each Job and ConfigMap: counted restarts before this attempt, so that a wiped status can be rebuilt."""
ANNOTATION_GENERATION = f"{GROUP}/generation"
"""On each Job and ConfigMap: metadata.generation of the ColocatedRLJob from which it was made."""
QUEUE_LABEL_PREFIX = "kueue.x-k8s.io/"

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
OBJECT_NAME = f"{_LABEL}([.]{_LABEL})*"
"""A name that an object can have (RFC 1123 subdomain); for Python and for CEL. Its length is the field's."""
NAME_MAX = 40
"""Longest name of a ColocatedRLJob (CEL enforces it), so that every derived name stays a DNS label."""

CONTAINER = "colocated"
REPORT_PORT = 8471
"""Where the launcher serves GET /report and GET /healthz."""
RENDEZVOUS_PORT = 29500
ENV_MASTER_PORT = "MASTER_PORT"
"""torchrun's own: another rendezvous port."""

ATTEMPT_FILE = "/etc/colocated/attempt.json"
"""The attempt's description (`contract.attempt.Attempt`), from the ConfigMap's key of the same base name."""
ATTEMPT_KEY = "attempt.json"
STORAGE_DIR = "/storage"
"""Where the checkpoint volume is mounted."""
HUB = "hub"
"""Directory of downloads below the job's own on the checkpoint volume."""
COMPILED = "compiled"
"""Directory of compile caches below the job's own on the checkpoint volume."""
STATE_DIR = "/state"
"""Small emptyDir for what launcher and worker tell each other; survives a container kill, not the pod."""
PLAN_KEY = "plan.json"
"""In STATE_DIR: the memory plan (`contract.plan.Plan`) whose settings the ranks take; missing where there is none."""
SCRATCH_DIR = "/scratch"
"""emptyDir for HOME, caches and temporary files: the root file system is read-only."""
REWARDS_DIR = "/etc/colocated/rewards"
"""Reward ConfigMaps are mounted at REWARDS_DIR/<ConfigMap's name>; each is put on sys.path."""
VOLUMES_DIR = "/volumes"
"""A claim named by a pvc:// source is mounted read-only at VOLUMES_DIR/<claim's name>."""
TERMINATION_LOG = "/dev/termination-log"

ENV_ATTEMPT_FILE = "COLOCATED_ATTEMPT_FILE"
ENV_STATE_DIR = "COLOCATED_STATE_DIR"
ENV_STORAGE_DIR = "COLOCATED_STORAGE_DIR"
ENV_REWARDS_DIR = "COLOCATED_REWARDS_DIR"
ENV_NODE_INDEX = "JOB_COMPLETION_INDEX"
ENV_TERMINATION_LOG = "COLOCATED_TERMINATION_LOG"
ENV_GRACE_SECONDS = "COLOCATED_GRACE_SECONDS"
"""How long the ranks may take to save and leave after SIGTERM."""
ENV_REPORT_HOST = "COLOCATED_REPORT_HOST"
"""Address on which the launcher serves its report; all of the pod's unless set."""
OPERATORS_VARIABLES = frozenset({
    ENV_ATTEMPT_FILE, ENV_STATE_DIR, ENV_STORAGE_DIR, ENV_REWARDS_DIR, ENV_NODE_INDEX, ENV_TERMINATION_LOG,
    ENV_GRACE_SECONDS, ENV_REPORT_HOST,
})  # fmt: skip
"""Which a job does not set."""


def job_key(name: str, uid: str) -> str:
    """`<name>-<first 5 of uid>`: never equal to that of a job deleted and created again under the same name."""
    return f"{name}-{uid[:5]}"


def attempt_name(name: str, uid: str, attempt: int) -> str:
    """Name of the Job and of the ConfigMap of one attempt."""
    return f"{job_key(name, uid)}-{attempt}"


def log_directory(attempt: int) -> str:
    """Of an attempt's logs, below the job's own directory on the checkpoint volume."""
    return f"logs/attempt-{attempt}"


def final_report(attempt: int, node: int) -> str:
    """Of the launcher on one node, below the job's own directory on the checkpoint volume."""
    return f"reports/attempt-{attempt}-node-{node}.json"
