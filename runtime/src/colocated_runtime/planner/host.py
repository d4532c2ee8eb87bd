"""Host memory of one pod: what its ranks hold together against resources.limits.memory."""

from colocated_runtime.planner.devices import GIB
from colocated_runtime.planner.engine import pinned_weights
from colocated_runtime.planner.features import Offload
from colocated_runtime.planner.items import Item, gib
from colocated_runtime.planner.states import States, host_optimizer, offloaded
from colocated_runtime.planner.workload import Workload

PROCESS = 3 * GIB
"""One rank's interpreter with torch, transformers and vLLM. Assumed."""
LAUNCHER = GIB // 4
"""The pod's first process. Assumed."""
SHARED_MEMORY = GIB // 4
"""Of the shared-memory volume, for each rank, where a pod has several. Assumed."""
LARGEST_SHARD = 50_000_000_000
"""transformers' max_shard_size: a saved file is put together in host memory."""


def host_items(job: Workload, held: States, sleep_level: int, offload: Offload) -> list[Item]:
    """In every phase."""
    ranks = job.ranks_per_node
    found = [Item("processes", LAUNCHER + ranks * PROCESS, lambda: f"launcher and {ranks} x {gib(PROCESS)}")]
    reserve = job.hardware.host_reserve_bytes
    if reserve:
        found.append(Item("hostReserve", reserve, lambda: "an earlier attempt was killed at the pod's limit"))
    if ranks > 1:
        found.append(Item("sharedMemory", ranks * SHARED_MEMORY, lambda: f"{ranks} x {gib(SHARED_MEMORY)}"))
    if sleep_level == 1:
        one = pinned_weights(job.shape, job.tensor_parallel, job.dtype_bytes)
        found.append(Item("sleepingWeights", ranks * one, lambda: f"pinned, {ranks} x {gib(one)}"))
    away = offloaded(job, held, offload)
    if away:
        found.append(Item("offloadedStates", ranks * away, lambda: f"pinned, {ranks} x {gib(away)}"))
    updating = host_optimizer(job)
    if updating:
        found.append(Item("hostOptimizer", ranks * updating, lambda: f"{ranks} x {gib(updating)}"))
    if job.reference_leaves:
        own = job.shape.parameters * job.dtype_bytes
        found.append(Item("referenceModel", ranks * own, lambda: f"pinned, {ranks} x {gib(own)}"))
    rewards = sum(shape.parameters for shape in job.reward_shapes) * job.dtype_bytes
    if rewards and job.features.guests:
        found.append(Item("rewardModels", ranks * rewards, lambda: f"pinned, {ranks} x {gib(rewards)}"))
    return found


def loading(job: Workload, held: States) -> list[Item]:
    """While the job starts: the model, or an earlier attempt's optimizer states, one after the other.

    Every rank reads the whole model before it goes to its device; under ZeRO-3 one does. A single rank reads the whole
    file of the states too; several read it straight onto their devices (transformers' _load_optimizer_and_scheduler).
    """
    copies = 2 if job.reference and not job.reference_leaves else 1  # one that leaves counts among all phases' items
    one = job.shape.parameters * job.dtype_bytes * copies
    ranks = 1 if job.sharding == "zero3" else job.ranks_per_node
    saved = held.optimizer.bytes if job.world_size == 1 else 0
    if saved > one:
        return [Item("loadedStates", saved, lambda: "the optimizer's, where the job goes on from a checkpoint")]
    return [Item("loadedModel", ranks * one, lambda: f"{ranks} x {gib(one)}")]


def saving(job: Workload, held: States) -> list[Item]:
    """While a checkpoint or the final model is written: one file at a time, by rank 0; merged, the model leaves first.

    worker/export.py.
    """
    trained, whole = held.trainable * job.dtype_bytes, job.shape.parameters * job.dtype_bytes
    size = min(LARGEST_SHARD, whole if job.lora else trained)
    found = [Item("savedModel", size, lambda: "one file, put together in memory")]
    if job.lora or job.sharding == "fsdp":
        found.append(Item("mergedModel", whole, lambda: "the final model, adapter merged or parts gathered"))
    return found
