"""The files that there shall be, against those that there are. A file that was edited is left alone."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

from kernel_actions import schema, settings, toml_file
from kernel_actions.errors import Place, WrongInput
from kernel_actions.init import runners, templates
from kernel_actions.init.detection import WORKFLOWS, Repository
from kernel_actions.init.runners import Choice

State = Literal["new", "update", "replace", "unchanged", "edited", "taken"]

_LARGEST = 1_000_000
_STAMP = re.compile(r"# Written by kernel-actions init \(([0-9a-f]{16})\)[^\n]*\n")
_STAMP_LINE = (
    "# Written by kernel-actions init ({}). Edit what you like: a file that was edited is left alone.\n"
)


@dataclass(frozen=True)
class Wanted:
    """A file that there shall be, by its path from the repository's root."""

    path: PurePosixPath
    text: str


@dataclass(frozen=True)
class File:
    """A file that there shall be, and what is there: ``before`` is its text, ``None`` for none.

    ``new`` and ``update`` (what an earlier ``init`` wrote, and nobody edited) are written, ``replace``
    (edited, and it was said to replace such) too; ``unchanged``, ``edited`` and ``taken`` (the same name with
    another suffix is there) are not.
    """

    path: PurePosixPath
    before: str | None
    after: str
    state: State

    @property
    def is_written(self) -> bool:
        """Whether it is to be written."""
        return self.state in ("new", "update", "replace")


def choose(
    repository: Repository, uses: str, names: Collection[str], choices: Sequence[Choice]
) -> tuple[Wanted, ...]:
    """The workflows for this repository, or those with the ``names`` given, and kernel-actions.toml, where
    ``choices`` say where GPU backends are tested.

    Raises ``WrongInput`` for a name that no template has.
    """
    known = templates.find()
    chosen = [_named(known, name) for name in names] if names else _fitting(repository, known)
    needs_submodules = any(kernel.needs_submodules for kernel in repository.kernels)
    wanted = [
        Wanted(
            WORKFLOWS / f"{PurePosixPath(one.name).name}.yml",
            _stamped(templates.filled(one, uses, repository.branch, submodules=needs_submodules)),
        )
        for one in chosen
    ]
    return (*wanted, *_settings(repository, choices))


def _named(known: dict[str, templates.Template], name: str) -> templates.Template:
    plain = name.removesuffix(".yml")
    if plain in known:
        return known[plain]
    raise WrongInput(f"no workflow is named {name[:80]!r}", repair=schema.suggestion(plain, tuple(known)))


def _fitting(repository: Repository, known: dict[str, templates.Template]) -> list[templates.Template]:
    names = ["pr-compliance", "build-and-test", "release", "rollback", "freshness"]
    if any(kernel.has_benchmarks for kernel in repository.kernels):
        names.append("benchmark")
    if repository.uses_kernels:
        names.append("kernels-lock")
    if repository.is_monorepo:
        of_many = {name: f"monorepo/{name}" for name in names}
        names = [of_many[name] if of_many[name] in known else name for name in names]
    return [known[name] for name in names if name in known]


def _settings(repository: Repository, choices: Sequence[Choice]) -> Iterable[Wanted]:
    """kernel-actions.toml: beside build.toml, or for several kernels in ``.github``, and what is each one's
    own beside its build.toml."""
    about = _ABOUT + _runners(choices)
    if not repository.is_monorepo:
        # Where the repository's own is, if it has one.
        shared = PurePosixPath(".github") / settings.FILE_NAME
        is_shared = (repository.root / shared).exists() and not (
            repository.root / settings.FILE_NAME
        ).exists()
        yield Wanted(shared if is_shared else PurePosixPath(settings.FILE_NAME), _stamped(about))
        return
    yield Wanted(PurePosixPath(".github") / settings.FILE_NAME, _stamped(about))
    names = [kernel.name for kernel in repository.kernels]
    for kernel in repository.kernels:
        prefix = kernel.name if names.count(kernel.name) == 1 else kernel.folder.as_posix()
        if not runners.PLAIN.fullmatch(prefix):
            raise WrongInput(
                f"{prefix[:80]!r} cannot begin the name of a git tag",
                where=Place(repository.root / kernel.folder),
                repair="rename the folder, or the kernel, whose name another one has",
            )
        text = (
            "# What is this kernel's own; .github/kernel-actions.toml is for all.\n\n"
            "[release]\n"
            "# The git tags of each kernel have a name of their own.\n"
            f'tag-prefix = "{prefix}/"\n'
        )
        yield Wanted(kernel.folder / settings.FILE_NAME, _stamped(text))


_ABOUT = """\
# What kernel-actions cannot guess. Every key has a default; docs/kernel-actions.schema.json lists them all.

"""


def _runners(choices: Sequence[Choice]) -> str:
    if not choices:
        return (
            "# GitHub's hosted runners build and test what needs no GPU. Labels of other runners go here:\n"
            "# [runners.build]\n"
            '# "x86_64-linux" = ["self-hosted", "linux", "x64", "nix"]\n'
        )
    return (
        "# Compiling needs no GPU: GitHub's hosted runners do it, unless [runners.build] says otherwise.\n"
        "# Tests do need one: a runner that has all of these labels takes them. A group of runners is\n"
        '# written { group = "name" }.\n'
    ) + runners.toml(choices)


def _stamped(text: str) -> str:
    """``text`` below a line by which a later run sees whether it was edited."""
    return _STAMP_LINE.format(_digest(text)) + text


def _is_as_written(text: str) -> bool:
    """Whether ``text`` is what an earlier run wrote, and nobody edited it."""
    match = _STAMP.match(text)
    return match is not None and _digest(text[match.end() :]) == match[1]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def compare(root: Path, wanted: Iterable[Wanted], *, overwrite: bool = False) -> tuple[File, ...]:
    """What there shall be against what is there.

    Raises ``WrongInput`` for a path that leads out of the repository, or is no file.
    """
    return tuple(_compared(root, one, overwrite) for one in wanted)


def _compared(root: Path, wanted: Wanted, overwrite: bool) -> File:
    before = read(root, wanted.path)
    if before is None:
        other = _other_suffix(root, wanted.path)
        if other is not None:
            return File(wanted.path, None, wanted.text, "taken")
        return File(wanted.path, None, wanted.text, "new")
    if before == wanted.text or _without_stamp(before) == _without_stamp(wanted.text):
        return File(wanted.path, before, wanted.text, "unchanged")
    if _is_as_written(before):
        return File(wanted.path, before, wanted.text, "update")
    return File(wanted.path, before, wanted.text, "replace" if overwrite else "edited")


def _without_stamp(text: str) -> str:
    return _STAMP.sub("", text, count=1)


def _other_suffix(root: Path, path: PurePosixPath) -> PurePosixPath | None:
    other = path.with_suffix(".yaml")
    return other if path.suffix == ".yml" and (root / other).exists() else None


def read(root: Path, path: PurePosixPath) -> str | None:
    """The text of a file with the line breaks of Unix; ``None`` when there is none. Raises ``WrongInput``."""
    target = root / path
    folder = root
    for part in path.parent.parts:
        folder = folder / part
        if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
            raise WrongInput("is no folder, but a link or a file", where=Place(folder), repair="remove it")
    if target.is_symlink() or (target.exists() and not target.is_file()):
        raise WrongInput("is no file, but a link or a folder", where=Place(target), repair="remove it")
    if not target.exists():
        return None
    data = toml_file.read_bytes(target, _LARGEST)
    if len(data) > _LARGEST:
        raise WrongInput(f"is larger than {_LARGEST} bytes", where=Place(target), repair="remove it")
    return data.decode(errors="replace").replace("\r\n", "\n")
