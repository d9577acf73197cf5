"""Git submodules of a repository: where they are, whether they were fetched, and who fetches them.

What was read (NixOS/nix at 88b09c64):

- Nix leaves submodules out unless the flake's address says ``submodules=1`` or flake.nix says
  ``inputs.self.submodules = true`` (src/libflake/flake.cc:349, ``applySelfAttrs``; since Nix 2.27).
- Of a commit it fetches every submodule by its URL, whatever is checked out (src/libfetchers/git.cc:938). Of
  a
  folder with uncommitted changes it takes those that are checked out, and fails without (git.cc:1005).
"""

from __future__ import annotations

import configparser
import os
import re
from pathlib import Path, PurePosixPath

FILE_NAME = ".gitmodules"
# The first version of Nix that knows `inputs.self.submodules`. Nix 2.8 was run: "unexpected flake input
# attribute 'submodules'".
NIX_FETCHES_SINCE = (2, 27)
_LARGEST = 1_000_000
_COMMENT = re.compile(r"#[^\n]*|/\*.*?\*/", re.DOTALL)
# `inputs.self.submodules = true`, `self.submodules = true` in `inputs = { … }`, and `self = { submodules =
# true; }`.
_FETCHES = re.compile(r"\bself(?:\s*\.\s*|\s*=\s*\{[^{}]*?\b)submodules\s*=\s*true\b")


def listed(root: Path) -> tuple[PurePosixPath, ...]:
    """The folders of the submodules that .gitmodules of the repository at ``root`` names, from the root; none
    where there is no such file, or one that is not readable."""
    try:
        with open(root / FILE_NAME, "rb") as file:
            text = file.read(_LARGEST).decode(errors="replace")
    except OSError:
        return ()
    parser = configparser.RawConfigParser(strict=False, allow_no_value=True)
    try:
        parser.read_string("\n".join(line.strip() for line in text.splitlines()))
    except configparser.Error:
        return ()
    paths = (parser.get(section, "path", fallback=None) for section in parser.sections())
    normal = (os.path.normpath(path.strip().strip('"')) for path in paths if path and path.strip())
    # What leads out of the repository is not git's.
    return tuple(dict.fromkeys(PurePosixPath(path) for path in normal if not path.startswith(("/", ".."))))


def is_fetched(root: Path, path: PurePosixPath) -> bool:
    """Whether the submodule at ``path`` holds anything."""
    try:
        return any((root / path).iterdir())
    except OSError:
        return False


def nix_fetches(kernel_dir: Path) -> bool:
    """Whether flake.nix of the kernel has Nix fetch the submodules of its repository."""
    try:
        with open(kernel_dir / "flake.nix", "rb") as file:
            text = file.read(_LARGEST).decode(errors="replace")
    except OSError:
        return False
    return _FETCHES.search(_COMMENT.sub(" ", text)) is not None


def missing_around(path: Path) -> PurePosixPath | None:
    """The submodule, from the repository's root, that ``path`` would be in if it had been fetched; ``None``
    for what is in none, and in one that was."""
    whole = Path(os.path.abspath(path))
    root = next(
        (one for one in whole.parents if os.path.exists(one / ".git") and (one / FILE_NAME).is_file()), None
    )
    if root is None:
        return None
    own = PurePosixPath(whole.relative_to(root).as_posix())
    around = (one for one in listed(root) if own.is_relative_to(one))
    return next((one for one in around if not is_fetched(root, one)), None)
