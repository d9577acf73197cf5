"""Brings the bundled data about the builder up to date: ``make update-builder-data DIR=<checkout>``.

For every commit of every branch of a checkout of the builder it notes which build sets the commit has,
which rules it follows, and what it puts into a variant. What the data already has and the checkout lacks
is kept. When the code that selects and names variants changed, or that which makes one is not recognised,
it says so: whoever reviews the change has to see whether ``builder_rules.py`` and ``builder_output.py``
still tell what it does.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
from kernel_actions import builder, builder_output, builder_rules, flake
from kernel_actions.errors import KernelActionsError

REPOSITORY = re.compile(r"(?:https://|git@)github\.com[/:]([\w.-]+/[\w.-]+?)(?:\.git)?/?", re.ASCII)


class Objects:
    """The files of a repository at its commits, by one long-running git."""

    def __init__(self, checkout: Path) -> None:
        self._git = subprocess.Popen(
            ["git", "-C", str(checkout), "cat-file", "--batch"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def read(self, commit: str, path: str) -> tuple[str, str] | None:
        """The id and the text of a file; ``None`` when there is none."""
        assert self._git.stdin and self._git.stdout
        self._git.stdin.write(f"{commit}:{path}\n".encode())
        self._git.stdin.flush()
        header = self._git.stdout.readline().split()
        if len(header) != 3:
            return None
        data = self._git.stdout.read(int(header[2]))
        self._git.stdout.read(1)
        return header[0].decode(), data.decode(errors="replace")


def main(arguments: list[str]) -> int:
    """Read the checkouts, write the data, and print what is new."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkouts", nargs="+", type=Path, metavar="CHECKOUT")
    parser.add_argument("--repository", help="owner/name of the checkouts; default: that of their origin")
    parser.add_argument("--data", type=Path, default=builder.DATA)
    options = parser.parse_args(arguments)
    data: Path = options.data
    revisions = _lines(data / "revisions.txt")
    rules: list[dict[str, Any]] = json.loads((data / "rules.json").read_bytes())
    outputs: list[dict[str, Any]] = json.loads((data / "outputs.json").read_bytes())
    reviewed = set(_lines_of(data / "reviewed.txt"))
    before, known = len(revisions), set(reviewed)
    newest = (data / "newest.txt").read_text(encoding="ascii").split() if before else ["", ""]
    unreadable: dict[str, str] = {}
    for checkout in options.checkouts:
        if not (checkout / ".git").exists() and not (checkout / "HEAD").exists():
            raise SystemExit(f"{checkout} is not a git repository")
        entries = 0
        repository = options.repository or _repository(checkout)
        objects = Objects(checkout)
        for commit in _git(checkout, "rev-list", "--branches", "--remotes", "--tags").split():
            entry = _entry(objects, commit, data, (rules, outputs), reviewed, unreadable)
            if entry is not None:
                entries += 1
                revisions[commit] = f"{entry} {repository}"
        commit, day = _git(checkout, "log", "-1", "--date=format:%Y-%m-%d", "--format=%H %cd", "HEAD").split()
        if commit in revisions and day >= newest[1]:
            newest = [commit, day]
        if not entries:
            raise SystemExit(f"no commit of {checkout} has a list of build sets: it is not the builder")
    _write(data / "revisions.txt", (f"{commit} {rest}" for commit, rest in sorted(revisions.items())))
    _write(data / "reviewed.txt", sorted(reviewed))
    _write(data / "newest.txt", [" ".join(newest)])
    for name, entries in (("rules.json", rules), ("outputs.json", outputs)):
        lines = ",\n  ".join(json.dumps(entry) for entry in entries)
        (data / name).write_text(f"[\n  {lines}\n]\n", encoding="utf-8")
    print(
        f"{len(revisions)} revisions, {len(revisions) - before} of them new; {len(rules)} sets of rules, "
        f"{len(outputs)} of traits of what is built"
    )
    if unreadable:
        print(f"{len(unreadable)} were not recognised, such as {next(iter(unreadable.values()))}")
    if reviewed - known and known:
        print(
            f"{len(reviewed - known)} new texts of the code that selects and names variants: check that "
            "builder_rules.py tells its rules, and add to the oracle what it does not cover"
        )
    return 0


def _entry(
    objects: Objects,
    commit: str,
    data: Path,
    lists: tuple[list[dict[str, Any]], list[dict[str, Any]]],
    reviewed: set[str],
    unreadable: dict[str, str],
) -> str | None:
    """The commit's table, rules, traits of what it builds, and path of versions.nix; ``None`` when that is
    no plain list."""
    for path in builder_rules.VERSIONS_PATHS:
        versions = objects.read(commit, path)
        if versions is not None:
            break
    else:
        return None
    blob, text = versions
    if blob in unreadable:
        return None
    table = data / "tables" / f"{blob[:12]}.json"
    if not table.exists():
        try:
            values = flake.read_versions(text, Path(path))
        except KernelActionsError as error:
            unreadable[blob] = f"{commit[:12]}: {error}"
            return None
        lines = ",\n  ".join(json.dumps(value) for value in values)
        table.write_text(f"[\n  {lines}\n]\n", encoding="utf-8")

    def read(name: str) -> str | None:
        file = objects.read(commit, name)
        return file[1] if file else None

    texts = {name: read(name) for name in builder_rules.paths(path)}
    rules, outputs = lists
    numbers = [_number(builder_rules.traits(path, texts.get), rules)]
    try:
        numbers.append(_number(builder_output.traits(path, read), outputs))
    except KernelActionsError as error:
        unreadable[commit] = f"{commit[:12]}: {error}"
        numbers.append(builder.NOT_RECOGNISED)
    for name, content in texts.items():
        if content is not None and name.endswith(builder_rules.SELECTING):
            reviewed.add(builder_rules.fingerprint(content))
    return " ".join((blob[:12], *numbers, path))


def _number(entry: dict[str, Any], entries: list[dict[str, Any]]) -> str:
    """The index of ``entry`` in ``entries``, where it is put if it is new."""
    if entry not in entries:
        entries.append(entry)
    return str(entries.index(entry))


def _repository(checkout: Path) -> str:
    url = _git(checkout, "config", "--default=", "--get", "remote.origin.url").strip()
    found = REPOSITORY.fullmatch(url)
    if found is None:
        raise SystemExit(f"{checkout} has no origin on GitHub: name its --repository")
    return found.group(1).lower()


def _git(checkout: Path, *arguments: str) -> str:
    return subprocess.run(
        ["git", "-C", str(checkout), *arguments], check=True, capture_output=True, text=True
    ).stdout


def _lines(path: Path) -> dict[str, str]:
    pairs = (line.split(" ", 1) for line in _lines_of(path))
    return {commit: rest for commit, rest in pairs}


def _lines_of(path: Path) -> Iterator[str]:
    if path.exists():
        yield from path.read_text(encoding="ascii").splitlines()


def _write(path: Path, lines: Iterable[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="ascii")


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
