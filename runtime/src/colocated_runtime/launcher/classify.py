"""How the ranks ended: from what they said, what torchrun saw, and what the launcher did. Pure."""

import re
import signal
from dataclasses import dataclass, field, replace

from colocated_runtime import lost_peer
from colocated_runtime.contract.outcome import DEVICE_FULL, Outcome, node_memory_ran_out
from colocated_runtime.contract.report import RankState

RENDEZVOUS = ("DistStoreError", "DistNetworkError", "RendezvousTimeoutError", "RendezvousConnectionError", "EADDRINUSE")
DOUBTFUL = (Outcome.CRASH, Outcome.TRANSIENT)
"""What a rank may also say of itself when only another one has failed."""
LIMIT_REACHED = 0.95
"""Share of its limit that a container must once have used for the limit to be why the kernel killed: the pod's own
cgroup, with the same limit, holds a little more than the container."""
LAST_LINES = 3000
"""Characters at the end of a log in which the cause of an end is looked for."""
FAILURE = re.compile(r"rank\s+: (\d+) \(local_rank: \d+\)\s+exitcode\s+: (-?\d+) \(pid: \d+\)")
ENDED_BY_TORCHRUN = "Sending process {pid} closing signal"
NO_WORD = ", and told no cause: usually a reward function or a library called os._exit or sys.exit"
TRACEBACK = "Traceback (most recent call last)"


@dataclass(frozen=True)
class Facts:
    """Everything that is known once this node's ranks are gone."""

    exit_code: int
    """Of torchrun."""
    ranks: list[RankState] = field(default_factory=list)
    failed_rank: int | None = None
    failed_code: int | None = None
    """First rank that torchrun saw fail, and its exit code; negative: killed by that signal."""
    failed_log: str = ""
    """The end of that rank's log."""
    torchrun_log: str = ""
    hung: str = ""
    """The watchdog's complaint, if it ended the ranks."""
    stacks: str = ""
    stopping: bool = False
    overran: bool = False
    """The ranks did not leave within the grace period and were killed."""
    oom_kills: int = 0
    memory_limit: int | None = None
    memory_peak: int | None = None
    """The most that the container has used, page cache included; None if not known."""
    limit_failures: int | None = None
    """How often the kernel found no more below that limit; None if not known."""
    own_worker: bool = True
    state_volume: str = ""
    """What is wrong with the pod's state volume: the ranks could not tell there how they ended."""


@dataclass(frozen=True)
class Ending:
    """The launcher's verdict on this node's part of the attempt."""

    outcome: Outcome
    message: str
    exit_code: int | None = None
    rank: int | None = None
    traceback: str = ""
    secondary: bool = False
    """This node only lost another one; that one's ending is the cause."""


def classify(facts: Facts) -> Ending:
    """The ranks' own word first; where they could not speak, the traces of their death."""
    if facts.hung and not any(rank.outcome is Outcome.COMPLETE for rank in facts.ranks):
        return Ending(Outcome.HUNG, facts.hung, traceback=facts.stacks)
    words = sorted((rank for rank in facts.ranks if rank.outcome), key=lambda rank: rank.updated)
    bad = sorted((rank for rank in words if rank.outcome not in (Outcome.COMPLETE, Outcome.PREEMPTED)), key=_guilt)
    if bad and bad[0].outcome not in DOUBTFUL:
        return _own_word(bad[0], facts)
    if not bad and any(rank.outcome is Outcome.COMPLETE for rank in words):
        return Ending(Outcome.COMPLETE, words[0].message, 0)
    if facts.oom_kills:
        return _killed_for_memory(facts)
    if facts.stopping or (not bad and words):
        return _preempted(facts, words)
    left = _left_silently(facts, bad)
    if left is not None:
        return _by_traces(replace(facts, failed_rank=left, failed_code=0, failed_log=""))
    if bad and not _died_silently(facts):
        return _own_word(bad[0], facts)
    return _by_traces(facts)


def _guilt(rank: RankState) -> tuple[bool, bool, float]:
    """Sorts the ranks that failed, the one to blame first: one that knows its own cause, then the earliest."""
    return rank.outcome in DOUBTFUL, lost_peer.told_in(rank.message), rank.updated


def failed_rank(torchrun_log: str) -> tuple[int | None, int | None]:
    """Rank and exit code of the root cause in torchrun's closing words."""
    match = FAILURE.search(torchrun_log, torchrun_log.rfind("Root Cause"))
    return (int(match[1]), int(match[2])) if match else (None, None)


def _own_word(rank: RankState, facts: Facts) -> Ending:
    assert rank.outcome is not None
    code = facts.failed_code if facts.failed_rank == rank.rank else facts.exit_code
    lost = rank.outcome in DOUBTFUL and lost_peer.told_in(rank.message)
    return Ending(rank.outcome, rank.message, shell_code(code), rank.rank, rank.traceback, secondary=lost)


def _died_silently(facts: Facts) -> bool:
    """Whether the rank that failed first left no word: the others' words are then about losing it."""
    spoke = {rank.rank for rank in facts.ranks if rank.outcome}
    return facts.failed_rank is not None and facts.failed_rank not in spoke


def _left_silently(facts: Facts, bad: list[RankState]) -> int | None:
    """The rank that ended with exit code 0 and no word, which is no failure to torchrun, if others only lost it.

    torchrun notes the process ids of those that it ends itself.
    """
    if not facts.own_worker or not all(lost_peer.told_in(rank.message) for rank in bad):
        return None
    silent = [rank for rank in facts.ranks if not rank.outcome and rank.rank != facts.failed_rank]
    if bad:
        silent = [rank for rank in silent if ENDED_BY_TORCHRUN.format(pid=rank.pid) not in facts.torchrun_log]
    elif facts.exit_code:
        return None
    return silent[0].rank if silent else None


def _killed_for_memory(facts: Facts) -> Ending:
    """At the pod's own limit; or because the whole node's memory ran out, which is not the job's fault."""
    limit, peak = facts.memory_limit, facts.memory_peak
    if limit and _limit_was_reached(facts, limit):
        outcome = Outcome.HOST_OUT_OF_MEMORY
        message = (
            f"the kernel killed a process of the pod at its memory limit of {limit / 2**30:.1f} GiB: raise"
            " resources.limits.memory"
        )
    else:
        outcome = Outcome.PREEMPTED
        message = f"the kernel killed a process of the pod: {node_memory_ran_out(limit, peak)}"
    return Ending(outcome, message, 137, facts.failed_rank)


def _limit_was_reached(facts: Facts, limit: int) -> bool:
    """By the kernel's own count; where it keeps none, by the peak, which page cache alone may bring near the limit."""
    if facts.limit_failures is not None:
        return facts.limit_failures > 0
    return facts.memory_peak is None or facts.memory_peak >= LIMIT_REACHED * limit


def _preempted(facts: Facts, words: list[RankState]) -> Ending:
    said = next((rank.message for rank in words if rank.outcome is Outcome.PREEMPTED), "")
    if said:
        return Ending(Outcome.PREEMPTED, said, 143)
    how = "the ranks did not leave within the grace period and were killed" if facts.overran else "the ranks left"
    saved = [point.step for rank in facts.ranks for point in rank.checkpoints]
    rest = f"the newest checkpoint is of step {max(saved)}" if saved else "no checkpoint was written before"
    return Ending(Outcome.PREEMPTED, f"stopped as asked: {how}; {rest}", 143)


def _by_traces(facts: Facts) -> Ending:
    if not facts.own_worker and facts.exit_code == 0:
        return Ending(Outcome.COMPLETE, "the command ended with exit code 0", 0)
    code = facts.failed_code if facts.failed_code is not None else facts.exit_code
    trace = last_traceback(facts.failed_log or facts.torchrun_log)
    outcome = _traced_outcome(facts, code)
    state = next((rank for rank in facts.ranks if rank.rank == facts.failed_rank), None)
    where = "torchrun" if facts.failed_rank is None else f"rank {facts.failed_rank}"
    message = f"{where} {_death(code)}{_last_seen(state)}"
    if outcome is Outcome.DEVICE_OUT_OF_MEMORY:
        message += ", the device's memory ran out"
    said = _last_words(trace or facts.failed_log)
    if state and outcome is Outcome.CRASH and not (trace or _signal(code)):
        message += NO_WORD + (f". The last line of its log: {said}" if said else "")
    elif said:
        message += f": {said}"
    if facts.state_volume:
        message += f"; {facts.state_volume}"
    lost = outcome in DOUBTFUL and lost_peer.told_in(facts.failed_log[-LAST_LINES:])
    return Ending(outcome, message, shell_code(code), facts.failed_rank, trace, secondary=lost)


def _last_seen(rank: RankState | None) -> str:
    if rank is None:
        return ""
    after = f" after step {rank.progress.step}" if rank.progress.step else ""
    return f" in phase {rank.phase}{after}"


def _last_words(text: str) -> str:
    """The last line that says something: torchrun draws rulers."""
    return next((line[:500] for line in reversed(text.splitlines()) if re.search(r"\w", line)), "")


def _traced_outcome(facts: Facts, code: int) -> Outcome:
    end = facts.failed_log[-LAST_LINES:]
    if any(text.lower() in end.lower() for text in DEVICE_FULL):
        return Outcome.DEVICE_OUT_OF_MEMORY
    if facts.state_volume:
        return Outcome.TRANSIENT
    if code > 0 and any(text in (end or facts.torchrun_log[-LAST_LINES:]) for text in RENDEZVOUS):
        return Outcome.TRANSIENT
    return Outcome.CRASH


def _death(code: int) -> str:
    if name := _signal(code):
        return f"was killed by {name}"
    return f"ended with exit code {code}"


def _signal(code: int) -> str:
    """The name of the signal that an exit code stands for; empty if for none."""
    number = -code if code < 0 else code - 128
    try:
        return signal.Signals(number).name if number > 0 else ""
    except ValueError:
        return ""


def shell_code(code: int | None) -> int | None:
    """As a shell and Kubernetes write it: 128 + the signal's number."""
    return 128 - code if code is not None and code < 0 else code


def last_traceback(log: str) -> str:
    """From the last traceback in the log to its end."""
    start = log.rfind(TRACEBACK)
    return log[start:].strip() if start >= 0 else ""
