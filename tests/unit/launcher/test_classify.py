from typing import Any

import pytest

from colocated_runtime.contract.outcome import Outcome
from colocated_runtime.contract.report import Checkpoint, Phase, Progress, RankState
from colocated_runtime.launcher.classify import Facts, classify, failed_rank

TRACEBACK = 'Traceback (most recent call last):\n  File "x.py", line 1, in f\n'


def rank(number: int = 0, outcome: Outcome | None = None, message: str = "", at: float = 0.0, **more: Any) -> RankState:
    return RankState(rank=number, pid=1, updated=at, outcome=outcome, message=message, **more)


@pytest.mark.parametrize(
    ("facts", "outcome", "words"),
    [
        (Facts(1, [rank(outcome=Outcome.COMPLETE)]), Outcome.COMPLETE, ""),
        (Facts(1, [rank(outcome=Outcome.COMPLETE)], 0, -11), Outcome.COMPLETE, ""),
        (Facts(0, [rank(outcome=Outcome.COMPLETE), rank(1)]), Outcome.COMPLETE, ""),
        (Facts(1, [rank(outcome=Outcome.COMPLETE), rank(1, Outcome.CRASH, "late")]), Outcome.CRASH, "late"),
        (Facts(1, [rank(outcome=Outcome.USER_ERROR, message="no column")], 0, 1), Outcome.USER_ERROR, "no column"),
        (Facts(1, [rank(), rank(1, Outcome.DEVICE_OUT_OF_MEMORY)]), Outcome.DEVICE_OUT_OF_MEMORY, ""),
        (
            Facts(1, [rank(0, Outcome.CRASH, "lost", at=1), rank(1, Outcome.USER_ERROR, "bad", at=2)]),
            Outcome.USER_ERROR,
            "bad",
        ),
        (
            Facts(1, [rank(0, Outcome.CRASH, "late", at=2), rank(1, Outcome.CRASH, "early", at=1)]),
            Outcome.CRASH,
            "early",
        ),
        (Facts(1, [rank(0, Outcome.CRASH, "closed"), rank(1)], 1, -9), Outcome.CRASH,
         "rank 1 was killed by SIGKILL in phase Start"),
        (Facts(1, [rank(0, Outcome.TRANSIENT, "reset"), rank(1)], 1, -9), Outcome.CRASH, "rank 1 was killed by"),
        (
            Facts(1, [rank(0, Outcome.TRANSIENT, "reset"), rank(1)], 1, -9, oom_kills=1, memory_limit=2**30),
            Outcome.HOST_OUT_OF_MEMORY,
            "",
        ),
        (
            Facts(1, [rank(0, Outcome.TRANSIENT, "reset", at=1), rank(1, Outcome.USER_ERROR, "bad", at=2)]),
            Outcome.USER_ERROR,
            "bad",
        ),
        (
            Facts(1, [rank(0, Outcome.CRASH, "Connection closed by peer", at=1), rank(1, Outcome.CRASH, "NaN", at=2)]),
            Outcome.CRASH,
            "NaN",
        ),
        (
            Facts(1, [rank(0, Outcome.TRANSIENT, "503", at=1), rank(1, Outcome.CRASH, "later", at=2)]),
            Outcome.TRANSIENT,
            "503",
        ),
        (Facts(1, [rank(0, Outcome.CRASH, "closed"), rank(1)], 1, -9, oom_kills=1, memory_limit=2**30),
         Outcome.HOST_OUT_OF_MEMORY, "limit of 1.0 GiB"),
        (Facts(1, [rank()], 0, -9, oom_kills=1, memory_limit=8 * 2**30, memory_peak=8 * 2**30 - 2**20),
         Outcome.HOST_OUT_OF_MEMORY, "limit of 8.0 GiB"),
        (Facts(1, [rank(0, Outcome.CRASH, "closed"), rank(1)], 1, -9, oom_kills=1, memory_limit=8 * 2**30,
               memory_peak=3 * 2**30),
         Outcome.PREEMPTED, "the node's memory ran out, not the pod's: it had used 3.0 of its 8.0 GiB"),
        (Facts(1, [rank()], 0, -9, oom_kills=1, memory_limit=8 * 2**30, memory_peak=8 * 2**30, limit_failures=0),
         Outcome.PREEMPTED, "the node's memory ran out, not the pod's"),  # page cache had filled it
        (Facts(1, [rank()], 0, -9, oom_kills=1, memory_limit=8 * 2**30, memory_peak=3 * 2**30, limit_failures=2),
         Outcome.HOST_OUT_OF_MEMORY, "limit of 8.0 GiB"),
        (Facts(1, [rank()], 0, -9, oom_kills=1, memory_peak=3 * 2**30), Outcome.PREEMPTED,
         "the node's memory ran out, not the pod's: it has no limit"),
        (Facts(1, [rank()], 0, -9), Outcome.CRASH, "rank 0 was killed by SIGKILL"),
        (Facts(1, [rank(), rank(1, phase=Phase.ROLLOUT)], 1, -11, "CUDA Error: out of memory at cumem_allocator.cpp"),
         Outcome.DEVICE_OUT_OF_MEMORY,
         "rank 1 was killed by SIGSEGV in phase Rollout, the device's memory ran out: CUDA Error"),
        (Facts(1, [rank()], 0, 139), Outcome.CRASH, "SIGSEGV"),
        (Facts(1, [rank()], 0, 1, TRACEBACK + "torch.distributed.DistStoreError: Timed out"),
         Outcome.TRANSIENT, "rank 0 ended with exit code 1 in phase Start: torch.distributed.DistStoreError: Timed"),
        (Facts(1, torchrun_log=TRACEBACK + "torch.distributed.DistNetworkError: EADDRINUSE"),
         Outcome.TRANSIENT, "torchrun ended with exit code 1"),
        (Facts(1, [rank()], 0, 1, "what it said\n" + "=" * 60 + "\n"), Outcome.CRASH,
         "rank 0 ended with exit code 1 in phase Start, and told no cause: usually a reward function or a library"
         " called os._exit or sys.exit. The last line of its log: what it said"),
        (Facts(1, [rank(), rank(1, phase=Phase.SCORE, progress=Progress(step=7))], 1, 3), Outcome.CRASH,
         "rank 1 ended with exit code 3 in phase Score after step 7, and told no cause: usually a reward function or a"
         " library called os._exit or sys.exit"),
        (Facts(0, [rank(outcome=Outcome.COMPLETE), rank(1), rank(2, phase=Phase.SCORE)]), Outcome.COMPLETE, ""),
        (Facts(0, [rank(phase=Phase.SCORE)]), Outcome.CRASH,
         "rank 0 ended with exit code 0 in phase Score, and told no cause"),
        (Facts(1, [rank(phase=Phase.SCORE)], 0, -11, "step 3"), Outcome.CRASH,
         "rank 0 was killed by SIGSEGV in phase Score: step 3"),
        (Facts(1, torchrun_log="No module named torch"), Outcome.CRASH, "torchrun ended with exit code 1"),
        (Facts(0), Outcome.CRASH, "torchrun ended with exit code 0"),
        (Facts(0, own_worker=False), Outcome.COMPLETE, "exit code 0"),
        (Facts(1, [], 0, 3, "no such file", own_worker=False), Outcome.CRASH, "exit code 3: no such file"),
        (Facts(0, [rank(outcome=Outcome.PREEMPTED, message="after 5 of 9")]), Outcome.PREEMPTED, "after 5 of 9"),
        (Facts(1, [rank(outcome=Outcome.CRASH)], stopping=True), Outcome.PREEMPTED, "no checkpoint"),
        (Facts(1, [rank(outcome=Outcome.TRANSIENT)], stopping=True), Outcome.PREEMPTED, "the ranks left"),
        (Facts(1, [rank(outcome=Outcome.USER_ERROR, message="x")], stopping=True), Outcome.USER_ERROR, "x"),
        (Facts(1, [rank(outcome=Outcome.COMPLETE)], stopping=True), Outcome.COMPLETE, ""),
        (Facts(1, [rank(checkpoints=[Checkpoint(step=7, uri="", time=0)])], stopping=True, overran=True),
         Outcome.PREEMPTED, "were killed; the newest checkpoint is of step 7"),
        (Facts(1, [rank(outcome=Outcome.CRASH)], hung="no progress", stacks="File x"), Outcome.HUNG, "no progress"),
        (Facts(1, [rank(outcome=Outcome.COMPLETE, message="done"), rank(1)], hung="no"), Outcome.COMPLETE, "done"),
    ],
)  # fmt: skip
def test_classify(facts: Facts, outcome: Outcome, words: str) -> None:
    ending = classify(facts)
    assert ending.outcome is outcome
    assert words in ending.message


def test_a_rank_that_left_with_exit_code_0_is_found_by_those_that_lost_it() -> None:
    lost = [rank(0, Outcome.CRASH, "Connection closed by peer"), rank(1, phase=Phase.SCORE), rank(2)]
    ended = "Sending process 12 closing signal SIGTERM"
    lost = [state.model_copy(update={"pid": 10 + state.rank}) for state in lost]
    ending = classify(Facts(1, lost, 0, 1, torchrun_log=ended))
    assert (ending.rank, ending.exit_code, ending.secondary) == (1, 0, False)
    assert ending.message.startswith("rank 1 ended with exit code 0 in phase Score, and told no cause: usually")
    others = f"{ended}\nSending process 11 closing signal SIGTERM"
    assert classify(Facts(1, lost, 0, 1, torchrun_log=others)).secondary


def test_a_rank_that_lost_its_peer_is_secondary() -> None:
    assert classify(Facts(1, [rank(0, Outcome.CRASH, "gloo: Connection closed by peer [10.0.0.2]")])).secondary
    assert classify(Facts(1, [rank(0, Outcome.TRANSIENT, "DistNetworkError: Connection reset by peer")])).secondary
    assert classify(
        Facts(1, [rank()], 0, -6, "NCCL error: remote process exited or there was a network error")
    ).secondary
    assert not classify(Facts(1, [rank(0, Outcome.CRASH, "division by zero")])).secondary
    assert not classify(Facts(1, [rank()], 0, -9, "step 3")).secondary


def test_exit_codes_are_a_shells() -> None:
    assert classify(Facts(1, [rank()], 0, -9)).exit_code == 137
    assert classify(Facts(1, [rank(outcome=Outcome.COMPLETE)])).exit_code == 0


def test_the_last_traceback_is_kept() -> None:
    log = TRACEBACK + "KeyError: 1\n\nDuring handling:\n" + TRACEBACK + "ValueError: 2"
    ending = classify(Facts(1, [rank()], 0, 1, log))
    assert ending.traceback == TRACEBACK + "ValueError: 2"
    assert ending.message == "rank 0 ended with exit code 1 in phase Start: ValueError: 2"


def test_torchruns_root_cause() -> None:
    def failure(index: int, number: int, code: int) -> str:
        return f"[{index}]:\n  rank      : {number} (local_rank: {number})\n  exitcode  : {code} (pid: 9) (SIGKILL)\n"

    log = f"Failures:\n{failure(1, 0, 1)}-----\nRoot Cause (first observed failure):\n{failure(0, 3, -9)}====="
    assert failed_rank(log) == (3, -9)
    assert failed_rank("no module named torch") == (None, None)
