"""Times of a stored status: anybody who may edit it can write any time there is."""

from datetime import UTC, datetime, timedelta

from colocated_operator.status.conditions import stamp
from colocated_runtime.contract.status import JobStatus

EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
CLOCKS_DIFFER = timedelta(days=1)
"""No clock that has written a time is further ahead of ours."""


def with_possible_times(status: JobStatus, now: datetime) -> JobStatus:
    """`status` with `now` for every time that cannot be, or that is needed and missing."""
    conditions = [
        entry.model_copy(update={"last_transition_time": _needed(entry.last_transition_time, now)})
        for entry in status.conditions
    ]
    restarts = [entry.model_copy(update={"time": _needed(entry.time, now)}) for entry in status.restarts]
    saved, waiting = status.checkpoints, status.waiting
    kept = [entry.model_copy(update={"time": _needed(entry.time, now)}) for entry in saved.kept]
    changes = {
        "conditions": conditions,
        "restarts": restarts,
        "checkpoints": saved.model_copy(update={"time": _possible(saved.time, now), "kept": kept}),
        "waiting": waiting and waiting.model_copy(update={"since": _needed(waiting.since, now)}),
        "start_time": _possible(status.start_time or "", now) or None,
        "completion_time": _possible(status.completion_time or "", now) or None,
        "observed_at": _possible(status.observed_at, now),
    }
    return status.model_copy(update=changes)


def _needed(text: str, now: datetime) -> str:
    return _possible(text, now) or stamp(now)


def _possible(text: str, now: datetime) -> str:
    """`text`; `now` where that time cannot be; empty where there is none."""
    if not text or EARLIEST <= datetime.fromisoformat(text) <= now + CLOCKS_DIFFER:
        return text
    return stamp(now)
