"""What is expected of fat binaries is what cuobjdump listed of them."""

from __future__ import annotations

import json
from pathlib import Path

from tests.compliance import fatbins

RECORD = Path(__file__).with_name("data") / "cuobjdump.json"


def test_what_cuobjdump_listed_once() -> None:
    said = json.loads(RECORD.read_text())
    assert set(said) == {"nvcc", "cuobjdump", *fatbins.LIBRARIES}
    for name, (_, expected) in fatbins.LIBRARIES.items():
        # It leaves out the f of a family.
        assert fatbins.listed(said[name]) == {one.removesuffix("f") for one in expected}
