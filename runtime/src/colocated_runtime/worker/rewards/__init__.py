"""Rewards of the spec as callables with TRL's signature: f(prompts, completions, **columns) -> list of floats."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from colocated_runtime.contract.job import JobSpec
from colocated_runtime.contract.job import Reward as RewardSpec
from colocated_runtime.worker.phases import Handover
from colocated_runtime.worker.rewards import builtin, function
from colocated_runtime.worker.sources import Sources

RewardFunction = Callable[..., Any]


def build_rewards(
    spec: JobSpec, sources: Sources, rewards_dir: Path, device: str, handover: Handover
) -> list[RewardFunction]:
    """One callable for each of spec.rewards, in order. Raise UserError naming the reward's field."""
    made = [
        _build(reward, f"rewards[{index}]", spec, sources, rewards_dir, device, handover)
        for index, reward in enumerate(spec.rewards)
    ]
    _tell_apart(made)
    return made


def _tell_apart(rewards: list[RewardFunction]) -> None:
    """TRL counts a reward's metrics under its name: two of one name would be one."""
    names = Counter(reward.__name__ for reward in rewards)
    for index, reward in enumerate(rewards):
        if names[reward.__name__] > 1 and reward not in builtin.BUILTIN.values():
            reward.__name__ += f"[{index}]"


def _build(
    reward: RewardSpec,
    field: str,
    spec: JobSpec,
    sources: Sources,
    rewards_dir: Path,
    device: str,
    handover: Handover,
) -> RewardFunction:
    if reward.name:
        return builtin.BUILTIN[reward.name]
    if reward.function:
        directory = rewards_dir / reward.config_map if reward.config_map else None
        return function.load(reward.function, directory, f"{field}.function")
    from colocated_runtime.worker.model_files import refuse_incomplete
    from colocated_runtime.worker.rewards import model  # the only one that needs torch

    assert reward.model is not None
    assert spec.model is not None
    path = sources.local("model", reward.model, f"{field}.model")
    refuse_incomplete(path, f"{field}.model", reward.model)
    return model.RewardModel(path, f"{field}.model", dtype=spec.model.dtype, device=device, handover=handover)
