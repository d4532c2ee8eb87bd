"""Whether and when an attempt is followed by another."""

from dataclasses import dataclass

from colocated_runtime.contract.job import Restart
from colocated_runtime.contract.outcome import VERDICTS, Outcome

LONGEST_BACKOFF_SECONDS = 600
FRUITLESS_LIMIT = 10
"""Restarts in a row that are not counted and bring no step of progress."""


@dataclass(frozen=True)
class Restarting:
    """Another attempt follows."""

    counted: bool


@dataclass(frozen=True)
class Final:
    """No attempt follows."""

    message: str


def after(outcome: Outcome, message: str, policy: Restart, counted: int, fruitless: int) -> Restarting | Final:
    """What follows `outcome`, which is no Complete.

    `counted`: restarts so far that count against maxRestarts. `fruitless`: uncounted ones in a row without progress,
    the present one included.
    """
    verdict = VERDICTS[outcome]
    if not verdict.restart:
        return Final(message)
    if verdict.counted and counted >= policy.max_restarts:
        return Final(f"{message} (spec.restart.maxRestarts: {policy.max_restarts} used up)")
    if not verdict.counted and fruitless >= FRUITLESS_LIMIT:
        return Final(f"{fruitless} times in a row without one step of progress; the last: {message}")
    return Restarting(verdict.counted)


def backoff_seconds(policy: Restart, *, counted: bool, counted_total: int, fruitless: int) -> int:
    """Wait before the attempt that follows a restart already in the totals; doubles with each, up to 10 minutes."""
    doublings = max(0, (counted_total if counted else fruitless) - 1)
    longest = max(LONGEST_BACKOFF_SECONDS, policy.backoff_seconds)
    return min(policy.backoff_seconds << min(doublings, 20), longest)
