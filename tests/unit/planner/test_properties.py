"""What holds for every job: monotone in its sizes, the same for the same input, refused with a way out that fits."""

import json
import re
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.planner.jobs import job

from colocated_runtime.contract.job import JobSpec
from colocated_runtime.contract.plan import Plan
from colocated_runtime.contract.refusals import refusals
from colocated_runtime.planner.devices import GIB, PRODUCTS, Hardware, hardware_of
from colocated_runtime.planner.features import Checkpointing, Sharding
from colocated_runtime.planner.phases import device_total, fixed, parts, phases
from colocated_runtime.planner.plan import make_plan
from colocated_runtime.planner.shapes import Shape
from colocated_runtime.planner.workload import Lengths, Workload, workload

FULL = settings(max_examples=150, deadline=None)
FEW = settings(max_examples=60, deadline=None)


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    kv_heads = draw(st.integers(1, 16))
    heads = kv_heads * draw(st.integers(1, 8))
    experts = draw(st.sampled_from([0, 0, 4, 64]))
    wide = draw(st.integers(64, 40_000))
    return Shape(
        family=draw(st.sampled_from(["llama", "qwen2", "qwen3", "gemma2", "qwen3_moe"])),
        hidden_size=64 * draw(st.integers(1, 128)),
        num_hidden_layers=draw(st.integers(1, 100)),
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=draw(st.sampled_from([32, 64, 128, 256])),
        intermediate_size=0 if experts else wide,
        vocab_size=draw(st.integers(100, 300_000)),
        tie_word_embeddings=draw(st.booleans()),
        num_experts=experts,
        num_experts_per_tok=min(experts, 4),
        moe_intermediate_size=wide if experts else 0,
    )


def specs() -> st.SearchStrategy[dict[str, Any]]:
    """Valid specs, but for what `refusals` finds."""
    trainer = st.fixed_dictionaries(
        {},
        optional={
            "per_device_train_batch_size": st.sampled_from([1, 2, 8, 32]),
            "gradient_accumulation_steps": st.sampled_from([1, 4, 16]),
            "steps_per_generation": st.sampled_from([4, 8]),
            "num_generations": st.sampled_from([2, 4]),
            "max_completion_length": st.sampled_from([16, 512, 8192, 100_000]),
            "gradient_checkpointing": st.booleans(),
            "loss_type": st.sampled_from(["dapo", "bnpo", "grpo"]),
            "beta": st.sampled_from([0.0, 0.04]),
            "optim": st.sampled_from(["adamw_torch", "adamw_8bit", "lomo"]),
            "vllm_max_model_length": st.sampled_from([110_000, 200_000]),
        },
    )
    memory = st.fixed_dictionaries(
        {"headroom": st.sampled_from([0.0, 0.05, 0.3])},
        optional={
            "policy": st.just("Manual"),
            "gpuMemoryUtilization": st.floats(0.01, 0.99),
            "sleepLevel": st.integers(0, 2),
        },
    )
    gpus = st.sampled_from([1, 2, 8])
    return st.fixed_dictionaries(
        {"trainer": trainer, "memory": memory, "gpusPerNode": gpus, "algorithm": st.just("grpo")},
        optional={
            "lora": st.just({"r": 16}),
            "resources": st.sampled_from([{"limits": {"memory": "64Gi"}}, {"limits": {"memory": "1000Gi"}}]),
            "device": st.builds(lambda name: {"memory": f"{PRODUCTS[name].gibibytes}Gi"}, st.sampled_from([*PRODUCTS])),
        },
    )


def valid(fields: dict[str, Any]) -> JobSpec | None:
    given_fields = {"dataset": {"source": "hf://a/b"}, "rewards": [{"name": "think_format"}], **fields}
    spec = job("a/b", **given_fields)
    return None if refusals(spec) else spec


def planned(spec: JobSpec, shape: Shape, lengths: Lengths | None = None) -> Plan:
    hardware = hardware_of(spec)
    assert hardware is not None
    return make_plan(spec, shape, hardware, lengths=lengths)


@FULL
@given(specs(), shapes())
def test_a_valid_job_has_a_plan_or_a_refusal(fields: dict[str, Any], shape: Shape) -> None:
    spec = valid(fields)
    if spec is None:
        return
    made = planned(spec, shape)
    assert made.fits == (not made.refusal)
    over = [entry for entry in made.phases if entry.device_bytes > made.budget_bytes]
    limit = made.host_limit_bytes
    over += [entry for entry in made.phases if limit is not None and entry.host_bytes > limit]
    if made.fits:
        assert not over
    for entry in made.phases:
        names = [item.name for item in entry.device]
        assert len(names) == len(set(names)), "each use of memory is counted once"
        assert all(item.formula for item in entry.device + entry.host)
    assert planned(spec, shape).model_dump_json() == made.model_dump_json()


@FULL
@given(specs(), shapes())
def test_what_the_user_set_is_kept(fields: dict[str, Any], shape: Shape) -> None:
    spec = valid(fields)
    if spec is None:
        return
    chosen, trainer, memory = planned(spec, shape).settings, spec.trainer, spec.memory
    if memory.gpu_memory_utilization is not None:
        assert chosen.gpu_memory_utilization == memory.gpu_memory_utilization
    if memory.sleep_level is not None:
        assert chosen.sleep_level == memory.sleep_level
    if "gradient_checkpointing" in trainer:
        assert chosen.gradient_checkpointing == trainer["gradient_checkpointing"]
    rows = trainer.get("per_device_train_batch_size", 8)
    if "per_device_train_batch_size" in trainer or trainer.get("loss_type") == "bnpo" or chosen.tokens_at_once:
        assert chosen.per_device_train_batch_size == rows
    accumulation = trainer.get("gradient_accumulation_steps", 1)
    assert chosen.per_device_train_batch_size * chosen.gradient_accumulation_steps == rows * accumulation
    rollout = rows * trainer.get("steps_per_generation", accumulation)
    assert chosen.per_device_train_batch_size * chosen.steps_per_generation == rollout


CHANGES: dict[str, tuple[str, ...]] = {
    r"memory\.gpuMemoryUtilization: (\d\.\d+)": ("memory", "gpuMemoryUtilization"),
    r"memory\.sleepLevel: (\d)": ("memory", "sleepLevel"),
    r"gradient_checkpointing: (true|false)": ("trainer", "gradient_checkpointing"),
    r"per_device_train_batch_size: (\d+)": ("trainer", "per_device_train_batch_size"),
    r"gradient_accumulation_steps: (\d+)": ("trainer", "gradient_accumulation_steps"),
    r"steps_per_generation: (\d+)": ("trainer", "steps_per_generation"),
    r"max_completion_length: (\d+)": ("trainer", "max_completion_length"),
    r"vllm_max_model_length: (\d+)": ("trainer", "vllm_max_model_length"),
    r"tensorParallel: (\d+)": ("parallelism", "tensorParallel"),
    r"limits\.memory: (\d+Gi)": ("resources", "limits", "memory"),
    r"gpusPerNode: (\d+)": ("gpusPerNode",),
    r"^(\d+ GiB)": ("device", "memory"),
    r"headroom: (\d\.\d+)": ("memory", "headroom"),
}


def mended(fields: dict[str, Any], way_out: str) -> dict[str, Any]:
    """The spec with every setting that a refusal proposes."""
    changed: dict[str, Any] = {**fields, "trainer": dict(fields["trainer"]), "memory": dict(fields["memory"])}
    changed["resources"] = {"limits": dict(fields.get("resources", {}).get("limits", {}))}
    for pattern, path in CHANGES.items():
        if found := re.search(pattern, way_out):
            node = changed
            for name in path[:-1]:
                node = node.setdefault(name, {})
            text = found[1]
            node[path[-1]] = text.removesuffix("B").replace(" ", "") if "Gi" in text else json.loads(text)
    if found := re.search(r"memory\.offload: (\w+)", way_out):
        changed["memory"]["offload"] = found[1]
    if "parallelism.sharding: fsdp" in way_out:
        changed["parallelism"] = {**changed.get("parallelism", {}), "sharding": "fsdp"}
    if "adamw_torch_fused" in way_out:
        changed["trainer"]["optim"] = "adamw_torch_fused"
    if "lora:" in way_out:
        changed["lora"] = {"r": 16}
    if "memory.policy: Auto" in way_out:
        changed["memory"].pop("policy", None)
    return changed


@FULL
@given(specs(), shapes())
def test_the_nearest_setting_fits(fields: dict[str, Any], shape: Shape) -> None:
    spec = valid(fields)
    if spec is None:
        return
    refusal = planned(spec, shape).refusal
    assert "  " not in refusal
    assert " ," not in refusal
    for words in ("Fits with ", "devices with at least "):
        _, proposed, way_out = refusal.partition(words)
        way_out = way_out.partition(", or ")[0]
        if proposed:
            again = valid(mended(fields, way_out))
            assert again is not None
            assert planned(again, shape).fits, (refusal, again)


def small_job(shape: Shape, hardware: Hardware, lengths: Lengths, **changes: Any) -> Workload:
    return replace(workload(job("a/b", trainer={"num_generations": 2}), shape, hardware, lengths), **changes)


HARDWARE = Hardware(80 * GIB, 1e15, 3e12, 5e10, 4e11, 8)
KINDS: list[Checkpointing] = ["none", "selective", "half", "full"]


def totals(made: Workload, rows: int, kind: Checkpointing) -> list[int]:
    """Of every phase, with an engine's share of 60 GiB."""
    base = fixed(made)
    cache = 60 * GIB - base.engine.fixed
    return [device_total(use, cache) for use in phases(parts(base, rows, kind), 2, "none").values()]


def none_smaller(one: list[int], other: list[int]) -> bool:
    return all(a <= b for a, b in zip(one, other, strict=True))


@FEW
@given(shapes(), st.integers(1, 16), st.integers(1, 4096), st.integers(1, 4096), st.sampled_from(KINDS), st.booleans())
def test_longer_and_wider_is_never_less(
    shape: Shape, rows: int, prompt: int, completion: int, kind: Checkpointing, flash: bool
) -> None:
    here = small_job(shape, HARDWARE, Lengths(prompt, completion), flash_attention=flash)
    now = totals(here, rows, kind)
    assert none_smaller(now, totals(replace(here, lengths=Lengths(prompt + 7, completion)), rows, kind))
    assert none_smaller(now, totals(replace(here, lengths=Lengths(prompt, completion + 7)), rows, kind))
    assert none_smaller(now, totals(here, rows + 1, kind))


@FEW
@given(shapes(), st.sampled_from(["num_hidden_layers", "vocab_size", "hidden_size"]), st.sampled_from(KINDS))
def test_a_larger_model_is_never_less(shape: Shape, size: str, kind: Checkpointing) -> None:
    lengths = Lengths(64, 512)
    larger = replace(shape, **{size: getattr(shape, size) + 64})
    assert larger.parameters > shape.parameters
    now = totals(small_job(shape, HARDWARE, lengths), 4, kind)
    assert none_smaller(now, totals(small_job(larger, HARDWARE, lengths), 4, kind))


@FEW
@given(shapes(), st.integers(1, 64), st.booleans())
def test_each_stage_of_zero_takes_no_more_than_the_one_before(shape: Shape, ranks: int, lora: bool) -> None:
    lengths = Lengths(64, 512)
    adapters = job(lora={"r": 8}).lora if lora else None
    found: list[list[int]] = []
    stages: list[Sharding] = ["zero1", "zero2", "zero3"]
    for stage in stages:
        made = small_job(shape, HARDWARE, lengths, sharding=stage, world_size=ranks, lora=adapters)
        found.append(totals(made, 4, "full"))
    assert none_smaller(found[2], found[1])
    assert none_smaller(found[1], found[0])


@FEW
@given(shapes(), st.integers(1, 32))
def test_more_devices_never_hold_more_of_a_sharded_model(shape: Shape, ranks: int) -> None:
    lengths = Lengths(64, 512)
    stages: list[Sharding] = ["zero2", "fsdp"]
    for stage in stages:
        here = small_job(shape, HARDWARE, lengths, sharding=stage, world_size=ranks + 1)
        assert none_smaller(totals(replace(here, world_size=2 * (ranks + 1)), 4, "full"), totals(here, 4, "full"))
