"""The rank's state file."""

import os
from pathlib import Path

from colocated_runtime.contract.report import Phase, RankState
from colocated_runtime.worker.state import StateFile


def read(path: Path) -> RankState:
    return RankState.model_validate_json(path.read_text())


def test_is_there_from_the_start(tmp_path: Path) -> None:
    path = tmp_path / "state" / "rank-3.json"
    StateFile(path, 3)
    assert (read(path).rank, read(path).pid, read(path).phase) == (3, os.getpid(), Phase.START)


def test_every_change_is_written_and_others_stay(tmp_path: Path) -> None:
    path = tmp_path / "rank-0.json"
    state = StateFile(path, 0)
    state.update(metrics={"reward": 0.5})
    began = read(path).phase_since
    state.enter(Phase.TRAIN)
    assert read(path).metrics == {"reward": 0.5}
    assert read(path).phase is Phase.TRAIN
    assert read(path).phase_since > began


def test_a_reader_never_finds_a_part(tmp_path: Path) -> None:
    """A reader that has the file open goes on to see the old content whole: it is replaced, not rewritten."""
    path = tmp_path / "rank-0.json"
    state = StateFile(path, 0)
    with path.open() as old:
        state.update(message="x" * 100_000)
        assert RankState.model_validate_json(old.read()).message == ""
    assert len(read(path).message) == 100_000
    assert os.listdir(tmp_path) == ["rank-0.json"]
