"""PID 1 of a pod: `python -m colocated_runtime.launcher`."""

import asyncio
import os
import sys
import time

import structlog
from pydantic import ValidationError

from colocated_runtime.contract.attempt import Attempt
from colocated_runtime.launcher import processes
from colocated_runtime.launcher.environment import Environment, attempt_file
from colocated_runtime.launcher.launcher import Launcher
from colocated_runtime.launcher.log import configure_log


def main() -> int:
    """Run the attempt that the environment names; return the pod's exit code."""
    configure_log()
    log = structlog.get_logger()
    path = attempt_file(os.environ)
    try:
        attempt = Attempt.model_validate_json(path.read_bytes())
        environment = Environment.read(os.environ, attempt, path)
    except (OSError, ValidationError, ValueError) as error:
        log.critical("cannot start: the attempt's description is missing or wrong", file=str(path), error=str(error))
        return 1
    processes.adopt_orphans()
    try:
        return asyncio.run(Launcher(attempt, environment, began=time.monotonic()).run())
    except OSError as error:
        log.critical("cannot serve the report", port=attempt.report_port, error=str(error))
        return 1


if __name__ == "__main__":
    sys.exit(main())
