import os
import subprocess
import sys
import threading
import time

from colocated_runtime.launcher.patience import within


async def test_what_is_done_in_time() -> None:
    assert await within(10, lambda: "read", "") == "read"


async def test_what_hangs() -> None:
    began = time.monotonic()
    assert await within(0.1, lambda: str(threading.Event().wait(60)), "nothing") == "nothing"
    assert time.monotonic() - began < 5


async def test_what_fails() -> None:
    def fail() -> str:
        raise OSError("stale file handle")

    assert await within(10, fail, "nothing") == "nothing"


def test_the_interpreter_ends_all_the_same() -> None:
    script = """
import asyncio, time
from colocated_runtime.launcher.patience import within
asyncio.run(within(0.1, lambda: time.sleep(60), None))
"""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    subprocess.run([sys.executable, "-c", script], env=environment, check=True, timeout=30)
