"""What has to be so before Nix builds a kernel: each that is not is an error of one line."""

from __future__ import annotations

import contextlib
import difflib
import json
import os
import re
import shlex
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple
from urllib.parse import quote

from kernel_actions import build_folder, git, reads, submodules
from kernel_actions.errors import Place, WrongInput, WrongSurroundings
from kernel_actions.git import GitState
from kernel_actions.nix import configuration, evaluation, preflight
from kernel_actions.nix.store import Settings
from kernel_actions.variants import Variant

# The first version of Nix that reads the address of a folder with quoted characters as it is meant.
_READS_QUOTED = (2, 21)


class Source(NamedTuple):
    """The kernel as Nix sees it: the repository, and the rest of the address of the flake in it.
    ``nix_fetches`` says that flake.nix has Nix fetch its submodules."""

    state: GitState
    query: str
    nix_fetches: bool = False

    @contextlib.contextmanager
    def address(self, nix: str) -> Iterator[str]:
        """The address of the flake, for this version of Nix. It holds as long as the context does."""
        if self.nix_fetches and _numbers(nix) < submodules.NIX_FETCHES_SINCE:
            since = ".".join(map(str, submodules.NIX_FETCHES_SINCE))
            raise WrongSurroundings(
                f"Nix {nix} does not know `inputs.self.submodules` of flake.nix",
                repair=f"use Nix {since} or newer, which the action setup-nix installs",
            )
        root = str(self.state.root.resolve())
        if quote(root) == root or _numbers(nix) >= _READS_QUOTED:
            yield f"git+file://{quote(root)}{self.query}"
            return
        # Older versions take a folder with a space, say, for a repository without a working tree; and of a
        # link to it they take what is committed alone.
        if self.state.dirty:
            raise WrongSurroundings(
                f"Nix {nix} builds no uncommitted changes in a folder with spaces, or more, in its path",
                where=Place(self.state.root),
                repair="commit them, or use another folder",
            )
        with tempfile.TemporaryDirectory(prefix="kernel-actions-") as name:
            link = Path(name) / "repository"
            link.symlink_to(root, target_is_directory=True)
            yield f"git+file://{link}{self.query}"


class Wanted(NamedTuple):
    """A variant to build; ``arch_name`` is its name in ciTests. ``planned`` and ``torch`` are ``None`` where
    no plan is known."""

    name: str
    system: str
    arch_name: str
    planned: bool | None
    torch: str | None

    @property
    def attribute(self) -> str:
        """Where the flake has it."""
        return f"packages.{self.system}.redistributable.{_quoted(self.name)}"

    @property
    def test_attribute(self) -> str:
        """Where the flake has its tests."""
        return f"packages.{self.system}.ciTests.{_quoted(self.arch_name)}"


def why_not_nix(kernel_dir: Path) -> str:
    """Why Nix cannot build the kernel here; empty when it can, as far as that is seen at a glance."""
    if not evaluation.is_installed():
        return "Nix is not installed"
    for name in ("flake.nix", "flake.lock"):
        if not (kernel_dir / name).is_file():
            return f"the kernel has no {name}"
    return "" if git.state(kernel_dir) is not None else "the kernel is not in a git repository with a commit"


def source(kernel_dir: Path, *, allow_dirty: bool) -> Source:
    """The kernel's flake, with all that Nix takes of it committed and fetched.

    Raises ``WrongInput`` and ``WrongSurroundings``.
    """
    if not evaluation.is_installed():
        raise WrongSurroundings(
            "Nix is not installed", repair="use the action setup-nix before, or --backend-tool local"
        )
    state = git.state(kernel_dir)
    if state is None:
        raise WrongInput(
            "is not in a git repository with a commit, and the builder refuses such a kernel",
            where=Place(kernel_dir),
            repair="run `git init`, `git add .` and `git commit` there",
        )
    tracked = git.tracked(kernel_dir)
    for name, how in (("flake.nix", "see docs/tutorial.md"), ("flake.lock", "run `nix flake lock`")):
        if not (kernel_dir / name).is_file():
            raise WrongInput(
                "there is no such file", where=Place(kernel_dir / name), repair=f"{how}, and commit it"
            )
        if name not in tracked:
            raise WrongInput(
                "is not in git, and Nix sees only what is",
                where=Place(kernel_dir / name),
                repair=f"git add {name}, and commit it",
            )
    found = _source(kernel_dir, state)
    if state.dirty:
        changed = _changed(kernel_dir, state)
        if "flake.lock" in changed:
            raise WrongInput(
                "is not as it was committed", where=Place(kernel_dir / "flake.lock"), repair="commit it"
            )
        if not allow_dirty:
            shown = ", ".join(changed[:3]) + (f" and {len(changed) - 3} more" if len(changed) > 3 else "")
            raise WrongInput(
                f"the working tree has uncommitted changes{f' ({shown})' if shown else ''}: "
                "no release takes what is built from them",
                where=Place(kernel_dir),
                repair="commit them, or build them nevertheless with --allow-dirty",
            )
    return found


def _source(kernel_dir: Path, state: GitState) -> Source:
    """As Nix itself makes an address of a folder in git, but with the submodules that the kernel reads, which
    it leaves out unasked.

    Raises ``WrongInput`` for one that was not fetched, unless Nix does that.
    """
    root = state.root.resolve()
    listed = submodules.listed(root)
    nix_fetches = submodules.nix_fetches(kernel_dir)
    used: tuple[PurePosixPath, ...] = ()
    if listed and not nix_fetches:
        found = reads.of_kernel(kernel_dir.resolve(), root)
        used = tuple(one for one in listed if found.uses_submodule(one))
    # Of uncommitted changes Nix takes all submodules as they are checked out: git.cc:1005, in submodules.py.
    needed = listed if state.dirty and (used or nix_fetches) else used
    for path in needed:
        if not submodules.is_fetched(root, path):
            raise WrongInput(
                f"the submodule {path} was not fetched",
                where=Place(root / submodules.FILE_NAME),
                repair=f"git submodule update --init {shlex.quote(str(path))}, or submodules: recursive of "
                "actions/checkout",
            )
    folder = kernel_dir.resolve().relative_to(root).as_posix()
    parts = [f"dir={quote(folder)}"] if folder != "." else []
    parts += ["shallow=1"] if git.is_shallow(kernel_dir) else []
    parts += ["submodules=1"] if used else []
    return Source(state, f"?{'&'.join(parts)}" if parts else "", nix_fetches and bool(listed))


@contextlib.contextmanager
def address(kernel_dir: Path, nix: str) -> Iterator[str]:
    """The address by which a build will have the kernel's flake, for this version of Nix.

    Of all checks only that submodules were fetched is made.
    """
    state = git.state(kernel_dir)
    if state is None:
        yield "."
        return
    with _source(kernel_dir, state).address(nix) as found:
        yield found


def _changed(kernel_dir: Path, state: GitState) -> list[str]:
    """The tracked files that differ from the commit, those of the kernel by their path in it."""
    folder = kernel_dir.resolve()
    changed = git.changed_since(kernel_dir, state.commit)
    inside = []
    for name in changed:
        path = state.root.resolve() / name
        inside.append(path.relative_to(folder).as_posix() if path.is_relative_to(folder) else name)
    tracked = git.tracked(kernel_dir)
    # What git does not track is no change.
    return [name for name in inside if name in tracked or not (folder / name).exists()]


def check_folder(kernel_dir: Path, folder: Path, option: str) -> None:
    """Raise ``WrongInput`` where what is built would be written through a link, or over a file, that comes
    with the kernel: it may be a stranger's, and lead to any file of this machine."""
    inside = Path(os.path.relpath(folder.absolute(), kernel_dir.absolute()))
    work = (inside / build_folder.WORK_FOLDER).as_posix()
    above = {work, *(parent.as_posix() for parent in Path(work).parents)}
    for name in git.tracked(kernel_dir):
        if name in above or name.startswith(f"{work}/"):
            raise WrongInput(
                f"git tracks it, and {option} would write there",
                where=Place(kernel_dir / name),
                repair=f"git rm --cached {shlex.quote(name)}, or choose another folder by {option}",
            )
    if (folder / build_folder.WORK_FOLDER).is_symlink():
        raise WrongInput("is a link", where=Place(folder / build_folder.WORK_FOLDER), repair="remove it")


def planned(kernel_dir: Path, names: Sequence[str]) -> tuple[Variant, ...] | None:
    """All variants that the builder makes; ``None`` for a builder that no plan knows.

    Raises ``WrongInput`` for one of ``names`` that it does not make, with the nearest ones.
    """
    from kernel_actions import planning

    try:
        found = planning.planned_variants(kernel_dir)
    except (WrongInput, WrongSurroundings) as error:
        is_of_builder = error.where is not None and error.where.path.name == "flake.lock"
        if isinstance(error, WrongInput) and not is_of_builder:
            raise
        return None
    known = list(dict.fromkeys(one.name for one in found))
    for name in names:
        _check_name(name, known)
    return found


def _check_name(name: str, known: Sequence[str]) -> None:
    if not preflight.VARIANT.fullmatch(name):
        raise WrongInput(f"--variant has {name[:100]!r}, which is no name of a variant")
    if name not in known:
        raise _unknown(name, known)


def wanted(
    kernel_dir: Path,
    reference: str,
    names: Sequence[str],
    settings: Settings,
    planned: tuple[Variant, ...] | None,
) -> list[Wanted]:
    """The variants of these names, in their order, each once, of those that are ``planned``.

    Raises ``WrongInput`` for a name that the builder does not make, with the nearest ones, and for none at
    all; ``WrongSurroundings`` for one that this machine cannot build.
    """
    own = settings.systems[0]
    if planned is None:
        # A builder that no plan knows, a folder say, is known to Nix.
        found = evaluation.attribute_names(kernel_dir, reference, f"packages.{own}.redistributable")
    else:
        found = list(dict.fromkeys(one.name for one in planned))
    if not names:
        here = [one.name for one in planned or () if one.system == own] or found
        raise WrongInput(
            "no variant is named for Nix to build",
            repair=f"give --variant: {', '.join(here[:3])}"
            + (f" or {len(here) - 3} more" if len(here) > 3 else ""),
        )
    listed = []
    for name in dict.fromkeys(names):
        _check_name(name, found)
        if planned is None:
            # Without a plan a variant is of this system, and is tested under its own name.
            listed.append(Wanted(name, own, name, None, None))
            continue
        same = [one for one in planned if one.name == name]
        best = next((one for one in same if one.system == own), same[0])
        if best.system not in settings.systems and not settings.has_builders:
            raise WrongSurroundings(
                f"{name} is for {best.system}, and this machine builds for {', '.join(settings.systems)}",
                repair="build it on a runner of its system, or have extra-platforms or builders in nix.conf",
            )
        listed.append(Wanted(name, best.system, best.arch_name, True, best.torch))
    return listed


def _unknown(name: str, known: Sequence[str]) -> WrongInput:
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.3) or sorted(known)[:3]
    repair = f"nearest: {', '.join(close)}; kernel-actions matrix explain {name} says why" if close else ""
    return WrongInput(f"the builder makes no variant {name[:100]!r} of this kernel", repair=repair)


def check_sandbox(settings: Settings, *, is_required: bool) -> bool:
    """Whether builds are in a sandbox. Raises ``WrongSurroundings`` where they are not and have to be.

    Where a daemon builds, or another machine, its own settings count, which nobody else can be sure of:
    something is built that tells. On macOS a sandbox is ``relaxed``: the builder takes Metal's compiler from
    outside of it, and a sandbox there shows the files of the machine, so that the setting has to do.
    """
    is_macos = settings.systems[0].endswith("-darwin")
    said = f"sandbox = {settings.sandbox}"
    if is_macos or settings.max_jobs == "0" or configuration.store().is_own:
        is_on = settings.sandbox == "true" or (settings.sandbox == "relaxed" and is_macos)
    else:
        found, _ = preflight.sandbox(settings.systems[0])
        is_on = found == "on"
        said = "its daemon has none" if found == "off" else "its daemon cannot make one"
    if is_required and not is_on:
        raise WrongSurroundings(
            f"Nix would build without a sandbox ({said})",
            repair="set sandbox = true in nix.conf, which the action setup-nix does; --allow-unsandboxed "
            "builds what cannot be published",
        )
    return is_on


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])


def _quoted(name: str) -> str:
    """A name as a part of an attribute path, whatever characters it has."""
    return json.dumps(name)
