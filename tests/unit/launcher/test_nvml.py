"""Which devices are asked, and how their memory is counted; the driver's library is played by an object."""

import ctypes
from typing import Any

import pytest

from colocated_runtime.launcher import nvml
from colocated_runtime.launcher.nvml import Device, devices

GIB = 2**30
NOT_SUPPORTED, NOT_FOUND = 3, 6


class Driver:
    """Handles are numbers; a divided device 1 has slices 11 and 12."""

    def __init__(self, sizes: dict[int, int], slices: dict[int, list[int]] | None = None) -> None:
        self.sizes, self.slices = sizes, slices or {}
        self.open = 0

    def nvmlInit_v2(self) -> int:  # noqa: N802
        self.open += 1
        return 0

    def nvmlShutdown(self) -> int:  # noqa: N802
        self.open -= 1
        return 0

    def nvmlDeviceGetCount_v2(self, count: Any) -> int:  # noqa: N802
        count._obj.value = 2
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, index: Any, handle: Any) -> int:  # noqa: N802
        handle._obj.value = index.value + 1
        return 0 if index.value < 2 else NOT_FOUND

    def nvmlDeviceGetHandleByUUID(self, uuid: bytes, handle: Any) -> int:  # noqa: N802
        handle._obj.value = {b"GPU-a": 1, b"MIG-b": 12}[uuid]
        return 0

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: Any, count: Any) -> int:  # noqa: N802
        count._obj.value = 7
        return 0 if handle.value in self.slices else NOT_SUPPORTED

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: Any, index: Any, part: Any) -> int:  # noqa: N802
        if index.value >= len(self.slices[handle.value]):
            return NOT_FOUND
        part._obj.value = self.slices[handle.value][index.value]
        return 0

    def nvmlDeviceGetMemoryInfo_v2(self, handle: Any, memory: Any) -> int:  # noqa: N802
        assert memory._obj.version == 0x2000028  # NVML's own nvmlMemory_v2
        memory._obj.total, memory._obj.reserved, memory._obj.used = self.sizes[handle.value] + GIB, GIB, 5
        return 0

    def nvmlDeviceGetName(self, handle: Any, name: Any, length: Any) -> int:  # noqa: N802
        name.value = f"device {handle.value}".encode()
        return 0


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    made = Driver({1: 10, 2: 20, 11: 1, 12: 2})
    monkeypatch.setattr(ctypes, "CDLL", lambda name: made)
    return made


def test_all_devices_less_what_the_driver_keeps(driver: Driver) -> None:
    assert devices({}) == [Device("device 1", 10, 5), Device("device 2", 20, 5)]
    assert driver.open == 0


@pytest.mark.parametrize(
    ("visible", "totals"), [("1", [20]), ("1, 0", [20, 10]), ("GPU-a", [10]), ("MIG-b", [2]), ("", [])]
)
def test_those_that_cuda_will_see(driver: Driver, visible: str, totals: list[int]) -> None:
    assert [device.total for device in devices({nvml.VISIBLE: visible})] == totals


def test_of_a_divided_device_its_slices(driver: Driver) -> None:
    driver.slices = {1: [11, 12]}
    assert [device.total for device in devices({})] == [1, 2, 20]


def test_a_device_that_is_not_there_is_no_answer(driver: Driver) -> None:
    assert devices({nvml.VISIBLE: "7"}) == []
    assert driver.open == 0


def test_no_driver() -> None:
    assert devices({}) == [] or devices({})[0].total > 0
