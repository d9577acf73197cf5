"""Asks the driver of NVIDIA which GPUs this process may use, without starting one. A program of its
own: prints JSON, and needs the standard library alone.

The driver's own library is asked, as it minds CUDA_VISIBLE_DEVICES, and its management library (NVML)
for what is in use; ``--in-use`` asks the latter alone. ``library`` is ``null`` where there is no driver;
``error`` is what starting it gave. Sizes are in bytes.
"""

from __future__ import annotations

import ctypes
import json
import sys
import uuid
from typing import Any

_NAME = 256
# CUdevice_attribute of cuda.h.
_MAJOR, _MINOR = 75, 76


class _Memory(ctypes.Structure):
    """nvmlMemory_t of nvml.h."""

    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class _Process(ctypes.Structure):
    """nvmlProcessInfo_t of nvml.h."""

    _fields_ = (
        ("pid", ctypes.c_uint),
        ("memory", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


# What NVML says where it does not know the memory of a process.
_UNKNOWN = (1 << 64) - 1
_MOST_PROCESSES = 256


def _load(name: str, folders: list[str]) -> Any:
    """A library of the driver, as the dynamic linker finds it, or in a folder; ``None``: there is none."""
    for path in (name, *(f"{folder}/{name}" for folder in folders)):
        try:
            return ctypes.CDLL(path)
        except OSError:
            continue
    return None


def in_use(folders: list[str]) -> dict[str, dict[str, Any]]:
    """What is in use of each GPU of the machine, by its UUID: free memory, and the processes there."""
    nvml = _load("libnvidia-ml.so.1", folders)
    found: dict[str, dict[str, Any]] = {}
    if nvml is None or nvml.nvmlInit_v2() != 0:
        return found
    text = ctypes.create_string_buffer(_NAME)
    driver = text.value.decode() if nvml.nvmlSystemGetDriverVersion(text, _NAME) == 0 else None
    count = ctypes.c_uint()
    if nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) != 0:
        return found
    for index in range(count.value):
        device = ctypes.c_void_p()
        if nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(device)) != 0:
            continue
        if nvml.nvmlDeviceGetUUID(device, text, _NAME) != 0:
            continue
        uuid_of = text.value.decode(errors="replace")
        memory = _Memory()
        free = memory.free if nvml.nvmlDeviceGetMemoryInfo(device, ctypes.byref(memory)) == 0 else None
        found[uuid_of] = {"driver": driver, "free": free, "processes": _processes(nvml, device)}
    nvml.nvmlShutdown()
    return found


def _processes(nvml: Any, device: ctypes.c_void_p) -> list[dict[str, Any]]:
    listed = (_Process * _MOST_PROCESSES)()
    count = ctypes.c_uint(_MOST_PROCESSES)
    try:
        ask = nvml.nvmlDeviceGetComputeRunningProcesses_v3
    except AttributeError:
        return []
    if ask(device, ctypes.byref(count), listed) != 0:
        return []
    found = []
    for one in listed[: count.value]:
        text = ctypes.create_string_buffer(_NAME)
        is_named = nvml.nvmlSystemGetProcessName(one.pid, text, _NAME) == 0
        name = text.value.decode(errors="replace") if is_named else ""
        memory = None if one.memory == _UNKNOWN else one.memory
        found.append({"pid": one.pid, "name": name, "memory": memory})
    return found


def probe(folders: list[str]) -> dict[str, Any]:
    """What the driver says of the GPUs that it offers to this process."""
    cuda = _load("libcuda.so.1", folders)
    if cuda is None:
        return {"library": None, "gpus": []}
    answer: dict[str, Any] = {"library": "libcuda.so.1", "gpus": [], "in_use": {}}
    version = ctypes.c_int()
    if cuda.cuDriverGetVersion(ctypes.byref(version)) == 0:
        answer["cuda"] = f"{version.value // 1000}.{version.value % 1000 // 10}"
    error = cuda.cuInit(0)
    count = ctypes.c_int()
    if error == 0:
        error = cuda.cuDeviceGetCount(ctypes.byref(count))
    if error != 0:
        answer["error"] = error
        return answer
    answer["gpus"] = [_device(cuda, index) for index in range(count.value)]
    answer["in_use"] = in_use(folders)
    return answer


def _device(cuda: Any, index: int) -> dict[str, Any]:
    device = ctypes.c_int()
    cuda.cuDeviceGet(ctypes.byref(device), index)
    name = ctypes.create_string_buffer(_NAME)
    cuda.cuDeviceGetName(name, _NAME, device)
    values = []
    for attribute in (_MAJOR, _MINOR):
        value = ctypes.c_int()
        cuda.cuDeviceGetAttribute(ctypes.byref(value), attribute, device)
        values.append(value.value)
    memory = ctypes.c_size_t()
    cuda.cuDeviceTotalMem_v2(ctypes.byref(memory), device)
    found = {
        "name": name.value.decode(errors="replace"),
        "capability": f"{values[0]}.{values[1]}",
        "memory": memory.value,
    }
    identity = (ctypes.c_ubyte * 16)()
    if cuda.cuDeviceGetUuid(identity, device) == 0:
        found["uuid"] = f"GPU-{uuid.UUID(bytes=bytes(identity))}"
    return found


if __name__ == "__main__":
    if sys.argv[1:2] == ["--in-use"]:
        print(json.dumps({"in_use": in_use(sys.argv[2:])}))
    else:
        print(json.dumps(probe(sys.argv[1:])))
