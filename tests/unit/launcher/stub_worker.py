"""A worker that trains nothing: it speaks the launcher's files and misbehaves as asked. Started as runtime.command."""

import argparse
import ctypes
import faulthandler
import json
import os
import signal
import sys
import time
import traceback
from pathlib import Path

from colocated_runtime.contract import names
from colocated_runtime.contract.attempt import Attempt
from colocated_runtime.contract.outcome import Outcome
from colocated_runtime.contract.report import Checkpoint, Evaluation, Phase, PhasePeak, Progress
from colocated_runtime.worker.state import StateFile


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--step-seconds", type=float, default=0.05)
    parser.add_argument("--rank", type=int, default=0, help="the one that misbehaves")
    for name in ("--fail-at", "--kill-at", "--hang-at", "--leave-at"):
        parser.add_argument(name, type=int, default=-1)
    parser.add_argument("--exit-code", type=int, default=0, help="with which it leaves without a word")
    parser.add_argument("--hang", choices=["asleep", "stopped", "busy", "locked"], default="asleep")
    parser.add_argument("--exit-at-end", type=int, default=0, help="exit code after Complete was said")
    parser.add_argument("--start-seconds", type=float, default=0.0)
    parser.add_argument("--linger-seconds", type=float, default=0.0, help="after the last word")
    parser.add_argument("--ignore-stop", action="store_true")
    parser.add_argument("--hold-mib", type=int, default=0, help="host memory that every rank holds while it runs")
    parser.add_argument("--gloo", action="store_true", help="the ranks really add up a tensor at every step")
    return parser.parse_args()


class Stub:
    def __init__(self, asked: argparse.Namespace) -> None:
        self.asked = asked
        self.rank = int(os.environ["RANK"])
        self.state_dir = Path(os.environ.get(names.ENV_STATE_DIR, names.STATE_DIR))
        self.attempt = Attempt.model_validate_json(
            Path(os.environ.get(names.ENV_ATTEMPT_FILE, names.ATTEMPT_FILE)).read_text()
        )
        self.storage = Path(os.environ.get(names.ENV_STORAGE_DIR, names.STORAGE_DIR)) / self.attempt.directory
        self.file = StateFile(self.state_dir / f"rank-{self.rank}.json", self.rank)
        if asked.gloo:
            import torch.distributed as dist

            dist.init_process_group("gloo")

    def run(self) -> Outcome:
        self.held = b"\1" * (self.asked.hold_mib << 20)
        time.sleep(self.asked.start_seconds)
        self.compile()
        first = self.resume()
        for step in range(first + 1, self.asked.steps + 1):
            self.file.enter(Phase.ROLLOUT)
            self.misbehave(step)
            time.sleep(self.asked.step_seconds)
            reward = self.add_up(step / self.asked.steps)
            self.file.update(
                phase=Phase.TRAIN, progress=Progress(step=step, total_steps=self.asked.steps, eta_seconds=1.0),
                metrics={"reward": reward}, peaks={Phase.TRAIN: PhasePeak(host_bytes=1000 + self.rank)},
            )  # fmt: skip
            print(f"step {step}")
            if self.stopped():
                self.save(step)
                return Outcome.PREEMPTED
        self.save(self.asked.steps)
        (self.storage / "model").mkdir(exist_ok=True)
        self.file.update(
            model_uri=f"{self.attempt.storage_uri}/{self.attempt.directory}/model",
            evaluations=[
                Evaluation(step=0, mean=0.1, low=0.0, high=0.2, prompts=64),
                Evaluation(step=self.asked.steps, mean=0.8, low=0.7, high=0.9, prompts=64),
            ],
        )
        return Outcome.COMPLETE

    def compile(self) -> None:
        """As vLLM does: what is compiled already is not compiled again."""
        place = os.environ.get("VLLM_CACHE_ROOT")
        if place is None:
            return
        kernel = Path(place) / "kernel"
        print("found" if kernel.exists() else "compiled", "a kernel")
        kernel.parent.mkdir(exist_ok=True)
        kernel.touch()

    def resume(self) -> int:
        steps = [int(path.name.rpartition("-")[2]) for path in self.storage.glob("checkpoints/checkpoint-*")]
        alone = self.attempt.spec.world_size == 1
        if not steps or (self.attempt.attempt == 1 and not alone):  # then they are of another rank that was faster
            return 0
        self.file.update(resumed_from_step=max(steps), progress=Progress(step=max(steps)))
        return max(steps)

    def misbehave(self, step: int) -> None:
        if self.rank != self.asked.rank:
            return
        if step == self.asked.fail_at:
            raise RuntimeError(f"the stub fails at step {step}")
        if step == self.asked.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        if step == self.asked.leave_at:
            os._exit(self.asked.exit_code)
        if step == self.asked.hang_at:
            hang(self.asked.hang)

    def add_up(self, value: float) -> float:
        if not self.asked.gloo:
            return value
        import torch
        import torch.distributed as dist

        tensor = torch.tensor([value])
        dist.all_reduce(tensor)
        return float(tensor.item())

    def stopped(self) -> bool:
        stop = (self.state_dir / "stop").exists() and not self.asked.ignore_stop
        return bool(self.add_up(float(stop)))

    def save(self, step: int) -> None:
        path = self.storage / "checkpoints" / f"checkpoint-{step}"
        path.mkdir(parents=True, exist_ok=True)
        (path / "stub.json").write_text(json.dumps({"step": step}))
        uri = f"{self.attempt.storage_uri}/{path.relative_to(self.storage.parent)}"
        self.file.update(checkpoints=[Checkpoint(step=step, uri=uri, time=time.time())])


def hang(how: str) -> None:
    """Never return: asleep, stopped, busy, or in C with Python's lock held."""
    if how == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    if how == "locked":
        ctypes.PyDLL(None).sleep(1000)
    while True:
        if how == "asleep":
            time.sleep(1)


def main() -> int:
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    asked = options()
    stub = Stub(asked)
    try:
        outcome = stub.run()
        stub.file.update(outcome=outcome, message=f"the stub is done: {outcome.value}")
    except Exception as error:
        traceback.print_exc()
        stub.file.update(outcome=Outcome.CRASH, message=str(error), traceback=traceback.format_exc())
        return 1
    time.sleep(asked.linger_seconds)
    return asked.exit_at_end


if __name__ == "__main__":
    sys.exit(main())
