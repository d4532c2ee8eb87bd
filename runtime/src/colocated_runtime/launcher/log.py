"""The launcher's own lines in the pod's log: time, level, words, key=value."""

import logging
import sys

import structlog


def configure_log() -> None:
    """Plain lines on stdout, colours nowhere, so that `kubectl logs` reads well."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="%H:%M:%S"),
            structlog.dev.ConsoleRenderer(colors=False, pad_event_to=0, pad_level=False),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stdout),
    )
