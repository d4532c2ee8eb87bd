"""What the worker refuses before torch is imported: the same words as the operator's, where no operator has looked."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.contract.bad_jobs import GOOD, changed
from tests.unit.worker.rank import run_rank

from colocated_runtime.contract.job import JobSpec, Lora
from colocated_runtime.contract.outcome import Outcome
from colocated_runtime.contract.refusals import refusals
from colocated_runtime.worker import checks
from colocated_runtime.worker.errors import UserError


def test_adapters_on_tied_embeddings() -> None:
    for name in ("embed_tokens", "lm_head", "model.embed_tokens"):
        with pytest.raises(UserError, match=f"^lora.target_modules: {name} shares its weights"):
            checks.adapters(Lora.model_validate({"target_modules": ["q_proj", name]}), tied=True)
        checks.adapters(Lora.model_validate({"target_modules": ["q_proj", name]}), tied=False)
    checks.adapters(Lora(), tied=True)
    checks.adapters(None, tied=True)


@pytest.mark.parametrize(
    "changes",
    [{"dataset": None}, {"rewards": []}, {"model.dtype": "float16"}, {"trainer.num_generations": 7, "lora.r": 8}],
    ids=str,
)
def test_a_bad_job_fails_with_the_operators_words(tmp_path: Path, changes: dict[str, Any]) -> None:
    spec = changed(GOOD, changes)
    state = run_rank(tmp_path, spec).state
    assert state.outcome is Outcome.USER_ERROR
    assert state.message == "; ".join(refusals(JobSpec.model_validate(spec)))
    assert state.traceback == ""


def test_too_few_prompts_for_a_rollout() -> None:
    args = SimpleNamespace(
        per_device_train_batch_size=8, world_size=2, gradient_accumulation_steps=1, steps_per_generation=1,
        num_generations=4,
    )  # fmt: skip
    checks.prompt_count(4, args)
    with pytest.raises(UserError, match=r"^dataset: 3 rows, but one rollout takes 4 different prompts"):
        checks.prompt_count(3, args)


def test_longest_prompt_and_completion_fit_into_the_engine() -> None:
    assert checks.engine_length(100, 28, None, 2048) == 128
    assert checks.engine_length(100, 28, 512, 2048) == 512
    with pytest.raises(UserError, match=r"over trainer.vllm_max_model_length = 120. Use at most 20"):
        checks.engine_length(100, 28, 120, 2048)
    with pytest.raises(UserError, match=r"over the model's max_position_embeddings = 64. Use shorter prompts"):
        checks.engine_length(100, 28, None, 64)
    with pytest.raises(UserError, match=r"^trainer.vllm_max_model_length: 4096 is over the model's .* = 2048; use at"):
        checks.engine_length(100, 28, 4096, 2048)


@pytest.mark.torch  # jinja2 comes with it
def test_a_template_that_refuses_a_prompt_names_the_dataset() -> None:
    from jinja2 import TemplateError

    class Tokenizer:
        def apply_chat_template(self, prompts: Any, **options: Any) -> Any:
            raise TemplateError("System role not supported")

    words = r"^evaluation.dataset: the chat template of model.source refuses a prompt: System role not supported; leave"
    with pytest.raises(UserError, match=words):
        checks.prompt_lengths(Tokenizer(), "evaluation.dataset", [[{"role": "system", "content": "x"}]])


def test_variables_of_the_image_that_would_shard_the_model() -> None:
    checks.environment({"ACCELERATE_USE_MEGATRON_LM": "false", "PATH": "/bin"})
    with pytest.raises(UserError, match=r"ACCELERATE_USE_MEGATRON_LM is set: TRL has no code for Megatron-LM"):
        checks.environment({"ACCELERATE_USE_MEGATRON_LM": "true"})
