"""Where a revision of the builder is read from: the bundled data, a checkout, the cache, GitHub, Nix.

Each is tried in that order, and only for what the one before does not have. Nothing is guessed: a
revision that none of them has is an error that says how to go on.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernel_actions import builder, flake_lock
from kernel_actions.builder import BuilderRevision
from kernel_actions.errors import Place, WrongInput, WrongSurroundings
from kernel_actions.flake_lock import LockedBuilder
from kernel_actions.named_tuple import NamedTuple

if TYPE_CHECKING:
    from kernel_actions.builder_output import Output
    from kernel_actions.builder_rules import Reader

_LARGEST_FILE = 1_000_000
# In seconds: how long GitHub may take for the files of one revision, ten of them.
_PATIENCE = 30.0
# What could not be read in this run: other kernels with the same revision need not wait for it again.
_FAILURES: dict[tuple[str, str], str] = {}

Files = Mapping[str, "str | None"]
"""The files of a builder that planning reads: path → text, ``None`` for one that is not there."""


class Source(NamedTuple):
    """How to find the builder: ``revision`` in place of the one in flake.lock, and a ``checkout`` of it."""

    revision: str = ""
    checkout: Path | None = None


def from_environment() -> Source:
    """The source that the variables of the options ``--builder-rev`` and ``--builder-dir`` name."""
    checkout = os.environ.get("KA_BUILDER_DIR")
    return Source(os.environ.get("KA_BUILDER_REV", ""), Path(checkout) if checkout else None)


def find(kernel_dir: Path, source: Source) -> BuilderRevision:
    """The builder that the kernel is built with.

    Raises ``WrongInput`` for a flake.lock that names none, or a revision that does not exist, and
    ``WrongSurroundings`` for one that cannot be read from here.
    """
    locked = _given(source.revision) if source.revision else flake_lock.read(kernel_dir / "flake.lock")
    found = builder.bundled(locked.commit) if locked.commit else None
    if found is None:
        found = _read_unknown(locked, source)
    if not locked.is_official:
        remark = (
            f"{locked.where}: input {locked.input_name} is not the builder itself but {locked.repository}"
        )
        found = found._replace(remarks=(*found.remarks, remark))
    return found


def find_output(kernel_dir: Path, source: Source) -> tuple[Output, str]:
    """What the builder that the kernel is built with puts into a variant, and a remark for the user.

    The remark is empty unless the locked revision could not be read; it says then that this is what the
    newest revision in the bundled data makes.

    Raises ``WrongInput`` for a flake.lock that is missing or names no builder.
    """
    from kernel_actions import builder_output

    locked = _given(source.revision) if source.revision else flake_lock.read(kernel_dir / "flake.lock")
    found = builder_output.bundled(locked.commit) if locked.commit else None
    if found is not None:
        return found, ""
    name = locked.commit or locked.repository
    key = (locked.repository, f"output of {locked.commit}")
    try:
        if key in _FAILURES:
            raise WrongSurroundings(_FAILURES[key])
        return _read_output(locked, source), ""
    except WrongSurroundings as error:
        _FAILURES[key] = str(error)
        newest = builder.newest()[0][:8]
        remark = f"{locked.where}: builder revision {name} is taken to make what {newest} makes: {error}"
        return builder_output.newest(), remark


def _read_output(locked: LockedBuilder, source: Source) -> Output:
    """What a revision that is not in the bundled data puts into a variant, read from its files.

    Raises ``WrongSurroundings`` when they cannot be read or nothing is recognised in them.
    """
    from kernel_actions import builder_output, builder_rules, nix

    def output(read: Reader) -> Output:
        versions = next((path for path in builder_rules.VERSIONS_PATHS if read(path) is not None), None)
        if versions is None:
            raise WrongSurroundings(f"{locked.repository} has no versions.nix there")
        return builder_output.from_json(builder_output.traits(versions, read))

    if source.checkout is not None:
        return output(_reader_of_checkout(locked, source.checkout))
    if locked.commit is None:
        raise WrongSurroundings(f"{locked.repository} has no revision")
    kept = _cache(locked.repository, locked.commit, ".output") if locked.is_on_github else None
    if (earlier := _kept_json(kept)) is not None:
        with contextlib.suppress(TypeError, KeyError):  # Of another version of this suite.
            return builder_output.from_json(earlier)
    try:
        found = output(_reader_of_github(locked))
    except WrongSurroundings as error:
        try:
            paths = [
                path
                for versions in builder_rules.VERSIONS_PATHS
                for path in (versions, *builder_output.paths(versions))
            ]
            return output(nix.read_files(locked.node, list(dict.fromkeys(paths))).get)
        except WrongSurroundings as other:
            raise WrongSurroundings(f"{error}; {other}") from other
    _keep(kept, dict(zip(found._fields, found, strict=True)))
    return found


def _given(commit: str) -> LockedBuilder:
    return LockedBuilder(
        input_name="--builder-rev",
        repository=flake_lock.REPOSITORIES[0],
        commit=builder.check_commit(commit),
        is_official=True,
        is_on_github=True,
        where=Place(Path("--builder-rev")),
        node={"type": "github", "owner": "huggingface", "repo": "kernels", "rev": commit},
    )


def _read_unknown(locked: LockedBuilder, source: Source) -> BuilderRevision:
    if source.checkout is not None:
        return _from_files(locked, _of_checkout(locked, source.checkout))
    if locked.commit is None:
        raise WrongInput(
            f"input {locked.input_name} is locked to {locked.repository}, which has no revision",
            where=locked.where,
            repair="lock a commit of the builder, or name the folder with --builder-dir",
        )
    kept = _cache(locked.repository, locked.commit) if locked.is_on_github else None
    if (earlier := _kept(kept)) is not None:
        return _from_files(locked, earlier)
    key = (locked.repository, locked.commit)
    if key not in _FAILURES:
        failures: list[str] = []
        for read in (_of_github, _of_nix):
            try:
                files = read(locked)
            except WrongSurroundings as error:
                failures.append(str(error))
                continue
            found = _from_files(locked, files)
            # What Nix reads is kept by Nix itself.
            if read is _of_github:
                _keep(kept, files)
            return found
        _FAILURES[key] = "; ".join(failures)
    raise WrongSurroundings(
        f"builder revision {locked.commit} is not in this version's data, and cannot be read: "
        + _FAILURES[key],
        where=locked.where,
        repair="give a checkout of the builder with --builder-dir, update this suite, or plan for another "
        "revision with --builder-rev",
    )


def _from_files(locked: LockedBuilder, files: Files) -> BuilderRevision:
    """The revision whose files these are."""
    from kernel_actions import builder_rules, flake

    path = next((path for path in builder_rules.VERSIONS_PATHS if files.get(path) is not None), None)
    if path is None:
        raise WrongInput(
            f"{locked.repository} has no versions.nix at revision {locked.commit or 'of its folder'}",
            where=locked.where,
            repair="lock a revision of the builder",
        )
    if files.get(path.removesuffix("versions.nix") + builder_rules.SELECTING[0]) is None:
        raise WrongSurroundings(
            f"{locked.repository} at {locked.commit or 'its folder'} has {path}, but not the rules beside "
            f"it, {builder_rules.SELECTING[0]}",
            where=locked.where,
            repair="try again, or give a checkout of the builder with --builder-dir",
        )
    text = files[path] or ""
    values = flake.read_versions(text, Path(f"{locked.repository}/{path}"))
    remarks = [
        f"{changed} of builder revision {locked.commit or locked.repository} is not one that this version "
        "knows: the plan follows the rules that were recognised in it"
        for changed in builder_rules.unreviewed(files)
    ]
    if not locked.commit:
        remarks.append(f"{locked.where}: {locked.repository} is a folder: it is planned for what lies there")
    return BuilderRevision(
        repository=locked.repository,
        commit=locked.commit or "",
        source=path,
        values=tuple(values),
        build_sets=builder.build_sets(values),
        rules=builder.rules(builder_rules.traits(path, files.get)),
        remarks=tuple(remarks),
    )


def _of_checkout(locked: LockedBuilder, checkout: Path) -> Files:
    return _collect(_reader_of_checkout(locked, checkout))


def _reader_of_checkout(locked: LockedBuilder, checkout: Path) -> Reader:
    """Reads files in a checkout: of the commit if there is one, else as they lie there."""
    from kernel_actions import git

    if not checkout.is_dir():
        raise WrongInput(f"--builder-dir {checkout} is not a folder")
    commit = locked.commit
    if commit is not None and git.has_commit(checkout, commit):
        return lambda path: git.file_at(checkout, commit, path)
    # A folder without history may lie in a repository of something else.
    if commit is not None and ((checkout / ".git").exists() or git.is_bare(checkout)):
        raise WrongSurroundings(
            f"the checkout {checkout} has no commit {commit} (or git is not installed)",
            where=locked.where,
            repair=f"git -C {checkout} fetch",
        )
    return lambda path: _text(checkout / path)


def _text(path: Path) -> str | None:
    from kernel_actions import toml_file

    try:
        return toml_file.read_bytes(path, _LARGEST_FILE).decode(errors="replace")
    except (FileNotFoundError, NotADirectoryError):
        return None


def _reader_of_github(locked: LockedBuilder) -> Reader:
    from kernel_actions import github

    if not locked.is_on_github or locked.commit is None:
        raise WrongSurroundings(f"{locked.repository} is not on GitHub")
    repository, commit = locked.repository, locked.commit
    deadline = time.monotonic() + _PATIENCE
    return lambda path: github.fetch_file(repository, commit, path, _LARGEST_FILE, deadline)


def _of_github(locked: LockedBuilder) -> Files:
    files = _collect(_reader_of_github(locked))
    if all(text is None for text in files.values()):
        raise WrongInput(
            f"{locked.repository} has no revision {locked.commit}, or is private",
            where=locked.where,
            repair="run `nix flake update` and commit flake.lock",
        )
    return files


def _of_nix(locked: LockedBuilder) -> Files:
    from kernel_actions import builder_rules, nix

    names = dict.fromkeys(
        path
        for versions in builder_rules.VERSIONS_PATHS
        for path in (versions, *builder_rules.paths(versions))
    )
    return nix.read_files(locked.node, list(names))


def _collect(read: Reader) -> dict[str, str | None]:
    """The files that planning needs; those beside a versions.nix only if that is there."""
    from kernel_actions import builder_rules

    for versions in builder_rules.VERSIONS_PATHS:
        text = read(versions)
        if text is not None:
            return {versions: text, **{path: read(path) for path in builder_rules.paths(versions)}}
    return dict.fromkeys(builder_rules.VERSIONS_PATHS)


def _cache(repository: str, commit: str, part: str = "") -> Path | None:
    from kernel_actions.app import venv

    try:
        # In a job this is the job's own folder: into the user's, a job of a fork could have written.
        root = venv.cache_root(holds_token=True)
    except WrongSurroundings:
        return None
    # GitHub gives a commit of any fork under any of their names, so that the name is part of what it is.
    return root / "builder" / f"{repository.replace('/', '+')}@{commit}{part}.json"


def _kept_json(path: Path | None) -> dict[str, Any] | None:
    from kernel_actions import toml_file

    try:
        values: Any = json.loads(toml_file.read_bytes(path, 20 * _LARGEST_FILE)) if path else None
    except (OSError, ValueError, RecursionError, WrongInput):
        return None
    return values if isinstance(values, dict) else None


def _kept(path: Path | None) -> dict[str, str | None] | None:
    from kernel_actions import builder_rules

    values = _kept_json(path)
    if values is None or not all(isinstance(text, str | None) for text in values.values()):
        return None
    return values if any(values.get(versions) for versions in builder_rules.VERSIONS_PATHS) else None


def _keep(path: Path | None, values: Mapping[str, Any]) -> None:
    from kernel_actions import built

    try:
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            built.write_whole(path, json.dumps(dict(values)).encode())
    except OSError:
        # It is a convenience: on a full disk or without a home the plan is as good.
        return
