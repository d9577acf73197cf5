"""What starts a workflow: others that call it or run after it, and programs that dispatch it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from kernel_actions import toml_file

# Where programs that dispatch workflows are looked for.
_FOLDERS = (".github", "scripts", "ci", ".ci", "tools")
_SUFFIXES = (".py", ".sh", ".js", ".mjs", ".ts", ".yml", ".yaml")
_MOST = 2_000
_LARGEST = 512_000
_COMMENT = re.compile(r"(?m)(^|\s)#.*$")
_NAME = re.compile(r"^name:[ \t]*(.+?)[ \t]*$", re.MULTILINE)
# The event, and the lines that are further in.
_AFTER = re.compile(r"^([ \t]*)workflow_run:[ \t]*\n((?:\1[ \t]+[^\n]*\n|[ \t]*\n)*)", re.MULTILINE)


def of(path: PurePosixPath, text: str, starters: Mapping[PurePosixPath, str]) -> tuple[PurePosixPath, ...]:
    """Those of ``starters`` that start the workflow at ``path``, whose ``text`` is given.

    Whatever names its file counts (`uses: ./.github/workflows/x.yml`, `gh workflow run x.yml`, `"x.yml"` in a
    program), and whatever runs after the workflow of its name (`workflow_run`). Comments start nothing.
    """
    by_file = re.compile(rf"(?<![\w.-]){re.escape(path.name)}(?![\w-])")
    named = _NAME.search(text)
    title = re.escape(named[1].strip("'\"") if named else str(path))
    by_name = re.compile(rf"(?m)(?:^|[\[,\s]|-[ \t]){{1,9}}['\"]?{title}['\"]?[ \t]*(?:[,\]]|$)")
    found = []
    for other, written in starters.items():
        code = _COMMENT.sub("", written) + "\n"
        after = _AFTER.search(code)
        if other != path and (by_file.search(code) or (after and by_name.search(after[2]))):
            found.append(other)
    return tuple(found)


def programs(root: Path, workflows: PurePosixPath) -> dict[PurePosixPath, str]:
    """The texts of the repository's programs that may start a workflow: no tests, none of ``workflows``."""
    texts: dict[PurePosixPath, str] = {}
    for top in _FOLDERS:
        for current, folders, names in os.walk(root / top):
            here = PurePosixPath(Path(current).relative_to(root).as_posix())
            folders[:] = sorted(one for one in folders if one not in ("tests", "node_modules", "__pycache__"))
            for name in sorted(names):
                path = root / here / name
                is_program = name.endswith(_SUFFIXES) and not name.startswith("test_")
                if here == workflows or not is_program or not path.is_file() or len(texts) >= _MOST:
                    continue
                data = toml_file.read_bytes(path, _LARGEST)[:_LARGEST]
                texts[here / name] = data.decode(errors="replace")
    return texts
