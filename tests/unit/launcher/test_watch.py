from pathlib import Path
from typing import Any

from colocated_runtime.contract.outcome import Outcome
from colocated_runtime.contract.report import (
    Phase,
    PhasePeak,
    Pressure,
    Progress,
    RankState,
    Report,
    Stage,
    Weights,
)
from colocated_runtime.launcher.watch import (
    PressureLog,
    Watchdog,
    all_have_ended,
    all_have_started,
    merge,
    read_ranks,
    slow_save,
)

REPORT = Report(name="job", uid="u", attempt=1, node=0, stage=Stage.STARTING, started=0, updated=0)


def rank(number: int = 0, **fields: Any) -> RankState:
    return RankState(rank=number, pid=1, updated=0, **fields)


def pressure(sequence: int, message: str) -> Pressure:
    return Pressure(sequence=sequence, time=0, kind="Device", message=message)


def test_the_first_rank_speaks_and_peaks_are_the_largest() -> None:
    ranks = [
        rank(0, metrics={"reward": 1}, peaks={Phase.TRAIN: PhasePeak(device_bytes=5, host_bytes=1)}),
        rank(
            1, metrics={"reward": 2}, checkpoint_error="disk full",
            peaks={Phase.TRAIN: PhasePeak(device_bytes=3, host_bytes=9), Phase.SYNC: PhasePeak(device_bytes=2)},
        ),
    ]  # fmt: skip
    report = merge(REPORT, ranks, now=7.0)
    assert report.metrics == {"reward": 1}
    assert report.peaks[Phase.TRAIN] == PhasePeak(device_bytes=5, host_bytes=9)
    assert report.peaks[Phase.SYNC].device_bytes == 2
    assert report.checkpoint_error == "disk full"
    assert report.updated == 7.0


def test_one_rank_out_of_sync_is_enough() -> None:
    stale = Weights(in_sync=False, step=3, message="stale")
    report = merge(REPORT, [rank(0, weights=Weights(in_sync=True, step=3)), rank(1, weights=stale)], 1)
    assert report.weights == stale


def test_files_that_cannot_be_read_are_passed_over(tmp_path: Path) -> None:
    for number in (10, 2):
        (tmp_path / f"rank-{number}.json").write_text(rank(number).model_dump_json())
    (tmp_path / "rank-1.json").write_text("{")
    assert [state.rank for state in read_ranks(tmp_path)] == [2, 10]


def test_pressure_events_keep_their_numbers() -> None:
    log = PressureLog()
    log.add_ranks([rank(0, pressure=[pressure(1, "a")]), rank(1)])
    log.add(pressure(0, "host"))
    log.add_ranks([rank(0, pressure=[pressure(1, "a"), pressure(2, "b")]), rank(1, pressure=[pressure(1, "c")])])
    assert [(event.sequence, event.message) for event in log.events] == [(1, "a"), (2, "host"), (3, "b"), (4, "c")]


def test_only_the_newest_pressure_events_are_kept() -> None:
    log = PressureLog()
    for _ in range(60):
        log.add(pressure(0, "x"))
    assert [log.events[0].sequence, log.events[-1].sequence] == [11, 60]


def test_all_have_started() -> None:
    started = [rank(number, phase=Phase.ROLLOUT) for number in (2, 3)]
    assert all_have_started(started, range(2, 4))
    assert not all_have_started([*started[:1], rank(3)], range(2, 4))
    assert not all_have_started(started[:1], range(2, 4))


def test_all_have_ended() -> None:
    ended = [rank(number, outcome=Outcome.COMPLETE) for number in (2, 3)]
    assert all_have_ended(ended, range(2, 4))
    assert not all_have_ended([*ended[:1], rank(3)], range(2, 4))
    assert not all_have_ended([], range(1))


def dog() -> Watchdog:
    return Watchdog(start_seconds=100, stall_seconds=10, began=0.0)


def at(step: int, phase: Phase = Phase.TRAIN, since: float = 0.0, number: int = 0, **fields: Any) -> list[RankState]:
    return [rank(number, progress=Progress(step=step), phase=phase, phase_since=since, **fields)]


def test_a_step_or_a_phase_is_progress() -> None:
    watchdog = dog()
    assert not watchdog.complaint(at(1), Stage.RUNNING, 0.0)
    assert not watchdog.complaint(at(2), Stage.RUNNING, 9.0)
    assert not watchdog.complaint(at(2, Phase.SYNC), Stage.RUNNING, 18.0)
    assert not watchdog.complaint(at(2, Phase.SYNC, since=1.0), Stage.RUNNING, 27.0)
    assert not watchdog.complaint(at(2, Phase.SYNC, since=1.0), Stage.RUNNING, 36.0)
    complaint = watchdog.complaint(at(2, Phase.SYNC, since=1.0), Stage.RUNNING, 37.0)
    assert complaint == "no progress for watchdog.stallTimeoutSeconds (10 s): rank 0 in Sync at step 2 for 10 s"


def test_each_rank_is_watched_by_itself() -> None:
    """Rank 1 goes on, and on, and hides nothing: rank 0 stands first in the complaint, as the one to look at."""
    watchdog = dog()
    for now in range(10):
        assert not watchdog.complaint([*at(3), *at(now, number=1)], Stage.RUNNING, float(now))
    complaint = watchdog.complaint([*at(3), *at(9, number=1)], Stage.RUNNING, 10.0)
    assert complaint.endswith(": rank 0 in Train at step 3 for 10 s, rank 1 in Train at step 9 for 1 s")


def test_whatever_a_rank_writes_is_progress() -> None:
    """As the engine does now and then in a long rollout."""
    watchdog = dog()
    for now in range(100):
        state = RankState(rank=0, pid=1, phase=Phase.ROLLOUT, updated=5.0 * (now // 5))
        assert not watchdog.complaint([state], Stage.RUNNING, float(now))


def test_a_rank_that_is_done_is_not_watched() -> None:
    watchdog = dog()
    for now in (0.0, 100.0):
        assert not watchdog.complaint(at(3, outcome=Outcome.COMPLETE), Stage.RUNNING, now)


def test_a_slow_save_is_told_while_it_runs() -> None:
    saving = at(7, Phase.CHECKPOINT, since=100.0)
    assert slow_save(saving, 400.0, 300.0) == ""
    assert slow_save(saving, 401.0, 300.0) == "step 7: saving since 00:01:40 UTC, slow or hanging storage"
    assert slow_save(at(7, Phase.TRAIN, since=100.0), 1000.0, 300.0) == ""


def test_the_start_has_its_own_timeout() -> None:
    watchdog = dog()
    assert not watchdog.complaint(at(0, Phase.START), Stage.STARTING, 99.0)
    assert "startTimeoutSeconds (100 s)" in watchdog.complaint(at(0, Phase.START), Stage.STARTING, 100.0)


def test_a_command_that_says_nothing_is_not_watched() -> None:
    assert not dog().complaint([], Stage.RUNNING, 1e6)
