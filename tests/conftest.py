"""What all tests share, and what keeps the suite's tests away from the builder.

The builder runs ``pytest tests -m kernels_ci`` with torch, kernels and pytest alone, and so does
``kernel-actions test``: then only the kernel's own tests, in ``tests/kernel``, are collected.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent


def pytest_configure(config: pytest.Config) -> None:
    """Have huggingface_hub speak LFS, as the embedded Hub does, in whichever order tests import it, and tests
    find the programs that they ask for."""
    if config.option.markexpr != "kernels_ci":
        os.environ["HF_HUB_DISABLE_XET"] = "1"
        # The builder has no such module where it runs the kernel's tests.
        from tests import tools

        tools.start(config)


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say at the end what was left out, and how to install what is missing."""
    if config.option.markexpr != "kernels_ci":
        from tests import tools

        for line in tools.left_out(terminalreporter.getreports("skipped")):
            terminalreporter.write_line(line)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out the suite's own tests when those of the kernel are asked for by their marker."""
    if collection_path.parent != TESTS:
        return None
    if config.option.markexpr == "kernels_ci":
        return collection_path.name != "kernel"
    # The kernel's tests need a built variant, which the suite's tests build and test by themselves.
    return True if collection_path.name == "kernel" and "LOCAL_KERNELS" not in os.environ else None
