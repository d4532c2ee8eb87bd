"""The mean of held-out rewards."""

import pytest

from colocated_runtime.worker.errors import RewardError
from colocated_runtime.worker.evaluation import in_order, share, summarize


def test_prompts_without_a_reward_do_not_count() -> None:
    found = summarize([1.0, None, 0.0, None], 3)
    assert (found.mean, found.prompts, found.step) == (0.5, 2, 3)
    assert found.low < 0.5 < found.high


def test_no_reward_at_all() -> None:
    with pytest.raises(RewardError, match="none of them has a reward for any held-out prompt"):
        summarize([None, None], 0)


@pytest.mark.parametrize("odd", [float("nan"), float("inf")])
def test_what_is_no_number(odd: float) -> None:
    with pytest.raises(RewardError, match="infinite"):
        summarize([1.0, odd], 0)


@pytest.mark.parametrize(("count", "ranks"), [(1, 1), (5, 2), (3, 4), (8, 4)])
def test_shares_come_back_in_order(count: int, ranks: int) -> None:
    gathered = [float(row) for rank in range(ranks) for row in share(count, rank, ranks)]
    assert in_order(gathered, count, ranks) == list(range(count))
