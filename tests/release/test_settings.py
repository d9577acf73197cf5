"""The prefix of a kernel's git tags, in kernel-actions.toml."""

from __future__ import annotations

from pathlib import Path

import pytest
from kernel_actions import settings
from kernel_actions.errors import WrongInput

from tests.release.helpers import ROOT


@pytest.mark.parametrize("prefix", ["", "relu/", "kernels/relu/", "relu-", "v2.x/", "_"])
def test_a_prefix(tmp_path: Path, prefix: str) -> None:
    (tmp_path / "kernel-actions.toml").write_text(f'[release]\ntag-prefix = "{prefix}"\n')
    assert settings.load(tmp_path).tag_prefix == prefix


@pytest.mark.parametrize(
    "value",
    ['"/relu"', '"-relu"', '"a//b/"', '"a..b"', '"a/.b/"', '"a.lock/b"', '"a b"', '"a*"', '"a:"', '"ä"', "1"],
)
def test_what_cannot_start_a_tag(tmp_path: Path, value: str) -> None:
    (tmp_path / "kernel-actions.toml").write_text(f"[release]\ntag-prefix = {value}\n")
    with pytest.raises(WrongInput, match=r"kernel-actions\.toml:2:14: release\.tag-prefix is"):
        settings.load(tmp_path)


def test_the_kernel_of_this_repository_has_tags_beside_those_of_the_suite() -> None:
    assert settings.load(ROOT).tag_prefix == "grayscale/"
