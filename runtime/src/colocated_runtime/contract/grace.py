"""How long a pod has, once it is told to go: for the rest of a step and a save."""

import math
from collections.abc import Mapping

from colocated_runtime.contract.phase import Phase
from colocated_runtime.contract.plan import Plan

LEAVING = "secondsToLeave"
"""In a report's `throughput`: the longest time between two looks for the wish to leave, and a save after it."""
SHORTEST_SECONDS = 120
LONGEST_SECONDS = 1800
"""A pod that does not end holds its node and quota so long; a longer period the user may set."""
MARGIN = 1.5
LAUNCHER_SECONDS = 10
"""The launcher wants to be done so much earlier."""


def period_seconds(throughput: Mapping[str, float], plan: Plan | None) -> int:
    """The grace period for an attempt's pods: by what earlier attempts measured, else by the plan."""
    planned = plan.step_seconds + _save_seconds(plan) if plan else 0.0
    needed = throughput.get(LEAVING) or planned
    wanted = math.ceil(MARGIN * needed) + 2 * LAUNCHER_SECONDS
    return min(LONGEST_SECONDS, max(SHORTEST_SECONDS, wanted))


def shortage(throughput: Mapping[str, float], seconds: float) -> str:
    """What is wrong where the ranks have `seconds` to leave; empty where they suffice, or either is unknown (0)."""
    needed = throughput.get(LEAVING, 0.0)
    if not seconds or needed <= seconds:
        return ""
    return (
        f"to end a step and save takes {needed:.0f} s, and the pods have {seconds:.0f} s: a preemption would lose all"
        f" steps since the last checkpoint. The next attempt's pods get {period_seconds(throughput, None)} s, unless"
        " runtime.podTemplate.spec.terminationGracePeriodSeconds says otherwise"
    )


def _save_seconds(plan: Plan) -> float:
    save = plan.phase(Phase.CHECKPOINT)
    return save.seconds if save else 0.0
