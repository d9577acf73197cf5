"""Whether a version of this suite may be released, which tags it moves, and its notes.

``release_suite.py VERSION`` prints the notes, and sets the output ``moving`` of a step. The version is that
of the package, its section of CHANGELOG.md is written, and it is newer than any of its line. Users refer to
``v1`` and ``v1.2``: these go to the newest release of their line, and never back.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Collection, Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "scripts"))

from kernel_actions import __version__, github  # noqa: E402
from kernel_actions.release import version as versions  # noqa: E402
from kernel_actions.release.version import Version  # noqa: E402


def released(tags: Iterable[str]) -> set[Version]:
    """The versions of the suite's tags ``vX.Y.Z``; those of kernels have a prefix."""
    found = (versions.of_tag(tag, prefix="") for tag in tags)
    return {one for one in found if one is not None and not one.pre}


def notes(changelog: str, version: str) -> str:
    """What CHANGELOG.md says of a version; empty where it has no such section."""
    _, _, rest = changelog.partition(f"\n## [{version}]")
    section = re.split(r"\n## |\n\[[^\]]+\]: ", rest.partition("\n")[2], maxsplit=1)[0]
    return section.strip()


def problems(text: str, package: str, changelog: str, others: Collection[Version]) -> list[str]:
    """Why the version ``text`` cannot be released; nothing when it can."""
    version = versions.parse(text)
    if version is None or version.pre:
        return [f"{text!r} is not a version X.Y.Z"]
    found = []
    if text != package:
        found.append(f'scripts/kernel_actions/__init__.py says {package}: set __version__ = "{text}"')
    if not notes(changelog, text):
        found.append(f"CHANGELOG.md has no section ## [{text}], or nothing in it")
    line = [one for one in others if (one.major, one.minor) == (version.major, version.minor)]
    if any(one > version for one in line):
        found.append(f"{max(line)} is released already")
    return found


def main(arguments: list[str]) -> int:
    """Check the version that is given, and print its notes."""
    (text,) = arguments
    tags = subprocess.run(
        ["git", "tag", "--list", "v*"], cwd=ROOT, check=True, text=True, capture_output=True
    ).stdout.split()
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    others = released(tags)
    found = problems(text, __version__, changelog, others)
    for problem in found:
        github.annotate("error", problem)
    version = versions.parse(text)
    if found or version is None:
        return 2
    github.set_outputs({"moving": " ".join(versions.moving_tags(version, others))})
    print(notes(changelog, text))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
