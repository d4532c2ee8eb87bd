"""The final report: to a file beside the checkpoints, and to Kubernetes as the termination message."""

import structlog

from colocated_runtime.contract.outcome import Outcome
from colocated_runtime.contract.report import TERMINATION_LIMIT, Report, Stage
from colocated_runtime.files import replace_text
from colocated_runtime.launcher.classify import Ending
from colocated_runtime.launcher.environment import Paths

log = structlog.get_logger()
EXIT_CODES = {Outcome.COMPLETE: 0, Outcome.PREEMPTED: 143}


def final(report: Report, ending: Ending, now: float) -> Report:
    """The report's last edition."""
    return report.model_copy(
        update={
            "stage": Stage.FINISHED,
            "updated": now,
            "outcome": ending.outcome,
            "message": ending.message,
            "exit_code": ending.exit_code,
            "rank": ending.rank,
            "traceback": ending.traceback,
        }
    )


def write(report: Report, paths: Paths) -> None:
    """Write both copies. One that cannot be written is logged and does not keep the other from being written.

    The termination message first: the volume may hang.
    """
    try:
        # Not replaced: the kubelet has mounted this very file.
        paths.termination_log.write_text(report.within(TERMINATION_LIMIT))
    except OSError as error:
        log.warning("termination message not written", reason=str(error))
    try:
        stored = paths.final_report(report.attempt, report.node)
        stored.parent.mkdir(parents=True, exist_ok=True)
        replace_text(stored, report.model_dump_json(by_alias=True), durable=True)
    except OSError as error:
        log.warning("final report not stored", reason=str(error))
