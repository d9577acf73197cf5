"""Facts about the machine that a measurement was made on."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

from kernel_actions.benchmark.clocks import Clocks

Facts = dict[str, "str | int | float | None"]

_QUERY = {
    "driver_version": "driver",
    "clocks.sm": "sm_clock_mhz",
    "clocks.mem": "memory_clock_mhz",
    "clocks.max.sm": "sm_clock_max_mhz",
    "clocks.max.mem": "memory_clock_max_mhz",
    "power.limit": "power_limit_watt",
    "temperature.gpu": "temperature_celsius",
}
_PATIENCE = 10.0


def facts(clocks: Clocks) -> Facts:
    """What is known: ``None`` and absent facts are not."""
    import torch

    found: Facts = {
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "threads": torch.get_num_threads(),
        "os": f"{platform.system()} {platform.release().partition('-')[0]}",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "kernels": _version("kernels"),
        "cache_bytes": clocks.cache_bytes,
        "flushed_bytes": clocks.flush_bytes,
        "copy_buffer_bytes": clocks.buffer_bytes,
    }
    if clocks.device == "cuda":
        properties = torch.cuda.get_device_properties(0)
        found |= {
            "gpu": properties.name,
            "gpu_memory_bytes": properties.total_memory,
            "cuda": torch.version.cuda,
            "hip": torch.version.hip,
        }
        found |= _nvidia(properties)
    return {name: value for name, value in found.items() if value is not None}


def _nvidia(properties: Any) -> Facts:
    """What nvidia-smi says about the GPU; nothing where there is none."""
    uuid = getattr(properties, "uuid", None)
    chosen = ["-i", f"GPU-{uuid}"] if uuid else []
    query = ["nvidia-smi", *chosen, f"--query-gpu={','.join(_QUERY)}", "--format=csv,noheader,nounits"]
    try:
        said = subprocess.run(query, capture_output=True, text=True, timeout=_PATIENCE, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return {}
    values = [value.strip() for value in (said.splitlines() or [""])[0].split(",")]
    if len(values) != len(_QUERY):
        return {}
    return {
        name: value if name == "driver" else _number(value)
        for name, value in zip(_QUERY.values(), values, strict=True)
    }


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _cpu() -> str:
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    return found.group(1).strip() if found else platform.processor() or platform.machine()


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
