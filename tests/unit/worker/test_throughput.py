"""Rates from tokens, operations and the phases' seconds."""

import json
from pathlib import Path

import pytest

from colocated_runtime.contract.report import Phase
from colocated_runtime.planner.flops import generation_flops, training_flops
from colocated_runtime.planner.models import QWEN2_5_7B
from colocated_runtime.worker.phases import Moved
from colocated_runtime.worker.throughput import Meter, Work, work_of

CONFIG = {
    "model_type": "qwen2", "hidden_size": 3584, "num_hidden_layers": 28, "num_attention_heads": 28,
    "num_key_value_heads": 4, "intermediate_size": 18944, "vocab_size": 152064, "tie_word_embeddings": False,
}  # fmt: skip
H200 = 989e12


class Clock:
    """Phases that have lasted as long as it says."""

    def __init__(self) -> None:
        self.spent = dict.fromkeys(Phase, 0.0)
        self.moved = Moved()

    def seconds(self) -> dict[Phase, float]:
        return dict(self.spent)

    def step(self, rollout: float, train: float) -> None:
        self.spent[Phase.ROLLOUT] += rollout
        self.spent[Phase.TRAIN] += train
        self.spent[Phase.SCORE] += 1
        self.spent[Phase.CHECKPOINT] += 100
        self.moved = Moved(self.moved.bytes + 1000, self.moved.seconds + 0.5)


def alone(values: list[float]) -> tuple[list[float], int]:
    return values, 1


def test_rates_since_the_last_call() -> None:
    clock = Clock()
    meter = Meter(clock, Work(QWEN2_5_7B, False, H200))  # type: ignore[arg-type]
    clock.step(50, 50)
    meter.generated([5] * 99, [99] * 99)
    assert meter.rates(0, alone) == {}, "no step yet"
    for _ in range(2):
        clock.step(rollout=8, train=19)
        meter.generated([100] * 64, [512] * 64)
        meter.trained([612] * 64)
    found = meter.rates(2, alone)
    assert found["rolloutTokensPerSecond"] == pytest.approx(64 * 512 / 8)
    assert found["trainTokensPerSecond"] == pytest.approx(64 * 612 / 19, rel=1e-4)
    assert {name: found[name] for name in found if "econds" in name and "Per" not in name} == {
        "rolloutSeconds": 8, "scoreSeconds": 1, "trainSeconds": 19, "syncSeconds": 0, "handoverSeconds": 0.5,
    }  # fmt: skip
    assert found["handoverBytes"] == 1000
    training = training_flops(QWEN2_5_7B, [612] * 64)
    assert found["trainFlopsUtilization"] == pytest.approx(training / (19 * H200), rel=1e-4)
    both = training + generation_flops(QWEN2_5_7B, [100] * 64, [512] * 64)
    assert found["modelFlopsUtilization"] == pytest.approx(both / (28 * H200), rel=1e-4)


def test_ranks_add_up_and_their_utilisation_is_the_mean() -> None:
    found = []
    for ranks in (1, 4):
        clock = Clock()
        meter = Meter(clock, Work(QWEN2_5_7B, False, H200))  # type: ignore[arg-type]
        clock.step(rollout=8, train=19)
        meter.generated([100] * 64, [512] * 64)
        meter.trained([612] * 64)
        found.append(meter.rates(1, lambda values, ranks=ranks: ([ranks * value for value in values], ranks)))  # type: ignore[misc]
    one, four = found
    assert four["rolloutTokensPerSecond"] == 4 * one["rolloutTokensPerSecond"]
    assert four["modelFlopsUtilization"] == one["modelFlopsUtilization"]
    assert four["trainSeconds"] == one["trainSeconds"]


def test_without_a_device_there_is_no_utilisation() -> None:
    clock = Clock()
    meter = Meter(clock)  # type: ignore[arg-type]
    clock.step(8, 19)
    meter.generated([1], [2])
    meter.trained([3])
    assert not any("Utilization" in name for name in meter.rates(1, alone))


def test_a_step_without_a_rollout_says_nothing_of_it() -> None:
    clock = Clock()
    meter = Meter(clock)  # type: ignore[arg-type]
    clock.step(0, 19)
    meter.trained([3])
    assert "rolloutTokensPerSecond" not in meter.rates(1, alone)


@pytest.mark.parametrize(
    ("product", "dtype", "known"),
    [
        ("NVIDIA H200", "bfloat16", True),
        ("NVIDIA H200", "float32", False),
        ("NVIDIA Something 3000", "bfloat16", False),
    ],
)
def test_work_is_known_by_product_and_type(tmp_path: Path, product: str, dtype: str, known: bool) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps(CONFIG))
    found = work_of(config, product, "nvidia.com/gpu", dtype, frozen=False)
    assert (found is not None) is known
    if found:
        assert found.shape.active_parameters == QWEN2_5_7B.active_parameters
        assert found.device_flops == H200


@pytest.mark.parametrize("text", ["{}", "no json", json.dumps({**CONFIG, "model_type": "unheard-of"})])
def test_a_model_that_is_not_known_has_none(tmp_path: Path, text: str) -> None:
    config = tmp_path / "config.json"
    config.write_text(text)
    assert work_of(config, "NVIDIA H200", "nvidia.com/gpu", "bfloat16", frozen=False) is None
