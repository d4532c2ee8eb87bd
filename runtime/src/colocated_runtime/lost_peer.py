"""How a rank speaks of having lost another one, whose end is then the cause."""

SIGNS = (
    "Connection closed by peer",
    "Connection reset by peer",
    "Broken pipe",
    "remote process exited",
    "NCCL communicator was aborted",
)


def told_in(text: str) -> bool:
    """Whether `text` says so."""
    return any(sign in text for sign in SIGNS)
