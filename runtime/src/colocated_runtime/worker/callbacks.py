"""What happens at TRL's events: progress, metrics, evaluation, and leaving when the launcher asks."""

import math
import time
from collections.abc import Callable, Mapping
from typing import Any

from transformers import TrainerCallback

from colocated_runtime.contract.report import Progress, Weights
from colocated_runtime.worker.errors import STALE, WeightsStale
from colocated_runtime.worker.phases import Phases
from colocated_runtime.worker.state import StateFile
from colocated_runtime.worker.stopping import StopSignal

DIFFERENCE = "sampling/sampling_logp_difference/mean"
DIFFERENCE_LIMITS = {"float32": 0.005, "bfloat16": 0.1, "float16": 0.1}
"""By dtype: mean |difference| of the engine's and the trainer's log-probabilities of the same tokens, in nats.
Rounding alone gives 1e-6 (float32) to 0.03 (bfloat16); weights of another policy give more."""
LOGS_KEPT = 100
METRICS_KEPT = 64
"""Of those that a step logs; a status is no place for hundreds."""
"""Steps whose metrics the trainer keeps. It would keep all, and write them with each checkpoint."""


class Report(TrainerCallback):
    """Writes progress, metrics and throughput to the rank's state file."""

    def __init__(
        self, state: StateFile, *, difference_limit: float | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`difference_limit` as in `judge`."""
        self.sync_again: Callable[[], None] = lambda: None
        """Has the next rollout begin with a sync; called once the engine's weights are in doubt."""
        self.rates: Callable[[int], Mapping[str, float]] = lambda step: {}
        """What is known of the speed since its last call, at that step; all ranks call it."""
        self._file = state
        self._limit = difference_limit
        self._in_doubt = False
        self._clock = clock
        self._began = clock()
        self._first_step = 0
        self._tokens = 0.0
        self._logged = self._began

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Start the clock that the ETA is taken from."""
        self._began = self._logged = self._clock()
        self._first_step = state.global_step
        self._tokens = float(state.num_input_tokens_seen or 0)
        self.rates(state.global_step)  # what came before is no part of a step
        self._file.update(progress=Progress(step=state.global_step, total_steps=state.max_steps))

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Progress, with the time left at this attempt's mean speed."""
        done = state.global_step - self._first_step
        left = (self._clock() - self._began) / done * (state.max_steps - state.global_step)
        self._file.update(
            progress=Progress(step=state.global_step, total_steps=state.max_steps, eta_seconds=round(left, 1))
        )

    def on_log(self, args: Any, state: Any, control: Any, logs: Mapping[str, Any] | None = None, **kwargs: Any) -> None:
        """TRL's metrics as they are, what is derived from them, and whether the engine has the trainer's weights.

        Raise WeightsStale where it has not, and one more sync did not help.
        """
        del state.log_history[:-LOGS_KEPT]
        every = finite(logs or {})
        metrics = dict(list(every.items())[:METRICS_KEPT])
        if "reward" not in every:
            return  # transformers' closing summary
        changes: dict[str, Any] = {
            "metrics": metrics,
            "throughput": {**self._file.state.throughput, **self._throughput(every), **self.rates(state.global_step)},
        }
        if DIFFERENCE in every:
            changes["weights"] = judge(every[DIFFERENCE], state.global_step, self._limit)
        self._file.update(**changes)
        if "weights" in changes:
            self._act_on(changes["weights"])

    def _act_on(self, weights: Weights) -> None:
        """One more sync, then the end. TRL gathers the difference, so that all ranks do the same."""
        if not weights.in_sync and self._in_doubt:
            raise WeightsStale(f"step {weights.step}: {weights.message}, also after one more sync: {STALE}")
        self._in_doubt = not weights.in_sync
        if self._in_doubt:
            self.sync_again()

    def _throughput(self, metrics: Mapping[str, float]) -> dict[str, float]:
        now, tokens = self._clock(), metrics.get("num_tokens", self._tokens)
        speed = {"tokensPerSecond": round((tokens - self._tokens) / max(now - self._logged, 1e-6), 1)}
        self._logged, self._tokens = now, tokens
        if "step_time" in metrics:
            speed["secondsPerStep"] = round(metrics["step_time"], 3)
        return speed


class Evaluate(TrainerCallback):
    """Calls `evaluate(step)` every so many steps; the last step is left to the evaluation after training."""

    def __init__(self, evaluate: Callable[[int], None], every_steps: int) -> None:
        self._evaluate = evaluate
        self._every = every_steps

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Evaluate where a step is due."""
        if self._every and state.global_step % self._every == 0 and state.global_step < state.max_steps:
            self._evaluate(state.global_step)


class Boundary(TrainerCallback):
    """Tells where each step begins and ends, before anything else happens there."""

    def __init__(self, phases: Phases) -> None:
        self._phases = phases
        self.remember: Callable[[], None] = lambda: None
        """Has the state remembered that a checkpoint of the step that has just ended holds."""

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The trainer has looked at its data."""
        self._phases.step_begins()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The optimizer has stepped."""
        self.remember()
        self._phases.step_ends(state.global_step)


class Stop(TrainerCallback):
    """Saves and leaves at a step boundary; the engine looks by itself while it generates."""

    def __init__(self, signal: StopSignal) -> None:
        self._signal = signal
        self.stopped = False

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Have the trainer save this step and end its loop."""
        self._signal.look_at_once()
        if state.global_step < state.max_steps and self._signal.agreed():
            self.stopped = control.should_save = control.should_training_stop = True


class SkipEpochs(TrainerCallback):
    """On resume, lets the prompt order go on where it was: TRL's sampler starts again at epoch 0's order."""

    def __init__(self) -> None:
        self.skip: Callable[[int], None] = lambda epochs: None

    def on_train_begin(self, args: Any, state: Any, control: Any, train_dataloader: Any = None, **kwargs: Any) -> None:
        """Skip the finished epochs."""
        if state.global_step:
            steps = max(1, math.ceil(len(train_dataloader) / args.gradient_accumulation_steps))
            self.skip(state.global_step // steps)


def finite(logs: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of `logs`; JSON and status can hold neither NaN nor None."""
    return {
        name: float(value) for name, value in logs.items() if isinstance(value, (int, float)) and math.isfinite(value)
    }


def judge(difference: float, step: int, limit: float | None) -> Weights:
    """Whether a mean log-probability difference speaks for equal weights in engine and trainer.

    `limit` in nats a token, or None where the two distributions differ by the sampling options already.
    """
    if limit is None:
        message = "the sampling options change the engine's distribution: not comparable"
        return Weights(in_sync=True, step=step, message=message)
    in_sync = difference <= limit
    message = "" if in_sync else f"engine and trainer differ by {difference:.3f} nats a token, over {limit}"
    return Weights(in_sync=in_sync, step=step, log_probability_difference=difference, message=message)
