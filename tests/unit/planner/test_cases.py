"""Public reports with their outcome, planned.

Most come from other frameworks. Where a report leaves out a number that decides, the test names it and shows what the
plan can say without it. By the names of the tests:

    p01-p03  huggingface/trl 3162, vllm-project/vllm 17117   p06  pat-jj/s3 10
    p07, p08 verl examples/tuning/{7b,32b}/*grpo-lora*       p10  verl docs/perf/device_tuning.rst
    p12-p15  modelscope/ms-swift 4770, moe_lora.sh, 7125, 7822   p17  trl 2972, 2927
    p18      trl 3678        p19  NVIDIA-NeMo/RL 3005        p20  rllm-org/rllm 93
    p21      huggingface/open-r1 615    p22  huggingface/accelerate 4175, transformers 48444
    p26      verl-project/verl 224
    field    11: trl 2688, 12 and 13: ms-swift 5099 and 10109, 15: OpenRLHF 1013, 16: NeMo-RL 2523, 19: trl 3523,
             21: OpenRLHF 336
"""

from typing import Any

import pytest
from tests.unit.planner.jobs import gib, job, plan

from colocated_runtime.contract.job import Memory
from colocated_runtime.contract.plan import Plan
from colocated_runtime.contract.report import Phase
from colocated_runtime.planner.activations import full_logits, full_loss_peak
from colocated_runtime.planner.devices import GIB, hardware_of
from colocated_runtime.planner.engine import cache_bytes_per_token, engine_weights
from colocated_runtime.planner.models import QWEN2_5_7B, QWEN2_5_32B, QWEN2_5_72B, QWEN3_8B, QWEN3_30B_A3B
from colocated_runtime.planner.shapes import Shape, known_shape
from colocated_runtime.planner.states import states
from colocated_runtime.planner.workload import Lengths, workload

H100, A100, H20 = "NVIDIA-H100-80GB-HBM3", "NVIDIA-A100-SXM4-80GB", "NVIDIA-H20"
QWEN3_235B = Shape(
    family="qwen3_moe", hidden_size=4096, num_hidden_layers=94, num_attention_heads=64, num_key_value_heads=4,
    head_dim=128, intermediate_size=0, vocab_size=151_936, tie_word_embeddings=False, num_experts=128,
    num_experts_per_tok=8, moe_intermediate_size=1536,
)  # fmt: skip


def case(model: str, product: str, lengths: Lengths, *, utilization: float, **fields: Any) -> Plan:
    """A job with everything set, headroom 0: what the report's own run had."""
    memory = {"policy": "Manual", "headroom": 0.0, "gpuMemoryUtilization": utilization, **fields.pop("memory", {})}
    trainer = {"per_device_train_batch_size": 1, "num_generations": 2, **fields.pop("trainer", {})}
    return plan(job(model, device={"product": product}, memory=memory, trainer=trainer, **fields), lengths)


@pytest.mark.parametrize("sharding", ["zero2", "zero3"])
def test_p01_a_7b_model_on_seven_gpus_trained(sharding: str) -> None:
    """Not told: DeepSpeed's stage, whether the engine slept; it fits with either."""
    for level in (0, 2):
        made = case(
            "Qwen/Qwen2.5-Math-7B", H100, Lengths(512, 1024), utilization=0.3, gpusPerNode=7,
            parallelism={"sharding": sharding}, memory={"sleepLevel": level}, trainer={"num_generations": 7},
        )  # fmt: skip
        assert made.fits


def test_p02_a_32b_model_on_sixteen_gpus_trained() -> None:
    """Not told: utilisation; it fits with TRL's default."""
    made = case(
        "deepseek-ai/DeepSeek-R1-Distill-Qwen-32B", H100, Lengths(512, 2048), utilization=0.3, nodes=2, gpusPerNode=8,
        parallelism={"sharding": "zero3", "tensorParallel": 8}, trainer={"gradient_accumulation_steps": 2},
    )  # fmt: skip
    assert made.fits


def test_p03_a_72b_model_on_32_gpus_trained() -> None:
    """Field 3 is an earlier state of the same run: the shape is not refused. Its log said 8.64 GiB of weights a GPU."""
    assert engine_weights(QWEN2_5_72B, 16, 2) / GIB == pytest.approx(8.64, rel=0.03)
    made = case(
        "Qwen/Qwen2.5-Math-72B", H100, Lengths(512, 1024), utilization=0.25, nodes=2, gpusPerNode=16,
        parallelism={"sharding": "zero3", "tensorParallel": 16},
    )  # fmt: skip
    assert made.fits


def test_p06_a_7b_model_on_four_small_gpus_cannot_be_trained_in_full() -> None:
    fields: dict[str, Any] = {"gpusPerNode": 4, "device": {"product": "NVIDIA-GeForce-RTX-3090"}}
    refused = plan(job(memory={"headroom": 0.02}, **fields), Lengths(512, 512))
    assert not refused.fits
    assert refused.refusal.endswith("Fits with lora: {r: 16} and parallelism.tensorParallel: 4.")
    sharded = plan(job(parallelism={"sharding": "zero3"}, **fields), Lengths(512, 512))
    held = sharded.phase(Phase.TRAIN)
    assert held is not None
    names = ("trainerWeights", "gradients", "optimizerStates")
    assert sum(item.bytes for item in held.device if item.name in names) / 1e9 == pytest.approx(30.5, rel=0.01)
    assert not sharded.fits


@pytest.mark.parametrize(
    ("most", "fields"),
    [
        (100, {"model": "Qwen/Qwen2.5-7B-Instruct", "utilization": 0.2}),
        (44, {"model": "Qwen/Qwen2.5-32B", "utilization": 0.3, "gpusPerNode": 4, "parallelism": {"tensorParallel": 4}}),
    ],
    ids=["P07", "P08"],
)
def test_boundaries_in_rows_imply_likely_lengths(most: int, fields: dict[str, Any]) -> None:
    """verl, adapters, rows without padding and full logits: so many rows ran, one more did not.

    Not told: how long the rows were; the limit is 1536 tokens, GSM8K's prompts and answers have some hundreds. What
    the plan leaves for logits and kept layer inputs gives the length at which that many rows are the most.
    """
    sharding = {"sharding": "fsdp", **fields.get("parallelism", {})}
    trainer = {"per_device_train_batch_size": 2, "gradient_checkpointing": True}
    made = case(
        product=H100, lengths=Lengths(1, 1), lora={"r": 32}, trainer=trainer, memory={"sleepLevel": 2},
        **{**fields, "parallelism": sharding},
    )  # fmt: skip
    shape = known_shape(fields["model"])
    assert shape is not None
    a_token = full_loss_peak(1, shape.vocab_size) + shape.num_hidden_layers * shape.hidden_size * 2
    train = made.phase(Phase.TRAIN)
    assert train is not None
    implied = (made.budget_bytes - train.device_bytes) / a_token / most
    assert 200 < implied < 700


def test_p10_a_7b_model_on_two_gpus_needs_its_states_on_the_host_while_generating() -> None:
    """The script with offload ran; a neighbour of the same size, offload not told, did not."""
    fields: dict[str, Any] = {"gpusPerNode": 2, "utilization": 0.6, "parallelism": {
        "sharding": "zero3", "tensorParallel": 2}, "trainer": {"per_device_train_batch_size": 2}}  # fmt: skip
    away = case("Qwen/Qwen2.5-7B", H100, Lengths(1024, 1024), memory={"offload": "optimizer"}, **fields)
    here = case("Qwen/Qwen2.5-7B", H100, Lengths(1024, 1024), **fields)
    assert gib(away, Phase.ROLLOUT) < 79.1 < gib(here, Phase.ROLLOUT)


@pytest.mark.parametrize(
    ("shape", "ranks", "reported"), [(QWEN2_5_72B, 8, 16.9), (QWEN3_30B_A3B, 2, 28.4), (QWEN3_235B, 8, 54.7)],
    ids=["P12", "P13", "P14"],
)  # fmt: skip
def test_engine_weights_of_a_rank(shape: Shape, ranks: int, reported: float) -> None:
    assert engine_weights(shape, ranks, 2) / GIB == pytest.approx(reported, rel=0.01)


def test_p13_a_30b_mixture_has_little_cache_left_and_starts() -> None:
    """A shipped recipe: utilisation 0.4 of 79.1 GiB, 28.4 of them weights, sequences of up to 16,384 tokens."""
    made = case(
        "Qwen/Qwen3-30B-A3B", H100, Lengths(12_000, 4384), utilization=0.4, gpusPerNode=8, lora={"r": 8},
        parallelism={"sharding": "zero3", "tensorParallel": 2},
    )  # fmt: skip
    assert 1 < made.settings.kv_cache_bytes / GIB < 3
    assert made.settings.kv_cache_bytes > 16_384 * cache_bytes_per_token(QWEN3_30B_A3B, 2, 2)
    assert made.phase(Phase.ROLLOUT).device_bytes < made.budget_bytes  # type: ignore[union-attr]


def test_p15_weights_are_handed_over_one_by_one() -> None:
    """That run gathered all 61 GiB at once; one parameter is 1.45 GiB."""
    fields: dict[str, Any] = {"nodes": 4, "gpusPerNode": 8, "parallelism": {"sharding": "zero3", "tensorParallel": 4}}
    made = case("Qwen/QwQ-32B", H100, Lengths(512, 16_000), utilization=0.5, **fields)
    sync = made.phase(Phase.SYNC)
    assert sync is not None
    staged = next(item.bytes for item in sync.device if item.name == "syncStaging")
    assert staged / GIB == pytest.approx(1.45, rel=0.01)
    assert QWEN2_5_32B.parameters * 2 / GIB == pytest.approx(61, rel=0.01)
    assert sync.device_bytes < made.budget_bytes < sync.device_bytes - staged + QWEN2_5_32B.parameters * 2


def test_p17_plain_data_parallel_dies_at_the_first_update() -> None:
    """Six copies of a 7 B model are 85.1 GiB; the unfused AdamW step then asked for more of 95 GiB."""
    spec = job(
        gpusPerNode=4, device={"product": H20}, memory={"policy": "Manual"},
        trainer={"beta": 0.04, "optim": "adamw_torch", "num_generations": 2, "per_device_train_batch_size": 1},
    )  # fmt: skip
    hardware = hardware_of(spec)
    assert hardware is not None
    made = workload(spec, QWEN2_5_7B, hardware, Lengths(256, 512))
    held = states(made)
    assert held.buckets is not None
    copies = 2 * held.weights.bytes + held.gradients.bytes + held.buckets.bytes + held.optimizer.bytes
    assert copies / GIB == pytest.approx(85.1, rel=0.01)
    assert copies + held.temporary > hardware.device_bytes
    refused = plan(spec, Lengths(256, 512))
    assert refused.refusal.startswith("Train: ")
    assert "optimizerTemporary" in refused.refusal
    own = workload(spec.model_copy(update={"memory": Memory()}), QWEN2_5_7B, hardware, Lengths(256, 512))
    assert states(own).buckets is None  # our own step averages the gradients without a copy of them


@pytest.mark.parametrize(
    ("tokens", "vocabulary", "reported"),
    [(2 * 256, 151_665, 310e6), (4 * 4096, 151_936, 9.27 * GIB), (4 * 512, 151_936, 1.16 * GIB),
     (21_400, 151_936, 12.11 * GIB)],
    ids=["P18", "P19", "P19 in pieces", "P20"],
)  # fmt: skip
def test_logits_that_were_built_in_full(tokens: int, vocabulary: int, reported: float) -> None:
    assert full_logits(tokens, vocabulary) == pytest.approx(reported, rel=0.01)


def test_p18_p21_peak_of_a_loss_with_full_logits() -> None:
    assert full_loss_peak(2 * 256, 151_665) == pytest.approx(902e6, rel=0.1)
    # 46 GB were saved by not building them; what the kernel that replaced them took is not told.
    assert full_loss_peak(16 * 2048, 151_936) > 46e9


def test_p22_saved_layer_inputs() -> None:
    tokens = 128 * 1024
    assert QWEN3_8B.num_hidden_layers * tokens * QWEN3_8B.hidden_size * 2 / GIB == pytest.approx(36, rel=0.01)


@pytest.mark.parametrize(("limit", "fits"), [("96Gi", False), ("1000Gi", True)])
def test_p26_weights_parked_on_the_host(limit: str, fits: bool) -> None:
    made = case(
        "Qwen/Qwen2.5-7B", A100, Lengths(512, 512), utilization=0.3, gpusPerNode=8, lora={"r": 16},
        memory={"sleepLevel": 1}, resources={"limits": {"memory": limit}},
    )  # fmt: skip
    assert made.fits == fits
    if not fits:
        assert "of host memory are missing" in made.refusal


def test_field_11_a_1b_model_on_small_gpus_with_the_old_default() -> None:
    fields: dict[str, Any] = {"gpusPerNode": 4, "memory": {"sleepLevel": 2}}
    old = case("meta-llama/Llama-3.2-1B", "NVIDIA-L4", Lengths(512, 256), utilization=0.9, **fields)
    assert not old.fits
    assert "Fits with memory.gpuMemoryUtilization: 0." in old.refusal
    fields = {"gpusPerNode": 4, "memory": {"sleepLevel": 2}}
    assert case("meta-llama/Llama-3.2-1B", "NVIDIA-L4", Lengths(512, 256), utilization=0.3, **fields).fits


def test_field_12_a_32b_model_beside_its_engine() -> None:
    """Adapters, two GPUs (80 GB assumed), TP 2, 0.4: with the trainer's 61 GiB still there, no engine can wake."""
    made = case(
        "Qwen/Qwen2.5-32B", A100, Lengths(2048, 2048), utilization=0.4, gpusPerNode=2, lora={"r": 16},
        parallelism={"tensorParallel": 2},
    )  # fmt: skip
    assert not made.fits
    assert gib(made, Phase.ROLLOUT) > 79.1


def test_field_13_15_each_rank_loads_the_whole_model_on_the_host() -> None:
    """Field 15: eight engines a node parked 7 B models on 512 GiB of host; what else was there is not told."""
    fields: dict[str, Any] = {"nodes": 2, "gpusPerNode": 8, "utilization": 0.5, "lora": {"r": 16}}
    parked = case("Qwen/Qwen2.5-7B", A100, Lengths(512, 512), memory={"sleepLevel": 1}, **fields).phase(Phase.START)
    fields = {"nodes": 2, "gpusPerNode": 8, "utilization": 0.5, "lora": {"r": 16}}
    dropped = case("Qwen/Qwen2.5-7B", A100, Lengths(512, 512), memory={"sleepLevel": 2}, **fields).phase(Phase.START)
    assert parked is not None
    assert dropped is not None
    loaded = next(item.bytes for item in dropped.host if item.name == "loadedModel")
    assert loaded == 8 * 2 * QWEN2_5_7B.parameters
    assert parked.host_bytes - dropped.host_bytes > 8 * 2 * QWEN2_5_7B.parameters


def test_field_16_level_2_where_level_1_is_short_of_host_memory() -> None:
    fields: dict[str, Any] = {"gpusPerNode": 8, "lora": {"r": 16}, "resources": {"limits": {"memory": "200Gi"}}}
    made = case("Qwen/Qwen2.5-7B", A100, Lengths(512, 512), utilization=0.3, memory={"sleepLevel": 1}, **fields)
    assert made.refusal.endswith("Fits with memory.sleepLevel: 2.")


def test_field_19_sampling_for_many_sequences_at_once() -> None:
    """A warm-up with 1024 sequences takes 2 GiB of logits and their copies."""
    few = case("Qwen/Qwen2.5-32B", H20, Lengths(512, 512), utilization=0.7, trainer={"num_generations": 8,
               "per_device_train_batch_size": 8})  # fmt: skip
    many = case("Qwen/Qwen2.5-32B", H20, Lengths(512, 512), utilization=0.7, trainer={"num_generations": 8,
                "per_device_train_batch_size": 8, "gradient_accumulation_steps": 128})  # fmt: skip
    assert (few.settings.kv_cache_bytes - many.settings.kv_cache_bytes) / GIB == pytest.approx(2.0, rel=0.05)


def test_field_21_a_cache_smaller_than_one_sequence() -> None:
    """8192 tokens are the longest sequence, 6048 fit: vLLM does not start."""
    token = cache_bytes_per_token(QWEN2_5_7B, 1, 2)
    fields: dict[str, Any] = {"gpusPerNode": 2, "trainer": {"vllm_max_model_length": 8192}, "lora": {"r": 16}}
    roomy = case("Qwen/Qwen2.5-7B", A100, Lengths(4096, 4096), utilization=0.5, **fields)
    share = 0.5 - (roomy.settings.kv_cache_bytes - 6048 * token) / roomy.device_bytes
    fields = {"gpusPerNode": 2, "trainer": {"vllm_max_model_length": 8192}, "lora": {"r": 16}}
    tight = case("Qwen/Qwen2.5-7B", A100, Lengths(4096, 4096), utilization=share, **fields)
    assert tight.settings.kv_cache_bytes // token in (6047, 6048)
    assert "one sequence of 8192 tokens" in tight.refusal
    assert "Fits with memory.gpuMemoryUtilization: 0." in tight.refusal
