import os
import sys
from pathlib import Path

import pytest

from colocated_runtime.contract import names
from colocated_runtime.launcher import ranks
from colocated_runtime.launcher.environment import Environment


def test_torchruns_arguments(make_attempt) -> None:
    attempt = make_attempt(hosts=("a.svc", "b.svc"), gpus_per_node=8)
    command = ranks.torchrun(attempt, 1, Path("/state/torchrun"), 29500)
    assert command[:3] == [sys.executable, "-m", "torch.distributed.run"]
    options = dict(zip(command[3:17:2], command[4:18:2], strict=True))
    assert options == {
        "--nnodes": "2", "--node-rank": "1", "--nproc-per-node": "8", "--master-addr": "a.svc",
        "--master-port": "29500", "--max-restarts": "0", "--log-dir": "/state/torchrun",
    }  # fmt: skip
    assert command[17:20] == ["--no-python", "sh", "-c"]
    assert command[-3:] == [sys.executable, "-m", "colocated_runtime.worker"]


def test_the_users_command_takes_the_workers_place(make_attempt) -> None:
    attempt = make_attempt(runtime={"command": ["python", "mine.py", "--x"]})
    assert ranks.torchrun(attempt, 0, Path("/s"), 1)[-3:] == ["python", "mine.py", "--x"]


def test_a_rank_becomes_its_own_log(tmp_path: Path) -> None:
    environment = os.environ | {ranks.LOG_DIR: str(tmp_path), "RANK": "3"}
    words = ["sh", "-c", ranks.TO_OWN_LOG, "rank", "sh", "-c", "echo 'a  b' $1; echo error >&2", "x", "$y"]
    assert os.spawnvpe(os.P_WAIT, "sh", words, environment) == 0
    assert (tmp_path / "rank-3.log").read_text() == "a  b $y\nerror\n"


def test_global_ranks(make_attempt) -> None:
    assert ranks.global_ranks(make_attempt(hosts=("a", "b"), processes_per_node=2), 1) == range(2, 4)


def test_the_rendezvous_port() -> None:
    assert ranks.master_port(2, {}) == 29500
    assert ranks.master_port(2, {"MASTER_PORT": "7"}) == 7
    assert ranks.master_port(1, {}) not in (0, 29500)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("MASTER_PORT", "abc", "MASTER_PORT: 'abc' is no port; use a number from 1 to 65535"),
        ("MASTER_PORT", "70000", "MASTER_PORT: '70000' is no port"),
        (names.ENV_NODE_INDEX, "x", f"{names.ENV_NODE_INDEX}: invalid literal"),
        (names.ENV_GRACE_SECONDS, "x", f"{names.ENV_GRACE_SECONDS}: could not convert"),
    ],
)
def test_a_variable_that_is_no_number_is_named(make_attempt, name: str, value: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Environment.read({name: value}, make_attempt(), Path("attempt.json"))
