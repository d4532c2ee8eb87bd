"""The engine's settings, from the spec alone."""

from typing import Any

import pytest

from colocated_runtime.contract.job import JobSpec
from colocated_runtime.planner.settings import engine_settings


def spec(**fields: Any) -> JobSpec:
    return JobSpec.model_validate({"model": {"source": "hf://a/b"}, **fields})


def test_the_engine_sleeps_on_gpus_alone() -> None:
    assert engine_settings(spec()).sleep_level == 0
    assert engine_settings(spec(gpusPerNode=1)).sleep_level == 2
    assert engine_settings(spec(gpusPerNode=1, memory={"sleepLevel": 0})).sleep_level == 0


def test_utilization_is_the_users_or_a_default() -> None:
    assert engine_settings(spec()).gpu_memory_utilization == 0.3
    assert engine_settings(spec(memory={"gpuMemoryUtilization": 0.6})).gpu_memory_utilization == 0.6


def test_length_is_left_open_unless_set() -> None:
    assert engine_settings(spec()).max_model_len is None
    assert engine_settings(spec(trainer={"vllm_max_model_length": 4096})).max_model_len == 4096


@pytest.mark.parametrize(
    ("fields", "sequences"),
    [
        ({}, 8),
        ({"trainer": {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 8}}, 32),
        ({"trainer": {"generation_batch_size": 64}, "gpusPerNode": 4}, 16),
        ({"gpusPerNode": 4, "parallelism": {"tensorParallel": 2}}, 16),
    ],
)
def test_an_engine_takes_a_whole_rollout_at_once(fields: dict[str, Any], sequences: int) -> None:
    assert engine_settings(spec(**fields)).max_num_seqs == sequences
