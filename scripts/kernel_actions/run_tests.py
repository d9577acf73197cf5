"""Runs pytest and writes down whether the tests loaded the variant. A program of its own.

It is run in a fresh process, and imports nothing of the suite: what the tests see is what they
would see elsewhere. Arguments: the folder of the staged variant, the file for the answer, and then
pytest's own.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

MARKER = "kernels_ci"


class Witness:
    """A plug-in that says at the end which kernels the tests had loaded."""

    def __init__(self, variant: Path, answer: Path) -> None:
        self.variant = variant.resolve()
        self.answer = answer

    def pytest_configure(self, config: pytest.Config) -> None:
        """Make the marker known, so that pytest does not take it for a misspelling."""
        config.addinivalue_line("markers", f"{MARKER}: a test of the kernel, run against every variant")

    def pytest_sessionfinish(self) -> None:
        """Write down whether the variant is among the loaded modules, and other kernels that are."""
        files = [Path(file) for module in list(sys.modules.values()) if (file := _file(module))]
        loaded = [file for file in files if file.name == "__init__.py" and file.parent.parent.name == "build"]
        others = sorted({str(file.parent) for file in loaded if file.parent.resolve() != self.variant})
        is_loaded = any(file.resolve().is_relative_to(self.variant) for file in files)
        self.answer.write_text(json.dumps({"is_loaded": is_loaded, "others": others}))


def _file(module: object) -> str | None:
    file = getattr(module, "__file__", None)
    return file if isinstance(file, str) else None


if __name__ == "__main__":
    plugin = Witness(Path(sys.argv[1]), Path(sys.argv[2]))
    sys.exit(pytest.main(sys.argv[3:], plugins=[plugin]))
