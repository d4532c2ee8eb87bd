"""The process's environment: where things lie, and the variables that must be set before torch is imported."""

import os
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import Path

from colocated_runtime.contract import names
from colocated_runtime.files import SharedFiles

ALWAYS = {
    # The launcher has fetched what the spec names. Nothing is asked of the hub behind the user's back.
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "TRL_EXPERIMENTAL_SILENCE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    # The Trainer would otherwise report progress to Kubeflow by itself.
    "DISABLE_KUBEFLOW_INTEGRATION": "TRUE",
    "VLLM_LOGGING_LEVEL": "WARNING",
    # Progress is in the report; in a log file the bars are noise.
    "TQDM_DISABLE": "1",
}
CPU = {
    "VLLM_CPU_CI_ENV": "1",
    "TORCHDYNAMO_DISABLE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    # So long a thread waits by spinning for the others: beside a busy process on the same CPUs libgomp's own 300,000
    # makes small operations seven times as slow as this; alone the two are alike.
    "GOMP_SPINCOUNT": "1000",
}


THREADS = "COLOCATED_CPU_THREADS"
"""Threads of each rank on a CPU, where the user wants another number than the CPUs divided by the ranks."""


@dataclass(frozen=True)
class Paths(SharedFiles):
    """Directories and files of this rank."""

    storage: Path
    """The checkpoint volume."""
    rewards: Path


def paths(env: Mapping[str, str]) -> Paths:
    """The directories named by the environment, else those of a pod."""
    return Paths(
        attempt_file=Path(env.get(names.ENV_ATTEMPT_FILE, names.ATTEMPT_FILE)),
        state=Path(env.get(names.ENV_STATE_DIR, names.STATE_DIR)),
        storage=Path(env.get(names.ENV_STORAGE_DIR, names.STORAGE_DIR)),
        rewards=Path(env.get(names.ENV_REWARDS_DIR, names.REWARDS_DIR)),
    )


def prepare(env: MutableMapping[str, str], backend: str) -> None:
    """Set what torch, vLLM and accelerate read at import; what is set already stays.

    A lone rank is hidden from accelerate, which would otherwise wrap its model for data parallelism: a second
    copy of all gradients for nothing.
    """
    for name, value in (ALWAYS | CPU if backend == "cpu" else ALWAYS).items():
        env.setdefault(name, value)
    if backend == "cpu":
        ranks = int(env.get("LOCAL_WORLD_SIZE", "1"))
        # torchrun's own default is 1 a rank where there are several, and none for a lone one: more than its cgroup has.
        env["OMP_NUM_THREADS"] = env.get(THREADS) or str(max(1, int(available_cpus() // ranks)))
    if env.get("WORLD_SIZE", "1") == "1":
        if backend != "cpu":
            env.setdefault("CUDA_VISIBLE_DEVICES", env.get("LOCAL_RANK", "0"))
        for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"):
            env.pop(name, None)


def available_cpus(cgroup: Path = Path("/sys/fs/cgroup")) -> float:
    """CPUs that this process may use: those of the machine, or fewer by its container's limit (cgroup v2 or v1)."""
    count = float(len(os.sched_getaffinity(0)))
    try:
        if (cgroup / "cpu.max").exists():
            quota, period = (cgroup / "cpu.max").read_text().split()
        else:
            quota, period = ((cgroup / "cpu" / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
        limit = float(quota) / float(period)
    except (OSError, ValueError):  # no limit: the file is not there, or says "max"
        return count
    return min(count, limit) if limit > 0 else count


def rank(env: Mapping[str, str] = os.environ) -> int:
    """The global rank, as torchrun says it."""
    return int(env.get("RANK", "0"))
