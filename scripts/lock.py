"""Resolves requirements/*.in into requirements/*.txt, with hashes. Run it by `make lock`."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

REQUIREMENTS = Path(__file__).resolve().parents[1] / "requirements"


def main() -> int:
    """Lock each purpose for every platform and every Python that the suite supports."""
    uv = Path(sysconfig.get_path("scripts")) / "uv"
    for purpose in ("hub", "kernel", "dev"):
        subprocess.run(
            [
                uv, "pip", "compile", "--quiet", "--universal", "--python-version", "3.10",
                "--generate-hashes", "--no-annotate", "--custom-compile-command", "make lock",
                f"{purpose}.in", "--output-file", f"{purpose}.txt", *sys.argv[1:],
            ],
            cwd=REQUIREMENTS,
            check=True,
        )  # fmt: skip
        print(f"wrote requirements/{purpose}.txt")
    return 0


if __name__ == "__main__":
    sys.exit(main())
