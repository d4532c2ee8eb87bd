"""The machine under a job: memory and speed of its devices, and the pod's host memory."""

import re
from dataclasses import dataclass, replace
from typing import NamedTuple

from colocated_runtime.contract.job import JobSpec
from colocated_runtime.contract.pod_resources import memory_limit
from colocated_runtime.contract.values import quantity_bytes

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30

MIG = re.compile(r"mig-(?:(?P<compute>[1-7])c\.)?(?P<slices>[1-7])g\.(?P<gigabytes>\d+)gb", re.IGNORECASE)
"""As NVIDIA's device plugin names slices: in the product's label NVIDIA-H100-80GB-HBM3-MIG-3g.40gb with its single
strategy, in the resource nvidia.com/mig-3g.40gb, beside the parent's label, with its mixed one. 1c.3g.40gb is one of
three compute instances, which share the slice's memory."""
MIG_SLICES = 7
VIRTUAL = re.compile(r"-\d+[ABCQ](-SHARED)?$")
"""A vGPU's profile, as in GRID-A100D-20C. Its guest has less than these 20 GB, and nobody says how much less."""
SHARED = re.compile(r"[-.]shared$", re.IGNORECASE)
"""How the device plugin marks the product's label, and by choice the resource, of devices that it gives to several."""
NOMINAL = re.compile(r"(\d+)GB?")
NOMINAL_SHARE = (0.85, 1.05)
"""What the driver tells of the memory in a product's name; where it is another, it is another product."""


@dataclass(frozen=True)
class Hardware:
    """One device, its neighbours, and what it has of the host."""

    device_bytes: int
    """Memory as the driver tells it, which is less than the product's name says."""
    flops: float
    """Peak dense bfloat16 operations a second."""
    bandwidth: float
    """Device memory, bytes a second."""
    host_bandwidth: float
    """To pinned host memory, bytes a second, one direction."""
    peer_bandwidth: float
    """To the node's other devices, bytes a second, one direction."""
    devices_per_node: int
    host_limit_bytes: int | None = None
    """The pod's memory limit; None without one."""
    host_reserve_bytes: int = 0
    """What to leave free below it, where earlier attempts were killed at it."""
    used_bytes: int = 0
    """What others hold of the device already."""
    product: str = ""
    """As the node's label names it; empty where nobody said."""
    rates_known: bool = True
    """Whether the speeds are the product's own."""
    shared: bool = False
    """Whether other pods may use the same device at the same time."""


class Product(NamedTuple):
    """Data sheet figures; memory as `torch.cuda.get_device_properties` reports it."""

    gibibytes: float
    teraflops: float
    terabytes_per_second: float
    host_gigabytes_per_second: float
    peer_gigabytes_per_second: float


PRODUCTS: dict[str, Product] = {
    "B200": Product(178.3, 2250, 8.0, 55, 900),
    "H200": Product(139.8, 989, 4.8, 55, 450),
    "GH200-480GB": Product(94.5, 989, 4.0, 300, 450),
    "H100-NVL": Product(93.0, 835, 3.9, 55, 300),
    "H100-PCIE": Product(79.1, 756, 2.0, 55, 55),
    "H100": Product(79.1, 989, 3.35, 55, 450),
    "H800": Product(79.1, 989, 3.35, 55, 200),
    "H20": Product(95.0, 148, 4.0, 55, 450),
    "A100-40GB": Product(39.4, 312, 1.55, 25, 300),
    "A100-80GB": Product(79.1, 312, 2.0, 25, 300),
    "A800": Product(79.1, 312, 2.0, 25, 200),
    "A40": Product(44.3, 150, 0.70, 25, 25),
    "A10G": Product(22.0, 70, 0.60, 25, 25),
    "A10": Product(22.0, 125, 0.60, 25, 25),
    "L40S": Product(44.3, 362, 0.86, 25, 25),
    "L40": Product(44.3, 181, 0.86, 25, 25),
    "L4": Product(22.0, 121, 0.30, 25, 25),
    "RTX-A6000": Product(47.4, 155, 0.77, 25, 25),
    "RTX-6000-ADA": Product(47.4, 364, 0.96, 25, 25),
    "T4": Product(14.5, 65, 0.32, 12, 12),
    "RTX-5090": Product(31.3, 209, 1.79, 55, 55),
    "RTX-4090": Product(23.5, 165, 1.0, 25, 25),
    "RTX-3090": Product(23.6, 71, 0.94, 25, 25),
    "MI300X": Product(191.7, 1307, 5.3, 55, 400),
    "MI325X": Product(255.7, 1307, 6.0, 55, 400),
    "MI250X": Product(63.7, 191, 1.6, 25, 50),
}
"""By what the product's label contains; the first that matches counts."""

UNKNOWN = PRODUCTS["A100-80GB"]
"""Speeds where the product is not known: they order the choices, they do not decide what fits."""


def hardware_of(spec: JobSpec) -> Hardware | None:
    """The devices that `spec` names, or None where neither product nor memory is known, or there are no GPUs."""
    if spec.backend == "cpu":
        return None
    label, part = spec.device.product or "", _mig(spec.device.product or "", spec.resource_name)
    product = known_product(label, spec.resource_name) if label else None
    if part and not label:  # its memory is in its name, its parent's speed is not
        product = _slice(UNKNOWN, int(part["compute"] or part["slices"]), int(part["gigabytes"]))
    if product is None and spec.device.memory is None:
        return None
    hardware = _hardware(product or UNKNOWN, spec, known=bool(product and label))
    if spec.device.memory is not None:
        size = quantity_bytes(spec.device.memory)
        hardware = replace(hardware, device_bytes=min(size, hardware.device_bytes) if part and product else size)
    return hardware


def known_product(label: str, resource: str = "") -> Product | None:
    """The data sheet of the node label's product; of the slice, where label or resource name one.

    None where the label does not tell the memory: of products that are not in the table, and of virtual devices.
    """
    words = _words(label)
    found = next((product for name, product in PRODUCTS.items() if set(name.split("-")) <= set(words)), None)
    if found is None or VIRTUAL.search("-".join(words)) or "LAPTOP" in words or not _is_size_of(found, words):
        return None
    part = _mig(label, resource)
    if part is None:
        return None if "MIG" in words else found
    return _slice(found, int(part["compute"] or part["slices"]), int(part["gigabytes"]))


def _words(label: str) -> list[str]:
    return re.split(r"[-_ ]+", label.strip().upper())


def _mig(label: str, resource: str) -> re.Match[str] | None:
    return MIG.search("-".join(_words(label))) or MIG.search(resource)


def _is_shared(label: str, resource: str) -> bool:
    part = _mig(label, resource)
    return bool(SHARED.search(label) or SHARED.search(resource) or (part and part["compute"]))


def _is_size_of(product: Product, words: list[str]) -> bool:
    """Whether the memory that the label names, if any, is the product's: there are an A800-40GB and an H100-64GB."""
    if "480GB" in words:  # a GH200 is named by its host's memory
        return True
    low, high = NOMINAL_SHARE
    named = [int(match[1]) for word in words if (match := NOMINAL.fullmatch(word))]
    return all(low * size <= product.gibibytes <= high * size for size in named)


def _hardware(product: Product, spec: JobSpec, *, known: bool) -> Hardware:
    return Hardware(
        device_bytes=int(product.gibibytes * GIB),
        flops=product.teraflops * 1e12,
        bandwidth=product.terabytes_per_second * 1e12,
        host_bandwidth=product.host_gigabytes_per_second * 1e9,
        peer_bandwidth=product.peer_gigabytes_per_second * 1e9,
        devices_per_node=spec.ranks_per_node,
        host_limit_bytes=memory_limit(spec),
        product=spec.device.product or "",
        rates_known=known,
        shared=_is_shared(spec.device.product or "", spec.resource_name),
    )


def _slice(parent: Product, slices: int, gigabytes: int) -> Product:
    """A MIG slice. The driver keeps 256 MiB of small and 512 MiB of larger ones: 4864, 9984, 19968, 40448 MiB."""
    share = slices / MIG_SLICES
    kept = 0.25 if gigabytes < 20 else 0.5
    return Product(
        gibibytes=gigabytes - kept,
        teraflops=parent.teraflops * share,
        terabytes_per_second=parent.terabytes_per_second * gigabytes / (parent.gibibytes + 0.9),
        host_gigabytes_per_second=parent.host_gigabytes_per_second * share,
        peer_gigabytes_per_second=parent.host_gigabytes_per_second * share,
    )
