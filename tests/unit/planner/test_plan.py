"""What the plan chooses, what it keeps, and what it says."""

import re
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.planner.jobs import SHORT, gib, job, plan

from colocated_runtime.contract.job import Model
from colocated_runtime.contract.plan import Plan, PlannedSettings
from colocated_runtime.contract.report import Phase
from colocated_runtime.planner.devices import GIB, hardware_of
from colocated_runtime.planner.features import Features
from colocated_runtime.planner.models import QWEN2_5_7B
from colocated_runtime.planner.phases import device_total, fixed, parts, phases
from colocated_runtime.planner.plan import make_plan
from colocated_runtime.planner.search import exact_in_any_cut, given, micro_batches, search
from colocated_runtime.planner.shapes import shape_of, shape_of_config
from colocated_runtime.planner.workload import Lengths, Workload, workload

H100 = {"product": "NVIDIA-H100-80GB-HBM3"}


def test_with_room_everything_fast_is_chosen() -> None:
    made = plan(job("Qwen/Qwen2.5-1.5B", trainer={"generation_batch_size": 64}))
    assert made.fits
    assert not made.settings.gradient_checkpointing
    assert made.settings.sleep_level == 0
    needed = 64 * 576 * 28_672
    assert needed <= made.settings.kv_cache_bytes < needed + 0.01 * made.device_bytes
    assert "holds a whole rollout, 64 sequences of 576 tokens" in made.why


def test_with_less_room_the_engine_sleeps_and_activations_are_recomputed() -> None:
    # Gradient checkpointing frees more than a smaller micro-batch, with rows as long as these.
    tight = plan(job("Qwen/Qwen2.5-7B", device=H100), Lengths(512, 4096))
    assert tight.fits
    assert tight.settings.sleep_level == 2
    assert tight.settings.gradient_checkpointing


def test_the_largest_cache_that_fits_where_a_rollout_needs_more() -> None:
    made = plan(job(trainer={"generation_batch_size": 512, "gradient_checkpointing": True}), Lengths(512, 8192))
    assert made.fits
    assert "is the largest that fits" in made.why
    rollout = made.phase(Phase.ROLLOUT)
    assert rollout is not None
    assert made.budget_bytes - made.device_bytes / 100 < rollout.device_bytes <= made.budget_bytes


def test_where_prompts_are_a_guess_the_engine_gets_no_less_than_trls_default() -> None:
    guessed = plan(job("Qwen/Qwen2.5-1.5B"), None)
    assert guessed.settings.gpu_memory_utilization == 0.3
    assert "the prompts' length is a guess" in guessed.why
    assert plan(job("Qwen/Qwen2.5-1.5B")).settings.gpu_memory_utilization < 0.1
    tight = plan(job("Qwen/Qwen2.5-14B"), None)
    assert tight.fits
    assert tight.settings.gpu_memory_utilization < 0.3


def test_manual_takes_trls_defaults_for_what_is_not_set() -> None:
    chosen = plan(job("Qwen/Qwen2.5-1.5B", memory={"policy": "Manual"})).settings
    assert (chosen.gpu_memory_utilization, chosen.sleep_level) == (0.3, 2)
    assert (chosen.per_device_train_batch_size, chosen.gradient_checkpointing) == (8, True)


def chosen(**fields: Any) -> PlannedSettings:
    return plan(job(device=H100, **fields), Lengths(512, 4096)).settings


def test_the_step_runs_in_pieces_while_trls_batches_stay() -> None:
    trainer = {"per_device_train_batch_size": 16, "gradient_accumulation_steps": 4, "steps_per_generation": 8}
    found = chosen(trainer=trainer)
    kept = (found.per_device_train_batch_size, found.gradient_accumulation_steps, found.steps_per_generation)
    assert kept == (16, 4, 8)
    assert found.tokens_at_once in (4608, 9216)
    assert found.recompute == "none", "the optimizer's states make room for the activations"
    assert found.offload == "optimizer"


def test_without_offload_activations_are_computed_again() -> None:
    found = chosen(memory={"offload": "none"})
    assert found.recompute in ("selective", "half", "full")
    assert found.gradient_checkpointing
    assert found.offload == "none"


def test_optimizer_states_on_the_host_are_on_the_device_for_the_update_alone() -> None:
    """7 B parameters on 80 GiB: fits, where with resident states nothing does."""
    trainer = {"gradient_checkpointing": True}
    kinds = ("none", "optimizer")
    resident, away = (plan(job(device=H100, trainer=trainer, memory={"offload": kind})) for kind in kinds)
    for phase in (Phase.ROLLOUT, Phase.SYNC, Phase.SCORE, Phase.CHECKPOINT):
        assert "optimizerStates" not in items(away, phase)
    train = items(away, Phase.TRAIN)
    assert ("optimizerStates" in train) != ("activations" in train), "whichever is more"
    found = away.phase(Phase.TRAIN)
    assert found is not None
    (host,) = [entry.bytes for entry in found.host if entry.name == "offloadedStates"]
    assert host == items(resident, Phase.TRAIN)["optimizerStates"]


def test_a_merged_model_leaves_the_device_before_it_is_written() -> None:
    whole, adapter = (host(plan(job(**fields)), Phase.CHECKPOINT) for fields in ({}, {"lora": {"r": 8}}))
    assert "mergedModel" not in whole
    assert adapter["mergedModel"] == adapter["savedModel"] == whole["savedModel"] == 2 * QWEN2_5_7B.parameters


def test_a_refusal_proposes_to_offload() -> None:
    tight = job(device={"product": "NVIDIA-A100-SXM4-80GB", "memory": "64Gi"}, memory={"offload": "none"})
    made = plan(tight, Lengths(512, 2048))
    assert not made.fits
    assert "memory.offload: optimizer" in made.refusal


@pytest.mark.parametrize(
    "fields",
    [
        {"memory": {"policy": "Manual"}},
        {"trainer": {"use_adaptive_entropy": True}},
        {"trainer": {"top_entropy_quantile": 0.2}},
        {"trainer": {"optim": "galore_adamw_layerwise"}},
        {"parallelism": {"sharding": "zero3"}},
    ],
)
def test_trls_own_step_where_pieces_would_not_be_exact(fields: dict[str, Any]) -> None:
    found = chosen(**fields)
    assert (found.tokens_at_once, found.recompute) == (0, None)


def test_micro_batch_changes_while_rollout_and_step_stay() -> None:
    """Where the worker cannot cut the step itself."""
    trainer = {"optim": "galore_adamw_layerwise", "gradient_accumulation_steps": 4, "steps_per_generation": 8}
    found = chosen(trainer=trainer)
    rows = found.per_device_train_batch_size
    assert (rows * found.gradient_accumulation_steps, rows * found.steps_per_generation) == (32, 64)
    assert rows < 8
    assert chosen(trainer={**trainer, "per_device_train_batch_size": 8}).per_device_train_batch_size == 8


@pytest.mark.parametrize(
    ("fields", "exact"),
    [
        *[({"trainer": {"loss_type": name}}, True) for name in ("dapo", "grpo", "dr_grpo", "sapo", "luspo", "cispo")],
        ({"trainer": {"loss_type": "bnpo"}}, False),
        ({"trainer": {"entropy_coef": 0.01}}, False),
        ({"trainer": {"use_adaptive_entropy": True}}, False),
        ({"trainer": {"top_entropy_quantile": 0.2}}, False),
        ({"algorithm": "rloo"}, True),
        ({"model": "Qwen/Qwen3-30B-A3B"}, False),
        ({"model": "Qwen/Qwen3-30B-A3B", "trainer": {"router_aux_loss_coef": 0.0}}, True),
    ],
)
def test_losses_that_do_not_notice_another_cut(fields: dict[str, Any], exact: bool) -> None:
    spec = job(**fields)
    assert spec.model is not None
    shape = shape_of(spec.model)
    assert shape is not None
    assert exact_in_any_cut(spec, shape) == exact


def test_the_old_pass_is_left_out_where_the_step_itself_has_its_values() -> None:
    def scored(**fields: Any) -> int:
        return items(plan(job("Qwen/Qwen2.5-1.5B", **fields)), Phase.SCORE)["scoringActivations"]

    assert scored() == 0
    assert scored(trainer={"steps_per_generation": 2, "num_generations": 8}) > 0, "two steps on one rollout"
    assert scored(trainer={"disable_dropout": False}) > 0
    assert scored(algorithm="rloo", trainer={"beta": 0.0}) == 0
    assert scored(algorithm="rloo") > 0, "the divergence is part of the reward"
    assert scored(memory={"policy": "Manual"}) > 0


def items(made: Plan, phase: Phase) -> dict[str, int]:
    found = made.phase(phase)
    assert found is not None
    return {item.name: item.bytes for item in found.device}


def test_gradients_stay_where_a_rollout_falls_between_micro_batches() -> None:
    fields = {"steps_per_generation": 1, "gradient_accumulation_steps": 4, "num_generations": 8}
    assert "gradients" in items(plan(job("Qwen/Qwen2.5-1.5B", trainer=fields)), Phase.ROLLOUT)
    aligned = {**fields, "steps_per_generation": 4}
    assert "gradients" not in items(plan(job("Qwen/Qwen2.5-1.5B", trainer=aligned)), Phase.ROLLOUT)


def test_a_reference_model_is_a_second_copy_unless_adapters_are_trained() -> None:
    small = "Qwen/Qwen2.5-1.5B"
    assert "referenceWeights" in items(plan(job(small, trainer={"beta": 0.04})), Phase.SCORE)
    assert "referenceWeights" in items(plan(job(small, algorithm="rloo")), Phase.SCORE), "RLOO's beta is 0.05"
    assert "referenceWeights" not in items(plan(job(small, trainer={"beta": 0.04}, lora={"r": 8})), Phase.SCORE)
    assert "referenceWeights" not in items(plan(job(small)), Phase.SCORE)


@pytest.mark.parametrize(
    ("optimizer", "bytes_per_parameter", "of_the_embedding"),
    [
        ("adamw_torch_fused", 4, 4), ("adamw_8bit", 2.03, 8), ("paged_adamw_8bit", 2.03, 8),
        ("paged_adamw_32bit", 8, 8),
        ("adamw_torch_8bit", 2.03, 2.03), ("lion_32bit", 4, 4), ("ademamix", 12, 12), ("rmsprop", 2, 2), ("sgd", 0, 0),
    ],
)  # fmt: skip
def test_states_of_each_optimizer(optimizer: str, bytes_per_parameter: float, of_the_embedding: float) -> None:
    """Those of bitsandbytes are float32 unless 8 bits, and of the embedding always."""
    made = plan(job("Qwen/Qwen2.5-7B", trainer={"optim": optimizer}, memory={"offload": "none"}))
    embedding = QWEN2_5_7B.vocab_size * QWEN2_5_7B.hidden_size
    wanted = (QWEN2_5_7B.parameters - embedding) * bytes_per_parameter + embedding * of_the_embedding
    assert items(made, Phase.TRAIN)["optimizerStates"] == pytest.approx(wanted, rel=0.01)


def test_adapters_of_experts_by_the_names_of_their_modules() -> None:
    fields: dict[str, Any] = {"gpusPerNode": 4, "parallelism": {"tensorParallel": 4}}

    def adapters(*names: str) -> int:
        made = plan(job("Qwen/Qwen3-30B-A3B", lora={"target_modules": [*names]}, **fields))
        return items(made, Phase.TRAIN)["gradients"]

    experts = adapters("gate_proj", "up_proj", "down_proj")
    assert experts > 10 * adapters("q_proj", "k_proj", "v_proj", "o_proj") > 0
    everything = adapters("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "gate")
    assert everything == adapters("all-linear")


def test_memory_that_others_hold_counts() -> None:
    spec = job("Qwen/Qwen2.5-1.5B")
    hardware = hardware_of(spec)
    assert spec.model is not None
    assert hardware is not None
    shape = shape_of_config({
        "model_type": "qwen2", "hidden_size": 1536, "num_hidden_layers": 28, "num_attention_heads": 12,
        "num_key_value_heads": 2, "intermediate_size": 8960, "vocab_size": 151_936, "tie_word_embeddings": True,
    })  # fmt: skip
    free = make_plan(spec, shape, hardware, lengths=SHORT)
    shared = make_plan(spec, shape, replace(hardware, used_bytes=112 * GIB), lengths=SHORT)
    assert free.fits
    assert all(items(shared, entry.phase)["otherProcesses"] == 112 * GIB for entry in shared.phases)
    assert shared.fits
    assert shared.step_seconds > free.step_seconds, "slower settings that need less"
    full = make_plan(spec, shape, replace(hardware, used_bytes=135 * GIB), lengths=SHORT)
    assert not full.fits
    assert "otherProcesses 135.00 GiB" in full.refusal


def test_a_shared_device_is_warned_of() -> None:
    label = "NVIDIA-H100-80GB-HBM3"
    assert not any("shared" in note for note in plan(job("Qwen/Qwen2.5-0.5B", device={"product": label})).advice)
    made = plan(job("Qwen/Qwen2.5-0.5B", device={"product": f"{label}-SHARED"}))
    assert any(note.startswith("The device is shared with other pods") for note in made.advice)


def test_a_slice_has_its_own_memory() -> None:
    whole = job("Qwen/Qwen2.5-7B", device={"product": "NVIDIA-H100-80GB-HBM3"})
    part = job("Qwen/Qwen2.5-7B", device={"product": "NVIDIA-H100-80GB-HBM3-MIG-3g.40gb"})
    assert plan(whole).fits
    assert not plan(part).fits


def test_more_ranks_than_key_heads_keep_copies_of_the_cache() -> None:
    fields: dict[str, Any] = {"gpusPerNode": 8, "memory": {"gpuMemoryUtilization": 0.3}}
    four = plan(job(parallelism={"tensorParallel": 4}, **fields))
    eight = plan(job(parallelism={"tensorParallel": 8}, **fields))
    assert four.settings.tensor_parallel == 4
    assert items(eight, Phase.ROLLOUT)["engineWeights"] > items(four, Phase.ROLLOUT)["engineWeights"] / 2


def said(made: Plan, words: str) -> bool:
    return any(words in sentence for sentence in made.advice)


def test_guesses_are_said() -> None:
    guessed = plan(job(device={"memory": "100Gi"}), None)
    assert said(guessed, "The longest prompt is guessed: 512 tokens.")
    assert said(guessed, "The device's speed is not known")
    assert not plan(job(trainer={"vllm_max_model_length": 1024}), None).advice
    reward = plan(job(rewards=[{"model": "hf://somebody/reward"}]))
    assert said(reward, "reward models hf://somebody/reward")


def test_an_unknown_architecture_is_said() -> None:
    spec = job()
    hardware = hardware_of(spec)
    assert hardware is not None
    made = make_plan(spec, replace(QWEN2_5_7B, family="", verified=False), hardware, lengths=SHORT)
    assert not made.verified
    assert said(made, "Unverified")


def test_another_tensor_parallel_size_is_proposed_where_it_is_faster() -> None:
    wide = job("Qwen/Qwen2.5-32B", gpusPerNode=8, lora={"r": 16}, trainer={"generation_batch_size": 512})
    lengths = Lengths(256, 2048)
    made = plan(wide, lengths)
    assert said(made, "parallelism.tensorParallel: 4 would take about")
    proposed = plan(wide.model_copy(update={"parallelism": wide.parallelism.model_copy(update={"tensor_parallel": 4})}),
                    lengths)  # fmt: skip
    assert proposed.fits
    assert proposed.step_seconds < 0.8 * made.step_seconds


def test_colocation_is_the_wrong_choice_where_generation_does_not_get_shorter_with_more_devices() -> None:
    trainer = {"generation_batch_size": 256, "gradient_accumulation_steps": 4}
    assert said(plan(job(gpusPerNode=8, trainer=trainer), Lengths(256, 1024)), "Colocation may be the wrong choice")
    assert not plan(job(trainer=trainer), Lengths(256, 1024)).advice, "nothing to divide"


def test_separate_devices_are_named_where_nothing_else_fits() -> None:
    """Adapters of 14 B parameters on one slice of 48 GiB: two copies of the weights do not fit, one does."""
    alone = {"lora": {"r": 8}, "device": {"memory": "48Gi"}, "resourceName": "nvidia.com/mig-3g.48gb"}
    split = plan(job("Qwen/Qwen2.5-14B", **alone))
    assert "No setting of this job fits" in split.refusal
    assert said(split, "It would fit on separate devices: ")


@pytest.mark.parametrize(
    ("fields", "way_out"),
    [
        ({"device": {"memory": "125Gi"}, "memory": {"offload": "none"}}, "Fits with memory.offload: optimizer."),
        (
            {"lora": {"r": 8}, "device": {"memory": "48Gi"}},
            "Fits with gpusPerNode: 2, parallelism.sharding: fsdp, or",
        ),
    ],
)
def test_separate_devices_are_not_named_where_one_change_mends_it(fields: dict[str, Any], way_out: str) -> None:
    made = plan(job("Qwen/Qwen2.5-14B", **fields))
    assert way_out in made.refusal
    assert not said(made, "It would fit on separate devices")


def limited(limit: str, model: str = "Qwen/Qwen2.5-7B", **fields: Any) -> Plan:
    return plan(job(model, resources={"limits": {"memory": limit}}, **fields))


def test_host_memory_that_is_short_names_the_limit_that_suffices() -> None:
    fields = {"trainer": {"gradient_checkpointing": True}}
    made = limited("10Gi", **fields)
    assert not made.fits
    assert "of host memory are missing" in made.refusal
    assert "Fits with resources.limits.memory: 32Gi" in made.refusal
    assert limited("32Gi", **fields).fits
    assert not limited("31Gi", **fields).fits


def host(made: Plan, phase: Phase) -> dict[str, int]:
    found = made.phase(phase)
    assert found is not None
    return {item.name: item.bytes for item in found.host}


def test_a_resumed_job_reads_its_optimizer_states_through_the_host() -> None:
    """transformers loads the whole file on the CPU where there is one rank, else straight onto the devices."""
    states = items(plan(job()), Phase.TRAIN)["optimizerStates"]
    for kind in ("none", "optimizer"):
        start = host(plan(job(memory={"offload": kind})), Phase.START)
        assert start["loadedStates"] == states
        assert "loadedModel" not in start, "read before them, and gone by then"
    assert host(plan(job(memory={"offload": "optimizer"})), Phase.START)["offloadedStates"] == states
    assert "loadedModel" in host(plan(job(gpusPerNode=2)), Phase.START)
    adapters = host(plan(job(lora={"r": 16})), Phase.START)
    assert "loadedModel" in adapters, "which is larger than the states of adapters"


def test_the_host_memory_that_some_setting_needs_is_named_and_not_that_of_the_one_that_lacks_least() -> None:
    """80 GiB: full checkpointing with resident states does not fit, offloaded states want 60 GiB of the host."""
    made = limited("16Gi", device=H100)
    assert "are missing; it needs" in made.refusal
    (limit,) = re.findall(r"Fits with resources\.limits\.memory: (\d+)Gi", made.refusal)
    assert limited(f"{limit}Gi", device=H100).fits
    assert not limited(f"{int(limit) - 1}Gi", device=H100).fits


def test_a_host_shortage_is_named_alone_where_the_device_has_room() -> None:
    """7 B on 80 GiB fits the device: settings that lack a little of both are no answer."""
    made = limited("8Gi", device=H100)
    assert made.refusal.startswith("Start: ")
    assert made.refusal.count("missing") == 1
    assert "Fits with resources.limits.memory: 32Gi." in made.refusal


def test_what_does_not_fit_is_shown_with_the_settings_that_take_least() -> None:
    shown = plan(job("Qwen/Qwen2.5-72B", device=H100)).settings
    assert shown.gradient_checkpointing
    assert shown.recompute == "full"


def test_headroom_is_proposed_where_it_is_what_is_missing() -> None:
    made = plan(job(device=H100, memory={"headroom": 0.6}))
    assert made.refusal.endswith("Fits with memory.headroom: 0.05.")


def test_sixteen_bits_are_proposed_before_adapters() -> None:
    wide = {"source": "hf://Qwen/Qwen2.5-3B", "dtype": "float32"}
    made = plan(job(device={"memory": "32Gi"}).model_copy(update={"model": Model.model_validate(wide)}))
    assert made.refusal.endswith("Fits with model.dtype: bfloat16.")


def test_a_reward_model_counts_where_separate_devices_are_named() -> None:
    rewards = [{"model": "hf://Qwen/Qwen2.5-32B"}]
    made = plan(job("Qwen/Qwen2.5-7B", device=H100, rewards=rewards))
    assert made.refusal.startswith("Score: ")
    assert not said(made, "separate devices"), "beside the policy there is no room for it either"


def test_what_device_and_host_lack_is_both_named() -> None:
    made = limited("8Gi", model="Qwen/Qwen2.5-72B", lora={"r": 16})
    assert re.search(r"\d GiB are missing", made.refusal)
    assert "GiB of host memory are missing" in made.refusal
    (size, limit) = re.findall(r"at least (\d+) GiB and resources\.limits\.memory: (\d+)Gi", made.refusal)[0]
    again = job("Qwen/Qwen2.5-72B", lora={"r": 16}, device={"memory": f"{size}Gi"},
                resources={"limits": {"memory": f"{limit}Gi"}})  # fmt: skip
    assert plan(again).fits


def test_the_smallest_device_is_that_of_any_setting() -> None:
    def adapters(**device: str) -> Plan:
        return plan(job(lora={"r": 16}, device=device), Lengths(512, 512))

    (size,) = re.findall(r"devices with at least (\d+) GiB", adapters(memory="23Gi").refusal)
    assert adapters(memory=f"{size}Gi").fits
    assert not adapters(memory=f"{int(size) - 1}Gi").fits
    assert int(size) < 36, "two copies of the weights, and little more"


def test_a_size_that_no_device_has() -> None:
    made = plan(job("Qwen/Qwen2.5-72B", lora={"r": 16}, resourceName="nvidia.com/mig-7g.141gb"))
    assert not made.fits
    assert "No setting of this job fits; use devices with at least" in made.refusal


def test_offload_that_was_chosen_has_not_run_on_a_gpu_yet() -> None:
    made = plan(job(device=H100, trainer={"gradient_accumulation_steps": 8}), Lengths(512, 4096))
    assert made.settings.offload == "optimizer"
    assert said(made, "Unmeasured: ")
    assert not said(plan(job()), "Unmeasured: ")
    proposed = limited("16Gi", device=H100 | {"memory": "64Gi"})
    assert "Fits with resources.limits.memory: " in proposed.refusal
    assert said(proposed, "Unmeasured: ")


def test_what_is_as_fast_does_without_offload_and_leaves_most_room_while_it_trains() -> None:
    """Where the cache fills the device anyway, the room beside it is no reason to choose by."""
    made = plan(job(device=H100), Lengths(512, 4096))
    assert made.settings.offload == "none"
    spec = job(device=H100)
    assert spec.model is not None
    shape, hardware = shape_of(spec.model), hardware_of(spec)
    assert shape is not None
    assert hardware is not None
    found = search(workload(spec, shape, hardware, Lengths(512, 4096)), given(spec, shape))
    fastest = min(one.seconds.step for one in found if one.fits)
    alike = [one for one in found if one.fits and one.seconds.step <= 1.02 * fastest]
    assert any(one.offload == "optimizer" for one in alike)
    assert len({one.missing[Phase.TRAIN] for one in alike}) > 1
    roomiest = min((one for one in alike if one.offload == "none"), key=lambda one: one.missing[Phase.TRAIN])
    assert made.step_seconds == round(roomiest.seconds.step, 3)
    assert gib(made, Phase.TRAIN) == pytest.approx((roomiest.missing[Phase.TRAIN] + roomiest.budget) / GIB)


def small(**features: Any) -> Workload:
    spec = job(trainer={"gradient_accumulation_steps": 4})
    hardware = hardware_of(spec)
    assert hardware is not None
    return replace(workload(spec, QWEN2_5_7B, hardware, SHORT), features=Features(**features))


def test_shared_weights_save_one_copy() -> None:
    """Measured: 14.2 GiB, and nothing to hand over."""

    def totals(made: Workload) -> dict[Phase, int]:
        base = fixed(made)
        used = phases(parts(base, 8, "full"), 2, "none")
        return {phase: device_total(use, GIB) for phase, use in used.items()}

    apart, shared = totals(small()), totals(small(shared_weights=True))
    assert (apart[Phase.ROLLOUT] - shared[Phase.ROLLOUT]) / GIB == pytest.approx(14.2, rel=0.01)
    assert shared[Phase.SYNC] < apart[Phase.SYNC]
    assert shared[Phase.TRAIN] == apart[Phase.TRAIN]


def test_micro_batches_divide_both_rollout_and_step() -> None:
    made = small()
    assert micro_batches(made) == [1, 2, 4, 8, 16]


def fastest(work: Callable[[], object], rounds: int = 60) -> float:
    """Milliseconds of this thread alone: other processes do not count."""
    taken = []
    for _ in range(rounds):
        began = time.thread_time()
        work()
        taken.append(time.thread_time() - began)
    return min(taken) * 1e3


def test_a_check_takes_a_millisecond_and_a_search_ten() -> None:
    checked = job(memory={"policy": "Manual"}, trainer={"gradient_accumulation_steps": 8})
    searched = job(gpusPerNode=8, trainer={"generation_batch_size": 1024})
    assert fastest(lambda: plan(checked)) < 1
    assert fastest(lambda: plan(searched)) < 10


def test_peaks_are_those_of_the_fullest_phase() -> None:
    made = plan(job())
    assert max(entry.device_bytes for entry in made.phases) <= made.budget_bytes
    assert gib(made, Phase.TRAIN) * GIB == sum(items(made, Phase.TRAIN).values())
