"""How fast a job generates and trains, and how much of its devices' speed it uses."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from colocated_runtime.contract.report import Phase
from colocated_runtime.planner import config_file
from colocated_runtime.planner.devices import known_product
from colocated_runtime.planner.flops import generation_flops, training_flops
from colocated_runtime.planner.shapes import Shape
from colocated_runtime.worker.phases import Moved, Phases

STEP = (Phase.ROLLOUT, Phase.SCORE, Phase.TRAIN, Phase.SYNC)
"""What a step consists of; saving and evaluating come now and then."""
Total = Callable[[list[float]], tuple[list[float], int]]
"""The sums of all ranks' values, and how many ranks there are."""


@dataclass(frozen=True)
class Work:
    """What the model's operations are counted by."""

    shape: Shape
    frozen: bool
    """Whether adapters alone are trained."""
    device_flops: float
    """Peak dense operations of one device a second, in the weights' type."""


class Meter:
    """Counts this rank's tokens and operations between two logs."""

    def __init__(self, phases: Phases, work: Work | None = None) -> None:
        """Without `work` there is no utilisation: of a CPU, or of a device or a model that is not known."""
        self._phases = phases
        self._work = work
        self._before: dict[Phase, float] = {}
        self._moved_before = Moved()
        self._step = 0
        self._forget()

    def _forget(self) -> None:
        self._generated = self._trained = 0
        self._generation_flops = self._training_flops = 0.0

    def generated(self, prompts: Sequence[int], completions: Sequence[int]) -> None:
        """Completions of so many tokens have been sampled."""
        self._generated += sum(completions)
        if self._work:
            self._generation_flops += generation_flops(self._work.shape, prompts, completions)

    def trained(self, lengths: Sequence[int]) -> None:
        """Sequences of so many tokens went forwards and backwards."""
        self._trained += sum(lengths)
        if self._work:
            self._training_flops += training_flops(self._work.shape, lengths, frozen=self._work.frozen)

    def rates(self, step: int, total: Total) -> dict[str, float]:
        """Since the last call, of all ranks together; nothing where there was no step. A collective by `total`."""
        now, moved = self._phases.seconds(), self._phases.moved
        spent = {phase: now[phase] - self._before.get(phase, 0.0) for phase in STEP}
        own = [self._generated, self._trained, self._generation_flops, self._training_flops, *spent.values()]
        seconds, size = moved.seconds - self._moved_before.seconds, moved.bytes - self._moved_before.bytes
        steps = step - self._step
        self._before, self._moved_before, self._step = now, moved, step
        self._forget()
        summed, ranks = total(own)
        if steps <= 0:
            return {}
        generated, trained, generation, training = summed[:4]
        mean = {phase: value / ranks for phase, value in zip(STEP, summed[4:], strict=True)}
        found = {f"{phase.lower()}Seconds": value / steps for phase, value in mean.items()}
        found |= {"handoverSeconds": seconds / steps, "handoverBytes": size / steps}
        if generated and mean[Phase.ROLLOUT]:
            found["rolloutTokensPerSecond"] = generated / mean[Phase.ROLLOUT]
        if trained and mean[Phase.TRAIN]:
            found["trainTokensPerSecond"] = trained / mean[Phase.TRAIN]
        if self._work and training:
            peak = self._work.device_flops * ranks
            found["modelFlopsUtilization"] = (generation + training) / (peak * sum(mean.values()))
            found["trainFlopsUtilization"] = training / (peak * mean[Phase.TRAIN])
        return {name: float(f"{value:.5g}") for name, value in found.items()}


def work_of(config: Path, product: str, resource: str, dtype: str, *, frozen: bool) -> Work | None:
    """Of the model that `config`, its config.json, describes, on a device whose driver calls it `product`.

    None where one of them is not known, and for float32: the data sheets' peak is that of 16-bit numbers.
    """
    device = known_product(product.replace(" ", "-"), resource)
    try:
        shape = config_file.read_shape(config)
    except ValueError:
        return None
    if device is None or not shape.verified or dtype == "float32":
        return None
    return Work(shape, frozen, device.teraflops * 1e12)
