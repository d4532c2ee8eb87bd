"""The engine's settings, from the spec alone."""

from typing import Any

import pytest
from tests.unit.planner.jobs import job, plan

from colocated_runtime.contract.batches import batches
from colocated_runtime.contract.job import JobSpec
from colocated_runtime.planner.settings import engine_settings, step_settings, trainer_settings


def spec(**fields: Any) -> JobSpec:
    return JobSpec.model_validate({"model": {"source": "hf://a/b"}, **fields})


def test_the_engine_sleeps_on_gpus_alone() -> None:
    assert engine_settings(spec()).sleep_level == 0
    assert engine_settings(spec(gpusPerNode=1)).sleep_level == 2
    assert engine_settings(spec(gpusPerNode=1, memory={"sleepLevel": 0})).sleep_level == 0


def test_utilization_is_the_users_or_a_default() -> None:
    assert engine_settings(spec()).gpu_memory_utilization == 0.3
    assert engine_settings(spec(memory={"gpuMemoryUtilization": 0.6})).gpu_memory_utilization == 0.6


def test_the_engine_measures_its_cache_where_nothing_is_planned() -> None:
    assert engine_settings(spec(gpusPerNode=1)).kv_cache_bytes == 0


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


def test_the_plan_decides_where_there_is_one() -> None:
    job_spec = job(trainer={"gradient_accumulation_steps": 4})
    made = plan(job_spec)
    engine = engine_settings(job_spec, made)
    assert engine.gpu_memory_utilization == made.settings.gpu_memory_utilization
    assert engine.sleep_level == made.settings.sleep_level
    assert engine.max_num_seqs == 32
    assert 0 <= made.settings.kv_cache_bytes - engine.kv_cache_bytes < 1 << 24
    trained = trainer_settings(job_spec, made)
    assert trained["per_device_train_batch_size"] * trained["gradient_accumulation_steps"] == 32
    assert trained["per_device_train_batch_size"] * trained["steps_per_generation"] == 32
    assert trainer_settings(job_spec) == {}


def test_the_step_takes_as_many_tokens_as_planned_or_as_a_micro_batch_has() -> None:
    job_spec = job(trainer={"gradient_accumulation_steps": 4})
    made = plan(job_spec)
    planned = step_settings(job_spec, 8, 500, made)
    assert (planned.tokens, planned.recompute) == (made.settings.tokens_at_once, made.settings.recompute)
    alone = step_settings(job_spec, 8, 500)
    assert (alone.own_step, alone.tokens, alone.recompute) == (True, 4000, None)
    manual = job(memory={"policy": "Manual"})
    checked = step_settings(manual, 8, 500, plan(manual))
    assert (checked.own_step, checked.tokens, checked.recompute) == (False, 4000, None)


def test_trl_gets_only_one_of_the_two_sizes_of_a_rollout() -> None:
    job_spec = job(trainer={"generation_batch_size": 64})
    trained = trainer_settings(job_spec, plan(job_spec))
    assert "steps_per_generation" not in trained
    sizes = batches({**job_spec.trainer, **trained}, "grpo", 1)
    assert (sizes.generation_batch, sizes.per_rank) == (64, 64)
