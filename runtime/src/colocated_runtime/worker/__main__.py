"""One rank, started by torchrun: `python -m colocated_runtime.worker`."""

import faulthandler
import logging
import os
import signal
import sys
from contextlib import suppress

from colocated_runtime.contract.attempt import Attempt
from colocated_runtime.contract.outcome import Outcome
from colocated_runtime.contract.report import Progress
from colocated_runtime.worker import checks, devices, environment, errors, output
from colocated_runtime.worker.state import StateFile


def main() -> int:
    """Run the attempt; the rank's state file tells the outcome, the exit code is 0 for Complete and Preempted."""
    # The launcher asks a silent rank where it stands.
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    sys.stdout, sys.stderr = output.unfailing(sys.stdout), output.unfailing(sys.stderr)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s", stream=sys.stdout)
    paths = environment.paths(os.environ)
    rank = environment.rank()
    attempt = Attempt.model_validate_json(paths.attempt_file.read_text())
    state = StateFile(paths.rank_file(rank), rank)
    environment.prepare(os.environ, attempt.spec.backend)
    try:
        checks.refuse(attempt.spec)
        checks.environment(os.environ)
        if attempt.spec.backend != "cpu":
            devices.require(attempt.spec.ranks_per_node)
        # Only now: torch, vLLM and TRL read the environment when they are imported.
        from colocated_runtime.worker.job import Job

        job = Job(attempt, paths, state)
        outcome = job.run()
    except (Exception, SystemExit) as error:
        sys.stderr.write(f"{errors.told(error)}\n")
        volume = errors.storage(error, paths.storage / attempt.directory)
        # Another attempt may find the volume well again.
        outcome = Outcome.TRANSIENT if volume else errors.classify(error, state.state.progress.step)
        state.update(
            outcome=outcome,
            phase=errors.phase_of(error) or state.state.phase,
            message=volume or errors.words(error, outcome),
            checkpoint_error=volume or state.state.checkpoint_error,
            traceback=errors.trace_of_cause(error)[-8000:],
        )
        return 1
    state.update(outcome=outcome, message=_closing_words(outcome, state.state.progress))
    with suppress(Exception):  # the work is done and the state says so
        job.close()
    return 0


def _closing_words(outcome: Outcome, progress: Progress) -> str:
    verb = "trained" if outcome is Outcome.COMPLETE else "stopped as asked after"
    of = f" of {progress.total_steps}" if progress.total_steps else ""  # not known before training begins
    return f"{verb} {progress.step}{of} steps"


if __name__ == "__main__":
    exit_code = main()
    if exit_code:
        # Collectives in which the other ranks wait for this one can keep the interpreter from ending.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(exit_code)
