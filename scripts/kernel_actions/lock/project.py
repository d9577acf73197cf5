"""A project that uses kernels: what its pyproject.toml declares.

``[tool.kernels.dependencies]`` is the table of the ``kernels`` package: a repository and the major version of
each kernel. ``[tool.kernel-actions]`` is this suite's own::

    [tool.kernel-actions]
    trust-remote-code = ["your-name/relu"]           # or true; kernels' own parameter of that name
    platforms = ["torch2.13-cu13.0-x86_64-linux"]    # where the project runs
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernel_actions import toml_file
from kernel_actions.errors import WrongInput, raise_all
from kernel_actions.hub import client
from kernel_actions.lock import platforms
from kernel_actions.lock.platforms import Platform
from kernel_actions.toml_file import TomlFile

PYPROJECT = "pyproject.toml"
_DEPENDENCIES = ("tool", "kernels", "dependencies")
_OWN = ("tool", "kernel-actions")
_KEYS = ("trust-remote-code", "platforms")
# The largest version that a lock can hold.
_LARGEST_VERSION = 2**31 - 1


@dataclass(frozen=True)
class Project:
    """A project: the major version of each kernel by repository, whose code it trusts beside that of
    trusted publishers (``True``: everybody's), and where it runs."""

    file: TomlFile
    dependencies: Mapping[str, int]
    trusted: bool | tuple[str, ...]
    platforms: tuple[Platform, ...]

    @property
    def lock_path(self) -> Path:
        """Where its lock is, or will be."""
        return self.file.path.with_name("kernels.lock")


def read(directory: Path) -> Project:
    """Read the project in ``directory``. Raises ``WrongInput`` with everything that is wrong."""
    file = toml_file.read(
        directory / PYPROJECT, repair="give the folder of a project with --project: it has a pyproject.toml"
    )
    errors: list[WrongInput] = []
    dependencies = _dependencies(file, errors)
    own = _table(file, _OWN, errors)
    for key in own.keys() - set(_KEYS):
        errors.append(
            WrongInput(
                f"[tool.kernel-actions] has no key {key!r}",
                where=file.place((*_OWN, key)),
                repair=f"one of {', '.join(_KEYS)}",
            )
        )
    made = Project(
        file=file,
        dependencies=dependencies,
        trusted=_trusted(file, own.get("trust-remote-code", False), errors),
        platforms=_platforms(file, own.get("platforms", []), errors),
    )
    raise_all(errors)
    return made


def _table(file: TomlFile, path: tuple[str, ...], errors: list[WrongInput]) -> dict[str, Any]:
    """The table at ``path``; empty where there is none, or something else."""
    value: Any = file.values
    for depth, name in enumerate(path):
        value = value.get(name, {})
        if not isinstance(value, dict):
            what = f"{'.'.join(path[: depth + 1])} is not a table"
            errors.append(WrongInput(what, where=file.place(path[: depth + 1])))
            return {}
    return dict(value)


def _dependencies(file: TomlFile, errors: list[WrongInput]) -> dict[str, int]:
    known = len(errors)
    table = _table(file, _DEPENDENCIES, errors)
    if not table and len(errors) == known:
        errors.append(
            WrongInput(
                "declares no kernels",
                where=file.place(_DEPENDENCIES),
                repair='add [tool.kernels.dependencies] with a line such as "kernels-community/relu" = 1',
            )
        )
    for repo_id, version in table.items():
        try:
            client.check_repo_id(repo_id)
        except WrongInput as error:
            errors.append(WrongInput(error.what, where=file.place((*_DEPENDENCIES, repo_id))))
            continue
        if problem := _version_problem(version):
            errors.append(
                WrongInput(
                    f"{repo_id}: {problem}",
                    where=file.value_place((*_DEPENDENCIES, repo_id)),
                    repair=f'give its major version: "{repo_id}" = 1',
                )
            )
    return {repo_id: version for repo_id, version in table.items() if isinstance(version, int)}


def _version_problem(version: object) -> str:
    """Why ``version`` is not a major version; empty when it is one."""
    if isinstance(version, str):
        if any(character in version for character in "<>=~!*,"):
            return f"{version!r} is a range, which kernels 0.12 and older read"
        return f"{version!r} is a text, not a number"
    if isinstance(version, bool) or not isinstance(version, int):
        return f"{version!r} is not a whole number"
    if not 0 <= version <= _LARGEST_VERSION:
        return f"{version} is no version of a kernel"
    return ""


def _trusted(file: TomlFile, value: object, errors: list[WrongInput]) -> bool | tuple[str, ...]:
    if isinstance(value, bool):
        return value
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        for index, repo_id in enumerate(value):
            try:
                client.check_repo_id(repo_id)
            except WrongInput as error:
                errors.append(
                    WrongInput(error.what, where=file.value_place((*_OWN, "trust-remote-code", index)))
                )
        return tuple(value)
    errors.append(
        WrongInput(
            "trust-remote-code is neither true, false nor a list of repositories",
            where=file.place((*_OWN, "trust-remote-code")),
            repair='as in trust-remote-code = ["your-name/relu"]',
        )
    )
    return False


def _platforms(file: TomlFile, value: object, errors: list[WrongInput]) -> tuple[Platform, ...]:
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        errors.append(
            WrongInput(
                "platforms is not a list of texts",
                where=file.place((*_OWN, "platforms")),
                repair=f'as in platforms = ["{platforms.EXAMPLE}"]',
            )
        )
        return ()
    found: list[Platform] = []
    for index, name in enumerate(value):
        try:
            found.append(platforms.parse(name))
        except WrongInput as error:
            where = file.value_place((*_OWN, "platforms", index))
            errors.append(WrongInput(error.what, where=where, repair=error.repair))
    return tuple(dict.fromkeys(found))
