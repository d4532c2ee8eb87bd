"""What is set before torch is imported."""

import os
from pathlib import Path

import pytest

from colocated_runtime.worker.environment import THREADS, available_cpus, prepare

CPUS = len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"cpu.max": "50000 100000"}, 0.5),
        ({"cpu.max": "max 100000"}, CPUS),
        ({"cpu/cpu.cfs_quota_us": "25000", "cpu/cpu.cfs_period_us": "100000"}, 0.25),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, CPUS),
        ({}, CPUS),
    ],
)
def test_container_limit_counts(tmp_path: Path, files: dict[str, str], expected: float) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text + "\n")
    assert available_cpus(tmp_path) == expected


def test_ranks_of_a_node_share_its_cpus() -> None:
    env = {"LOCAL_WORLD_SIZE": "64", "OMP_NUM_THREADS": "9", "WORLD_SIZE": "64"}
    prepare(env, "cpu")
    assert env["OMP_NUM_THREADS"] == str(max(1, CPUS // 64))
    env |= {THREADS: "3"}
    prepare(env, "cpu")
    assert env["OMP_NUM_THREADS"] == "3"


def test_a_lone_rank_is_hidden_from_accelerate_and_a_user_s_own_setting_stays() -> None:
    env = {"WORLD_SIZE": "1", "RANK": "0", "LOCAL_RANK": "0", "HF_HUB_OFFLINE": "0"}
    prepare(env, "cuda")
    assert "RANK" not in env
    assert env["CUDA_VISIBLE_DEVICES"] == "0"
    assert env["HF_HUB_OFFLINE"] == "0"
    assert "OMP_NUM_THREADS" not in env
