"""Options of TRL's that fail only where they are used: tried before the engine costs minutes, and named."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from transformers import Trainer, get_scheduler

from colocated_runtime.worker.engine import Sampling
from colocated_runtime.worker.errors import UserError

OPTIMIZER = ("optim_args", "learning_rate", "weight_decay", "adam_beta1", "adam_beta2", "adam_epsilon")


def options(args: Any) -> None:
    """Raise UserError for what vLLM, the optimizer or the scheduler refuse. `args`: TRL's configuration."""
    with _named("generation_kwargs", "vLLM refuses them"):
        _sampling(args).params()
    # Others can be made for a real model only.
    if not args.optim_target_modules and "lomo" not in args.optim.value:
        with _named("optim", f"{args.optim.value} cannot be made of {', '.join(OPTIMIZER)}"):
            made, kwargs = Trainer.get_optimizer_cls_and_kwargs(args)
            made([_weight()], **kwargs)
    with _named("lr_scheduler_kwargs", f"the scheduler {args.lr_scheduler_type.value} refuses them"):
        get_scheduler(args.lr_scheduler_type, torch.optim.SGD([_weight()]), 1, 2, args.lr_scheduler_kwargs)


@contextmanager
def model_options(given: dict[str, Any] | None) -> Iterator[None]:
    """Raise UserError where the model that is made inside does not take one of trainer.model_init_kwargs."""
    try:
        yield
    except TypeError as error:
        found = re.search(r"unexpected keyword argument '(\w+)'", str(error))
        if found and found[1] in (given or {}):
            message = f"trainer.model_init_kwargs: the model takes no {found[1]} ({error}); leave it out"
            raise UserError(message) from error
        raise


@contextmanager
def _named(option: str, what: str) -> Iterator[None]:
    try:
        yield
    except (ValueError, TypeError, ImportError) as error:
        said = str(error).strip().partition("\n")[0]
        raise UserError(f"trainer.{option}: {what}: {said}") from error


def _sampling(args: Any) -> Sampling:
    return Sampling(
        temperature=args.temperature, top_p=args.top_p, top_k=args.top_k or 0, min_p=args.min_p,
        repetition_penalty=args.repetition_penalty, max_completion_length=args.max_completion_length,
        generation_kwargs=dict(args.generation_kwargs or {}),
    )  # fmt: skip


def _weight() -> torch.nn.Parameter:
    return torch.nn.Parameter(torch.zeros(1))
