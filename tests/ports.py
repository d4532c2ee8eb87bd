"""Ports for processes under test."""

import random
import socket
from contextlib import suppress


def free_port() -> int:
    """With the next one free, too. Below those that connections take for themselves, or one might take it meanwhile."""
    while True:
        port = random.randrange(20_000, 32_000, 2)
        with suppress(OSError), socket.socket() as one, socket.socket() as other:
            one.bind(("0.0.0.0", port))
            other.bind(("0.0.0.0", port + 1))
            return port
