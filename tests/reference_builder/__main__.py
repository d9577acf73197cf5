"""See the package's docstring for the commands."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

from tests.reference_builder import answers, kernels, variant
from tests.reference_builder.answers import Answer
from tests.reference_builder.project import Builder


def main(arguments: list[str]) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.reference_builder", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    build = commands.add_parser("build", help="build the CPU's variant of a kernel, at its HEAD")
    for name in ("repository", "revision", "kernel", "out"):
        build.add_argument(name, type=str if name == "revision" else Path)
    commands.add_parser("answers", help="write answers/ anew").add_argument("repository", type=Path)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="reference-builder-") as name:
        work = Path(name)
        if options.command == "answers":
            _write_answers(options.repository, work)
            return 0
        command = ["git", "-C", str(options.kernel), "rev-parse", "HEAD"]
        commit = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
        builder = Builder.find(options.repository, options.revision)
        made = variant.build(builder, options.kernel, commit, options.out.resolve(), work / "work")
        print(json.dumps({"path": str(made.folder), "files": made.files}, indent=2))
    return 0


def _write_answers(repository: Path, work: Path) -> None:
    import torch

    for name, write in kernels.KERNELS.items():
        folder = write(work / name)
        found = {}
        for revision in kernels.REVISIONS:
            print(f"{name} at {revision}", file=sys.stderr)
            place = work / f"{name}-{revision}"
            made = variant.build(
                Builder.find(repository, revision), folder, kernels.COMMIT, place / "out", place / "work"
            )
            found[revision] = Answer.of(made)
        answers.write(name, torch.__version__.partition("+")[0], found)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
