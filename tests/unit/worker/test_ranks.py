"""Two ranks on one node over gloo: each with an engine, and both sharing one."""

import pytest

from colocated_runtime.contract.outcome import Outcome

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module", params=[1, 2], ids=["two engines", "one shared engine"])
def run(request, make_workplace):
    place = make_workplace()
    return place.run(place.spec(processesPerNode=2, parallelism={"tensorParallel": request.param}))


def test_both_complete(run):
    assert run.exit_code == 0, run.output[-3000:]
    assert [state.outcome for state in run.states] == [Outcome.COMPLETE] * 2
    assert "Traceback" not in run.output


def test_the_ranks_train_on_different_prompts(run):
    first, second = (
        [call["prompts"] for call in run.records if call["rank"] == rank and not call["held_out"]] for rank in "01"
    )
    assert len(first) == len(second) == 3
    assert all(mine != others for mine, others in zip(first, second, strict=True))


def test_the_engines_sample_from_the_trained_weights(run):
    assert run.state.weights.in_sync
    assert run.state.weights.log_probability_difference < 1e-5


def pairs(call):
    return zip(call["prompts"], call["completion_ids"], strict=True)


def test_evaluation_covers_each_prompt_once(run):
    for rank in run.states:
        assert [(entry.step, entry.prompts) for entry in rank.evaluations] == [(0, 5), (3, 5)]
    after = [call for call in run.records if call["held_out"] and call["step"] == 3]
    rows = {str(prompt): ids for call in after for prompt, ids in pairs(call)}
    rewards = [sum(token % 2 for token in ids) / len(ids) for ids in rows.values()]
    assert len(rewards) == 5
    assert run.state.evaluations[-1].mean == pytest.approx(sum(rewards) / 5)


def test_the_saved_model_gives_the_engines_tokens(run, greedy):
    after = [call for call in run.records if call["held_out"] and call["step"] == 3]
    for call in after:
        assert greedy(run.directory / "model", call["prompts"], 12) == call["completion_ids"]
