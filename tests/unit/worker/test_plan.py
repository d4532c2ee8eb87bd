"""A plan cuts the step into other micro-batches: the same completions, also when it comes between two attempts."""

import shutil

import pytest
from tests.unit.contract.plans import SETTINGS, plan

pytestmark = [pytest.mark.torch, pytest.mark.timeout(400)]

SAVED = 3
"""Inside a rollout's window: each feeds two steps."""
HALVES = plan(
    settings=SETTINGS.model_copy(
        update={"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "steps_per_generation": 4}
    )
)


def spec(place):
    return place.spec(
        trainer={"max_steps": 5, "steps_per_generation": 2},
        checkpoint={"everySteps": SAVED, "keep": 2},
        evaluation=None,
    )


@pytest.fixture(scope="module")
def whole(workplace):
    return workplace.run(spec(workplace))


@pytest.fixture(scope="module")
def resumed_in_halves(make_workplace, whole):
    place = make_workplace()
    shutil.copytree(
        whole.directory / f"checkpoints/checkpoint-{SAVED}",
        place.storage / whole.directory.name / f"checkpoints/checkpoint-{SAVED}",
    )
    return place.run(spec(place), attempt=2, plan=HALVES)


def test_an_attempt_with_another_plan_goes_on_in_the_middle_of_a_rollout(whole, resumed_in_halves):
    assert resumed_in_halves.exit_code == 0, resumed_in_halves.output[-3000:]
    assert resumed_in_halves.state.resumed_from_step == SAVED
    assert resumed_in_halves.state.progress.step == 5
    again = resumed_in_halves.completions(held_out=False)
    assert len(again) == 1
    assert again == whole.completions(held_out=False, first_step=SAVED)
    expected, found = whole.state.metrics, resumed_in_halves.state.metrics
    assert found["grad_norm"] == pytest.approx(expected["grad_norm"], rel=1e-3)


def test_a_rollout_joined_and_cut_again_loses_nothing():
    import torch

    from colocated_runtime.worker.trainers import recut

    parts = [{"ids": torch.arange(4).reshape(2, 2) + 4 * n, "count": torch.tensor(7), "none": None} for n in range(3)]
    cut = recut(parts, 2)
    assert [part["ids"].tolist() for part in cut] == [[[0, 1], [2, 3], [4, 5]], [[6, 7], [8, 9], [10, 11]]]
    assert [part["count"].item() for part in cut] == [7, 7]
    assert recut(cut, 2) is cut
    assert recut(None, 2) is None
