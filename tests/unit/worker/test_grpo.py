"""GRPO from start to end on one rank: what the launcher reads, and the model that is left."""

import json
from itertools import pairwise
from xml.etree import ElementTree

import pytest

from colocated_runtime.contract.outcome import Outcome
from colocated_runtime.contract.report import Phase

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def run(workplace):
    return workplace.run(workplace.spec())


def test_the_state_tells_the_end(run):
    assert run.exit_code == 0, run.output[-3000:]
    assert run.state.outcome is Outcome.COMPLETE
    assert run.state.message == "trained 3 of 3 steps"
    assert (run.state.progress.step, run.state.progress.total_steps) == (3, 3)
    assert run.state.metrics["reward"] > 0
    assert run.state.throughput["tokensPerSecond"] > 0
    assert set(run.state.peaks) == set(Phase)
    assert run.state.model_uri == "pvc://claim/tiny-01234/model"
    assert [saved.uri for saved in run.state.checkpoints] == ["pvc://claim/tiny-01234/checkpoints/checkpoint-3"]


def test_the_output_is_the_users(run):
    """What a reward prints is in the log; nothing there looks like an error."""
    assert "the reward speaks" in run.output
    assert "Traceback" not in run.output


def test_the_engine_samples_from_the_trained_weights(run):
    """Tied embeddings included: their head is packed apart on CPU."""
    assert run.state.weights.in_sync
    assert run.state.weights.step == 3
    assert run.state.weights.log_probability_difference < 1e-5


def test_evaluation_before_and_after(run):
    assert [evaluation.step for evaluation in run.state.evaluations] == [0, 3]
    before, after = run.completions(held_out=True)
    assert before != after
    for evaluation, completions in zip(run.state.evaluations, (before, after), strict=True):
        rewards = [sum(token % 2 for token in ids) / len(ids) for ids in completions]
        assert evaluation.mean == pytest.approx(sum(rewards) / len(rewards))
        assert evaluation.low < evaluation.mean < evaluation.high


def test_others_may_read_the_saved_model(run):
    modes = {file.name: file.stat().st_mode & 0o444 for file in (run.directory / "model").iterdir()}
    assert set(modes.values()) == {0o444}, modes


def test_the_saved_model_gives_the_engines_tokens(run, greedy):
    _, after = run.completions(held_out=True)
    assert greedy(run.directory / "model", run.records[-1]["prompts"], len(after[0])) == after


def test_the_trace_tells_phases_steps_and_hand_overs(run):
    """In the order of a step; each sync gives the engine all weights."""
    events = json.loads((run.directory / "logs/attempt-1/rank-0.trace.json").read_text())
    steps, phases, moved = ([e for e in events if e["ph"] == "X" and e["tid"] == track] for track in (1, 2, 3))
    assert [step["name"] for step in steps] == ["step 1", "step 2", "step 3"]
    assert {phase["name"] for phase in phases} == set(Phase)
    assert all(before["ts"] + before["dur"] <= after["ts"] + 1 for before, after in pairwise(phases))
    for step in steps:
        inside = [p["name"] for p in phases if step["ts"] <= p["ts"] < step["ts"] + step["dur"]]
        order = [inside.index(name) for name in (Phase.SCORE, Phase.ROLLOUT, Phase.TRAIN)]
        assert order == sorted(order), inside
    # Before the first evaluation, each of the steps and the last evaluation.
    weights = sum(file.stat().st_size for file in (run.directory / "model").glob("*.safetensors"))
    loads = [load["args"]["bytes"] for load in moved if load["name"] == "load weights"]
    assert len(loads) in (4, 5)
    assert all(size == pytest.approx(weights, rel=0.05) for size in loads)


def test_the_picture_has_a_curve_for_each_phase(run):
    root = ElementTree.parse(run.directory / "logs/attempt-1/memory.svg").getroot()
    assert len(list(root.iter("{http://www.w3.org/2000/svg}polyline"))) == len(Phase)


def test_speeds_are_told(run):
    """4 prompts of 2 x 4 completions of at most 12 tokens a step; there is no utilisation of a CPU."""
    told = run.state.throughput
    assert told["rolloutTokensPerSecond"] * told["rolloutSeconds"] <= 8 * 12 * 1.001
    assert told["trainTokensPerSecond"] > told["rolloutTokensPerSecond"] > 0
    spent = sum(told[f"{phase}Seconds"] for phase in ("rollout", "score", "train", "sync"))
    assert spent == pytest.approx(told["secondsPerStep"], rel=0.3)
    assert not any("Utilization" in name for name in told)
