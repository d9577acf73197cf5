"""Writes a variant's metadata.json, as the builder does."""

# ruff: noqa: SIM112 - a derivation's attributes are its variables, as they are written

import base64
import hashlib
import json
import os
import sys
from pathlib import Path

folder, ops = Path(sys.argv[1]), sys.argv[2]
found = [Path(parent) / name for parent, _, names in os.walk(folder, followlinks=True) for name in names]
files = {
    path.relative_to(folder).as_posix(): base64.b64encode(hashlib.sha256(path.read_bytes()).digest()).decode()
    for path in sorted(found)
    if path.is_file()
}
described = {
    "name": os.environ["kernelName"],
    "id": ops,
    "version": int(os.environ["kernelVersion"]),
    "license": "Apache-2.0",
    "python-depends": [],
    "kernel-depends": [],
    "backend": {"type": os.environ["backend"]},
    "digest": {"algorithm": "sha256", "files": files},
    "provenance": {
        "kernel-builder": {"version": "0.0.0-fixture"},
        "kernel": json.loads(os.environ["provenance"]),
    },
}
(folder / "metadata.json").write_text(json.dumps(described, indent=2) + "\n")
