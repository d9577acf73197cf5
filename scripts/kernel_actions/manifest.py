"""build.toml: what a kernel's author says about the kernel.

Editions 5 and 4 are read as kernel-builder's own parser reads them; edition 3 and older, which
say ``cuda-minver`` and ``universal``, only as far as planning for an old builder needs them.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from kernel_actions import toml_file
from kernel_actions.errors import KernelActionsError, Place, WrongInput
from kernel_actions.toml_file import TomlFile

Framework = Literal["torch", "torch-noarch", "tvm-ffi"]

# The backends of kernel-builder's parser. It has no build sets for cann and neuron.
BACKENDS = ("cann", "cpu", "cuda", "metal", "neuron", "rocm", "tpu", "xpu")
COMPILED_BACKENDS = ("cpu", "cuda", "metal", "rocm", "xpu")
UPDATE = "run `kernel-builder update-build`"

_NAME = re.compile(r"[a-z][-a-z0-9]*[a-z0-9]")
# It is part of names of files, and may become one of a branch or a tag.
_LONGEST_NAME = 64
# The names of sections, which generated files show.
_COMPONENT_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
# What no text of build.toml needs, and no generated file could hold: control characters and line ends.
_CONTROL = re.compile("[\\x00-\\x1f\\x7f-\\x9f\\u2028\\u2029]")
_REPO_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)

# Key → type of its value. A tuple of strings is a choice; a dictionary is a table.
_Text = "a string"
_Texts = "a list of strings"
_Number = "a whole number of 0 or more"
_Flag = "true or false"
_Version = "a version in quotes"
_Numeric = "a version of numbers and dots in quotes"
_Packages = "a list of names of packages"
_Capabilities = 'a list of compute capabilities such as "9.0a"'
_Dependencies = "a list of kernels"
_StableAbi = "a version in quotes, or a table of them by backend"
# Nix compares bounds with text in them too ("2.13rc1"); a stable ABI is numbers.
_FORMS = {
    _Version: re.compile(r"[0-9A-Za-z.+_-]{1,64}"),
    _Numeric: re.compile(r"[0-9]{1,3}(\.[0-9]{1,3}){0,3}"),
    _Packages: re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,98}[A-Za-z0-9])?"),
    _Capabilities: re.compile(r"[0-9]{1,3}\.[0-9]{1,3}[af]?(\+PTX)?"),
}
# As large as a number of other programs can be.
_LARGEST_NUMBER = 2**63 - 1

_DEPENDS = {"kernel-depends": _Dependencies, "python-depends": _Packages}
_COMPONENT: dict[str, Any] = {
    "backend": COMPILED_BACKENDS,
    "cxx-flags": _Texts,
    "depends": _Texts,
    "include": _Texts,
    "src": _Texts,
}
_COMPONENT_BY_BACKEND: dict[str, dict[str, Any]] = {
    "cpu": {},
    "cuda": {"cuda-capabilities": _Capabilities, "cuda-flags": _Texts, "cuda-minver": _Version},
    "metal": {},
    "rocm": {"rocm-archs": _Texts, "hip-flags": _Texts},
    "xpu": {"sycl-flags": _Texts},
}
_SCHEMA: dict[str, Any] = {
    "general": {
        "name": _Text,
        "version": _Number,
        "edition": _Number,
        "license": _Text,
        "upstream": _Text,
        "source": _Text,
        "backends": _Texts,
        **_DEPENDS,
        "hub": {"repo-id": _Text, "branch": _Text},
        "cuda": {"minver": _Version, "maxver": _Version, **_DEPENDS},
        "neuron": _DEPENDS,
        "tpu": {"python-depends": _Packages},
        "xpu": _DEPENDS,
    },
    "torch": {
        "include": _Texts,
        "minver": _Version,
        "maxver": _Version,
        "pyext": _Texts,
        "src": _Texts,
        "stable-abi": _StableAbi,
        "cxx-flags": _Texts,
    },
    "torch-noarch": {"pyext": _Texts, "cuda_capabilities": _Capabilities, "rocm_archs": _Texts},
    "tvm-ffi": {"include": _Texts, "pyext": _Texts, "src": _Texts, "cxx-flags": _Texts},
    "kernel": {},
}
_EXAMPLES = {
    "name": 'as in name = "my-kernel"',
    "version": "as in version = 1",
    "license": 'as in license = "Apache-2.0"',
    "backends": 'as in backends = ["cpu", "cuda"]',
}
# What editions before 4 say in other words.
_OLD_GENERAL = {"universal": _Flag, "cuda-minver": _Version, "cuda-maxver": _Version}


@dataclass(frozen=True)
class Component:
    """A ``[kernel.<name>]`` section: sources that are compiled for one backend."""

    name: str
    backend: str
    src: tuple[str, ...] = ()
    include: tuple[str, ...] = ()
    depends: tuple[str, ...] = ()
    cxx_flags: tuple[str, ...] = ()
    cuda_flags: tuple[str, ...] = ()
    cuda_capabilities: tuple[str, ...] | None = None
    cuda_minver: str | None = None


@dataclass(frozen=True)
class Binding:
    """The ``[torch]``, ``[torch-noarch]`` or ``[tvm-ffi]`` section.

    ``pyext`` are the extensions of the files that are packed beside Python's; ``stable_abi``
    is the version for each backend that uses Torch's stable ABI.
    """

    framework: Framework
    src: tuple[str, ...] = ()
    include: tuple[str, ...] = ()
    pyext: tuple[str, ...] = ()
    cxx_flags: tuple[str, ...] = ()
    minver: str | None = None
    maxver: str | None = None
    stable_abi: Mapping[str, str] | None = None


@dataclass(frozen=True)
class KernelDependency:
    """A kernel that this one loads: a repository on the Hub, with a version or a revision."""

    repo_id: str
    version: int | None
    revision: str | None


@dataclass(frozen=True)
class Manifest:
    """A kernel's build.toml. ``backends`` is as written there, with duplicates removed.

    ``universal`` is edition 3's way to say that nothing is compiled.
    """

    file: TomlFile
    name: str
    edition: int
    version: int | None
    license: str | None
    backends: tuple[str, ...]
    binding: Binding
    components: tuple[Component, ...]
    repo_id: str | None = None
    branch: str | None = None
    upstream: str | None = None
    source: str | None = None
    cuda_minver: str | None = None
    cuda_maxver: str | None = None
    python_depends: tuple[str, ...] = ()
    kernel_depends: tuple[KernelDependency, ...] = ()
    backend_python_depends: Mapping[str, tuple[str, ...]] | None = None
    backend_kernel_depends: Mapping[str, tuple[KernelDependency, ...]] | None = None
    universal: bool = False
    warnings: tuple[str, ...] = ()

    @property
    def directory(self) -> Path:
        """The kernel's folder."""
        return self.file.path.parent

    @property
    def python_name(self) -> str:
        """The name of the kernel's Python package."""
        return self.name.replace("-", "_")

    @property
    def is_edition_3(self) -> bool:
        """Whether this is of edition 3 or older, which builders since 2026-01 refuse."""
        return self.edition < 4

    def compiled_for(self, backend: str) -> bool:
        """Whether a ``[kernel.*]`` section compiles something for ``backend``."""
        return any(component.backend == backend for component in self.components)

    def all_python_depends(self, backend: str) -> tuple[str, ...]:
        """Python packages that the kernel imports with ``backend``, by the builder's names."""
        return self.python_depends + (self.backend_python_depends or {}).get(backend, ())

    def all_kernel_depends(self, backend: str) -> tuple[KernelDependency, ...]:
        """Kernels that the kernel loads with ``backend``."""
        return self.kernel_depends + (self.backend_kernel_depends or {}).get(backend, ())

    def place(self, key: str) -> Place:
        """Where ``key`` stands in build.toml."""
        return self.file.place(key)


def load(kernel_dir: Path) -> Manifest:
    """Read ``kernel_dir/build.toml``.

    Raises ``WrongInput`` with the file and line of the first thing that is wrong; further ones
    are counted in the message.
    """
    file = toml_file.read(
        kernel_dir / "build.toml",
        repair="give the folder of a kernel in the kernel-builder format",
    )
    _check_path(file.path)
    # More than these nobody reads, and a hostile file has a hundred thousand.
    errors = list(islice(_check(file), 50))
    if errors:
        first = errors[0]
        also = [f"also {_line(error)}{error.what}" for error in errors[1:4]]
        also += [f"and {len(errors) - 4} more"] if len(errors) > 4 else []
        repair = "; ".join(part for part in (first.repair, *also) if part)
        raise WrongInput(first.what, where=first.where, repair=repair)
    return _read(file)


def _check_path(path: Path) -> None:
    """Paths are in outputs and in generated files, which are UTF-8."""
    try:
        os.path.abspath(path).encode()
    except UnicodeEncodeError as error:
        raise WrongInput(
            "the path of the kernel's folder is not UTF-8", where=Place(path), repair="rename the folder"
        ) from error


def _line(error: KernelActionsError) -> str:
    return f"line {error.where.line}: " if error.where and error.where.line else ""


def _check(file: TomlFile) -> Iterator[KernelActionsError]:
    """All that is wrong with ``file``, in its order of sections."""
    values = file.values
    general = values.get("general")
    if not isinstance(general, dict):
        yield WrongInput("has no [general] section", where=Place(file.path), repair="it names the kernel")
        return
    yield from _check_characters(file, "", values)
    edition = general.get("edition", 4 if "backends" in general else 3)
    schema = dict(_SCHEMA)
    if edition == 3:
        schema["general"] = {**_SCHEMA["general"], **_OLD_GENERAL}
    for name, value in values.items():
        if name not in schema:
            yield _unknown(file, "", name, schema)
        elif not isinstance(value, dict):
            yield _wrong_type(file, name, "a table", value)
        elif name == "kernel":
            yield from _check_components(file, value, is_old=edition == 3)
        else:
            yield from _check_table(file, name, value, schema[name])
    yield from _check_general(file, general, edition)
    frameworks = [name for name in ("torch", "torch-noarch", "tvm-ffi") if name in values]
    if len(frameworks) > 1:
        yield WrongInput(
            f"has [{frameworks[0]}] and [{frameworks[1]}]",
            where=file.place(frameworks[1]),
            repair="a kernel has one of [torch], [torch-noarch] and [tvm-ffi]",
        )
    elif not frameworks and edition in (4, 5):
        yield WrongInput(
            "has none of [torch], [torch-noarch] and [tvm-ffi]",
            where=file.place("general"),
            repair="add [torch] with the sources of the binding, or [torch-noarch] for Python alone",
        )


def _check_general(file: TomlFile, general: dict[str, Any], edition: Any) -> Iterator[KernelActionsError]:
    if isinstance(edition, int) and edition not in (3, 4, 5):
        yield WrongInput(
            f"edition {_shown(edition)} is not known",
            where=file.place("general.edition"),
            repair="this version of the suite knows editions 3 to 5",
        )
    required = ("name", "version", "license", "backends") if edition != 3 else ("name",)
    for key in required:
        if key not in general:
            yield WrongInput(f"[general] has no {key}", where=file.place("general"), repair=_EXAMPLES[key])
    name = general.get("name")
    if isinstance(name, str) and not _NAME.fullmatch(name):
        yield WrongInput(
            f"name {_shown(name)} is not a kernel's name",
            where=file.place("general.name"),
            repair="use small letters, digits and dashes, with a letter first and no dash at the end",
        )
    elif isinstance(name, str) and len(name) > _LONGEST_NAME:
        yield WrongInput(
            f"the name has {len(name)} characters",
            where=file.place("general.name"),
            repair=f"use {_LONGEST_NAME} or fewer: it is part of names of files",
        )
    hub = general.get("hub")
    repo_id = hub.get("repo-id") if isinstance(hub, dict) else None
    if isinstance(repo_id, str) and not _REPO_ID.fullmatch(repo_id):
        yield WrongInput(
            f"repo-id {_shown(repo_id)} is not of the form owner/name",
            where=file.place("general.hub.repo-id"),
        )
    backends = general.get("backends")
    for backend in backends if isinstance(backends, list) else ():
        if isinstance(backend, str) and backend not in BACKENDS:
            yield WrongInput(
                f"backend {_shown(backend)} is not known",
                where=file.place("general.backends"),
                repair=_nearest(backend, BACKENDS),
            )


def _check_components(file: TomlFile, sections: dict[str, Any], is_old: bool) -> Iterator[KernelActionsError]:
    for name, section in sections.items():
        key = f"kernel.{name}"
        if not _COMPONENT_NAME.fullmatch(name):
            yield WrongInput(
                f"[kernel] has {_shown(name)}, which is not a section's name",
                where=file.place(key),
                repair="use up to 64 letters without accents, digits, dashes, underscores and dots",
            )
            continue
        if not isinstance(section, dict):
            yield _wrong_type(file, key, "a table", section)
            continue
        backend = section.get("backend")
        known = _COMPONENT | _COMPONENT_BY_BACKEND.get(backend if isinstance(backend, str) else "", {})
        yield from _check_table(file, key, section, known)
        for needed in ("backend", "src") if is_old else ("backend", "depends", "src"):
            if needed not in section:
                yield WrongInput(
                    f"[{key}] has no {needed}", where=file.place(key), repair=f"add {needed} = …"
                )


def _check_table(
    file: TomlFile, key: str, values: dict[str, Any], schema: Mapping[str, Any]
) -> Iterator[KernelActionsError]:
    for name, value in values.items():
        full = f"{key}.{name}"
        if key == "torch-noarch" and name in ("minver", "maxver"):
            continue  # Not read by the builder: a warning, not an error.
        if name not in schema:
            yield _unknown(file, key, name, schema)
        elif isinstance(schema[name], dict):
            if isinstance(value, dict):
                yield from _check_table(file, full, value, schema[name])
            else:
                yield _wrong_type(file, full, "a table", value)
        else:
            yield from _check_value(file, full, schema[name], value)


def _check_characters(file: TomlFile, key: str, value: Any) -> Iterator[KernelActionsError]:
    """No text has a control character: it would end the line in a generated file, or worse."""
    if isinstance(value, str):
        if found := _CONTROL.search(value):
            yield WrongInput(f"{key} has the control character {found.group()!r}", where=file.place(key))
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from _check_characters(file, f"{key}.{name}".lstrip("."), item)
    elif isinstance(value, list):
        for item in value:
            yield from _check_characters(file, key, item)


def _check_value(
    file: TomlFile, key: str, kind: str | tuple[str, ...], value: Any
) -> Iterator[KernelActionsError]:
    if isinstance(kind, tuple):
        if value not in kind:
            repair = _nearest(str(value), kind)
            yield WrongInput(f"{key} is {_shown(value)}", where=file.place(key), repair=repair)
        return
    if kind == _StableAbi and isinstance(value, dict):
        for backend, version in value.items():
            if backend not in BACKENDS:
                yield _unknown(file, key, backend, dict.fromkeys(BACKENDS))
            yield from _check_value(file, f"{key}.{backend}", _Numeric, version)
        return
    if not _is_a(kind, value):
        yield _wrong_type(file, key, kind, value)


def _is_a(kind: str, value: Any) -> bool:
    if kind in (_Texts, _Packages, _Capabilities):
        return isinstance(value, list) and all(
            isinstance(item, str) and (kind == _Texts or _FORMS[kind].fullmatch(item)) for item in value
        )
    if kind == _Number:
        return _is_number(value)
    if kind == _Flag:
        return isinstance(value, bool)
    if kind == _Dependencies:
        return isinstance(value, list) and all(
            isinstance(item, dict)
            and isinstance(item.get("repo-id"), str)
            and (_is_number(item.get("version")) != isinstance(item.get("revision"), str))
            for item in value
        )
    if kind in (_Version, _Numeric, _StableAbi):
        form = _FORMS[_Numeric if kind == _StableAbi else kind]
        return isinstance(value, str) and form.fullmatch(value) is not None
    return isinstance(value, str)


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _LARGEST_NUMBER


def _shown(value: Any) -> str:
    """A value in a message, which a long one must not fill."""
    shown = repr(value)
    return shown if len(shown) <= 60 else shown[:57] + "..."


def _wrong_type(file: TomlFile, key: str, kind: str, value: Any) -> KernelActionsError:
    repair = ""
    if kind in (_Version, _Numeric, _StableAbi) and isinstance(value, int | float):
        repair = f'write "{_shown(value)}": 2.10 without quotes is the number 2.1'
    return WrongInput(f"{key} is {_shown(value)}, which is not {kind}", where=file.place(key), repair=repair)


def _unknown(file: TomlFile, table: str, name: str, known: Mapping[str, Any]) -> KernelActionsError:
    full = f"{table}.{name}".lstrip(".")
    place = file.place(full)
    return WrongInput(f"key {_shown(full)} is not known", where=place, repair=_nearest(name, tuple(known)))


def _nearest(name: str, known: tuple[str, ...]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {close[0]}?" if close else f"one of {', '.join(known)}"


def _read(file: TomlFile) -> Manifest:
    """The manifest of a file without errors."""
    values = file.values
    general = values["general"]
    cuda = general.get("cuda", {})
    hub = general.get("hub", {})
    backends = tuple(dict.fromkeys(general.get("backends", ())))
    components = tuple(_component(name, section) for name, section in values.get("kernel", {}).items())
    by_backend = [backend for backend in ("cuda", "neuron", "tpu", "xpu") if backend in general]
    return Manifest(
        file=file,
        name=general["name"],
        edition=general.get("edition", 4 if "backends" in general else 3),
        version=general.get("version"),
        license=general.get("license"),
        backends=backends,
        binding=_binding(values),
        components=components,
        repo_id=hub.get("repo-id"),
        branch=hub.get("branch"),
        upstream=general.get("upstream"),
        source=general.get("source"),
        cuda_minver=cuda.get("minver", general.get("cuda-minver")),
        cuda_maxver=cuda.get("maxver", general.get("cuda-maxver")),
        python_depends=tuple(general.get("python-depends", ())),
        kernel_depends=_dependencies(general),
        backend_python_depends={
            backend: tuple(general[backend].get("python-depends", ())) for backend in by_backend
        },
        backend_kernel_depends={backend: _dependencies(general[backend]) for backend in by_backend},
        universal=general.get("universal", False),
        warnings=tuple(_warnings(file, backends)),
    )


def _binding(values: dict[str, Any]) -> Binding:
    for framework in ("torch", "tvm-ffi", "torch-noarch"):
        if framework in values:
            break
    section = values.get(framework, {})
    stable_abi = section.get("stable-abi")
    return Binding(
        framework=framework,
        src=tuple(section.get("src", ())),
        include=tuple(section.get("include", ())),
        pyext=tuple(section.get("pyext", ())),
        cxx_flags=tuple(section.get("cxx-flags", ())),
        minver=section.get("minver") if framework == "torch" else None,
        maxver=section.get("maxver") if framework == "torch" else None,
        stable_abi=dict.fromkeys(BACKENDS, stable_abi) if isinstance(stable_abi, str) else stable_abi,
    )


def _component(name: str, section: dict[str, Any]) -> Component:
    capabilities = section.get("cuda-capabilities")
    return Component(
        name=name,
        backend=section["backend"],
        src=tuple(section["src"]),
        include=tuple(section.get("include", ())),
        depends=tuple(section.get("depends", ())),
        cxx_flags=tuple(section.get("cxx-flags", ())),
        cuda_flags=tuple(section.get("cuda-flags", ())),
        cuda_capabilities=None if capabilities is None else tuple(capabilities),
        cuda_minver=section.get("cuda-minver"),
    )


def _dependencies(section: dict[str, Any]) -> tuple[KernelDependency, ...]:
    return tuple(
        KernelDependency(item["repo-id"], item.get("version"), item.get("revision"))
        for item in section.get("kernel-depends", ())
    )


def _warnings(file: TomlFile, backends: tuple[str, ...]) -> Iterator[str]:
    for backend in backends:
        if backend in ("cann", "neuron"):
            yield f"{file.place('general.backends')}: the builder has no build sets for {backend} yet"
    for name in ("minver", "maxver"):
        if name in file.values.get("torch-noarch", {}):
            yield f"{file.place(f'torch-noarch.{name}')}: the builder does not read torch-noarch.{name}"
