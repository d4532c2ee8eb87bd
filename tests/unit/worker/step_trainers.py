"""Plain TRL's trainers and ours, side by side in one process, on completions that both are given."""

import os
import random
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from colocated_runtime.worker import environment

environment.prepare(os.environ, "cpu")

import torch  # noqa: E402
from datasets import Dataset  # noqa: E402
from tests.unit.worker import tiny_model  # noqa: E402
from transformers import (  # noqa: E402
    AutoTokenizer,
    PrinterCallback,
    ProgressCallback,
    Qwen2ForCausalLM,
    TrainerCallback,
)
from trl import GRPOConfig, GRPOTrainer, RLOOConfig, RLOOTrainer  # noqa: E402

from colocated_runtime.planner.settings import StepSettings  # noqa: E402
from colocated_runtime.worker.phases import Moved  # noqa: E402
from colocated_runtime.worker.throughput import Meter  # noqa: E402
from colocated_runtime.worker.trainers import TRAINERS, Collaborators  # noqa: E402
from colocated_runtime.worker.weights import gathered  # noqa: E402

torch.set_num_threads(1)  # of so little work, threads make more

SAMPLED = 6
"""Tokens that `Sampler` draws."""
LONGEST = 24
"""Tokens of a completion; others have few, so that padding and packing differ."""


class Engine:
    """Completions of mixed length that hang on nothing but the prompt's place, with log-probabilities near the
    trainer's own: what an engine's rounding leaves between the two."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.random_state: dict[str, Any] = {}
        self.log_probabilities: list[list[list[float]]] = []
        self._rollouts = 0

    def when_short_of_memory(self, spare: Any) -> None:
        """As the engine's."""
        self.spare = spare

    def sync_weights(self) -> None:
        """Nothing: the model is the trainer's."""

    def generate(self, prompts, images, num_generations, profiler=None):
        """As the engine's."""
        draw = random.Random(self._rollouts)
        self._rollouts += 1
        lengths = [draw.choice((1, 3, 7, 12, LONGEST)) for _ in prompts]
        # One in four ends as a truncated completion does, without the end token.
        completions = [
            [draw.randrange(3, 250) for _ in range(length - 1)] + [2 if draw.random() > 0.25 else 9]
            for length in lengths
        ]
        self.log_probabilities = [
            [[value + draw.gauss(0, 0.05)] for value in self._scored(prompt, completion)]
            for prompt, completion in zip(prompts, completions, strict=True)
        ]
        return prompts, completions, self.log_probabilities, None

    @torch.no_grad()
    def _scored(self, prompt: list[int], completion: list[int]) -> list[float]:
        training = self.model.training
        self.model.eval()
        attention = self.model.config._attn_implementation
        self.model.set_attn_implementation("eager")
        logits = self.model(torch.tensor([prompt + completion])).logits[0, len(prompt) - 1 : -1]
        self.model.set_attn_implementation(attention)
        self.model.train(training)
        chosen = logits.log_softmax(-1).gather(1, torch.tensor(completion)[:, None])[:, 0]
        return chosen.tolist()


class Sampler(Engine):
    """Draws completions from the model itself; both sides use the same random numbers."""

    @torch.no_grad()
    def generate(self, prompts, images, num_generations, profiler=None):
        """As the engine's."""
        numbers = torch.Generator().manual_seed(self._rollouts)
        self._rollouts += 1
        rows = [list(prompt) for prompt in prompts]
        scored: list[list[list[float]]] = [[] for _ in prompts]
        self.model.eval()
        attention = self.model.config._attn_implementation
        self.model.set_attn_implementation("eager")
        for _ in range(SAMPLED):
            chances = self._next(rows)
            threshold = torch.rand(len(rows), 1, generator=numbers, dtype=torch.float64)
            chosen = (chances.cumsum(-1) < threshold).sum(-1).clamp(max=chances.shape[1] - 1).tolist()
            for row, token, values, chance in zip(rows, chosen, scored, chances, strict=True):
                row.append(token)
                values.append([chance[token].log().item()])
        self.model.set_attn_implementation(attention)
        self.model.train()
        self.log_probabilities = scored
        completions = [row[len(prompt) :] for row, prompt in zip(rows, prompts, strict=True)]
        return prompts, completions, scored, None

    def _next(self, rows: list[list[int]]) -> torch.Tensor:
        """Probabilities of the next token of each row, [rows, vocabulary]."""
        width = max(map(len, rows))
        empty = [width - len(row) for row in rows]
        ids = torch.tensor([[0] * count + row for count, row in zip(empty, rows, strict=True)])
        place = torch.arange(width)[None] - torch.tensor(empty)[:, None]
        output = self.model(input_ids=ids, attention_mask=(place >= 0).long(), position_ids=place.clamp(0))
        return output.logits[:, -1].double().softmax(-1)


class Plain:
    """TRL as it is, but for the engine."""

    def __init__(self, *, engine: type[Engine], **kwargs: Any) -> None:
        args = kwargs["args"]
        super().__init__(**kwargs)
        args.use_vllm = self.use_vllm = True
        self._last_loaded_step = -1
        self.vllm_generation = engine(self.model)


class PlainGRPO(Plain, GRPOTrainer):
    """GRPO."""


class PlainRLOO(Plain, RLOOTrainer):
    """RLOO."""


PLAIN = {"grpo": PlainGRPO, "rloo": PlainRLOO}
CONFIGS = {"grpo": GRPOConfig, "rloo": RLOOConfig}


class Phases:
    """As the worker's, but forgetful."""

    def __init__(self) -> None:
        self.pressed: list[str] = []
        self.moved: list[tuple[str, int]] = []

    @contextmanager
    def __call__(self, phase):
        yield

    @contextmanager
    def handover(self, what):
        yield (moved := Moved())
        self.moved.append((what, moved.bytes))

    def pressure(self, message: str) -> None:
        self.pressed.append(message)


@dataclass
class Seen(TrainerCallback):
    """The gradients of each optimizer step, and what was logged."""

    gradients: list[dict[str, torch.Tensor]] = field(default_factory=list)
    logs: list[dict[str, float]] = field(default_factory=list)

    def on_pre_optimizer_step(self, args, state, control, model=None, **kwargs):
        found = {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}
        self.gradients.append({name: gathered(gradient).clone() for name, gradient in found.items()})

    def on_log(self, args, state, control, logs=None, **kwargs):
        if "reward" in logs:
            self.logs.append(dict(logs))


def write_policy(where: Path, **changes: Any) -> Path:
    """A tiny model below `where`, with weights small enough that float32's rounding stays far below 1e-5."""
    config = tiny_model.config(320, **changes)
    config.initializer_range = 0.1
    torch.manual_seed(7)
    Qwen2ForCausalLM(config).save_pretrained(where / "policy")
    tiny_model.tokenizer().save_pretrained(where / "policy")
    return where


def mixed_reward(completions, completion_ids, **kwargs):
    """Different for nearly every completion."""
    return [sum(token % 7 for token in ids) / len(ids) for ids in completion_ids]


def build(
    models: Path, algorithm: str, *, own: bool, tokens: int = 80, recompute: Any = None, offload: bool = False,
    peft_config: Any = None,
    engine: type[Engine] = Engine, reward: Any = mixed_reward, **options: Any,
) -> Any:  # fmt: skip
    """A trainer of two optimizer steps; `options` are TRL's. Its `seen` and `phases` tell what happened."""
    arguments = {
        "output_dir": str(models / "out"), "report_to": "none", "use_cpu": True, "bf16": False, "max_steps": 2,
        "per_device_train_batch_size": 4, "num_generations": 4, "gradient_accumulation_steps": 2, "max_grad_norm": 0.0,
        "max_completion_length": LONGEST, "learning_rate": 0.1, "disable_dropout": True, "logging_steps": 1,
        "save_strategy": "no", "seed": 5, "gradient_checkpointing": False, "optim": "sgd",
        "lr_scheduler_type": "constant",
        "model_init_kwargs": {"dtype": "float32"}, "use_vllm": False, **options,
    }  # fmt: skip
    seen, phases = Seen(), Phases()
    made = {
        "model": str(models / "policy"),
        "reward_funcs": [reward],
        "args": CONFIGS[algorithm](**arguments),
        "train_dataset": Dataset.from_list([{"prompt": "say " * (1 + row % 3) + str(row)} for row in range(32)]),
        "processing_class": AutoTokenizer.from_pretrained(models / "policy", padding_side="left"),
        "callbacks": [seen],
        "peft_config": peft_config,
    }
    if own:
        settings = StepSettings(own_step=True, tokens=tokens, recompute=recompute, offload=offload)
        collaborators = Collaborators(
            phases=phases,
            store=None,
            make_engine=lambda model, sampling: engine(model),
            step=settings,
            meter=Meter(phases),
            on_saved=None,
        )
        trainer = TRAINERS[algorithm](collaborators=collaborators, **made)
    else:
        trainer = PLAIN[algorithm](engine=engine, **made)
    for printer in (PrinterCallback, ProgressCallback):
        trainer.remove_callback(printer)
    trainer.seen, trainer.phases = seen, phases
    return trainer


def train(models: Path, algorithm: str, **options: Any) -> Any:
    """`build`, trained to its end."""
    trainer = build(models, algorithm, **options)
    trainer.train()
    return trainer


def distance(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> float:
    """The largest difference of two gradients, tensor by tensor, relative to the tensor's length."""
    assert first.keys() == second.keys()
    return max(((first[name] - second[name]).norm() / first[name].norm().clamp(min=1e-12)).item() for name in first)


def distances(plain: Any, own: Any) -> list[float]:
    """`distance` at each optimizer step."""
    assert len(plain.seen.gradients) == len(own.seen.gradients)
    return [distance(*pair) for pair in zip(plain.seen.gradients, own.seen.gradients, strict=True)]
