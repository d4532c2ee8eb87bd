"""Work that may hang, such as on storage whose server is gone, without hanging who waits for it."""

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

import structlog

T = TypeVar("T")
log = structlog.get_logger()


async def within(seconds: float, work: Callable[[], T], otherwise: T) -> T:
    """What `work()` returns, in a thread of its own; `otherwise` where it raises OSError or takes longer.

    A thread that hangs keeps neither the event loop nor the interpreter's exit waiting.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def settle(result: T) -> None:
        if not done.done():
            done.set_result(result)

    def run() -> None:
        result = otherwise
        try:
            result = work()
        except OSError as error:
            log.warning("storage", reason=str(error))
        finally:
            # The loop is closed where nobody waits any more.
            if not loop.is_closed():
                loop.call_soon_threadsafe(settle, result)

    threading.Thread(target=run, daemon=True).start()
    try:
        return await asyncio.wait_for(asyncio.shield(done), seconds)
    except TimeoutError:
        log.warning("storage", reason=f"no answer within {seconds:.0f} s")
        return otherwise
