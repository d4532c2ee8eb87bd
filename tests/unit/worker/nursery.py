"""Imports torch, TRL and vLLM once, then forks a process for each rank that a test asks for.

Reads a line of JSON for each run: {"script": path or "", "ranks": [{variables}, …], "log": path}, and answers with a
line that holds the largest exit code, or 128 and the signal for a rank that was stopped: that one is left alone.
Ranks that outlive one that failed are ended, as torchrun ends them.
"""

import json
import os
import runpy
import signal
import sys
import time
import traceback

os.environ["OMP_NUM_THREADS"] = "1"  # read when torch is loaded
from colocated_runtime.worker import environment

environment.prepare(os.environ, "cpu")

import colocated_runtime.worker.job  # noqa: E402, F401


def rank(script: str, variables: dict[str, str], log: str) -> int:
    """The pid of a new rank."""
    pid = os.fork()
    if pid:
        return pid
    os.environ.update(variables)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for stream in (1, 2):
        os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND), stream)
    code = 1
    try:
        if script:
            runpy.run_path(script, run_name="__main__")
        else:
            runpy.run_module("colocated_runtime.worker", run_name="__main__")
        code = 0
    except SystemExit as leaving:
        code = int(leaving.code or 0)
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def run(script: str, ranks: list[dict[str, str]], log: str) -> int:
    running = {rank(script, variables, log) for variables in ranks}
    codes = []
    deadline = float("inf")
    while running:
        pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
        if pid in running:  # else one that was stopped before and has ended now
            running.discard(pid)
            stopped = os.WIFSTOPPED(status)
            codes.append(128 + os.WSTOPSIG(status) if stopped else abs(os.waitstatus_to_exitcode(status)))
            if codes[-1]:
                deadline = min(deadline, time.monotonic() + 5)
        elif time.monotonic() > deadline:
            for left in running:
                os.kill(left, signal.SIGKILL)
            deadline = float("inf")
        else:
            time.sleep(0.05)
    return max(codes)


for line in sys.stdin:
    asked = json.loads(line)
    print(json.dumps(run(asked["script"], asked["ranks"], asked["log"])), flush=True)
