"""What is an identifier of a license: SPDX's, expressions of them, and the Hub's own."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from kernel_actions.compliance import licenses

from tests.compliance.helpers import check, edit

KNOWN = [
    "Apache-2.0", "mit", "BSD-3-Clause", "GPL-2.0", "GPL-2.0+", "(MIT OR Apache-2.0)", "MIT and ISC",
    "((MIT) AND (ISC OR 0BSD))", "GPL-3.0-only WITH GCC-exception-3.1", "LicenseRef-Acme-1.0",
    # Those of the Hub alone.
    "other", "openrail++", "llama2", "bsd", "unknown",
]  # fmt: skip
UNKNOWN = {
    "": "", "Apache 2.0": "Apache-2.0", "Apache License, Version 2.0": "Apache-2.0", "The MIT License": "MIT",
    "BSD 3-Clause": "BSD-3-Clause", "GPLv3": "GPL-3.0", "proprietary": "", "MIT ISC": "", "MIT AND": "",
    "AND MIT": "", "(MIT": "", "MIT)": "", ")MIT(": "", "()": "", "MIT OR other": "",
    "MIT WITH ISC": "", "MIT WITH (GCC-exception-3.1)": "", "GCC-exception-3.1": "",
}  # fmt: skip


@pytest.mark.parametrize("text", KNOWN)
def test_known(text: str) -> None:
    assert licenses.is_known(text)


@pytest.mark.parametrize("text", UNKNOWN)
def test_unknown(text: str) -> None:
    assert not licenses.is_known(text)
    if UNKNOWN[text]:
        assert licenses.nearest(text) == UNKNOWN[text]


@pytest.mark.parametrize(
    "text", ["(" * 500_000, "a " * 500_000, "MIT OR " * 100_000 + "MIT", "the " * 100_000]
)
def test_long_texts_are_none_soon(text: str) -> None:
    started = time.monotonic()
    assert not licenses.is_known(text)
    licenses.nearest(text)
    assert time.monotonic() - started < 1


def test_the_repair_names_what_may_be_meant(kernel: Path) -> None:
    edit(kernel / "build.toml", "Apache-2.0", "Apache 2.0")
    finding = next(one for one in check(kernel).findings if one.rule.slug == "manifest-license")
    assert finding.message == "'Apache 2.0' is no license identifier"
    assert finding.repair.startswith('perhaps you meant "Apache-2.0"')
    edit(kernel / "build.toml", "Apache 2.0", "of my own")
    finding = next(one for one in check(kernel).findings if one.rule.slug == "manifest-license")
    assert finding.repair == finding.rule.repair
