"""Golden files: what was right once, and is shown as a difference when it changes.

``UPDATE_GOLDEN=1 make test`` writes them anew; review what changed before committing it.
"""

from __future__ import annotations

import os
from pathlib import Path


def check_golden(path: Path, actual: str) -> None:
    """Compare ``actual`` with the file, or write it under ``UPDATE_GOLDEN=1``."""
    if os.environ.get("UPDATE_GOLDEN") == "1":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(actual)
    assert path.exists(), f"{path} is missing: write it with UPDATE_GOLDEN=1"
    assert actual == path.read_text()
