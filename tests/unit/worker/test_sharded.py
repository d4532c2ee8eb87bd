"""Weights that ranks share out are gathered one at a time. Nothing else of the worker can do with them yet."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.torch

SCRIPT = Path(__file__).with_name("sharded_ranks.py")


@pytest.fixture(scope="module")
def told(models, tmp_path_factory):
    where = tmp_path_factory.mktemp("sharded")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    path = os.pathsep.join([str(SCRIPT.parents[3]), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [*command, SCRIPT, models, where], env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:]
    return [json.loads((where / f"{rank}.json").read_text()) for rank in range(2)]


@pytest.mark.parametrize("kind", [0, 1], ids=["in full", "with an adapter"])
def test_every_rank_gets_every_weight_in_full(told, kind):
    for rank in told:
        found = rank[kind]
        assert found["wrapper"], "it is FSDP's, not DistributedDataParallel's"
        assert found["shared out"] == found["parameters"] > 0
        assert found["given"] == found["all"] > 20
        assert found["difference"] <= 1e-6
