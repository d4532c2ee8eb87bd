from pathlib import Path

from colocated_runtime.contract.outcome import Outcome
from colocated_runtime.contract.report import TERMINATION_LIMIT, Report, Stage
from colocated_runtime.launcher.classify import Ending
from colocated_runtime.launcher.environment import Paths
from colocated_runtime.launcher.finish import final, write

REPORT = Report(name="job", uid="u", attempt=3, node=1, stage=Stage.RUNNING, started=1.0, updated=2.0)


def paths(root: Path) -> Paths:
    return Paths(root / "attempt.json", root / "state", root / "storage", root / "termination.log")


def test_both_copies_are_written(tmp_path: Path) -> None:
    ending = Ending(Outcome.CRASH, "x" * 9000, 1, 2, "y" * 9000)
    report = final(REPORT, ending, now=5.0)
    write(report, paths(tmp_path))

    words = (tmp_path / "termination.log").read_text()
    assert len(words.encode()) <= TERMINATION_LIMIT
    assert Report.model_validate_json(words).outcome is Outcome.CRASH
    stored = paths(tmp_path).final_report(attempt=3, node=1)
    assert Report.model_validate_json(stored.read_text()) == report


def test_a_full_volume_does_not_keep_the_termination_message_back(tmp_path: Path) -> None:
    (tmp_path / "storage").write_text("a file where a directory should be")
    write(final(REPORT, Ending(Outcome.COMPLETE, "done", 0), 5.0), paths(tmp_path))
    assert Report.model_validate_json((tmp_path / "termination.log").read_text()).outcome is Outcome.COMPLETE
