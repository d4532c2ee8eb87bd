"""The real worker under the real launcher: one job, a fault in each attempt, and the next one goes on.

Attempt n resumes from step n - 1, does one step, and meets its fault in the step after it.
"""

import os
import time
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.unit.fault_rows import record

from colocated_runtime.contract.outcome import Outcome
from colocated_runtime.contract.phase import Phase

pytestmark = [pytest.mark.torch, pytest.mark.timeout(1500)]

REWARDS = Path(__file__).with_name("reward_files")
STALL_SECONDS = 10
LONG = bool(os.environ.get("CHAOS_LONG"))


class Fault(NamedTuple):
    """One kind of harm, done by `reward_files/faulty`."""

    kind: str
    name: str
    how: str
    outcome: Outcome
    waits: tuple[str, ...] = ()
    """Calls that the stack of rank 0 shows, outermost first."""
    hangs: tuple[str, ...] = ()
    """Likewise of rank 1."""
    lost: str = "the step that had begun"


FAULTS = [
    Fault("hang", "the reward function of one rank of two hangs", "sleeps for ever", Outcome.HUNG,
          ("in _calculate_rewards", "in gather"), ("in _calculate_rewards", "in reward", "in hang")),
    Fault("engine", "the engine of one rank of two hangs", "vLLM's executor does not return", Outcome.HUNG,
          ("worker/engine.py", "in all_reduce"), ("worker/engine.py", "llm_engine.py", "in hang")),
    Fault("kill", "one rank of two killed", "SIGKILL in its reward function", Outcome.CRASH),
    Fault("torn", "killed in a save, which stays unsealed", "SIGKILL", Outcome.CRASH, lost="the step being saved"),
    Fault("preempt", "preempted in a rollout", "SIGTERM to the launcher", Outcome.PREEMPTED),
]  # fmt: skip


@pytest.fixture
def job(launch, make_attempt, models, tmp_path, monkeypatch):
    """job(number, fault, steps): a launcher that runs the attempt; every step is saved."""
    (tmp_path / "train.jsonl").write_text('{"question": "say it"}\n{"question": "once more"}\n' * 8)
    monkeypatch.setenv("COLOCATED_REWARDS_DIR", str(REWARDS))
    monkeypatch.setenv("FAULT_FILE", str(tmp_path / "fault"))

    def start(number, fault, steps):
        # An engine is made to hang one step before it does.
        monkeypatch.setenv("FAULT", f"{fault}@{number - (fault == 'engine')}")
        trainer = {
            "max_steps": steps, "per_device_train_batch_size": 4, "num_generations": 4, "max_completion_length": 60,
            "learning_rate": 1e-3,
        }  # fmt: skip
        spec = {
            "model": {"source": f"file://{models}/policy", "dtype": "float32"},
            "dataset": {"source": f"file://{tmp_path}/train.jsonl", "promptColumn": "question"},
            "rewards": [{"function": "faulty:reward", "configMap": "faulty"}],
            "trainer": trainer,
            "checkpoint": {"everySteps": 1, "keep": steps},
            "watchdog": {"stallTimeoutSeconds": STALL_SECONDS},
            "processesPerNode": 2,
        }
        return launch(attempt=make_attempt(number=number, **spec))

    return start


def preempted_at(running, number):
    """Send SIGTERM in a rollout after the attempt's first step; when that was."""
    running.wait_for(lambda report: report.progress.step >= number and report.phase is Phase.ROLLOUT, 300)
    running.stop()
    return time.time()


def test_one_fault_after_another(job, tmp_path):
    faults = FAULTS if LONG else FAULTS[:2]
    steps = len(faults) + 3
    before = 0.0
    for number, fault in enumerate(faults, start=1):
        running = job(number, fault.kind, steps)
        happened = preempted_at(running, number) if fault.kind == "preempt" else 0.0
        final = running.finish(300)
        assert final.outcome is fault.outcome, running.log()
        if number > 1:
            resumed(final, number - 1, faults[number - 2], before)
        before = happened or float((tmp_path / "fault").read_text())
        if fault.hangs:
            assert time.time() - before < STALL_SECONDS + 30
            assert f"watchdog.stallTimeoutSeconds ({STALL_SECONDS} s)" in final.message
            waits, hangs = final.traceback.split("rank 1:")
            for calls, stack in ((fault.waits, waits), (fault.hangs, hangs)):
                places = [stack.find(call) for call in calls]
                assert -1 not in places, stack
                assert places == sorted(places), stack
    if not LONG:
        return
    last = job(len(faults) + 1, "", steps).finish(300)
    assert last.outcome is Outcome.COMPLETE, last.message
    assert last.resumed_from_step >= len(faults)
    resumed(last, last.resumed_from_step, faults[-1], before)


def resumed(report, step, fault, happened):
    """The attempt went on from `step`; how long it took from the fault until its first step was done, and saved."""
    assert report.resumed_from_step == step
    (first,) = (saved for saved in report.checkpoints if saved.step == step + 1)
    record(f"{fault.name}, real worker", fault.how, fault.lost, seconds=[first.time - happened])
