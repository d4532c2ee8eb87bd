"""Where a rank stands, from what faulthandler has written to its log."""

import re

THREAD = re.compile(r'^(?:Current t|T)hread 0x.*\n((?:  File ".*\n?)*)', re.MULTILINE)
"""A thread's header and its frames, innermost first. The main thread comes last."""
NO_ANSWER = "(no answer)"


def main_thread(dump: str, limit: int) -> str:
    """The frames of the main thread as a traceback has them: innermost last, of which `limit` characters are kept.

    So whoever shortens the report from its front, too, keeps the call that does not return.
    """
    threads = THREAD.findall(dump)
    if not threads:
        return NO_ANSWER
    frames = threads[-1].splitlines()
    kept: list[str] = []
    for frame in frames:
        limit -= len(frame) + 1
        if limit < 0:
            return "\n".join(["  ...", *reversed(kept)])
        kept.append(frame)
    return "\n".join(reversed(kept))
