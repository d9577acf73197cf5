"""Holds ``matrix --changed-since`` to what the builder can see of each kernel, commit by commit.

Run by hand, with a checkout of a repository with many kernels (its work tree is not touched):

    python tests/oracle/changes.py path/to/kernels-community --commits 60

For each commit it compares with its first parent. What a build can see of a kernel is read from git, by rules
that share nothing with the planner's: the files of the source set (nix-builder/lib/source-set.nix of
huggingface/kernels at 8ac69fc5), flake.nix, flake.lock, and whatever Nix code of the kernel names outside of
its folder. A kernel for which any of that differs has to be planned: one that is not is *missed*, and the
program exits with 1.
"""

from __future__ import annotations

import argparse
import json
import posixpath
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

try:
    import tomllib
except ModuleNotFoundError:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
_PLANNER = ROOT / "scripts" / "kernel-actions"


# What is planned, without planning it.
_CONCERNED = """
import sys
from pathlib import Path
sys.path.insert(0, {scripts!r})
from kernel_actions.matrix import changes, monorepo
root = Path(sys.argv[1]).resolve()
found = changes.concerned(monorepo.discover(root), sys.argv[2])
print(*(one.resolve().relative_to(root).as_posix() for one in found.planned), sep="\\0", end="")
"""


class Row(NamedTuple):
    """A commit: how many kernels there are, which see a change of theirs, and which are planned, in how many
    jobs; ``error`` is why nothing could be planned."""

    commit: str
    subject: str
    kernels: int
    seen: frozenset[str]
    planned: frozenset[str]
    jobs: int
    error: str = ""

    @property
    def missed(self) -> frozenset[str]:
        """Kernels for which a build sees a change, and that are not planned."""
        return frozenset() if self.error else self.seen - self.planned


def _git(repository: Path, *arguments: str) -> str:
    finished = subprocess.run(
        ["git", "-C", str(repository), *arguments],
        check=True,
        capture_output=True,
        text=True,
        errors="replace",
    )
    return finished.stdout


def tree(repository: Path, commit: str) -> dict[str, str]:
    """The ids of all files, links and submodules of a commit, by path."""
    entries = _git(repository, "ls-tree", "-r", "-z", "--full-tree", commit).split("\0")
    return {entry.partition("\t")[2]: entry.partition("\t")[0] for entry in entries if entry}


def visible(files: Mapping[str, str], folder: str, read: Any) -> dict[str, str]:
    """What a build can see of the kernel in ``folder``: ids by path. ``read`` gives a file's text."""
    build = tomllib.loads(read(f"{folder}/build.toml"))
    binding: Mapping[str, Any] = next(
        (build[name] for name in ("torch", "torch-noarch", "tvm-ffi") if name in build), {}
    )
    suffixes = tuple(f".{one.lstrip('.')}" for one in binding.get("pyext", ["py", "pyi"]))
    python = "torch-ext/" if any(one.startswith(f"{folder}/torch-ext/") for one in files) else "tvm-ffi-ext/"
    listed = list(binding.get("src", []))
    for kernel in build.get("kernel", {}).values():
        listed += kernel.get("src", [])
    sources = {posixpath.normpath(f"{folder}/{name}") for name in listed}
    found = {}
    for path, entry in files.items():
        own = path.removeprefix(f"{folder}/") if path.startswith(f"{folder}/") else ""
        is_python = own.startswith((python, "tests/")) and (
            path.endswith(suffixes) or entry.startswith("160000")
        )
        is_source = any(part in sources for part in _with_folders(path))
        if is_python or is_source or own in ("build.toml", "flake.nix", "flake.lock") or own.endswith(".nix"):
            found[path] = entry
    # Nix code that names something outside of the folder sees all that is below that.
    for path in [
        one for one in found if one.endswith((".nix", "flake.lock")) and one.startswith(f"{folder}/")
    ]:
        for name in re.findall(r"(?:path:|[\s\"(=])((?:\./)?\.\.(?![.\w])(?:/[\w.+-]+)*)", read(path)):
            end = posixpath.normpath(posixpath.join(posixpath.dirname(path), name))
            found |= {
                one: entry for one, entry in files.items() if end == "." or f"{one}/".startswith(f"{end}/")
            }
    return found


def _with_folders(path: str) -> Sequence[str]:
    parts = path.split("/")
    return ["/".join(parts[:end]) for end in range(len(parts), 0, -1)]


def seen(repository: Path, commit: str) -> tuple[int, frozenset[str]]:
    """The number of kernels at a commit, and those of which a build sees something else than at its
    parent."""
    changed = set()
    now, before = tree(repository, commit), tree(repository, f"{commit}^")
    folders = [path.removesuffix("/build.toml") for path in now if path.endswith("/build.toml")]
    for folder in folders:
        views = []
        for files, revision in ((now, commit), (before, f"{commit}^")):
            if f"{folder}/build.toml" not in files:
                views.append(None)
                continue

            def read(path: str, revision: str = revision) -> str:
                return _git(repository, "cat-file", "blob", f"{revision}:{path}")

            views.append(visible(files, folder, read))
        if views[0] != views[1]:
            changed.add(folder)
    return len(folders), frozenset(changed)


def plan(
    checkout: Path, commit: str, reference: str, planner: Path = _PLANNER
) -> tuple[frozenset[str], int, str]:
    """What is planned at ``commit``: the kernels' folders, the number of jobs, and why nothing could be."""
    _git(checkout, "checkout", "--quiet", "--force", "--detach", commit)
    finished = subprocess.run(
        [planner, "matrix", "--discover", checkout, "--changed-since", reference, "--allow-empty", "--scope",
        "pr",
         "--format", "json"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if finished.returncode:
        # Its builder is not known here, say: which kernels are concerned is nevertheless.
        error = finished.stderr.strip().splitlines()[-1][:200]
        code = _CONCERNED.format(scripts=str(planner.parent))
        concerned = subprocess.run(
            [sys.executable, "-I", "-S", "-c", code, checkout, reference], capture_output=True, text=True
        )
        if concerned.returncode:
            return frozenset(), 0, error
        return frozenset(concerned.stdout.split("\0")) - {""}, 0, ""
    value = json.loads(finished.stdout)
    folders = (Path(one["dir"]).resolve().relative_to(checkout.resolve()) for one in value["kernels"])
    return frozenset(one.as_posix() for one in folders), value["count"], ""


def compare(repository: Path, count: int, until: str = "HEAD", planner: Path = _PLANNER) -> list[Row]:
    """A row for each of the last ``count`` commits that lead to ``until``, merges left out."""
    commits = _git(repository, "log", "--no-merges", f"-{count}", "--format=%H", until).split()
    rows = []
    with tempfile.TemporaryDirectory(prefix="kernel-actions-changes-") as name:
        checkout = Path(name) / "checkout"
        _git(
            repository,
            "clone",
            "--quiet",
            "--shared",
            "--no-checkout",
            str(repository.resolve()),
            str(checkout),
        )
        for commit in commits:
            kernels, changed = seen(repository, commit)
            planned, jobs, error = plan(checkout, commit, f"{commit}^", planner)
            subject = _git(repository, "show", "--no-patch", "--format=%s", commit).strip()
            rows.append(Row(commit, subject, kernels, changed, planned, jobs, error))
            _show(rows[-1])
        shutil.rmtree(checkout)
    return rows


def _show(row: Row) -> None:
    if row.error:
        print(f"{row.commit[:9]}     ?  {row.subject[:50]}: {row.error[-100:]}", flush=True)
        return
    missed = f"  MISSED {', '.join(sorted(row.missed))}" if row.missed else ""
    counts = f"{len(row.seen):3} seen {len(row.planned):3} of {row.kernels:2} planned {row.jobs:4} jobs"
    print(f"{row.commit[:9]} {counts}  {row.subject[:50]}{missed}", flush=True)


def main() -> int:
    """Print a row for each commit and the sums, and return 1 where a kernel was missed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("repository", type=Path)
    parser.add_argument("--commits", type=int, default=60)
    parser.add_argument("--until", default="HEAD")
    parser.add_argument(
        "--planner", type=Path, default=_PLANNER, help="another version's scripts/kernel-actions"
    )
    arguments = parser.parse_args()
    rows = compare(arguments.repository, arguments.commits, arguments.until, arguments.planner)
    known = [row for row in rows if not row.error]
    everything = [row for row in known if row.kernels and len(row.planned) == row.kernels]
    missed = [row for row in known if row.missed]
    print(
        f"{len(known)} of {len(rows)} commits: {sum(row.jobs for row in known)} jobs, "
        f"{len(everything)} commits that plan all kernels; kernels of which a build sees a change: "
        f"{sum(len(row.seen) for row in known)}, planned {sum(len(row.planned) for row in known)}, "
        f"missed {sum(len(row.missed) for row in missed)}"
    )
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
