"""The lists of TRL's options, and what is told about a name or a value."""

import json

import pytest

from colocated_runtime.contract import options


@pytest.mark.parametrize("algorithm", ["grpo", "rloo"])
def test_names_that_the_contract_speaks_of_exist(algorithm: str) -> None:
    known = options.options(algorithm)
    common = options.options("grpo").keys() & options.options("rloo").keys()
    assert set(options.MINIMUM) <= known.keys()
    assert {name for name in options.OWNED if name in common} <= known.keys()


def test_every_owned_option_is_one_of_trl() -> None:
    every = options.options("grpo").keys() | options.options("rloo").keys()
    assert set(options.OWNED) <= every
    assert set(options.CHOICES) <= every


def test_choices_hold_trl_s_own_default() -> None:
    for name, choices in options.CHOICES.items():
        assert options.options("grpo")[name].default in choices


def test_unknown_name_without_a_near_one_names_no_other() -> None:
    (message,) = options.unknown({"zzz": 1}, "grpo")
    assert "did you mean" not in message


def test_number_takes_the_algorithm_s_default() -> None:
    assert options.number({}, "grpo", "num_generations") == 8
    assert options.number({}, "rloo", "num_generations") == 2
    assert options.number({"num_generations": 4}, "rloo", "num_generations") == 4
    assert options.number({"num_generations": None}, "rloo", "num_generations") == 2


def test_summary_is_the_first_sentence() -> None:
    assert options.options("grpo")["beta"].summary == "KL coefficient."


@pytest.mark.parametrize(
    ("name", "value", "wrong"),
    [
        ("learning_rate", 1, False),
        ("learning_rate", True, True),
        ("max_steps", 1.5, True),
        ("top_k", None, True),
        ("min_p", None, False),
        ("gradient_checkpointing", "yes", True),
        ("generation_kwargs", {"stop": ["x"]}, False),
        ("generation_kwargs", ["stop"], True),
        ("pad_to_multiple_of", "auto", False),
        ("optim", "adamw_torch", False),
        ("optim", "adamw", True),
    ],
)
def test_types(name: str, value: object, wrong: bool) -> None:
    assert bool(options.wrong_values({name: value}, "grpo")) is wrong


@pytest.mark.torch
@pytest.mark.parametrize("algorithm", ["grpo", "rloo"])
def test_lists_are_those_of_the_installed_trl(algorithm: str) -> None:
    from tools import trl_options

    written = json.loads((options.FILES / f"{algorithm}.json").read_text())
    assert written == json.loads(json.dumps(trl_options.describe(trl_options.CONFIGS[algorithm])))
