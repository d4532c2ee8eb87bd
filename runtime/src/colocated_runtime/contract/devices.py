"""GPUs by the labels of the nodes that have them: what a job on them cannot have. Pure.

NVIDIA's feature discovery labels a node with the driver's name of its GPUs, AMD's node labeller with the product's,
with - or _ for blanks.
"""

import re
from collections.abc import Collection, Iterator

from colocated_runtime.contract.job import JobSpec

LABELS = {"nvidia.com": "nvidia.com/gpu.product", "amd.com": "amd.com/gpu.product-name"}
"""Key of the node label with the product, by the domain of the resource; under other domains GPUs are NVIDIA's too,
given out by other device plugins."""
FOREIGN = ("gpu.intel.com", "habana.ai", "google.com", "cloud-tpus.google.com", "aws.amazon.com", "huawei.com")
"""Domains of devices that are neither CUDA's nor ROCm's."""

DIVISIBLE = (
    "NVIDIA-B200", "NVIDIA-H200", "NVIDIA-H200-NVL", "NVIDIA-GH200-480GB", "NVIDIA-H100-80GB-HBM3", "NVIDIA-H100-PCIe",
    "NVIDIA-H100-NVL", "NVIDIA-H800", "NVIDIA-H20", "NVIDIA-A100-SXM4-40GB", "NVIDIA-A100-PCIE-40GB",
    "NVIDIA-A100-SXM4-80GB", "NVIDIA-A100-80GB-PCIe", "NVIDIA-A800-SXM4-80GB", "NVIDIA-A800-80GB-PCIe", "NVIDIA-A30",
)  # fmt: skip
"""Those that MIG divides."""
WHOLE = (
    "NVIDIA-A40", "NVIDIA-A10G", "NVIDIA-A10", "NVIDIA-L40S", "NVIDIA-L40", "NVIDIA-L4", "NVIDIA-RTX-A6000",
    "NVIDIA-RTX-6000-Ada-Generation", "NVIDIA-GeForce-RTX-5090", "NVIDIA-GeForce-RTX-4090", "NVIDIA-GeForce-RTX-3090",
)  # fmt: skip
TURING = (
    "Tesla-T4", "NVIDIA-GeForce-RTX-2080", "NVIDIA-GeForce-RTX-2080-Ti", "Quadro-RTX-6000", "Quadro-RTX-8000",
    "NVIDIA-TITAN-RTX",
)  # fmt: skip
"""Of compute capability 7.5: vLLM computes in bfloat16 from 8.0 on (platforms/cuda.py check_if_supports_dtype)."""
OLDER = (
    "Tesla-V100-SXM2-16GB", "Tesla-V100-SXM2-32GB", "Tesla-V100-PCIE-16GB", "Tesla-V100-PCIE-32GB",
    "Tesla-P100-PCIE-16GB", "Tesla-P100-SXM2-16GB", "Tesla-P40", "Tesla-P4", "Tesla-K80", "Tesla-M60",
)  # fmt: skip
"""CUDA 13, which the image's torch is built with, has no code for them."""
AMD = (
    "AMD_Instinct_MI250X", "AMD_Instinct_MI300X_OAM", "AMD_Instinct_MI300X", "AMD_Instinct_MI325X_OAM",
    "AMD_Instinct_MI325X",
)  # fmt: skip
UNDIVIDED = (*WHOLE, *TURING, *OLDER)
KNOWN = (*DIVISIBLE, *WHOLE, *TURING, *OLDER, *AMD)
VENDORS = {
    "nvidia.com": re.compile(r"NVIDIA|TESLA|GEFORCE|QUADRO|GRID"),
    "amd.com": re.compile(r"AMD|INSTINCT|RADEON|MI\d{2,3}[AX]?"),
}
PART = re.compile(r"[-_. ](MIG[-_ ].*|SHARED)$", re.IGNORECASE)
"""What the device plugin adds to the label of slices, and of devices that it gives to several."""
SLICED = re.compile(r"\bmig\b", re.IGNORECASE)
NEAR = 4
"""Labels that a message names at most."""


def product_label(resource: str) -> str:
    """Key of the node label that names the product of `resource`, e.g. nvidia.com/gpu."""
    return LABELS.get(resource.partition("/")[0], LABELS["nvidia.com"])


def refusals(spec: JobSpec) -> Iterator[str]:
    """What is wrong with resourceName, and with device.product by itself and beside it: pods would stay Pending."""
    product, domain = spec.device.product, spec.resource_name.partition("/")[0]
    if domain in FOREIGN and spec.gpus_per_node:
        yield f"resourceName: {spec.resource_name} is no device of CUDA or ROCm; use nvidia.com/gpu or amd.com/gpu"
    elif product is not None:
        yield from _product(spec, product, domain)


def _product(spec: JobSpec, product: str, domain: str) -> Iterator[str]:
    near = _near(product)
    vendor = next((name for name in VENDORS if any(_vendor(label) == name for label in (product, *near))), None)
    if domain in VENDORS and vendor not in (None, domain):
        yield (
            f"device.product: {product} is no product of {domain}, and the GPUs are asked for as {spec.resource_name};"
            f" set resourceName: {vendor}/gpu, or another product"
        )
    elif near:
        yield (
            f"device.product: {product} is not what nodes are labelled with ({product_label(spec.resource_name)}); use"
            f" {' or '.join(near)}"
        )
    elif SLICED.search(f"{product} {spec.resource_name}") and _is_one_of(product, UNDIVIDED):
        asked = spec.resource_name if SLICED.search(spec.resource_name) else product
        yield (
            f"device.product: {product} is not divided by MIG, and {asked} asks for a slice; use the whole GPU"
            " (resourceName: nvidia.com/gpu), or another product"
        )
    elif spec.runtime.image is None and _is_one_of(product, OLDER):
        yield (
            f"device.product: {product} is too old for the torch of the operator's image; use a T4 or newer, or set"
            " runtime.image to one that runs on it"
        )


def wrong_dtype(dtype: str, product: str | None) -> Iterator[str]:
    """What is wrong with model.dtype on `product`, as the driver or a node's label names it."""
    if dtype == "bfloat16" and product and _is_one_of(product, (*TURING, *OLDER)):
        yield (
            f"model.dtype: bfloat16 cannot be generated with on {product}: vLLM wants compute capability 8.0 (Ampere)"
            " for it; use float16 with lora, float32, or another device"
        )


def _key(label: str) -> frozenset[str]:
    return frozenset(re.split(r"[-_ ]+", label.upper()))


def _is_one_of(product: str, labels: Collection[str]) -> bool:
    """Whether `product`, whole, in part or shared, is one of the GPUs of these labels, in whatever letters."""
    return _key(PART.sub("", product)) in map(_key, labels)


def _vendor(label: str) -> str | None:
    return next((name for name, words in VENDORS.items() if any(map(words.fullmatch, _key(label)))), None)


def _near(product: str) -> list[str]:
    """The labels that `product` says a part of, or in other letters; none where it may well be a label."""
    part = PART.search(product)
    base, more = PART.sub("", product), part[0] if part else ""
    if base in KNOWN:
        return []
    return [label + more for label in KNOWN if _key(base) <= _key(label)][:NEAR]
