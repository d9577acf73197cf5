"""Asks the driver of NVIDIA which GPUs this process may use, without starting one. A program of its
own: prints JSON, and needs the standard library alone.

The driver's own library is asked, as it minds CUDA_VISIBLE_DEVICES, which nvidia-smi does not.
``library`` is ``null`` where there is no driver; ``error`` is what starting it gave.
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


def probe(names: list[str]) -> dict[str, Any]:
    """What the first of the libraries that can be loaded says."""
    cuda = None
    for name in names:
        try:
            cuda = ctypes.CDLL(name)
        except OSError:
            continue
        break
    else:
        return {"library": None, "gpus": []}
    answer: dict[str, Any] = {"library": name, "gpus": []}
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
    print(json.dumps(probe(sys.argv[1:])))
