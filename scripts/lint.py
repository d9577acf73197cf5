"""Checks the style, the types, the actions and the workflows. Run it by `make lint`."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROGRAMS = Path(sysconfig.get_path("scripts"))


def checks() -> dict[str, list[str]]:
    """The checks by name: the program, which is one of the development environment, and its arguments."""
    places = ("action.yml", "*/action.yml", "actions/*/action.yml")
    actions = [str(path) for place in places for path in sorted(ROOT.glob(place))]
    workflows = [
        str(path)
        for place in (
            "templates/workflows/**/*.yml",
            ".github/workflows/*.yml",
            "docs/examples/workflow.yml",
            "docs/examples/reusable.yml",
        )
        for path in sorted(ROOT.glob(place))
    ]
    schemas = [str(path) for path in sorted(ROOT.glob("docs/*.schema.json"))]
    return {
        "ruff check": ["ruff", "check", "--quiet", "."],
        "ruff format": ["ruff", "format", "--check", "--quiet", "."],
        "mypy": ["mypy", "--no-error-summary"],
        "shellcheck": [
            "shellcheck", "scripts/kernel-actions", "scripts/install-test-tools", ".ci/run",
            "tests/gpu/run.sh", "benchmarks/run.sh",
            *(f"templates/runners/one-machine/{name}" for name in ("clean-up", "install", "register")),
        ],
        "actions' schema": ["check-jsonschema", "-q", "--builtin-schema", "vendor.github-actions", *actions],
        "workflows' schema": [
            "check-jsonschema", "-q", "--builtin-schema", "vendor.github-workflows", *workflows,
        ],
        "our schemas": ["check-jsonschema", "-q", "--check-metaschema", *schemas],
        "zizmor": [
            "zizmor", "--persona", "pedantic", "--offline", "--quiet", "--no-progress",
            "--config", "zizmor.yml", ".", *workflows,
        ],
    }  # fmt: skip


def main() -> int:
    """Run all checks, show what those that fail print, and return 1 if there is one."""
    failed = []
    for name, (program, *arguments) in checks().items():
        finished = subprocess.run(
            [PROGRAMS / program, *arguments], cwd=ROOT, text=True, capture_output=True, check=False
        )
        print(f"{'ok    ' if finished.returncode == 0 else 'FAILED'} {name}", flush=True)
        if finished.returncode != 0:
            failed.append(name)
            print(finished.stdout + finished.stderr)
    if failed:
        print(f"lint: failed: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
