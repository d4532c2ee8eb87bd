"""The plan in the pod: real config.json, real devices, the container's limit."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from colocated_runtime import host_memory
from colocated_runtime.contract.attempt import Attempt
from colocated_runtime.contract.outcome import Outcome
from colocated_runtime.contract.report import Phase, Report
from colocated_runtime.host_memory import HostMemory
from colocated_runtime.launcher import nvml, planning
from colocated_runtime.launcher.nvml import Device

GIB = 2**30
CONFIG = {"model_type": "qwen2", "hidden_size": 896, "num_hidden_layers": 24, "num_attention_heads": 14,
          "num_key_value_heads": 2, "intermediate_size": 4864, "vocab_size": 151_936,
          "tie_word_embeddings": True}  # fmt: skip
HUGE = CONFIG | {"hidden_size": 8192, "num_attention_heads": 64, "num_hidden_layers": 80, "intermediate_size": 29568}
MakeAttempt = Callable[..., Attempt]


@pytest.fixture
def pod(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Sets what the pod has: devices, and a memory limit."""

    def have(*devices: Device, limit: int | None = None) -> None:
        monkeypatch.setattr(nvml, "devices", lambda: list(devices))
        monkeypatch.setattr(host_memory, "read", lambda: HostMemory(used=GIB, limit=limit, peak=None, oom_kills=0))

    have()
    return have


@pytest.fixture
def gpu_attempt(make_attempt: MakeAttempt, tmp_path: Path) -> MakeAttempt:
    """A job on one GPU whose model is a directory with `config`."""

    def make(config: dict[str, Any] | None = None, **spec: Any) -> Attempt:
        (tmp_path / "config.json").write_text(json.dumps(config or CONFIG))
        fields: dict[str, Any] = {
            "model": {"source": f"file://{tmp_path}"}, "dataset": {"source": "reasoning-gym://chain_sum"},
            "rewards": [{"name": "reasoning_gym"}], "gpus_per_node": 1, "device": {"memory": "24Gi"},
        }  # fmt: skip
        return make_attempt(**(fields | spec))

    return make


def h200(used: float = 0, total: float = 139.8) -> Device:
    return Device("NVIDIA H200", round(total * GIB), round(used * GIB))


def test_the_models_own_config_and_the_spec_where_no_driver_answers(pod: Any, gpu_attempt: Any, tmp_path: Path) -> None:
    plan, ending = planning.plan_here(gpu_attempt(), tmp_path / "sources.json")
    assert plan
    assert (plan.device_bytes, plan.verified, ending) == (24 * GIB, True, None)


def test_devices_and_limit_are_those_of_the_pod(pod: Any, gpu_attempt: Any, tmp_path: Path) -> None:
    pod(h200(), h200(total=139.5), limit=100 * GIB)
    plan, _ = planning.plan_here(gpu_attempt(gpus_per_node=2), tmp_path / "sources.json")
    assert plan
    assert (plan.device_bytes, plan.host_limit_bytes) == (round(139.5 * GIB), 100 * GIB)


def test_devices_beyond_the_ranks_do_not_count(pod: Any, gpu_attempt: Any, tmp_path: Path) -> None:
    pod(h200(), h200(used=130, total=40))
    plan, ending = planning.plan_here(gpu_attempt(), tmp_path / "sources.json")
    assert plan
    assert (plan.device_bytes, ending) == (round(139.8 * GIB), None)


def test_what_earlier_attempts_lacked_stays_free(pod: Any, gpu_attempt: Any, tmp_path: Path) -> None:
    pod(h200(), limit=8 * GIB)
    attempt = gpu_attempt()
    assert planning.plan_here(attempt, tmp_path / "sources.json")[1] is None
    _, ending = planning.plan_here(attempt.model_copy(update={"host_reserve": 4 * GIB}), tmp_path / "sources.json")
    assert ending
    assert ending.outcome is Outcome.BAD_PLAN
    assert "hostReserve 4.00 GiB" in ending.message


def test_a_downloaded_model_is_found_where_the_launcher_put_it(pod: Any, gpu_attempt: Any, tmp_path: Path) -> None:
    attempt = gpu_attempt(model={"source": "hf://nobody/knows", "revision": "main"})
    (tmp_path / "sources.json").write_text(json.dumps({"model hf://nobody/knows@main": str(tmp_path)}))
    plan, _ = planning.plan_here(attempt, tmp_path / "sources.json")
    assert plan
    assert plan.verified


def test_reward_models_are_planned_by_their_own_config(pod: Any, gpu_attempt: Any, tmp_path: Path) -> None:
    def reward(**config: Any) -> Attempt:
        (tmp_path / "reward").mkdir(exist_ok=True)
        (tmp_path / "reward/config.json").write_text(json.dumps(config))
        return gpu_attempt(rewards=[{"model": f"file://{tmp_path / 'reward'}"}])

    plan, ending = planning.plan_here(reward(**CONFIG), tmp_path / "sources.json")
    assert plan
    assert ending is None
    score = plan.phase(Phase.SCORE)
    assert score
    assert any(item.name == "rewardModel" for item in score.device)
    _, ending = planning.plan_here(reward(**HUGE), tmp_path / "sources.json")
    assert ending
    assert "rewardModel" in ending.message
    plan, ending = planning.plan_here(reward(model_type="bert"), tmp_path / "sources.json")
    assert plan
    assert ending is None
    assert any("Not planned, since their size is not known: reward models" in words for words in plan.advice)


def test_a_device_that_cannot_compute_in_the_models_type(pod: Any, gpu_attempt: Any, tmp_path: Path) -> None:
    pod(Device("Tesla T4", round(14.5 * GIB), 0))
    _, ending = planning.plan_here(gpu_attempt(), tmp_path / "sources.json")
    assert ending
    assert ending.outcome is Outcome.BAD_PLAN
    assert ending.message.startswith("model.dtype: bfloat16 cannot be generated with on Tesla-T4")


def test_what_the_model_cannot_have_ends_the_attempt(pod: Any, gpu_attempt: Any, tmp_path: Path) -> None:
    attempt = gpu_attempt(gpus_per_node=4, parallelism={"tensor_parallel": 4})
    _, ending = planning.plan_here(attempt, tmp_path / "sources.json")
    assert ending
    assert ending.outcome is Outcome.BAD_PLAN
    assert ending.message.startswith("parallelism.tensorParallel: 4 does not divide the model's 14 attention heads")


def test_what_does_not_fit_ends_the_attempt(pod: Any, gpu_attempt: Any, tmp_path: Path) -> None:
    plan, ending = planning.plan_here(gpu_attempt(HUGE), tmp_path / "sources.json")
    assert ending
    assert plan
    assert (ending.outcome, ending.message) == (Outcome.BAD_PLAN, plan.refusal)


def test_memory_that_others_hold_may_come_back(pod: Any, gpu_attempt: Any, tmp_path: Path) -> None:
    pod(h200(used=138))
    _, ending = planning.plan_here(gpu_attempt(), tmp_path / "sources.json")
    assert ending
    assert ending.outcome is Outcome.TRANSIENT
    assert ending.message.startswith("138.0 GiB of a GPU are in use by others: ")
    pod(h200(used=1))
    _, ending = planning.plan_here(gpu_attempt(HUGE), tmp_path / "sources.json")
    assert ending
    assert ending.outcome is Outcome.BAD_PLAN


@pytest.mark.parametrize(
    "spec",
    [{"gpus_per_node": 0, "device": {}}, {"runtime": {"command": ["true"]}}],
    ids=["cpu", "own-program"],
)
def test_nothing_is_planned(pod: Any, gpu_attempt: Any, tmp_path: Path, spec: dict[str, Any]) -> None:
    assert planning.plan_here(gpu_attempt(**spec), tmp_path / "sources.json") == (None, None)


def test_the_operators_plan_holds_where_the_pod_knows_no_better(
    pod: Any, gpu_attempt: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = gpu_attempt()
    plan, _ = planning.plan_here(attempt, tmp_path / "sources.json")
    monkeypatch.setattr(planning, "make_plan", lambda *_, **__: 1 / 0)
    known = attempt.model_copy(update={"plan": plan})
    assert planning.plan_here(known, tmp_path / "sources.json") == (plan, None)
    bare = gpu_attempt({"model_type": "bert"}, device={})
    assert planning.plan_here(bare, tmp_path / "sources.json") == (None, None)


def test_ranks_of_several_nodes_take_the_operators_plan(pod: Any, gpu_attempt: Any, tmp_path: Path) -> None:
    operators, _ = planning.plan_here(gpu_attempt(), tmp_path / "sources.json")
    pod(h200())
    two: dict[str, Any] = {"hosts": ("a", "b"), "checkpoint": {"storage": {"claim": "c"}}}
    attempt = gpu_attempt(**two).model_copy(update={"plan": operators})
    assert planning.plan_here(attempt, tmp_path / "sources.json") == (operators, None)
    assert planning.plan_here(gpu_attempt(**two), tmp_path / "sources.json") == (None, None)
    _, ending = planning.plan_here(gpu_attempt(HUGE, **two), tmp_path / "sources.json")
    assert ending, "each node looks whether it fits"
    assert ending.outcome is Outcome.BAD_PLAN


def test_no_rank_is_started_for_a_job_that_does_not_fit(launch: Any, gpu_attempt: Any) -> None:
    running = launch(attempt=gpu_attempt(HUGE))
    final = running.finish()
    assert running.process.returncode == 1
    assert (final.outcome, final.message) == (Outcome.BAD_PLAN, final.plan.refusal)
    assert not list(running.storage.glob("logs/*/*"))
    assert Report.model_validate_json(running.termination_log.read_text()).outcome is Outcome.BAD_PLAN


def test_the_ranks_find_the_plan(launch: Any, gpu_attempt: Any, tmp_path: Path) -> None:
    final = launch(attempt=gpu_attempt(watchdog={"start_timeout_seconds": 10})).finish()
    assert final.plan.fits
    assert (tmp_path / "state-0" / "plan.json").read_text() == final.plan.model_dump_json(by_alias=True)
