from pathlib import Path

from colocated_runtime.contract.outcome import Outcome
from colocated_runtime.contract.report import TERMINATION_LIMIT, Report, Stage
from colocated_runtime.launcher.classify import Ending
from colocated_runtime.launcher.environment import Paths
from colocated_runtime.launcher.finish import final, previous, write

REPORT = Report(name="job", uid="u", attempt=3, node=1, stage=Stage.RUNNING, started=1.0, updated=2.0)


def paths(root: Path) -> Paths:
    return Paths(root / "attempt.json", root / "state", root / "storage", root / "termination.log")


def test_both_copies_are_written_and_the_next_attempt_finds_one(tmp_path: Path) -> None:
    ending = Ending(Outcome.CRASH, "x" * 9000, 1, 2, "y" * 9000)
    report = final(REPORT, ending, now=5.0)
    write(report, paths(tmp_path))

    words = (tmp_path / "termination.log").read_text()
    assert len(words.encode()) <= TERMINATION_LIMIT
    assert Report.model_validate_json(words).outcome is Outcome.CRASH
    assert previous(paths(tmp_path), attempt=4, node=1) == report
    assert previous(paths(tmp_path), attempt=4, node=0) is None


def test_a_full_volume_does_not_keep_the_termination_message_back(tmp_path: Path) -> None:
    (tmp_path / "storage").write_text("a file where a directory should be")
    write(final(REPORT, Ending(Outcome.COMPLETE, "done", 0), 5.0), paths(tmp_path))
    assert Report.model_validate_json((tmp_path / "termination.log").read_text()).outcome is Outcome.COMPLETE


def test_reports_are_not_nested(tmp_path: Path) -> None:
    write(REPORT.model_copy(update={"previous": REPORT}), paths(tmp_path))
    found = previous(paths(tmp_path), attempt=4, node=1)
    assert found
    assert found.previous is None


def test_a_torn_report_is_none(tmp_path: Path) -> None:
    place = paths(tmp_path).final_report(3, 1)
    place.parent.mkdir(parents=True)
    place.write_text("{")
    assert previous(paths(tmp_path), attempt=4, node=1) is None
