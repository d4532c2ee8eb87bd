"""What trainer.log_completions may write at a step."""

from typing import Any

import pytest

from colocated_runtime.worker import completions
from colocated_runtime.worker.completions import CHARACTERS, CUT, ROWS, WIDTH, bounded


def logs(count: int, text: str, **extra: Any) -> dict[str, Any]:
    """As TRL keeps them."""
    chat = [{"role": "user", "content": text}, {"role": "assistant", "content": text}]
    return {
        "images": [], "prompt": [chat] * count, "completion": [text] * count, "rewards": {"f": [1.0] * count},
        "advantages": [0.5] * count, "extra": {name: [value] * count for name, value in extra.items()},
    }  # fmt: skip


@pytest.mark.parametrize("rows", [None, 1, 100])
@pytest.mark.parametrize("text", ["x" * 1_000_000, "\n" * 100_000])
def test_a_step_writes_no_more(rows: int | None, text: str) -> None:
    found = bounded(logs(200, text, why=text, number=3), rows)
    count = rows or ROWS
    columns = [found["prompt"], found["completion"], found["advantages"], found["rewards"]["f"], found["extra"]["why"]]
    assert [len(column) for column in columns] == [count] * 5
    texts = [turn["content"] for chat in found["prompt"] for turn in chat]
    texts += [*found["completion"], *found["extra"]["why"]]
    assert sum(len(text) - len(CUT) for text in texts) <= CHARACTERS
    assert sum(text.count("\n") for text in texts) <= CHARACTERS // WIDTH
    assert all(text.endswith(CUT) for text in texts)
    assert found["extra"]["number"] == [3] * count


def test_what_is_short_stays_as_it_is() -> None:
    short = logs(3, "two\nlines", why=None)
    assert bounded(short, None) == short


def test_many_turns_and_columns() -> None:
    many = logs(2, "x" * 100, **{f"e{n}": "y" * 10_000 for n in range(1000)})
    many["prompt"] = [[{"role": "user", "content": "x" * 100}] * 5000] * 2
    found = bounded(many, None)
    assert sum(len(text) - len(CUT) for column in found["extra"].values() for text in column) <= CHARACTERS
    assert all(len(chat) == completions.TURNS for chat in found["prompt"])


@pytest.mark.torch
def test_a_real_job_is_bounded(make_workplace) -> None:
    import pandas

    place = make_workplace()
    long = {"promptTemplate": "x" * 300 + " {question}"}
    spec = place.spec(evaluation=None, trainer={"log_completions": True, "max_steps": 1, "num_completions_to_print": 2})
    spec["dataset"] = {"source": spec["dataset"]["source"], **long}
    run = place.run(spec, torchrun=False)
    assert run.exit_code == 0, run.output
    assert "Completion" in run.output
    (table,) = run.directory.glob("completions/*.parquet")
    assert len(pandas.read_parquet(table)) == 2
