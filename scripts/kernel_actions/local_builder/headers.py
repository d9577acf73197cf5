"""Headers that a source includes and no ``src`` of build.toml lists.

The builder compiles in a folder that has the files of every ``src``, whatever backend it is for, and nothing
else (nix-builder/lib/source-set.nix at 8ac69fc5, lines 19 and 46 to 63). A header that is in none is not
there, and the compiler fails, although the author's own compiler finds it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernel_actions.errors import Place, WrongInput
from kernel_actions.local_builder.sources import PACKAGE_ROOT, repository_root
from kernel_actions.manifest import Manifest

# kernel-builder puts its own there: write_torch_registration_macros of its src/pyproject/torch/mod.rs.
_GENERATED = f"{PACKAGE_ROOT}/registration.h"
_INCLUDE = re.compile(r"""^\s*#\s*include(?:_next)?\s*[<"](?P<name>[^">]+)[">]""")
_LARGEST_SOURCE = 10_000_000


@dataclass(frozen=True)
class UnlistedHeader:
    """A header that the builder does not have. Paths are relative to the kernel's folder.

    ``key`` is the section whose ``src`` should list it, ``where`` the line that includes it, or the source
    that does so by a macro.
    """

    name: str
    key: str
    where: Place

    def repair(self, manifest: Manifest) -> str:
        """What to write into build.toml, and at which line."""
        return f'add "{self.name}" to src of [{self.key}], {manifest.place(f"{self.key}.src")}'


def listed(manifest: Manifest) -> dict[str, str]:
    """The files of every ``src``, each with the section that lists it first: ``torch``, ``kernel.<name>``."""
    sections: list[tuple[str, tuple[str, ...]]] = [(manifest.binding.framework, manifest.binding.src)]
    sections += [(f"kernel.{component.name}", component.src) for component in manifest.components]
    found: dict[str, str] = {}
    for key, names in sections:
        for name in names:
            found.setdefault(os.path.normpath(name), key)
    return found


def parse_dependencies(answer: str, tree: Path) -> dict[str, tuple[Path, ...]]:
    """What ``ninja -t deps`` says in the folder ``tree``: for each source the files that it was compiled of,
    itself the first of them."""
    found: dict[str, tuple[Path, ...]] = {}
    paths: list[Path] = []
    for line in [*answer.splitlines(), ""]:
        if line.startswith("    "):
            paths.append(Path(os.path.normpath(tree / line.strip())))
        elif paths:
            found[str(paths[0])] = tuple(paths)
            paths = []
    return found


def unlisted(
    manifest: Manifest, dependencies: Mapping[str, Sequence[Path]], elsewhere: Iterable[Path]
) -> Iterator[UnlistedHeader]:
    """The headers of the kernel's repository that sources were compiled of, and that are in no ``src``.

    ``dependencies`` has for each source the files that it was compiled of. What is in the folders
    ``elsewhere`` belongs to tools, wherever they are.
    """
    directory = manifest.directory.resolve()
    root = repository_root(directory)
    known = listed(manifest)
    tools = tuple(folder.resolve() for folder in elsewhere)

    def is_own(path: Path) -> bool:
        return (
            path.is_relative_to(root)
            and not any(path.is_relative_to(folder) for folder in tools)
            and not any(part.startswith(".") for part in path.relative_to(root).parts)
        )

    reported: set[str] = set()
    for source, paths in sorted(dependencies.items()):
        own = [path for path in paths if is_own(path)]
        for path in own:
            name = os.path.relpath(path, directory)
            if name in known or name == _GENERATED or name in reported:
                continue
            reported.add(name)
            including, line = _including(path, own) or (Path(source), None)
            yield UnlistedHeader(
                name=name,
                key=known.get(os.path.relpath(source, directory), manifest.binding.framework),
                where=Place(manifest.directory / os.path.relpath(including, directory), line),
            )


def check(manifest: Manifest, dependencies: Mapping[str, Sequence[Path]], elsewhere: Iterable[Path]) -> None:
    """Raise ``WrongInput`` for headers that are in no ``src``; see ``unlisted``."""
    errors = tuple(
        WrongInput(
            f"includes {header.name}, which is in no src of build.toml, so that the builder does not have it",
            where=header.where,
            repair=header.repair(manifest),
        )
        for header in unlisted(manifest, dependencies, elsewhere)
    )
    if errors:
        first = errors[0]
        raise WrongInput(first.what, where=first.where, repair=first.repair, others=errors[1:])


def _including(header: Path, paths: Iterable[Path]) -> tuple[Path, int] | None:
    """The first line of the files ``paths`` that includes ``header``."""
    for path in paths:
        if path == header:
            continue
        for number, name in _includes(path):
            beside = Path(os.path.normpath(path.parent / name))
            if beside == header or header.as_posix().endswith("/" + os.path.normpath(name).lstrip("./")):
                return path, number
    return None


def _includes(path: Path) -> Iterator[tuple[int, str]]:
    try:
        if path.stat().st_size > _LARGEST_SOURCE:
            return
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    for number, line in enumerate(text.splitlines(), start=1):
        if found := _INCLUDE.match(line):
            yield number, found["name"]
