"""Mean reward over held-out prompts, decoded greedily by the engine that trains, scored by the same rewards."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from colocated_runtime.contract.report import Evaluation, Phase
from colocated_runtime.worker.errors import RewardError
from colocated_runtime.worker.phases import Phases

Z95 = 1.959964
"""Two-sided 95 % quantile of the normal distribution."""


@dataclass(frozen=True)
class Evaluator:
    """Evaluates the trainer's present policy; every rank takes its share of the prompts."""

    trainer: Any
    rows: Any
    """Held-out prompts, a datasets.Dataset as for training."""
    phases: Phases

    def __call__(self, step: int) -> Evaluation:
        """Mean reward of all prompts. A collective: every rank must call it."""
        with self.phases(Phase.EVALUATE):
            rewards = self._rewards()
        return summarize(rewards, step)

    def _rewards(self) -> list[float | None]:
        """Of each prompt; None where no reward has a word on it."""
        accelerator = self.trainer.accelerator
        mine = share(len(self.rows), accelerator.process_index, accelerator.num_processes)
        inputs = [self.rows[index] for index in mine]
        prompts = [row["prompt"] for row in inputs]
        prompt_ids, _, _ = self.trainer._tokenize_prompts(prompts)
        self.trainer.sync_engine()
        completion_ids = self.trainer.vllm_generation.generate_greedy(prompt_ids)
        texts = self.trainer.processing_class.batch_decode(completion_ids, skip_special_tokens=True)
        chat = not isinstance(prompts[0], str)
        completions = [[{"role": "assistant", "content": text}] for text in texts] if chat else texts
        with self.phases(Phase.SCORE):
            scores = self.trainer._calculate_rewards(inputs, prompts, completions, completion_ids)
        # What rewards log here belongs to no training step.
        self.trainer._pending_metrics.clear()
        self.trainer._pending_extra_logs.clear()
        weighted = (scores * self.trainer.reward_weights.to(scores.device)).nansum(dim=1)
        silent = scores.isnan().all(dim=1).tolist()
        found = [None if none else value for none, value in zip(silent, weighted.tolist(), strict=True)]
        return in_order(found, len(self.rows), accelerator.num_processes)


def share(count: int, rank: int, ranks: int) -> list[int]:
    """Row indices of one rank: equally many for each, filled up with the last row."""
    each = math.ceil(count / ranks)
    return [min(index, count - 1) for index in range(rank * each, (rank + 1) * each)]


def in_order(gathered: Sequence[float | None], count: int, ranks: int) -> list[float | None]:
    """The values of all rows, without those that `share` filled up with."""
    each = math.ceil(count / ranks)
    return [
        gathered[rank * each + place] for rank in range(ranks) for place in range(each) if rank * each + place < count
    ]


def summarize(found: Sequence[float | None], step: int) -> Evaluation:
    """Mean with its 95 % confidence interval, by the normal approximation, of the prompts that got a reward."""
    rewards = [reward for reward in found if reward is not None]
    if not rewards:
        raise RewardError("rewards: none of them has a reward for any held-out prompt; all returned None")
    if not all(math.isfinite(reward) for reward in rewards):
        raise RewardError("rewards: a held-out prompt's reward is infinite; a mean and a status can hold only numbers")
    count = len(rewards)
    mean = sum(rewards) / count
    variance = sum((reward - mean) ** 2 for reward in rewards) / (count - 1) if count > 1 else 0.0
    half = Z95 * math.sqrt(variance / count)
    return Evaluation(step=step, mean=mean, low=mean - half, high=mean + half, prompts=count)
