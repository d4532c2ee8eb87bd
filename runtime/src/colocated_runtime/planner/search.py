"""Which settings fit, and which of those are fastest. What the user set is kept; only what is unset is chosen."""

import functools
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, floor, gcd

from colocated_runtime.contract.job import JobSpec
from colocated_runtime.contract.report import Phase
from colocated_runtime.planner.cost import Seconds, seconds
from colocated_runtime.planner.features import RUNTIME, Checkpointing, Offload
from colocated_runtime.planner.items import Item, total
from colocated_runtime.planner.phases import (
    Parts,
    SleepLevel,
    Use,
    cache_item,
    device_items,
    device_total,
    fixed,
    parts,
    phases,
)
from colocated_runtime.planner.shapes import Shape
from colocated_runtime.planner.workload import Workload, option_values, step_in_pieces

DEFAULT_UTILIZATION = 0.3
"""TRL's own default for an engine that shares its device with the trainer; where nothing is chosen."""
DEFAULT_SLEEP_LEVEL: SleepLevel = 2
STEP = 100
"""Utilisations are whole hundredths: vLLM's compile cache depends on the cache's size."""
ABOUT = 1.02
"""Steps whose predictions differ by less are called as fast: the prediction is no better than that."""
MICRO_BATCH_TOKENS = 16_384
"""Larger micro-batches are not chosen: they gain under 2 %, and pad more rows to the longest of them."""
MICRO_BATCH_ROWS = 64
"""Nor are those of more completions."""

EXACT_LOSSES = ("grpo", "sapo", "dr_grpo", "luspo", "dapo", "cispo", "vespo")
"""TRL divides these by rows x micro-batches or by the window's tokens (grpo_trainer.py _compute_loss), so that another
cut of the same rows gives the same sum. bnpo divides by the tokens of each micro-batch."""


@dataclass(frozen=True)
class Given:
    """The user's own settings; None where the plan may choose."""

    utilization: float | None
    sleep_level: SleepLevel | None
    rows: int | None
    checkpointing: Checkpointing | None
    offload: Offload | None
    headroom: float


@dataclass(frozen=True)
class Candidate:
    """One set of settings and what it needs."""

    made: Parts
    utilization: float
    sleep_level: SleepLevel
    offload: Offload
    uses: dict[Phase, Use]
    budget: int
    """Bytes of a device without the headroom."""

    @property
    def job(self) -> Workload:
        """What is planned."""
        return self.made.fixed.job

    @functools.cached_property
    def cache(self) -> int:
        """The engine's bytes for keys and values; negative where the rest does not fit into its share."""
        return int(self.utilization * self.job.hardware.device_bytes) - self.made.fixed.engine.fixed

    @property
    def missing(self) -> dict[Phase, int]:
        """Bytes of the device beyond the budget, by phase; negative where some are left."""
        return {phase: device_total(use, self.cache) - self.budget for phase, use in self.uses.items()}

    @property
    def host_missing(self) -> dict[Phase, int]:
        """The same for the pod's memory limit; empty without one."""
        limit = self.job.hardware.host_limit_bytes
        return {} if limit is None else {phase: total(use.host) - limit for phase, use in self.uses.items()}

    @property
    def cache_missing(self) -> int:
        """Bytes that the cache lacks for the longest sequence: vLLM would not start."""
        return self.made.fixed.engine.sequence - self.cache

    @functools.cached_property
    def excess(self) -> int:
        """By how much it fails on the device; 0 where it fits."""
        return max(0, self.cache_missing, *self.missing.values())

    @functools.cached_property
    def host_excess(self) -> int:
        """The same on the host."""
        return max((0, *self.host_missing.values()))

    @property
    def fits(self) -> bool:
        """Whether every phase fits on device and host, and the engine can start."""
        return not self.excess and not self.host_excess

    @functools.cached_property
    def seconds(self) -> Seconds:
        """Predicted."""
        return seconds(self.made, cache=self.cache, sleep_level=self.sleep_level, offload=self.offload)

    def device_items(self, phase: Phase) -> list[Item]:
        """Everything on the device in `phase`."""
        return device_items(self.uses[phase], cache_item(self.cache, self.utilization))


def given(spec: JobSpec, shape: Shape) -> Given:
    """What `spec` leaves to the plan. Under Manual that is nothing: what is not set has its default."""
    auto, memory = spec.memory.policy == "Auto", spec.memory
    values = option_values(spec)
    checkpointing: Checkpointing = "full" if values.get("gradient_checkpointing") else "none"
    level: SleepLevel | None = memory.sleep_level  # type: ignore[assignment]
    cut = auto and "per_device_train_batch_size" not in spec.trainer and exact_in_any_cut(spec, shape)
    pieces = RUNTIME.pieces and step_in_pieces(spec, shape)
    return Given(
        utilization=memory.gpu_memory_utilization or (None if auto else DEFAULT_UTILIZATION),
        sleep_level=level if auto or level is not None else DEFAULT_SLEEP_LEVEL,
        rows=None if cut or pieces else values["per_device_train_batch_size"],
        checkpointing=None if auto and "gradient_checkpointing" not in spec.trainer else checkpointing,
        offload=memory.offload if auto or memory.offload else "none",
        headroom=memory.headroom,
    )


def exact_in_any_cut(spec: JobSpec, shape: Shape) -> bool:
    """Whether TRL computes the same gradients however the rows of a window are cut into micro-batches.

    Entropy bonus and entropy quantile are taken over a micro-batch, and the auxiliary loss of experts is a product of
    means over it: with these, and with bnpo, another cut is another loss.
    """
    values = option_values(spec)
    if shape.num_experts and values.get("router_aux_loss_coef") != 0.0:
        return False
    if spec.algorithm == "rloo":
        return True
    return (
        values["loss_type"] in EXACT_LOSSES
        and not values.get("entropy_coef")
        and not values.get("use_adaptive_entropy")
        and values.get("top_entropy_quantile", 1.0) == 1.0
    )


def search(job: Workload, own: Given) -> list[Candidate]:
    """Every combination of what may be chosen, in the same order for the same input."""
    return list(_candidates(job, own))


def best(found: list[Candidate]) -> Candidate:
    """Of those that fit and are about as fast as the fastest, the one with the most room while it trains.

    If none fits, the one that fails by least: on the device, for a pod's memory is easier to come by.

    Training is where lengths and pieces differ from the plan; the engine's share is taken once, and its cache is made
    as large as fits. Offload is for where it gains: it fills host memory instead.
    """
    fitting = [one for one in found if one.fits]
    if not fitting:
        return min(found, key=lambda one: (one.excess, one.host_excess, one.made.activations.bytes))
    limit = ABOUT * min(one.seconds.step for one in fitting)
    alike = (one for one in fitting if one.seconds.step <= limit)
    return min(alike, key=lambda one: (one.offload != "none", one.missing[Phase.TRAIN]))


def _candidates(job: Workload, own: Given) -> Iterator[Candidate]:
    budget = int(job.hardware.device_bytes * (1 - own.headroom))
    levels = job.features.sleep_levels if own.sleep_level is None else (own.sleep_level,)
    # States that ranks share out stay where they are (worker/offload.py).
    open_offload = job.features.offload if job.sharding == "none" else ("none",)
    offloads = open_offload if own.offload is None else (own.offload,)
    kinds = _checkpointing(job) if own.checkpointing is None else (own.checkpointing,)
    base = fixed(job)
    for kind in kinds:
        for rows in micro_batches(job) if own.rows is None else (own.rows,):
            made = parts(base, rows, kind)
            for level, offload in itertools.product(levels, offloads):
                uses = phases(made, level, offload)
                share = own.utilization
                if share is None:
                    share = min(wanted_utilization(made), largest_utilization(made, uses, budget))
                yield Candidate(made, share, level, offload, uses, budget)


def largest_utilization(made: Parts, uses: dict[Phase, Use], budget: int) -> float:
    """Of the engine, so that every phase still fits; in whole hundredths, 0 where none does."""
    left = min(budget - total(use.device) for use in uses.values() if use.cached)
    share = left + made.fixed.engine.fixed
    return max(0, floor(share / made.fixed.job.hardware.device_bytes * STEP)) / STEP


def wanted_utilization(made: Parts) -> float:
    """As much as a whole rollout needs at once: more cache would not be used.

    Where the prompts' length is a guess, no less than TRL's default: with far longer ones the engine would not start.
    """
    job, needs = made.fixed.job, made.fixed.engine
    share = needs.fixed + max(needs.rollout, needs.sequence)
    wanted = ceil(share / job.hardware.device_bytes * STEP) / STEP
    return max(wanted, DEFAULT_UTILIZATION) if job.lengths.guessed else wanted


def micro_batches(job: Workload) -> list[int]:
    """Sizes that cut both the rollout's and the optimizer step's completions of one rank into whole pieces.

    A step in pieces takes any number of tokens at once: powers of two of the longest completions.
    """
    sizes = job.sizes
    whole = gcd(sizes.per_device * sizes.gradient_accumulation_steps, sizes.per_rank)
    most = min(MICRO_BATCH_ROWS, max(1, MICRO_BATCH_TOKENS // job.lengths.total))
    if job.pieces:
        most = min(most, sizes.per_device * sizes.gradient_accumulation_steps)
        return [1 << power for power in range(most.bit_length())]
    return [rows for rows in range(1, most + 1) if whole % rows == 0]


def _checkpointing(job: Workload) -> tuple[Checkpointing, ...]:
    """TRL's own step knows only all and nothing."""
    return tuple(kind for kind in job.features.checkpointing if job.pieces or kind in ("none", "full"))
