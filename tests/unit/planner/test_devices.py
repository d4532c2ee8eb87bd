"""Devices by product label and memory; slices; quantities."""

from typing import Any

import pytest
from tests.unit.planner.jobs import job

from colocated_runtime.contract.values import quantity_bytes
from colocated_runtime.planner.devices import GIB, MIB, hardware_of


@pytest.mark.parametrize(
    ("label", "gibibytes", "teraflops"),
    [
        ("NVIDIA-H200", 139.8, 989),
        ("NVIDIA-H100-80GB-HBM3", 79.1, 989),
        ("NVIDIA-H100-PCIe", 79.1, 756),
        ("NVIDIA-A100-SXM4-40GB", 39.4, 312),
        ("NVIDIA-A100-80GB-PCIe", 79.1, 312),
        ("NVIDIA-GeForce-RTX-3090", 23.6, 71),
        ("AMD_Instinct_MI300X_OAM", 191.7, 1307),
        ("NVIDIA-H100-80GB-HBM3-MIG-3g.40gb", 39.5, 989 * 3 / 7),
        ("NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", 4.75, 312 / 7),
        ("NVIDIA-A100-SXM4-80GB-MIG-3g.40gb", 39.5, 312 * 3 / 7),
        ("NVIDIA A100-SXM4-80GB MIG 3g.40gb", 39.5, 312 * 3 / 7),
        ("NVIDIA-A100-80GB-PCIe-MIG-1g.10gb.shared", 9.75, 312 / 7),
        ("NVIDIA-H100-80GB-HBM3-MIG-1g.10gb+me-SHARED", 9.75, 989 / 7),
        ("NVIDIA-H100-80GB-HBM3-MIG-1c.3g.40gb", 39.5, 989 / 7),
        ("NVIDIA H100 80GB HBM3", 79.1, 989),
        ("NVIDIA-H100-80GB-HBM3-SHARED", 79.1, 989),
        ("NVIDIA-GH200-480GB", 94.5, 989),
        ("NVIDIA-A10G-24GB", 22.0, 70),
        ("Tesla-T4", 14.5, 65),
    ],
)
def test_a_product_by_its_label(label: str, gibibytes: float, teraflops: float) -> None:
    found = hardware_of(job(device={"product": label}))
    assert found is not None
    assert found.device_bytes == int(gibibytes * GIB)
    assert found.flops == pytest.approx(teraflops * 1e12)
    assert found.rates_known


def test_a_slice_by_its_resource_alone() -> None:
    found = hardware_of(job(device={}, resourceName="nvidia.com/mig-3g.40gb"))
    assert found is not None
    assert (found.device_bytes, found.rates_known) == (int(39.5 * GIB), False)


def test_a_slice_by_its_resource_beside_the_parents_label() -> None:
    found = hardware_of(job(device={"product": "NVIDIA-H100-80GB-HBM3"}, resourceName="nvidia.com/mig-1g.10gb"))
    assert found is not None
    assert found.device_bytes == 9984 * MIB


def test_a_slice_has_no_more_than_its_own_memory() -> None:
    said = {"product": "NVIDIA-H100-80GB-HBM3", "memory": "80Gi"}
    found = hardware_of(job(device=said, resourceName="nvidia.com/mig-1g.10gb"))
    assert found is not None
    assert found.device_bytes == 9984 * MIB


@pytest.mark.parametrize(
    ("label", "resource", "shared"),
    [
        ("NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu", False),
        ("NVIDIA-H100-80GB-HBM3-MIG-3g.40gb", "nvidia.com/gpu", False),
        ("NVIDIA-H100-80GB-HBM3-SHARED", "nvidia.com/gpu", True),
        ("NVIDIA-A100-80GB-PCIe-MIG-1g.10gb.shared", "nvidia.com/gpu", True),
        ("NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu.shared", True),
        ("NVIDIA-H100-80GB-HBM3", "nvidia.com/mig-1c.3g.40gb", True),
    ],
)
def test_a_device_that_is_given_to_several_is_told(label: str, resource: str, shared: bool) -> None:
    found = hardware_of(job(device={"product": label}, resourceName=resource))
    assert found is not None
    assert found.shared is shared


@pytest.mark.parametrize(
    "label",
    [
        "GRID A100D-20C",
        "GRID-A100D-20C",
        "NVIDIA-A40-48Q",
        "NVIDIA-L40S-24C-SHARED",
        "NVIDIA-H100-80GB-HBM3-MIG-INVALID",
        "NVIDIA-H100-64GB",
        "NVIDIA-H100-96GB-HBM3",
        "NVIDIA-A800-40GB-Active",
        "NVIDIA-GeForce-RTX-4090-Laptop-GPU",
    ],
)
def test_memory_that_the_label_does_not_tell_is_not_the_parents(label: str) -> None:
    assert hardware_of(job(device={"product": label})) is None
    said = hardware_of(job(device={"product": label, "memory": "20Gi"}))
    assert said is not None
    assert (said.device_bytes, said.rates_known) == (20 * GIB, False)


@pytest.mark.parametrize(
    "fields",
    [
        {"device": {"product": "NVIDIA-Z9000"}},
        {"device": {}},
        {"gpusPerNode": 0, "device": {}},
        {"gpusPerNode": 0, "device": {"product": "NVIDIA-H200", "backend": "cpu"}},
    ],
)
def test_nothing_is_guessed(fields: dict[str, Any]) -> None:
    assert hardware_of(job(**fields)) is None


def test_memory_that_is_set_counts_more_than_the_product() -> None:
    found = hardware_of(job(device={"product": "NVIDIA-H200", "memory": "100Gi"}))
    assert found is not None
    assert found.device_bytes == 100 * GIB
    unknown = hardware_of(job(device={"product": "NVIDIA-Z9000", "memory": "100Gi"}))
    assert unknown is not None
    assert not unknown.rates_known


def test_the_pods_memory_limit() -> None:
    found = hardware_of(job(resources={"limits": {"memory": "1.5Gi"}}))
    assert found is not None
    assert found.host_limit_bytes == 1536 * MIB


def test_a_limit_in_the_pods_template_is_the_pods() -> None:
    containers = [{"name": "other", "resources": {"limits": {"memory": "1Gi"}}},
                  {"name": "colocated", "resources": {"limits": {"memory": "3Gi"}}}]  # fmt: skip
    given = {
        "resources": {"limits": {"memory": "64Gi"}},
        "runtime": {"podTemplate": {"spec": {"containers": containers}}},
    }
    found = hardware_of(job(**given))
    assert found is not None
    assert found.host_limit_bytes == 3 * GIB
    containers[1]["resources"] = {"limits": {"memory": None}}
    found = hardware_of(job(**given))
    assert found is not None
    assert found.host_limit_bytes is None


@pytest.mark.parametrize(
    ("text", "size"),
    [("4", 4), ("16Gi", 16 * GIB), ("1.5Ki", 1536), ("2G", 2 * 10**9), ("500m", 0), ("1e3", 1000), ("1E", 10**18)],
)
def test_quantities(text: str, size: int) -> None:
    assert quantity_bytes(text) == size


def test_no_quantity() -> None:
    with pytest.raises(ValueError, match="'much' is no quantity"):
        quantity_bytes("much")
