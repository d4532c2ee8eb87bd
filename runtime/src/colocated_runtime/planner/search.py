"""Which settings fit, and which of those are fastest. What the user set is kept; only what is unset is chosen."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, floor, gcd

from colocated_runtime.contract.job import JobSpec
from colocated_runtime.contract.report import Phase
from colocated_runtime.planner.cost import Seconds, seconds
from colocated_runtime.planner.features import Checkpointing
from colocated_runtime.planner.items import total
from colocated_runtime.planner.phases import Choice, Parts, Use, cache_bytes, engine_items, parts, phases
from colocated_runtime.planner.workload import Workload, option_values

DEFAULT_UTILIZATION = 0.3
"""TRL's own default for an engine that shares its device with the trainer; where nothing is chosen."""
STEP = 100
"""Utilisations are whole hundredths: vLLM's compile cache depends on the cache's size."""
MICRO_BATCH_TOKENS = 16_384
"""Larger micro-batches are not chosen: they gain under 2 %, and pad more rows to the longest of them."""

EXACT_LOSSES = ("grpo", "sapo", "dr_grpo", "luspo", "dapo", "cispo", "vespo")
"""TRL divides these by rows x micro-batches or by the window's tokens (grpo_trainer.py _compute_loss), so that another
cut of the same rows gives the same sum. bnpo divides by the tokens of each micro-batch."""


@dataclass(frozen=True)
class Given:
    """The user's own settings; None where the plan may choose."""

    utilization: float | None
    sleep_level: int | None
    rows: int | None
    checkpointing: Checkpointing | None


@dataclass(frozen=True)
class Candidate:
    """One set of settings and what it needs."""

    made: Parts
    choice: Choice
    uses: dict[Phase, Use]
    budget: int
    host_limit: int | None

    @property
    def cache(self) -> int:
        """The engine's bytes for keys and values."""
        return cache_bytes(self.made, self.choice.utilization)

    @property
    def missing(self) -> dict[Phase, int]:
        """Bytes of the device beyond the budget, by phase; negative where some are left."""
        return {phase: total(use.device) - self.budget for phase, use in self.uses.items()}

    @property
    def host_missing(self) -> dict[Phase, int]:
        """The same for the pod's memory limit; empty without one."""
        if self.host_limit is None:
            return {}
        return {phase: total(use.host) - self.host_limit for phase, use in self.uses.items()}

    @property
    def cache_missing(self) -> int:
        """Bytes that the cache lacks for the longest sequence."""
        return self.made.engine.sequence - self.cache

    @property
    def excess(self) -> int:
        """By how much it fails; 0 or less if it fits."""
        return max(*self.missing.values(), *self.host_missing.values(), self.cache_missing)

    @property
    def fits(self) -> bool:
        """Whether every phase fits on device and host, and the engine can start."""
        return self.excess <= 0

    @property
    def seconds(self) -> Seconds:
        """Predicted."""
        return seconds(self.made, self.choice)


def given(spec: JobSpec) -> Given:
    """What `spec` leaves to the plan. Under Manual that is nothing: what is not set has its default."""
    auto = spec.memory.policy == "Auto"
    values = option_values(spec)
    checkpointing: Checkpointing = "full" if values.get("gradient_checkpointing") else "none"
    return Given(
        utilization=spec.memory.gpu_memory_utilization or (None if auto else DEFAULT_UTILIZATION),
        sleep_level=spec.memory.sleep_level if auto or spec.memory.sleep_level is not None else 2,
        rows=None if auto and may_cut(spec) else values["per_device_train_batch_size"],
        checkpointing=None if auto and "gradient_checkpointing" not in spec.trainer else checkpointing,
    )


def may_cut(spec: JobSpec) -> bool:
    """Whether the plan may change the micro-batch: the user set none, and the loss does not notice.

    Entropy bonus and entropy quantile are taken over a micro-batch, the auxiliary loss of experts is a product of means
    over it: with these, and with bnpo, another cut is another loss.
    """
    return "per_device_train_batch_size" not in spec.trainer and exact_in_any_cut(spec)


def exact_in_any_cut(spec: JobSpec) -> bool:
    """Whether TRL computes the same gradients however the rows of a window are cut into micro-batches."""
    values = option_values(spec)
    experts = bool(spec.model and spec.model.shape and spec.model.shape.num_experts)
    if values.get("router_aux_loss_coef") or (experts and values.get("router_aux_loss_coef") is None):
        return False
    if spec.algorithm == "rloo":
        return True
    return (
        values["loss_type"] in EXACT_LOSSES
        and not values.get("entropy_coef")
        and not values.get("use_adaptive_entropy")
        and values.get("top_entropy_quantile", 1.0) == 1.0
    )


def candidates(job: Workload, own: Given, headroom: float, offload: str = "none") -> Iterator[Candidate]:
    """Every combination of what may be chosen, the same order for the same input."""
    budget = int(job.hardware.device_bytes * (1 - headroom))
    levels = job.features.sleep_levels if own.sleep_level is None else (own.sleep_level,)
    kinds = job.features.checkpointing if own.checkpointing is None else (own.checkpointing,)
    for kind in kinds:
        for rows in _rows(job, own):
            made = parts(job, rows, kind)
            for level in levels:
                utilization = own.utilization
                if utilization is None:
                    utilization = _utilization(made, level, budget)
                choice = Choice(utilization, level, rows, kind, offload)  # type: ignore[arg-type]
                yield candidate(made, choice, budget)


def candidate(made: Parts, choice: Choice, budget: int) -> Candidate:
    """What `choice` needs."""
    return Candidate(made, choice, phases(made, choice), budget, made.job.hardware.host_limit_bytes)


def best(found: list[Candidate]) -> Candidate:
    """The fastest that fits; if none does, the one that fails by least."""
    fitting = [one for one in found if one.fits]
    if fitting:
        return min(fitting, key=lambda one: one.seconds.step)
    return min(found, key=lambda one: one.excess)


def largest_utilization(made: Parts, sleep_level: int, budget: int) -> float:
    """Of the engine, so that each phase still fits; in whole hundredths, 0 where none does."""
    empty = phases(made, Choice(0.0, sleep_level, made.rows, "full"))  # type: ignore[arg-type]
    awake = [use for use in empty.values() if any(item.name == "kvCache" for item in use.device)]
    left = min(budget - total(use.device) for use in awake)
    share = left + total(engine_items(made, 0))
    return max(0, floor(share / made.job.hardware.device_bytes * STEP)) / STEP


def _utilization(made: Parts, sleep_level: int, budget: int) -> float:
    """As much as a whole rollout needs at once, if that much is there: more cache would not be used."""
    needs = made.engine
    share = needs.fixed + max(needs.rollout, needs.sequence)
    wanted = ceil(share / made.job.hardware.device_bytes * STEP) / STEP
    return min(wanted, largest_utilization(made, sleep_level, budget))


def _rows(job: Workload, own: Given) -> list[int]:
    if own.rows is not None:
        return [own.rows]
    return micro_batches(job)


def micro_batches(job: Workload) -> list[int]:
    """Sizes that cut both the rollout's and the optimizer step's completions of one rank into whole pieces."""
    sizes = job.sizes
    whole = gcd(sizes.per_device * sizes.gradient_accumulation_steps, sizes.per_rank)
    most = max(1, MICRO_BATCH_TOKENS // job.lengths.total)
    return [rows for rows in range(1, min(whole, most) + 1) if whole % rows == 0]
