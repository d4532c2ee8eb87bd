"""Rewards that a user wrote."""

import asyncio
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from colocated_runtime.contract.job import JobSpec
from colocated_runtime.worker.errors import RewardError, UserError
from colocated_runtime.worker.rewards import build_rewards
from colocated_runtime.worker.rewards.function import load
from colocated_runtime.worker.sources import Sources


@pytest.fixture
def mounted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A ConfigMap's directory; Kubernetes puts hidden entries beside the keys."""
    monkeypatch.setattr(sys, "path", sys.path.copy())
    directory = tmp_path / "gsm8k"
    (directory / "..data").mkdir(parents=True)
    return directory


def write(directory: Path, module: str, text: str) -> None:
    (directory / f"{module}.py").write_text(text)


def test_a_function_and_the_module_beside_it(mounted: Path) -> None:
    write(mounted, "helper_a", "LENGTH = 3")
    write(
        mounted,
        "reward_a",
        "import helper_a\ndef score(completions, **_): return [helper_a.LENGTH for _ in completions]",
    )
    assert load("reward_a:score", mounted, "rewards[0].function")(completions=["x", "y"]) == [3, 3]


def test_a_module_that_another_one_hides_is_refused(mounted: Path) -> None:
    other = mounted.parent / "math"
    other.mkdir()
    for directory, score in ((mounted, 1), (other, 2)):
        write(directory, "reward_twice", f"def score(completions, **_): return [{score}]")
    assert load("reward_twice:score", mounted, "rewards[0].function")(completions=["x"]) == [1]
    assert load("reward_twice:score", mounted, "rewards[1].function")(completions=["x"]) == [1]
    with pytest.raises(UserError, match=r"^rewards\[2\].function: .*'math'.* is hidden by .*gsm8k/reward_twice.py"):
        load("reward_twice:score", other, "rewards[2].function")
    write(other, "json", "def score(completions, **_): return [2]")
    with pytest.raises(UserError, match=r"hidden by .*json/__init__.py; rename the file"):
        load("json:score", other, "rewards[2].function")


@pytest.mark.parametrize(
    ("module", "text", "name", "message"),
    [
        (
            "bad_b",
            "import no_such",
            "bad_b:score",
            "cannot import 'bad_b': ModuleNotFoundError: No module named 'no_such'",
        ),
        ("bad_c", "def score(:", "bad_c:score", "cannot import 'bad_c': SyntaxError: .*; the ConfigMap holds bad_c.py"),
        ("bad_d", "raise SystemExit(2)", "bad_d:score", "cannot import 'bad_d': SystemExit: 2"),
        ("ok_e", "score = 3", "ok_e:score", "'score' of 'ok_e' is no function but int; 'ok_e' has no public function"),
        (
            "ok_g",
            "from math import gcd\nimport math\ndef exact(): 0\ndef correct(): 0\ndef _no(): 0\nclass R: 0",
            "ok_g:corect",
            "'ok_g' has no function 'corect'; did you mean correct\\? It has correct, exact$",
        ),
        ("ok_h", "def f(): 0", "ok_h:score", "'ok_h' has no function 'score'; it has f$"),
        ("ok_f", "", "other_f:score", "cannot import 'other_f': .*; the ConfigMap holds ok_f.py$"),
    ],
)
def test_what_cannot_be_loaded_is_named(mounted: Path, module: str, text: str, name: str, message: str) -> None:
    write(mounted, module, text)
    with pytest.raises(UserError, match=rf"^rewards\[1\].function: {message}"):
        load(name, mounted, "rewards[1].function")


def test_a_config_map_that_is_not_mounted(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="ConfigMap 'gone' is not mounted"):
        load("reward:score", tmp_path / "gone", "rewards[0].function")


@pytest.mark.parametrize("kind", ["def", "async def"])
@pytest.mark.parametrize("statement", ["raise KeyError('x')", "raise SystemExit(1)"])
def test_its_failures_are_told_apart_from_ours(mounted: Path, kind: str, statement: str) -> None:
    module = f"raising_{kind[0]}_{statement[6]}"
    write(mounted, module, f"{kind} score(completions, **_): {statement}")
    score = load(f"{module}:score", mounted, "rewards[0].function")
    with pytest.raises(RewardError, match=rf"^rewards\[0\].function: {module}:score raised "):
        asyncio.run(score(completions=[]))


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        ("[1.0]", "returned 1 values for 2 completions; one each"),
        ("0.5", "returned float; return a list"),
        ("'ab'", "returned str; return a list"),
        ("[1.0, float('nan')]", "returned nan for completion 1; return a finite number, or None"),
        ("[float('inf'), 1]", "returned inf for completion 0"),
        ("['1', 1]", "returned '1' for completion 0"),
        ("[1, [2]]", r"returned \[2\] for completion 1"),
    ],
)
@pytest.mark.parametrize("kind", ["def", "async def"])
def test_what_is_no_list_of_numbers_is_named(mounted: Path, kind: str, returned: str, words: str) -> None:
    module = f"returning_{abs(hash((kind, returned)))}"
    write(mounted, module, f"{kind} score(completions, **_): return {returned}")
    score = load(f"{module}:score", mounted, "rewards[0].function")
    with pytest.raises(RewardError, match=rf"^rewards\[0\].function: {module}:score {words}"):
        asyncio.run(score(completions=["x", "y"])) if kind == "async def" else score(completions=["x", "y"])


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("return [10 ** 400 for _ in completions]", "returned 1000"),
        ("return [10 ** 5000 for _ in completions]", "returned a value of type int for completion 0"),
        ("yield 1.0\n    raise KeyError('boom')", "raised KeyError: 'boom'"),
        ("raise ValueError('x' * 10_000_000)", "raised ValueError: xxx"),
    ],
)
def test_what_it_says_is_short_and_under_its_name(mounted: Path, body: str, words: str) -> None:
    module = f"odd_{abs(hash(body))}"
    write(mounted, module, f"def score(completions, **_):\n    {body}")
    with pytest.raises(RewardError) as caught:
        load(f"{module}:score", mounted, "rewards[0].function")(completions=["x"])
    assert str(caught.value).startswith(f"rewards[0].function: {module}:score {words}")
    assert len(str(caught.value)) < 2000


def test_rewards_of_one_name_are_told_apart(mounted: Path) -> None:
    rewards = []
    for module in ("same_a", "same_b"):
        write(mounted, module, "def f(completions, **_): return [1 for _ in completions]")
        rewards.append({"function": f"{module}:f", "configMap": mounted.name})
    spec = JobSpec.model_validate({"rewards": [*rewards, {"name": "exact_match"}]})
    made = build_rewards(spec, Sources(mounted / "none"), mounted.parent, "cpu", lambda what: nullcontext())
    assert [reward.__name__ for reward in made] == ["f[0]", "f[1]", "exact_match"]


def test_none_where_it_does_not_apply(mounted: Path) -> None:
    write(mounted, "sometimes", "def score(completions, **_): return (None, 1)")
    assert load("sometimes:score", mounted, "rewards[0].function")(completions=["x", "y"]) == [None, 1]
