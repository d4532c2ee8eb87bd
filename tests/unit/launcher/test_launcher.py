"""The whole launcher with the stub worker under the real torchrun."""

import re
import time

import pytest
from tests.unit.fault_rows import record

from colocated_runtime.contract.outcome import Outcome
from colocated_runtime.contract.report import Report, Stage

pytestmark = [pytest.mark.torch, pytest.mark.timeout(240)]


def test_complete(launch) -> None:
    running = launch("--steps", "4", processes_per_node=2)
    began = time.monotonic()
    running.wait_for(lambda report: report.stage in (Stage.STARTING, Stage.RUNNING), 5)
    assert time.monotonic() - began < 5

    final = running.finish()
    assert running.process.returncode == 0
    assert (final.outcome, final.stage, final.progress.step) == (Outcome.COMPLETE, Stage.FINISHED, 4)
    assert final.model_uri == "pvc://claim/job-01234/model"
    assert final.peaks["Train"].host_bytes == 1001  # the larger of the two ranks'
    assert Report.model_validate_json(running.termination_log.read_text()).outcome is Outcome.COMPLETE
    for rank in (0, 1):
        assert "step 4" in (running.storage / "logs" / "attempt-1" / f"rank-{rank}.log").read_text()
    assert "[rank 1] step 4" in running.log()


def test_report_while_running_and_crash_with_traceback(launch, is_running) -> None:
    running = launch("--steps", "30", "--fail-at", "15", "--step-seconds", "0.1")
    report = running.wait_for(is_running)
    assert (report.phase, report.outcome, report.progress.total_steps) != (None, None, 0)

    final = running.finish()
    assert running.process.returncode == 1
    assert (final.outcome, final.message, final.rank) == (Outcome.CRASH, "the stub fails at step 15", 0)
    assert "RuntimeError: the stub fails" in final.traceback
    assert final.exit_code == 1


def test_a_rank_that_is_killed_is_named(launch) -> None:
    running = launch("--kill-at", "2", "--rank", "1", "--gloo", processes_per_node=2)
    running.wait_for(lambda report: report.progress.step == 1, 120)
    began = time.monotonic()
    final = running.finish()
    record("a rank killed", "SIGKILL, stub worker", "the step in which it died", seconds=[time.monotonic() - began])
    assert (final.outcome, final.rank, final.exit_code) == (Outcome.CRASH, 1, 137)
    assert "rank 1 was killed by SIGKILL" in final.message


def test_a_rank_that_leaves_without_a_word_is_named(launch) -> None:
    final = launch("--leave-at", "2", "--exit-code", "3", "--rank", "1", "--gloo", processes_per_node=2).finish(120)
    assert (final.outcome, final.rank, final.exit_code) == (Outcome.CRASH, 1, 3)
    assert final.message.startswith(
        "rank 1 ended with exit code 3 in phase Rollout after step 1, and told no cause: usually a reward function or"
    )


def test_a_crash_after_the_end_is_still_complete(launch) -> None:
    running = launch("--exit-at-end", "139")
    assert running.finish().outcome is Outcome.COMPLETE
    assert running.process.returncode == 0


def test_a_rank_that_is_done_but_does_not_leave(launch) -> None:
    final = launch("--linger-seconds", "1000", watchdog={"stall_timeout_seconds": 10}).finish(60)
    assert (final.outcome, final.message) == (Outcome.COMPLETE, "the stub is done: Complete")


def test_sigterm_saves_and_the_next_attempt_resumes(launch, make_attempt, is_running, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("VLLM_CACHE_ROOT", str(tmp_path / "vllm"))
    running = launch("--steps", "200", "--step-seconds", "0.1")
    running.wait_for(is_running)
    running.stop()
    running.wait_for(lambda report: report.stage is Stage.STOPPING)
    final = running.finish()
    assert running.process.returncode == 143
    assert (final.outcome, final.message) == (Outcome.PREEMPTED, "the stub is done: Preempted")
    saved = final.checkpoints[-1].step

    (tmp_path / "vllm").rename(tmp_path / "gone")  # as a new pod has it
    command = [*running.attempt.spec.runtime.command, "--steps", str(saved + 2)]
    again = launch(attempt=make_attempt(number=2, runtime={"command": command})).finish()
    assert (again.outcome, again.resumed_from_step, again.progress.step) == (Outcome.COMPLETE, saved, saved + 2)
    assert "found a kernel" in (running.storage / "logs" / "attempt-2" / "rank-0.log").read_text()


def test_ranks_that_do_not_leave_are_killed(launch, is_running) -> None:
    running = launch("--steps", "1000", "--step-seconds", "0.1", "--ignore-stop", grace=1)
    running.wait_for(is_running)
    running.stop()
    final = running.finish(20)
    assert final.outcome is Outcome.PREEMPTED
    assert "did not leave within the grace period" in final.message


HANGS = {
    "asleep": "a rank that sleeps for ever, as a reward may",
    "stopped": "a rank stopped by SIGSTOP",
    "busy": "a rank in an endless loop",
    "locked": "a rank in C code that holds Python's lock",
}


@pytest.mark.parametrize("how", HANGS)
def test_a_hang_is_ended_and_shows_stacks(launch, how: str) -> None:
    """Rank 1 hangs; rank 0 waits for it in a collective."""
    hang = ("--hang-at", "2", "--hang", how, "--rank", "1", "--gloo")
    running = launch(*hang, processes_per_node=2, watchdog={"stall_timeout_seconds": 10})
    running.wait_for(lambda report: report.progress.step == 1, 120)
    began = time.monotonic()
    final = running.finish()
    seconds = time.monotonic() - began
    # 10 s without progress, the stacks, SIGTERM, and SIGKILL 5 s later for what does not listen.
    assert seconds < 40
    assert running.process.returncode == 1
    assert final.outcome is Outcome.HUNG
    assert "rank 1 in Rollout at step 1" in final.message
    waits, hangs = final.traceback.split("rank 1")
    assert "in add_up" in waits
    assert "in hang" in hangs
    assert ("stopped by a signal" in hangs) is (how == "stopped")
    record(HANGS[how], "stub worker, stallTimeoutSeconds 10", "the step in which it hung", seconds=[seconds])


def test_ranks_that_do_not_start(launch) -> None:
    final = launch("--start-seconds", "100", watchdog={"start_timeout_seconds": 10}).finish()
    assert final.outcome is Outcome.HUNG
    assert "startTimeoutSeconds" in final.message


def test_a_command_of_the_user_without_state_files(launch, make_attempt) -> None:
    good = launch(attempt=make_attempt(runtime={"command": ["sh", "-c", "echo rank $RANK of $WORLD_SIZE"]}))
    assert good.finish().outcome is Outcome.COMPLETE
    assert "rank 0 of 1" in good.log()
    bad = launch(attempt=make_attempt(runtime={"command": ["sh", "-c", "echo no such data; exit 3"]})).finish()
    assert (bad.outcome, bad.exit_code) == (Outcome.CRASH, 3)
    assert bad.message == "rank 0 ended with exit code 3: no such data"


def test_two_nodes_on_loopback(launch, make_attempt) -> None:
    command = launch("--steps", "1").attempt.spec.runtime.command
    attempt = make_attempt(
        hosts=("127.0.0.1", "127.0.0.2"), number=2, runtime={"command": [*command, "--steps", "5", "--gloo"]}
    )
    first = launch(attempt=attempt)
    first.wait_for(lambda report: report.message == "waiting for pod 1 (127.0.0.2)")
    second = launch(attempt=attempt, node=1)
    assert first.finish().outcome is Outcome.COMPLETE
    assert second.finish().outcome is Outcome.COMPLETE
    assert first.finish().metrics["reward"] == pytest.approx(2.0)  # one of each node
    assert re.search("step 5", (second.storage / "logs" / "attempt-2" / "rank-1.log").read_text())
