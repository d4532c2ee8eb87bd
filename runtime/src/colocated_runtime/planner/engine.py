"""What vLLM holds on a device: weights, key-value cache, graphs; and what it leaves there asleep.

Sources: vllm/v1/worker/gpu_worker.py determine_available_memory (what is left of utilization x total becomes cache),
vllm/device_allocator/cumem.py (what sleep releases), and the measurements in docs/memory.md.
"""

import functools
from dataclasses import dataclass

from colocated_runtime.planner.devices import GIB, MIB
from colocated_runtime.planner.shapes import Shape
from colocated_runtime.planner.workload import Workload

GRAPHS = int(0.7 * GIB)
"""CUDA graphs and attention's workspace, inside the share. Measured: 69.9 - 14.2 weights - 54.3 cache - profile."""
RESIDUAL = int(1.6 * GIB)
"""Left by a sleeping engine, measured with 1.5 B and 7 B parameters alike: graphs, workspaces, its allocator's rest."""
BATCHED_TOKENS = 4096
"""max_num_batched_tokens of the worker: the size of the profile's forward pass."""
BLOCK_TOKENS = 16
"""Tokens of one block of the cache."""


@dataclass(frozen=True)
class EngineNeeds:
    """Bytes on one device of the engine."""

    weights: int
    profile: int
    """Peak of the activations while generating, as vLLM's own profile finds it."""
    token: int
    """Of the cache, for one token."""
    sequence: int
    """Of the cache, for the longest sequence: less than this does not start."""
    rollout: int
    """Of the cache, for all sequences of a rollout at once, each as long as can be."""

    @property
    def fixed(self) -> int:
        """Of the engine's share, what is no cache."""
        return self.weights + self.profile + GRAPHS


def engine_needs(job: Workload) -> EngineNeeds:
    """Of one engine of `tensor_parallel` devices, on each of them."""
    token = cache_bytes_per_token(job.shape, job.tensor_parallel, job.dtype_bytes)
    blocks = -(-job.max_model_len // BLOCK_TOKENS)
    longest = -(-min(job.lengths.total, job.max_model_len) // BLOCK_TOKENS)
    return EngineNeeds(
        weights=engine_weights(job.shape, job.tensor_parallel, job.dtype_bytes),
        profile=_profile(job),
        token=token,
        sequence=blocks * BLOCK_TOKENS * token,
        rollout=job.max_num_seqs * longest * BLOCK_TOKENS * token,
    )


def cache_bytes_per_token(shape: Shape, tensor_parallel: int, element: int) -> int:
    """Keys and values of all layers; a head is never divided, so more ranks than key heads keep copies."""
    heads = max(1, -(-shape.num_key_value_heads // tensor_parallel))
    return 2 * shape.num_hidden_layers * heads * shape.head_dim * element


@functools.lru_cache(maxsize=256)
def engine_weights(shape: Shape, tensor_parallel: int, element: int) -> int:
    """Weights of one rank: matrices divided, vectors and routers copied, key heads copied beyond their number."""
    found = 0
    for weight in shape.weights:
        copied = weight.columns == 1 or weight.name == "router"
        share = 1 if copied else tensor_parallel
        if weight.name in ("k_proj", "v_proj"):
            share = min(tensor_parallel, shape.num_key_value_heads)
        found += -(-weight.elements // share)
    return found * element


@functools.lru_cache(maxsize=256)
def pinned_weights(shape: Shape, tensor_parallel: int, element: int) -> int:
    """Host memory of the weights at sleep level 1: torch rounds each pinned block up to a power of two.

    vLLM fuses query, key and value, and gate and up; each fused tensor is a block of its own.
    """
    sizes = {weight.name: weight for weight in shape.weights}
    found = 0
    for group in (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj")):
        parts = [sizes.pop(name) for name in group if name in sizes]
        if parts:
            rows = sum(part.rows for part in parts)
            found += parts[0].number * _pinned(rows * parts[0].columns * element // tensor_parallel)
    for weight in sizes.values():
        one = weight.rows * weight.columns * element
        small = weight.columns == 1
        found += weight.number * (one if small else _pinned(one // tensor_parallel))
    return found


def _pinned(size: int) -> int:
    size = -(-size // (2 * MIB)) * 2 * MIB
    return 1 << (size - 1).bit_length()


def _profile(job: Workload) -> int:
    shape, element = job.shape, job.dtype_bytes
    tokens = max(BATCHED_TOKENS, job.max_num_seqs)
    wide = shape.moe_intermediate_size * shape.num_experts_per_tok if shape.num_experts else shape.intermediate_size
    layer = element * (3 * wide // job.tensor_parallel + 3 * shape.hidden_size)
    # Logits in 16 and 32 bits, log-probabilities, and a temporary; sorted values and their indices.
    sampled = job.max_num_seqs * shape.vocab_size * (element + 12 + (12 if job.sorts_vocabulary else 0))
    return tokens * layer + sampled
