"""Two ranks that share the trainer's states out: saved in parts, resumed, handed to the engine, exported whole."""

import json
import shutil
from pathlib import Path

import pytest

from colocated_runtime.contract.outcome import Outcome

pytestmark = pytest.mark.torch

SCRIPT = str(Path(__file__).with_name("recorded.py"))
STEPS, STOPPED = 6, 3


LORA = {"lora": {"r": 4, "lora_alpha": 16}}


def run(place, *, tensor_parallel=1, steps=STEPS, every_steps=STOPPED, changes=None, **options):
    spec = place.spec(
        processesPerNode=2, parallelism={"sharding": "fsdp", "tensorParallel": tensor_parallel},
        trainer={"max_steps": steps, "steps_per_generation": 2}, checkpoint={"everySteps": every_steps},
        **(changes or {}),
    )  # fmt: skip
    return place.run(spec, script=SCRIPT, torchrun=False, **options)


def copied(before, place):
    """`place` with a copy of the checkpoint in the middle of the run `before`."""
    name = f"checkpoints/checkpoint-{STOPPED}"
    shutil.copytree(before.directory / name, place.storage / before.directory.name / name)
    return place


def steps(place, attempt=1):
    """What each step left on each rank, in whatever order the two wrote: its number, checksums of the rank's parts."""
    lines = (place.root / f"attempt-{attempt}" / "steps.jsonl").read_text().splitlines()
    found = [json.loads(line) for line in lines]
    return sorted(found, key=lambda entry: (entry["step"], entry["parameters"]))


KINDS = {
    "two engines": {"tensor_parallel": 1},
    "one shared engine": {"tensor_parallel": 2},
    "adapters": {"changes": LORA},
}


@pytest.fixture(scope="module", params=KINDS)
def whole(request, make_workplace):
    place = make_workplace()
    return place, run(place, **KINDS[request.param]), KINDS[request.param]


@pytest.fixture(scope="module")
def resumed(whole, make_workplace):
    """Another attempt, from the middle of that run."""
    _, before, kind = whole
    place = copied(before, make_workplace())
    return place, run(place, attempt=2, **kind)


def test_it_trains_to_the_end_with_the_engine_in_step(whole):
    _, run, _ = whole
    assert run.exit_code == 0, run.output[-5000:]
    for state in run.states:
        assert state.outcome is Outcome.COMPLETE
        assert state.weights.in_sync
        assert state.weights.log_probability_difference < 1e-3
    assert "training step: pieces of" in run.output


def test_no_rank_writes_the_whole_optimizer(whole):
    _, run, _ = whole
    saved = run.directory / f"checkpoints/checkpoint-{STOPPED}"
    assert not (saved / "optimizer.pt").exists()
    assert len(list((saved / "optimizer_0").glob("*.distcp"))) == 2
    manifest = json.loads((saved / "manifest.json").read_text())
    assert "optimizer_0/.metadata" in manifest["files"]


def test_resumed_as_if_never_stopped(whole, resumed):
    place, before, _ = whole
    again, after = resumed
    assert after.exit_code == 0, after.output[-5000:]
    assert after.state.resumed_from_step == STOPPED
    assert steps(again, 2) == [entry for entry in steps(place) if entry["step"] > STOPPED]
    model = "model/model.safetensors"
    assert (after.directory / model).read_bytes() == (before.directory / model).read_bytes()


def test_the_model_is_whole_and_what_the_engine_sampled_from(whole, greedy):
    _, run, _ = whole
    after = [call for call in run.records if call["held_out"] and call["step"] == STEPS]
    assert len(after) == 2, "each rank its share"
    for call in after:
        assert greedy(run.directory / "model", call["prompts"], 12) == call["completion_ids"]


@pytest.mark.parametrize("whole", ["two engines"], indirect=True)
@pytest.mark.parametrize("what", ["optimizer", "engine"])
def test_whatever_is_forgotten_shows(whole, make_workplace, what):
    place, before, kind = whole
    again = copied(before, make_workplace())
    run(again, attempt=2, FORGET=what, **kind)
    assert steps(again, 2) != [entry for entry in steps(place) if entry["step"] > STOPPED]


def test_sixteen_bits_stay_sixteen_bits(make_workplace):
    """No float32 copy of the weights, and none in the optimizer: two states in the weights' own type."""
    from safetensors import safe_open
    from torch.distributed.checkpoint import FileSystemReader

    place = make_workplace()
    model = {"source": f"file://{place.models}/policy", "dtype": "bfloat16"}
    done = run(place, changes={"model": model}, steps=2, every_steps=2)
    assert done.exit_code == 0, done.output[-5000:]
    assert done.state.weights.in_sync
    with safe_open(done.directory / "model/model.safetensors", framework="pt") as model:
        weights = [model.get_tensor(name) for name in model.keys()]  # noqa: SIM118
    assert {str(weight.dtype) for weight in weights} == {"torch.bfloat16"}
    saved = FileSystemReader(done.directory / "checkpoints/checkpoint-2/optimizer_0").read_metadata()
    states = [entry for name, entry in saved.state_dict_metadata.items() if name.endswith((".exp_avg", ".exp_avg_sq"))]
    assert len(states) == 2 * len(weights)
    assert {str(entry.properties.dtype) for entry in states} == {"torch.bfloat16"}


@pytest.mark.parametrize("whole", ["adapters"], indirect=True)
def test_the_adapter_lies_beside_the_model_it_is_merged_into(whole):
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    place, done, _ = whole
    base = AutoModelForCausalLM.from_pretrained(place.models / "policy", dtype=torch.float32)
    merged = PeftModel.from_pretrained(base, done.directory / "model/adapter").merge_and_unload()
    exported = AutoModelForCausalLM.from_pretrained(done.directory / "model", dtype=torch.float32)
    for (name, first), second in zip(merged.named_parameters(), exported.parameters(), strict=True):
        assert torch.allclose(first, second, atol=1e-6), name
