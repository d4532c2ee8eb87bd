"""The trainer's states shared out over two ranks: the gradients of TRL's own step on ranks that hold all of them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.torch

SCRIPT = Path(__file__).with_name("fsdp_ranks.py")
CASES = ["clipped", "reference", "rloo", "adapter"]


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    """ranks(kind): what each of the two ranks of that run found."""
    import torch
    from tests.unit.worker import step_trainers

    where = tmp_path_factory.mktemp("fsdp")
    models = step_trainers.write_policy(where / "models")

    def run(*kind: str):
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
        path = os.pathsep.join([str(SCRIPT.parents[3]), os.environ.get("PYTHONPATH", "")])
        done = subprocess.run(
            [*command, SCRIPT, models, where, *kind], env={**os.environ, "PYTHONPATH": path}, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-3000:]
        return [torch.load(where / f"{'-'.join(kind)}-{rank}.pt", weights_only=False) for rank in range(2)]

    return run


@pytest.fixture(scope="module")
def plain(ranks):
    return ranks("plain")


@pytest.fixture(scope="module")
def shared(ranks):
    return ranks("fsdp")


@pytest.mark.parametrize("case", CASES)
def test_each_rank_has_a_part_of_every_weight_before_training_begins(shared, case):
    for rank in shared:
        assert rank[case]["wrapper"], "it is FSDP's, not DistributedDataParallel's"
        before, after, parameters = rank[case]["shared out"]
        assert before == after == parameters > 20


@pytest.mark.parametrize("case", CASES)
def test_gradients_and_weights_are_those_of_whole_ranks(plain, shared, case):
    from tests.unit.worker import step_trainers

    for whole, part in zip(plain, shared, strict=True):
        first, second = whole[case], part[case]
        assert len(first["gradients"]) == len(second["gradients"]) == 2
        for pair in zip(first["gradients"], second["gradients"], strict=True):
            assert step_trainers.distance(*pair) < 1e-5
        for name, value in first["parameters"].items():
            assert (value - second["parameters"][name]).norm() <= 1e-5 * value.norm()
        for before, after in zip(first["logs"], second["logs"], strict=True):
            assert after["loss"] == pytest.approx(before["loss"], abs=1e-5)
            assert after["grad_norm"] == pytest.approx(before["grad_norm"], rel=1e-4)


def test_ranks_with_fewer_pieces_cut_them_further(shared):
    """Each takes part in the others' passes, so that all have as many."""
    given = [[entry for case in CASES for entry in rank[case]["pieces"]] for rank in shared]
    assert [made for _, made in given[0]] == [made for _, made in given[1]]
    assert any(found < made for rank in given for found, made in rank)


def test_a_piece_that_is_repeated_instead_would_show(ranks, plain):
    from tests.unit.worker import step_trainers

    broken = ranks("fsdp", "broken")
    pair = plain[0]["rloo"]["gradients"][0], broken[0]["rloo"]["gradients"][0]
    assert step_trainers.distance(*pair) > 1e-2
