"""The step in pieces on two ranks: TRL's gradients, and no rank that waits for one that is out of memory."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.torch

SCRIPT = Path(__file__).with_name("step_ranks.py")


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    pytest.importorskip("torch")
    from tests.unit.worker import step_trainers

    where = tmp_path_factory.mktemp("ranks")
    models = step_trainers.write_policy(where / "models")
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node=2",
        SCRIPT,
        models,
        where,
    ]
    path = os.pathsep.join([str(SCRIPT.parents[3]), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert done.returncode == 0, done.stdout[-3000:]
    return [json.loads((where / f"{rank}.json").read_text()) for rank in range(2)]


def test_trls_gradients(told):
    assert all(max(rank["own"]) < 1e-5 for rank in told)


def test_no_reducer_holds_a_copy_of_the_gradients(told):
    """TRL's own step needs one."""
    assert all(rank["buckets"] == {"own": [False, False], "plain": [True, True]} for rank in told)


def test_the_same_where_one_rank_alone_goes_in_smaller_pieces(told):
    assert [rank["events"] > 0 for rank in told] == [False, True]
    assert all(max(rank["pressed"]) < 1e-5 for rank in told)


def test_the_same_loss_is_logged(told):
    plain, *others = told[0]["loss"]
    assert all(losses == pytest.approx(plain, rel=1e-4) for losses in others)


def test_both_ranks_end_where_one_has_no_memory_for_a_single_row(told):
    assert told[0]["ended"] == "another rank has no memory for a single row"
    assert "does not fit: full" in told[1]["ended"]
