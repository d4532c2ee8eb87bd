"""Work that may hang, such as on storage whose server is gone, without hanging who waits for it."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

import structlog

T = TypeVar("T")
log = structlog.get_logger()


def in_thread(work: Callable[[], T]) -> asyncio.Future[T]:
    """What `work()` returns or raises, in a thread of its own.

    A thread that hangs keeps neither the event loop nor the interpreter's exit waiting.
    """
    done: Future[T] = Future()
    done.set_running_or_notify_cancel()  # who waits may give up, the thread cannot

    def run() -> None:
        try:
            done.set_result(work())
        except Exception as error:
            done.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return asyncio.wrap_future(done)


async def within(seconds: float, work: Callable[[], T], otherwise: T) -> T:
    """What `work()` returns, in a thread of its own; `otherwise` where it fails or takes longer."""
    try:
        return await asyncio.wait_for(in_thread(work), seconds)
    except TimeoutError:
        log.warning("storage", reason=f"no answer within {seconds:.0f} s")
    except OSError as error:
        log.warning("storage", reason=str(error))
    except Exception:  # a mistake of ours in what is tried beside the job's own work
        log.exception("storage")
    return otherwise
