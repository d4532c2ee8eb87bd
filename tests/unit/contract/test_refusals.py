"""Every mistake is refused, by one message that names the field; and nothing else is."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from tests.unit.contract.bad_jobs import BAD_JOBS, GOOD, BadJob, changed

from colocated_runtime.contract.job import JobSpec
from colocated_runtime.contract.names import OPERATORS_VARIABLES
from colocated_runtime.contract.options import CONFIGS, GONE, options
from colocated_runtime.contract.refusals import clash, refusals
from colocated_runtime.contract.trainer import OPTIMIZER_PACKAGES


def said(**changes: Any) -> list[str]:
    """Refusals of GOOD with `changes`; __ in a name stands for a dot."""
    spec = changed(GOOD, {name.replace("__", "."): value for name, value in changes.items()})
    return refusals(JobSpec.model_validate(spec))


def test_good_job_is_not_refused() -> None:
    assert said() == []


@pytest.mark.parametrize("bad", BAD_JOBS, ids=lambda bad: bad.name)
def test_what_the_api_server_refuses_is_refused_without_it(bad: BadJob) -> None:
    try:
        messages = refusals(JobSpec.model_validate(bad.spec))
    except ValidationError as error:
        messages = [str(error)]
    assert any(bad.refusal in message for message in messages), messages


def test_own_command_needs_no_model() -> None:
    assert said(model=None, dataset=None, rewards=None, runtime__command=["python", "train.py"]) == []


def test_names_that_no_object_can_have() -> None:
    for name in ("A b", "a_b", "-a", "a.", "a..b", "a/b", "Ä"):
        assert said(checkpoint__storage={"claim": name}) == [
            f"checkpoint.storage.claim: {name!r} is no name that a PersistentVolumeClaim can have; use that of an"
            " existing one: lower-case letters, digits, - and ."
        ]
        one = {"name": name, "key": "k"}
        env = [{"name": "A", "valueFrom": {"secretKeyRef": one}}, {"name": "B", "valueFrom": {"configMapKeyRef": one}}]
        keys = [{"secretRef": {"name": name}}, {"configMapRef": {"name": name}}]
        told = said(runtime__env=env, runtime__envFrom=keys)
        assert [line.partition(":")[0] for line in told] == [
            "runtime.env[0].valueFrom.secretKeyRef.name", "runtime.env[1].valueFrom.configMapKeyRef.name",
            "runtime.envFrom[0].secretRef.name", "runtime.envFrom[1].configMapRef.name",
        ]  # fmt: skip
    for name in ("a", "7", "a.b-c.9"):
        assert said(checkpoint__storage={"claim": name}) == []


def test_unknown_option_is_refused_with_the_name_that_was_meant() -> None:
    assert said(trainer__num_generation=8) == [
        "trainer.num_generation: no option of TRL's GRPOConfig; did you mean num_generations?"
    ]


def test_an_option_of_earlier_versions_is_told_what_to_do_instead() -> None:
    (message,) = said(trainer__max_prompt_length=512)
    assert message.startswith(
        "trainer.max_prompt_length: no option of TRL's GRPOConfig; prompts are not cut; take rows"
    )
    assert not [name for algorithm in CONFIGS for name in GONE if name in options(algorithm)]


def test_numbers_that_are_none() -> None:
    for name in ("logging_steps", "epsilon", "num_train_epochs"):
        for value in (float("inf"), float("nan")):
            messages = said(**{f"trainer__{name}": value})
            assert f"trainer.{name}: {value} is no number to train with; use a finite one" in messages


def test_an_unknown_option_of_the_other_algorithm_is_told_as_such() -> None:
    (message,) = said(algorithm="rloo", trainer__top_entropy_quantile="high")
    assert message.startswith("trainer.top_entropy_quantile: no option of TRL's RLOOConfig")


def test_completions_have_an_end() -> None:
    endless = changed(GOOD, {}) | {"trainer": {"num_generations": 8, "max_completion_length": None}}
    (message,) = refusals(JobSpec.model_validate(endless))
    assert message.startswith("trainer.max_completion_length: null sets no end")


def test_a_batch_of_one_has_no_number_of_generations() -> None:
    (message,) = said(trainer__per_device_train_batch_size=1)
    assert message.endswith("= per_device_train_batch_size 1 x 1 rank x steps_per_generation 1; use a batch of at least"
                            " two completions")  # fmt: skip


@pytest.mark.parametrize(
    ("trainer", "words"),
    [
        (
            {"use_liger_kernel": True},
            "trainer.use_liger_kernel: true needs liger-kernel, which the operator's image has",
        ),
        ({"model_init_kwargs": {"use_kernels": True}}, "use_kernels: true needs kernels, "),
        (
            {"model_init_kwargs": {"attn_implementation": "flash_attention_2"}},
            "trainer.model_init_kwargs.attn_implementation: flash_attention_2 needs flash-attn, ",
        ),
        (
            {"model_init_kwargs": {"attn_implementation": "kernels-community/flash-attn3"}},
            "flash-attn3 needs kernels, ",
        ),
    ],
)
def test_options_whose_package_the_image_has_not(trainer: dict[str, Any], words: str) -> None:
    changes = {f"trainer__{name}": value for name, value in trainer.items()}
    (message,) = said(**changes)
    assert words in message
    assert said(**changes, runtime__image="example.org/own:1") == []
    for kind in ("sdpa", "eager"):
        assert said(trainer__model_init_kwargs={"attn_implementation": kind}) == []


def test_an_optimizer_whose_package_the_image_has_not() -> None:
    (message,) = said(trainer__optim="adamw_8bit")
    assert message.startswith("trainer.optim: adamw_8bit needs bitsandbytes, which the operator's image has not; set")
    assert said(trainer__optim="adamw_8bit", runtime__image="example.org/with-bitsandbytes:1") == []
    own = {"adamw_torch", "adamw_torch_fused", "adafactor", "sgd", "adagrad", "rmsprop"}
    assert own.isdisjoint(OPTIMIZER_PACKAGES)
    assert own | OPTIMIZER_PACKAGES.keys() == set(options("grpo")["optim"].choices)
    image = (Path(__file__).parents[3] / "constraints" / "runtime-cuda.txt").read_text()
    assert not [name for name in set(OPTIMIZER_PACKAGES.values()) if f"\n{name}==" in image]


def test_option_of_the_other_algorithm_is_unknown() -> None:
    (message,) = said(algorithm="rloo", trainer__loss_type="grpo")
    assert message.startswith("trainer.loss_type: no option of TRL's RLOOConfig")


def test_another_image_may_know_other_options() -> None:
    assert said(trainer__quite_new=1, runtime__image="example.org/newer-trl:1") == []


@pytest.mark.parametrize(
    ("option", "value", "part"),
    [
        ("loss_type", "ppo", "'ppo' is none of grpo, bnpo"),
        ("importance_sampling_level", "word", "none of token, sequence"),
        ("lr_scheduler_type", "sinus", "none of linear, cosine"),
        ("learning_rate", "1e-6", "write 1e-06, without quotes"),
        ("num_generations", 8.0, "write 8"),
        ("learning_rate", -1e-6, "too small; use at least 0"),
        ("temperature", 0, "above 0"),
        ("top_p", 1.5, "above 0 and at most 1"),
        ("model_init_kwargs", {"dtype": "float32"}, "set model.dtype"),
        ("model_init_kwargs", {"load_in_8bit": True}, "unquantized"),
        ("generation_kwargs", {"max_tokens": 5}, "set trainer.max_completion_length"),
        ("gradient_checkpointing_kwargs", {"every_n_layers": 2}, "leave it out"),
        ("liger_kernel_config", {"fused_linear_cross_entropy": True}, "leave it out"),
        ("lr_scheduler_type", "reduce_lr_on_plateau", "use e.g. cosine"),
        ("logging_steps", 0, "at least 1"),
        ("num_train_epochs", 0, "trains nothing"),
        ("sync_ref_model", True, "leave it out"),
        ("vllm_importance_sampling_clip_min", 4.0, "is not below vllm_importance_sampling_clip_max 3.0"),
        ("loss_type", "vespo", "token_truncate or token_mask"),
    ],
)
def test_what_trl_would_say_minutes_later(option: str, value: Any, part: str) -> None:
    (message,) = said(**{f"trainer__{option}": value})
    assert message.startswith(f"trainer.{option}")
    assert part in message


def test_truncation_needs_a_bound() -> None:
    spec = changed(GOOD, {"trainer.vllm_importance_sampling_mode": "token_truncate"})
    spec["trainer"]["vllm_importance_sampling_clip_max"] = None
    (message,) = refusals(JobSpec.model_validate(spec))
    assert message.startswith("trainer.vllm_importance_sampling_mode: token_truncate needs a bound")


def test_booleans_that_trl_takes_are_taken() -> None:
    assert said(trainer__scale_rewards=False) == []


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "ACCELERATE_USE_MEGATRON_LM",
            "TRL has no code for Megatron-LM, whose backward pass would silently do nothing",
        ),
        ("ACCELERATE_USE_DEEPSPEED", "DeepSpeed's ZeRO is not supported yet"),
        ("ACCELERATE_USE_FSDP", "FSDP is switched on by parallelism.sharding: fsdp"),
    ],
)
def test_variables_that_would_shard_the_model_past_the_spec(name: str, words: str) -> None:
    (message,) = said(runtime__env=[{"name": name, "value": "true"}])
    assert message.startswith(f"runtime.env: {name}: {words}; leave it out: parallelism.sharding: fsdp shares")
    assert said(runtime__env=[{"name": name, "value": "false"}]) == []
    own_program = {"command": ["python", "train.py"], "env": [{"name": name, "value": "true"}]}
    assert said(model=None, dataset=None, rewards=None, runtime=own_program) == []


def test_dropout_of_an_adapter_needs_dropout() -> None:
    (message,) = said(lora={"lora_dropout": 0.1})
    assert message.startswith("lora.lora_dropout: 0.1 would have no effect, since dropout is off; set trainer.disable_")
    assert said(lora={"lora_dropout": 0.1}, trainer__disable_dropout=False) == []
    assert said(lora={"lora_dropout": 0}) == []


def test_too_few_prompts_for_one_rollout() -> None:
    (message,) = said(dataset__source="reasoning-gym://gcd?size=3", trainer__steps_per_generation=4)
    assert message.startswith("dataset: 3 rows, but one rollout takes 4 different prompts")
    (message,) = said(dataset__maxSamples=1, trainer__steps_per_generation=2)
    assert message.startswith("dataset: 1 rows")


def test_the_rendezvous_port_is_a_port() -> None:
    (message,) = said(runtime__env=[{"name": "MASTER_PORT", "value": "abc"}])
    assert message == "runtime.env[0]: MASTER_PORT: 'abc' is no port; use a number from 1 to 65535, or leave it out"
    assert said(runtime__env=[{"name": "MASTER_PORT", "value": "29501"}]) == []


def test_a_product_is_a_value_of_a_label() -> None:
    (message,) = said(gpusPerNode=1, device__product="NVIDIA H100 80GB HBM3")
    assert message.startswith("device.product: 'NVIDIA H100 80GB HBM3' is no value of a node's label; write it as")


GPU: dict[str, Any] = {"gpusPerNode": 1}


@pytest.mark.parametrize(
    ("product", "more", "words"),
    [
        ("AMD_Instinct_MI300X_OAM", {}, "no product of nvidia.com, and the GPUs are asked for as nvidia.com/gpu"),
        ("AMD_Instinct_MI300X_OAM", {}, "set resourceName: amd.com/gpu"),
        ("MI300X", {}, "set resourceName: amd.com/gpu"),
        ("NVIDIA-H200", {"resourceName": "amd.com/gpu"}, "set resourceName: nvidia.com/gpu"),
        ("H100", {"resourceName": "amd.com/gpu"}, "set resourceName: nvidia.com/gpu"),
        ("H100", {}, "use NVIDIA-H100-80GB-HBM3 or NVIDIA-H100-PCIe or NVIDIA-H100-NVL"),
        ("H100-SHARED", {}, "use NVIDIA-H100-80GB-HBM3-SHARED or"),
        ("A100-80GB", {}, "use NVIDIA-A100-SXM4-80GB or NVIDIA-A100-80GB-PCIe"),
        ("RTX-4090", {}, "use NVIDIA-GeForce-RTX-4090"),
        ("T4", {"model__dtype": "float32"}, "use Tesla-T4"),
        ("nvidia-h200", {}, "use NVIDIA-H200 or NVIDIA-H200-NVL"),
        (
            "NVIDIA-GeForce-RTX-4090",
            {"resourceName": "nvidia.com/mig-1g.5gb"},
            "nvidia.com/mig-1g.5gb asks for a slice",
        ),
        ("NVIDIA-L4-MIG-1g.5gb", {}, "is not divided by MIG, and NVIDIA-L4-MIG-1g.5gb asks for a slice"),
        ("Tesla-V100-SXM2-32GB", {"model__dtype": "float32"}, "too old for the torch of the operator's image"),
    ],
)
def test_a_product_that_no_node_could_give(product: str, more: dict[str, Any], words: str) -> None:
    if more.get("resourceName") == "amd.com/gpu":
        more = {**more, "runtime__image": "example.org/rocm:1"}
    (message,) = said(**GPU, device__product=product, **more)
    assert message.startswith(f"device.product: {product} ")
    assert words in message


@pytest.mark.parametrize(
    "product",
    [
        "NVIDIA-H100-80GB-HBM3", "NVIDIA-H100-80GB-HBM3-SHARED", "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", "NVIDIA-Z9000",
        "GRID-A100D-20C", "NVIDIA-A100-80GB-PCIe-MIG-1g.10gb.shared", "our-own-label",
    ],
)  # fmt: skip
def test_a_product_that_a_node_may_well_have(product: str) -> None:
    assert said(**GPU, device__product=product) == []


def test_devices_of_other_kinds() -> None:
    (message,) = said(**GPU, resourceName="gpu.intel.com/i915")
    assert message.startswith("resourceName: gpu.intel.com/i915 is no device of CUDA or ROCm; use nvidia.com/gpu")
    assert said(**GPU, resourceName="volcano.sh/vgpu-number", device__product="NVIDIA-H200") == []


def test_slices_of_what_has_them() -> None:
    assert said(**GPU, device__product="NVIDIA-H100-80GB-HBM3", resourceName="nvidia.com/mig-3g.40gb") == []


def test_bfloat16_where_the_engine_cannot() -> None:
    (message,) = said(**GPU, device__product="Tesla-T4")
    assert message.startswith("model.dtype: bfloat16 cannot be generated with on Tesla-T4")
    assert "use float16 with lora, float32, or another device" in message
    assert said(**GPU, device__product="Tesla-T4", model__dtype="float32") == []
    assert said(**GPU, device__product="Tesla-T4", model__dtype="float16", lora={}) == []
    assert said(device__product="Tesla-T4", device__backend="cpu") == [], "runs on the node's CPU"


def template(**resources: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "colocated", "resources": resources}]}}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"resources": {"requests": {"memory": "64Gi"}, "limits": {"memory": "32Gi"}}},
            "resources.requests.memory: 64Gi is more than its limit 32Gi; lower it, or raise resources.limits.memory",
        ),
        (
            {"resources": {"requests": {"cpu": "1500m"}, "limits": {"cpu": 1}}},
            "resources.requests.cpu: 1500m is more than its limit 1; lower it, or raise resources.limits.cpu",
        ),
        (
            {"resources__limits": {"memory": "8Gi"}, "runtime__podTemplate": template(requests={"memory": "9Gi"})},
            "runtime.podTemplate.spec.containers[0].resources.requests.memory: 9Gi is more than its limit 8Gi; lower"
            " it, or raise runtime.podTemplate.spec.containers[0].resources.limits.memory",
        ),
        (
            {"gpusPerNode": 1, "runtime__podTemplate": template(limits={"nvidia.com/gpu": 4})},
            "runtime.podTemplate.spec.containers[0].resources.limits: nvidia.com/gpu is set by gpusPerNode; leave it"
            " out of the template",
        ),
        (
            {"runtime__podTemplate": {"spec": {"initContainers": [
                {"name": "x", "resources": {"requests": {"cpu": 2}, "limits": {"cpu": 1}}}]}}},
            "runtime.podTemplate.spec.initContainers[0].resources.requests.cpu: 2 is more than its limit 1; lower it,"
            " or raise runtime.podTemplate.spec.initContainers[0].resources.limits.cpu",
        ),
    ],
)  # fmt: skip
def test_requests_above_limits(changes: dict[str, Any], message: str) -> None:
    assert said(**changes) == [message]


def test_requests_within_limits_and_templates_of_other_forms() -> None:
    assert said(resources={"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"cpu": 1, "memory": "1Gi"}}) == []
    assert (
        said(resources__limits={"cpu": 1}, runtime__podTemplate=template(requests={"cpu": 2}, limits={"cpu": None}))
        == []
    )
    for odd in ({"spec": None}, template(requests={"cpu": "x"})):
        assert said(resources__limits={"cpu": 1}, runtime__podTemplate=odd) == []


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ({"spec": [1]}, "spec: [1] is no map of fields; write it as a pod template has it"),
        ({"metadata": {"labels": ["a"]}}, "metadata.labels: ['a'] is no map of fields"),
        ({"spec": {"containers": "x"}}, "spec.containers: 'x' is no list; write its items with a dash each"),
        ({"spec": {"containers": [3]}}, "spec.containers[0]: 3 is no map of fields"),
        ({"spec": {"containers": [{"name": "a", "env": {"A": "b"}}]}}, "spec.containers[0].env: {'A': 'b'} is no list"),
        ({"spec": {"affinity": {"nodeAffinity": "none"}}}, "spec.affinity.nodeAffinity: 'none' is no map of fields"),
        ({"spec": {"terminationGracePeriodSeconds": "soon"}}, "'soon' is no whole number; write e.g. 600"),
        ({"spec": {"restartPolicy": "OnFailure"}}, "spec.restartPolicy: 'OnFailure', but attempts are counted by the"),
        ({"spec": {"terminationGracePeriodSeconds": True}}, "True is no whole number; write e.g. 600"),
    ],
)
def test_what_is_no_pod_template(template: dict[str, Any], message: str) -> None:
    (found,) = said(runtime__podTemplate=template)
    assert found.startswith("runtime.podTemplate.")
    assert message in found


@pytest.mark.parametrize("name", sorted(OPERATORS_VARIABLES))
def test_the_operators_own_variables(name: str) -> None:
    (message,) = said(runtime__env=[{"name": name, "value": "-1"}])
    assert message == f"runtime.env[0]: {name} is the operator's own; leave it out"


def test_a_pod_template_of_the_right_form() -> None:
    form = {"spec": {"containers": [{"name": "worker", "env": None}], "nodeSelector": {"a": "b"}, "hostname": 7}}
    assert said(runtime__podTemplate=form) == []


def test_rocm_needs_an_own_image() -> None:
    changes = {"gpusPerNode": 1, "resourceName": "amd.com/gpu"}
    assert said(**changes)[0].startswith("device.backend: rocm has no image yet")
    assert said(**changes, runtime__image="example.org/rocm:1") == []


def test_a_dense_model_has_no_router() -> None:
    shape = {
        "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 6, "num_key_value_heads": 2,
        "intermediate_size": 128, "vocab_size": 1000,
    }  # fmt: skip
    (message,) = said(model__shape=shape, trainer__router_aux_loss_coef=0.01)
    assert "no experts" in message


@pytest.mark.parametrize("size", ["many", "0", "999999999", "9" * 600])
def test_gym_size_must_be_a_number(size: str) -> None:
    (message,) = said(dataset__source=f"reasoning-gym://gcd?size={size}")
    assert message.startswith(f"dataset.source: size={size}")


def test_a_template_that_would_fill_the_memory() -> None:
    (message,) = said(dataset__promptTemplate="{question:999999999}")
    assert message.startswith("dataset.promptTemplate: the format '999999999' of question is wider")
    evaluation = {"dataset": {"source": "reasoning-gym://gcd", "promptTemplate": "{question"}}
    (message,) = said(evaluation=evaluation)
    assert message.startswith("evaluation.dataset.promptTemplate: expected '}'")


def test_modules_of_one_name_in_two_config_maps_clash() -> None:
    assert clash({"a": ["score.py", "notes.txt"], "b": ["other.py", "notes.txt"]}) == ""
    assert clash({"a": ["score.py"], "b": ["x.py", "score.py"], "c": ["score.py"]}) == (
        "rewards[].configMap: a, b and c hold score.py, and Python imports only one of a name; rename the others"
    )


@pytest.mark.parametrize("amount", ["0", "-5Gi", "1E", "1e30"])
@pytest.mark.parametrize("field", ["device.memory", "resources.limits.memory"])
def test_a_memory_has_a_size(field: str, amount: str) -> None:
    spec = JobSpec.model_validate(changed(GOOD, {field: amount}))
    assert [text for text in refusals(spec) if text.startswith(f"{field}: {amount} is no size")]


@pytest.mark.parametrize(
    ("field", "amount", "words"),
    [
        ("device.memory", 80, "80 is 80 bytes, too few to mean it; write 80Gi"),
        ("device.memory", "80k", "80k is 80000 bytes, too few to mean it; write e.g. 80Gi"),
        ("device.memory", "1023Mi", "1023Mi is 1072693248 bytes, too few to mean it; write e.g. 80Gi"),
        ("resources.limits.memory", 96, "96 is 96 bytes, too few to mean it; write 96Gi"),
        ("resources.requests.memory", "64", "64 is 64 bytes, too few to mean it; write 64Gi"),
        ("checkpoint.storage", {"volumeClaimTemplate": {"storage": 50}}, "50 is 50 bytes, too few"),
        ("checkpoint.storage", {"emptyDir": {"sizeLimit": "100m"}}, "100m is no size of a memory"),
    ],
)
def test_an_amount_without_its_unit(field: str, amount: Any, words: str) -> None:
    (message,) = refusals(JobSpec.model_validate(changed(GOOD, {field: amount})))
    assert message.startswith(field)
    assert f": {words}" in message


@pytest.mark.parametrize("field", ["resources.limits.memory", "resources.requests.memory"])
def test_a_small_pod_is_no_mistake(field: str) -> None:
    assert refusals(JobSpec.model_validate(changed(GOOD, {field: "64Mi"}))) == []
