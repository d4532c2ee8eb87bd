"""GRPO of an adapter, with the base model as reference (beta > 0)."""

import re
from pathlib import Path

import pytest

from colocated_runtime.contract.outcome import Outcome

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def run(workplace):
    lora = {"r": 4, "lora_alpha": 16}
    return workplace.run(workplace.spec(lora=lora, trainer={"beta": 0.04, "learning_rate": 1e-2}))


def test_complete(run):
    assert run.exit_code == 0, run.output[-3000:]
    assert run.state.outcome is Outcome.COMPLETE
    assert run.state.metrics["kl"] > 0


def test_the_engine_samples_from_the_adapted_weights(run):
    assert run.state.weights.in_sync
    assert run.state.weights.log_probability_difference < 1e-5


def test_the_merged_model_gives_the_engines_tokens(run, greedy):
    before, after = run.completions(held_out=True)
    assert before != after
    assert greedy(run.directory / "model", run.records[-1]["prompts"], 12) == after


def test_the_adapter_on_its_base_gives_them_too(run, greedy, tmp_path):
    from peft import AutoPeftModelForCausalLM
    from transformers import AutoTokenizer

    model = AutoPeftModelForCausalLM.from_pretrained(run.directory / "model" / "adapter").merge_and_unload()
    model.save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(run.directory / "model").save_pretrained(tmp_path)
    _, after = run.completions(held_out=True)
    assert greedy(tmp_path, run.records[-1]["prompts"], 12) == after


def test_each_sync_merges_each_adapter_once(make_workplace):
    """Twice more in all: for the names, and for the final model. The first sync is the engine's start."""
    place = make_workplace()
    script = str(Path(__file__).with_name("counted_merges.py"))
    spec = place.spec(lora={"r": 4}, evaluation=None, trainer={"max_steps": 2})
    run = place.run(spec, script=script, torchrun=False)
    assert run.exit_code == 0, run.output[-3000:]
    adapters = 2 * 7  # layers, matrices of each
    total, syncs = re.findall(r"merged (\d+) in syncs (.*)", run.output)[0]
    assert syncs == str(3 * [adapters])
    assert int(total) == (3 + 2) * adapters
