"""How a rank fails: state file, exit code, and the other rank with it."""

import re

import pytest

from colocated_runtime.contract.outcome import Outcome

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def raising(make_workplace):
    """Two ranks; the reward raises on the second, while the first goes on to the next collective and waits there."""
    place = make_workplace()
    rewards = [{"function": "raising:reward", "configMap": "raising"}]
    return place.run(place.spec(processesPerNode=2, evaluation=None, rewards=rewards))


def test_a_reward_that_raises(raising):
    assert raising.exit_code != 0
    failed = raising.states[1]
    assert failed.outcome is Outcome.USER_ERROR
    assert failed.message == "rewards[0].function: raising:reward raised KeyError: 'solution'"
    assert 'raise KeyError("solution")' in failed.traceback
    assert re.search(r"\nRewardError: .* raised KeyError: 'solution' \(.*raising.py, line 10\)\n", raising.output)


def test_no_log_has_a_traceback_for_a_users_mistake(raising):
    """torchrun's own words apart, which are not in a rank's log."""
    before_torchrun = raising.output.partition("Sending process")[0].partition("failed (exitcode")[0]
    assert "Traceback" not in before_torchrun


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ({"generation_kwargs": {"foo": 1}}, "trainer.generation_kwargs: vLLM refuses them: Unexpected keyword"),
        ({"model_init_kwargs": {"foo": 1}}, "trainer.model_init_kwargs: the model takes no foo ("),
        ({"adam_beta1": 2.0}, "trainer.optim: adamw_torch_fused cannot be made of optim_args,"),
        ({"optim_args": "foo"}, "trainer.optim: adamw_torch_fused cannot be made of optim_args,"),
        ({"lr_scheduler_type": "cosine_with_min_lr"}, "trainer.lr_scheduler_kwargs: the scheduler cosine_with_min_lr"),
    ],
    ids=str,
)
def test_an_option_that_fails_where_it_is_used_is_named(make_workplace, option, words):
    place = make_workplace()
    run = place.run(place.spec(evaluation=None, trainer=option), torchrun=False)
    assert run.state.outcome is Outcome.USER_ERROR
    assert run.state.message.startswith(words)
    assert run.state.traceback == ""
    assert "Traceback" not in run.output
    assert f"UserError: {words}" in run.output


def test_the_rank_to_blame_is_the_first_to_end(raising):
    """The other one loses its connection, or is ended by torchrun."""
    first, second = raising.states
    assert first.outcome in (Outcome.CRASH, None)
    assert first.outcome is None or first.updated > second.updated


def test_a_signal_asks_for_the_stacks(raising):
    assert "Current thread" in raising.output
    assert "raising.py" in raising.output


def test_a_reward_module_that_does_not_import(workplace):
    rewards = [{"function": "broken:reward", "configMap": "broken"}]
    run = workplace.run(workplace.spec(rewards=rewards))
    assert run.exit_code != 0
    assert run.state.outcome is Outcome.USER_ERROR
    assert run.state.message == (
        "rewards[0].function: cannot import 'broken': ModuleNotFoundError: No module named 'no_such_module'; the"
        " ConfigMap holds broken.py"
    )
