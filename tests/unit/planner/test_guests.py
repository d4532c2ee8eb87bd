"""Reference and reward models are planned on the device for their passes alone, and in host memory else."""

from dataclasses import replace

import pytest
from tests.unit.planner.jobs import SHORT, job, plan

from colocated_runtime.contract.job import JobSpec
from colocated_runtime.contract.report import Phase
from colocated_runtime.planner.devices import GIB, hardware_of
from colocated_runtime.planner.features import Features
from colocated_runtime.planner.items import Item
from colocated_runtime.planner.refusal import what_is_missing
from colocated_runtime.planner.search import Candidate, best, given, search
from colocated_runtime.planner.shapes import shape_of
from colocated_runtime.planner.workload import Lengths, workload

H100 = {"product": "NVIDIA-H100-80GB-HBM3"}
REWARD_7B = [{"model": "hf://Qwen/Qwen2.5-7B-Instruct"}]
BETA = {"beta": 0.04}
AWAY = {"referenceWeights", "rewardModel", "rewardActivations"}


def candidate(spec: JobSpec, *, guests: bool = True, lengths: Lengths = SHORT) -> Candidate:
    """The best there is, with or without models that leave the device."""
    assert spec.model is not None
    shape, hardware = shape_of(spec.model), hardware_of(spec)
    assert shape is not None
    assert hardware is not None
    made = replace(workload(spec, shape, hardware, lengths), features=Features(guests=guests))
    return best(search(made, given(spec, shape)))


def names(items: list[Item]) -> set[str]:
    return {item.name for item in items}


def sizes(items: list[Item]) -> dict[str, int]:
    return {item.name: item.bytes for item in items}


def in_float32(spec: JobSpec) -> JobSpec:
    assert spec.model is not None
    return spec.model_copy(update={"model": spec.model.model_copy(update={"dtype": "float32"})})


@pytest.mark.parametrize(
    "spec",
    [
        in_float32(job(rewards=REWARD_7B, trainer=BETA)),
        job(rewards=REWARD_7B, trainer=BETA, device=H100),
    ],
    ids=["float32 on 141 GB", "bfloat16 on 80 GB"],
)
def test_seven_billion_with_as_large_a_reward_model_and_a_reference(spec: JobSpec) -> None:
    moved, resident = candidate(spec), candidate(spec, guests=False)
    assert moved.fits
    assert not resident.fits
    assert resident.excess > 10 * GIB, "not for want of a little"
    assert "referenceWeights" in what_is_missing(resident, given(spec, resident.job.shape))


def test_they_are_on_the_device_in_the_score_phase_alone() -> None:
    found = candidate(job(rewards=REWARD_7B, trainer=BETA))
    for phase in found.uses:
        assert bool(names(found.device_items(phase)) & AWAY) is (phase is Phase.SCORE)
        host = sizes(found.uses[phase].host)
        assert host["referenceModel"] == host["rewardModels"] > 14 * GIB


def test_the_largest_pass_counts() -> None:
    small = [{"model": "hf://Qwen/Qwen2.5-0.5B-Instruct"}]
    for rewards, visitor in ((small, "referenceWeights"), ([{"model": "hf://Qwen/Qwen2.5-14B"}], "rewardModel")):
        scored = candidate(job(rewards=rewards, trainer=BETA)).device_items(Phase.SCORE)
        assert names(scored) & {"referenceWeights", "rewardModel"} == {visitor}


def test_two_models_on_the_host_of_several_ranks() -> None:
    one, two = (candidate(job(gpusPerNode=ranks, trainer=BETA)).uses[Phase.TRAIN].host for ranks in (1, 2))
    assert sizes(two)["referenceModel"] == 2 * sizes(one)["referenceModel"]


def test_a_reference_model_that_stays() -> None:
    found = candidate(job(trainer=BETA, parallelism={"sharding": "zero3"}))
    for phase, use in found.uses.items():
        assert "referenceWeights" in names(found.device_items(phase))
        assert "referenceModel" not in names(use.host)


def test_copying_them_takes_time() -> None:
    spec = job(rewards=REWARD_7B, trainer=BETA)
    moved, resident = (candidate(spec, guests=guests).seconds.score for guests in (True, False))
    bytes_moved = 2 * 7.6e9 * 2
    assert moved - resident == pytest.approx(bytes_moved / candidate(spec).job.hardware.host_bandwidth, rel=0.01)


def test_a_host_without_room_for_them_is_refused() -> None:
    limited = {"resources": {"limits": {"memory": "40Gi"}}, "memory": {"offload": "none"}}
    assert plan(job(**limited)).fits
    refused = plan(job(trainer=BETA, rewards=REWARD_7B, **limited))
    assert not refused.fits
    assert "of host memory are missing" in refused.refusal
    assert "Fits with resources.limits.memory: " in refused.refusal
