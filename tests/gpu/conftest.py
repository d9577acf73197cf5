"""Tests that need a GPU: left out unless `make gpu-test` asks for them, and then nothing is skipped.

What they measure is shown as a table at the end, and written as JSON.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from kernel_actions import console

OUT = os.environ.get("KA_GPU_OUT", "")
collect_ignore_glob = ["faulty/*"] if OUT else ["*"]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show and write what each test has seen: it tells by ``record_property``."""
    if not OUT:
        return
    found: list[dict[str, Any]] = []
    for outcome in ("passed", "failed", "error"):
        for report in terminalreporter.getreports(outcome):
            name = report.nodeid.rpartition("::")[2].removeprefix("test_").replace("_", " ")
            properties = dict(report.user_properties)
            found.append(
                {"test": name, "outcome": outcome, "seconds": round(report.duration, 1)} | properties
            )
    rows = [(one["test"], one["outcome"], f"{one['seconds']} s", str(one.get("seen", ""))) for one in found]
    table = console.table(("what", "outcome", "time", "seen"), rows)
    terminalreporter.write_line(f"\n{table}")
    (Path(OUT) / "gpu-test.json").write_text(json.dumps(found, indent=2) + "\n")
