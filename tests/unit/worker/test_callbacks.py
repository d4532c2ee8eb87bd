"""What follows from the difference between the engine's log-probabilities and the trainer's."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from colocated_runtime.worker.errors import WeightsStale
from colocated_runtime.worker.state import StateFile

pytestmark = pytest.mark.torch


class Training:
    """The logs of a training, one a step, and how often a sync was asked for."""

    def __init__(self, directory: Path, limit: float | None) -> None:
        from colocated_runtime.worker.callbacks import Report

        self.file = StateFile(directory / "rank-0.json", 0)
        self.report = Report(self.file, difference_limit=limit)
        self.step = self.syncs = 0
        self.history: list[dict[str, float]] = []
        self.report.sync_again = self.count

    def count(self) -> None:
        self.syncs += 1

    def log(self, difference: float | None) -> None:
        from colocated_runtime.worker.callbacks import DIFFERENCE

        self.step += 1
        logs = {"reward": 0.5} | ({} if difference is None else {DIFFERENCE: difference})
        self.history.append(logs)
        state = SimpleNamespace(global_step=self.step, log_history=self.history)
        self.report.on_log(None, state, None, logs=logs)


def test_one_more_sync_and_then_the_end(tmp_path):
    training = Training(tmp_path, limit=0.1)
    training.log(0.01)
    assert training.syncs == 0
    training.log(0.4)
    assert training.syncs == 1
    assert not training.file.state.weights.in_sync
    training.log(None)  # a step without a rollout proves nothing
    with pytest.raises(WeightsStale, match=r"^step 4: engine and trainer differ by 0.500 .* after one more sync"):
        training.log(0.5)
    assert not training.file.state.weights.in_sync


def test_each_doubt_has_a_sync_of_its_own(tmp_path):
    training = Training(tmp_path, limit=0.1)
    for difference in (0.4, 0.01, 0.4, 0.01):
        training.log(difference)
    assert training.syncs == 2
    assert training.file.state.weights.in_sync


def test_differences_that_cannot_be_compared_end_nothing(tmp_path):
    training = Training(tmp_path, limit=None)
    for _ in range(3):
        training.log(5.0)
    assert training.syncs == 0


def test_metrics_of_a_reward_do_not_hide_the_difference(tmp_path):
    from colocated_runtime.worker.callbacks import DIFFERENCE

    training = Training(tmp_path, limit=0.1)
    logs = {f"own/{number}": 1.0 for number in range(100)} | {"reward": 0.5, DIFFERENCE: 0.4}
    training.report.on_log(None, SimpleNamespace(global_step=1, log_history=[]), None, logs=logs)
    assert training.syncs == 1
    assert len(training.file.state.metrics) == 64


@pytest.mark.parametrize(
    ("options", "changes"),
    [
        ({}, False),
        ({"generation_kwargs": {"stop": ["x"], "min_tokens": 2}}, False),
        ({"generation_kwargs": {"logit_bias": {"5": 1.0}}}, True),
        ({"generation_kwargs": {"structured_outputs": {"regex": "(yes|no)"}}}, True),
        ({"top_p": 0.9}, True),
        ({"top_k": 5}, True),
        ({"min_p": 0.1}, True),
        ({"repetition_penalty": 1.1}, True),
    ],
)
def test_sampling_options_that_change_the_distribution(options, changes):
    from colocated_runtime.worker.config import changes_distribution

    plain = {"top_p": 1.0, "top_k": 0, "min_p": None, "repetition_penalty": 1.0, "generation_kwargs": None}
    assert changes_distribution(SimpleNamespace(**plain | options)) == changes


def test_the_trainers_own_history_does_not_grow(tmp_path):
    training = Training(tmp_path, limit=None)
    for _ in range(150):
        training.log(0.01)
    assert len(training.history) == 100
