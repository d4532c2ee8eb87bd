"""Memory and name of the NVIDIA devices in this container, from the driver's own library: no torch, no package."""

import ctypes
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

LIBRARY = "libnvidia-ml.so.1"
VISIBLE = "CUDA_VISIBLE_DEVICES"
NAME_LENGTH = 96


@dataclass(frozen=True)
class Device:
    """A device, or the slice of one that the container has. Sizes in bytes."""

    name: str
    total: int
    """What processes can have of it."""
    used: int
    """What processes have now, of any container."""


class _Memory(ctypes.Structure):
    """nvmlMemory_v2_t. Version 1 counts what the driver keeps for itself as usable."""

    _fields_ = (
        ("version", ctypes.c_uint),
        ("total", ctypes.c_ulonglong),
        ("reserved", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong),
        ("used", ctypes.c_ulonglong),
    )
    VERSION = 2


class NvmlError(Exception):
    """A call that the driver refused."""


def devices(env: Mapping[str, str] = os.environ) -> list[Device]:
    """Those that the ranks will see; none where there is no NVIDIA driver, or it does not answer."""
    try:
        library = ctypes.CDLL(LIBRARY)
        _call(library, "nvmlInit_v2")
    except (OSError, NvmlError):
        return []
    try:
        return [_device(library, handle) for handle in _handles(library, env.get(VISIBLE))]
    except (NvmlError, AttributeError):
        return []
    finally:
        library.nvmlShutdown()


def _handles(library: ctypes.CDLL, visible: str | None) -> Iterator[ctypes.c_void_p]:
    """All devices, or those that CUDA_VISIBLE_DEVICES lists by number or UUID; of a divided one, its slices."""
    if visible is None:
        count = ctypes.c_uint()
        _call(library, "nvmlDeviceGetCount_v2", ctypes.byref(count))
        chosen = [str(index) for index in range(count.value)]
    else:
        chosen = [part.strip() for part in visible.split(",") if part.strip()]
    for part in chosen:
        handle = ctypes.c_void_p()
        if part.isdecimal():
            _call(library, "nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(int(part)), ctypes.byref(handle))
        else:
            _call(library, "nvmlDeviceGetHandleByUUID", part.encode(), ctypes.byref(handle))
        yield from _slices(library, handle) or [handle]


def _slices(library: ctypes.CDLL, handle: ctypes.c_void_p) -> list[ctypes.c_void_p]:
    """The MIG devices of `handle` that this container has; none of a device that is not divided."""
    found = []
    count = ctypes.c_uint()
    try:
        _call(library, "nvmlDeviceGetMaxMigDeviceCount", handle, ctypes.byref(count))
    except NvmlError:
        return []
    for index in range(count.value):
        part = ctypes.c_void_p()
        try:
            _call(library, "nvmlDeviceGetMigDeviceHandleByIndex", handle, ctypes.c_uint(index), ctypes.byref(part))
        except NvmlError:
            continue
        found.append(part)
    return found


def _device(library: ctypes.CDLL, handle: ctypes.c_void_p) -> Device:
    memory = _Memory(version=ctypes.sizeof(_Memory) | _Memory.VERSION << 24)
    _call(library, "nvmlDeviceGetMemoryInfo_v2", handle, ctypes.byref(memory))
    name = ctypes.create_string_buffer(NAME_LENGTH)
    _call(library, "nvmlDeviceGetName", handle, name, ctypes.c_uint(NAME_LENGTH))
    return Device(name.value.decode(), memory.total - memory.reserved, memory.used)


def _call(library: ctypes.CDLL, name: str, *arguments: object) -> None:
    code = getattr(library, name)(*arguments)
    if code:
        raise NvmlError(f"{name}: error {code}")
