"""Built-in rewards."""

import pytest

from colocated_runtime.worker.errors import UserError
from colocated_runtime.worker.rewards.builtin import answer_of, exact_match, reasoning_gym, think_format


@pytest.mark.parametrize(
    ("completion", "reward"),
    [
        ("5", 1), ("The answer is 5.", 1), ("x = 5\n", 1), ("5 apples", 1), ("4\n5", 1), ("$5", 1),
        ("15", 0), ("-5", 0), ("2.5", 0), ("5.1", 0), ("5\n4", 0), ("", 0), ("five", 0),
        ("<answer> 5 </answer> of 7", 1), ("<answer>4</answer> 5", 0), ("<answer>4</answer><answer>5</answer>", 1),
    ],
)  # fmt: skip
def test_exact_match(completion: str, reward: float) -> None:
    assert exact_match([completion], answer=["5"]) == [reward]
    assert exact_match([[{"role": "assistant", "content": completion}]], answer=[" 5 "]) == [reward]


def test_exact_match_takes_the_answer_literally() -> None:
    assert exact_match(["a.c"], answer=["a.c"]) == [1]
    assert exact_match(["abc"], answer=["a.c"]) == [0]


def test_exact_match_needs_its_column() -> None:
    with pytest.raises(UserError, match=r"needs a column 'answer'; the dataset has question$"):
        exact_match(["5"], question=["2 + 3"], prompts=["2 + 3"], trainer_state=None)


@pytest.mark.parametrize(
    ("completion", "reward"),
    [
        ("<think>2 + 3</think>5", 1),
        ("\n<think>2\n+ 3</think>\n\n5\n", 1),
        ("5", 0),
        ("<think>2 + 3</think>", 0),
        ("<think></think>5", 0),
        ("Well, <think>2 + 3</think>5", 0),
        ("<think>2 + 3</think>5</think>", 0),
        ("<think>a</think>5<think>b</think>", 0),
    ],
)
def test_think_format(completion: str, reward: float) -> None:
    assert think_format([completion]) == [reward]


def test_the_answer_is_what_is_tagged_else_everything() -> None:
    assert answer_of(" 5 \n") == "5"
    assert answer_of("so <answer>\n5</answer>.") == "5"


def test_reasoning_gym_needs_its_rows() -> None:
    with pytest.raises(UserError, match="needs rows of a reasoning-gym:// dataset"):
        reasoning_gym(["5"], answer=["5"])


@pytest.mark.torch
def test_reasoning_gym_scores_each_row_by_its_own_task() -> None:
    uri = "reasoning-gym://chain_sum?size=4&seed=3"
    from colocated_runtime.worker.reasoning_gym import rows

    answers = [row["answer"] for row in rows(uri, "dataset.source")]
    columns = {"reasoning_gym_source": [uri] * 4, "reasoning_gym_index": [0, 1, 2, 3]}
    assert reasoning_gym(answers, **columns) == [1.0] * 4
    assert reasoning_gym(answers[::-1], **columns)[0] < 1.0
