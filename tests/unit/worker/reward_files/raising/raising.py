"""A user's reward that fails on one rank, after it has asked for the stacks as the launcher would."""

import os
import signal


def reward(completions, **columns):
    if os.environ["RANK"] == "1":
        os.kill(os.getpid(), signal.SIGUSR1)
        raise KeyError("solution")
    return [0.0 for _ in completions]
