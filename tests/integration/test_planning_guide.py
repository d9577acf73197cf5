"""The commands that docs/planning.md shows print what it shows."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

from kernel_actions import settings

from tests.integration.conftest import ROOT, kernel_actions

GUIDE = ROOT / "docs" / "planning.md"
_BLOCK = re.compile(r"```console\n(.*?)```\n", re.DOTALL)


def test_its_commands_print_what_it_shows() -> None:
    text = GUIDE.read_text()
    shown = _BLOCK.sub(lambda block: f"```console\n{_run(block.group(1))}```\n", text)
    if os.environ.get("UPDATE_GOLDEN"):
        GUIDE.write_text(shown)
    assert GUIDE.read_text() == shown, "docs/planning.md is not up to date: UPDATE_GOLDEN=1 renews it"
    assert len(_BLOCK.findall(text)) == 2


def _run(block: str) -> str:
    printed = []
    for command in re.findall(r"^\$ scripts/kernel-actions (.*)$", block, re.MULTILINE):
        finished = kernel_actions(ROOT, *shlex.split(command))
        assert finished.returncode == 0, finished.stderr
        printed.append(f"$ scripts/kernel-actions {command}\n{finished.stdout}")
    return "\n".join(printed)


def test_its_settings_are_valid(tmp_path: Path) -> None:
    # The second block is about changes alone.
    block, changes = re.findall(r"```toml\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    (tmp_path / settings.FILE_NAME).write_text(block + changes)
    found = settings.load(tmp_path)
    assert [one.pattern for one in found.changes_plan] == ["../common/**", "CARD.md"]
    assert found.test_runner("aarch64-linux", "cuda").as_json() == {"group": "arm-gpus"}
    assert found.limit("cuda").as_json() == {"timeout": 700, "cores": 8, "jobs": 2, "time_limit": "685m"}
    assert found.selectors["skip"].values == ("*-cu126-*",)
