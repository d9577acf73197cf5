"""Loading a kernel in a fresh process with an empty cache, as a user would."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kernel_actions import console, process

_PROGRAM = Path(__file__).resolve().parent / "load_kernel.py"
# Variables that would have the loader look elsewhere than in the Hub and an empty cache.
_MISLEADING = ("LOCAL_KERNELS", "HF_HUB_CACHE", "HF_HUB_OFFLINE", "KERNELS_CACHE")


def load(arguments: Sequence[str], environment: Mapping[str, str]) -> dict[str, Any]:
    """Run ``load_kernel.py`` with ``arguments`` and return its answer.

    The process gets ``environment`` beside this one's variables, but no secrets. An answer with
    ``error`` says why nothing was loaded.
    """
    with tempfile.TemporaryDirectory(prefix="kernel-actions-load-") as name:
        home = Path(name)
        file = home / "answer.json"
        variables = process.without_secrets(os.environ) | {
            "HF_HOME": str(home / "cache"),
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
            **environment,
        }
        for variable in _MISLEADING:
            variables.pop(variable, None)
        finished = process.run(
            [sys.executable, "-IB", _PROGRAM, "--answer", file, *arguments],
            directory=home,
            environment=variables,
            on_line=console.say if console.is_verbose() else None,
        )
        try:
            answer = json.loads(file.read_bytes())
        except (OSError, ValueError):
            answer = None
    if isinstance(answer, dict) and finished.returncode == 0:
        return answer
    lines = [line for line in finished.output.splitlines() if line.strip()]
    ending = f"killed by signal {-finished.returncode}" if finished.returncode < 0 else "no output"
    return {"error": lines[-1] if lines and finished.returncode >= 0 else ending}
