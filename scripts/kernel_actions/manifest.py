"""build.toml: what a kernel's author says about the kernel.

Files are read as kernel-builder's own parser reads them (kernels-data/src/config of
https://github.com/huggingface/kernels). Edition 5 says so in ``general.edition``; a file without that
line is of edition 4, which the builder upgrades in memory. One without ``general.backends`` is older,
here called edition 3, and is read as far as planning for an old builder needs it.

What the parser refuses is an error here, and so are values that no build can do with: a control
character, a name of files that is too long, a repository that is none. What only a later step of the
builder refuses, and what it ignores, is a warning.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from kernel_actions import schema, toml_file
from kernel_actions.errors import Place, WrongInput
from kernel_actions.named_tuple import NamedTuple
from kernel_actions.schema import Anything, Fault, Flag, Key, List, Named, Table, Text, TextOrTable, Whole
from kernel_actions.toml_file import KeyPath, TomlFile

Framework = Literal["torch", "torch-noarch", "tvm-ffi"]

# The backends of kernel-builder's parser. It has no build sets for cann and neuron.
BACKENDS = ("cann", "cpu", "cuda", "metal", "neuron", "rocm", "tpu", "xpu")
COMPILED_BACKENDS = ("cpu", "cuda", "metal", "rocm", "xpu")
UPDATE = schema.UPDATE
# The edition that a file names; those before it have no such line.
EDITION = 5
# The libraries that the builder has for compiling (kernels-data/src/config/deps.rs).
DEPENDENCIES = (
    "torch", "cutlass_2_10", "cutlass_3_5", "cutlass_3_6", "cutlass_3_8", "cutlass_3_9", "cutlass_4_0",
    "cutlass_4_4", "cutlass_4_5", "sycl_tla", "metal-cpp",
)  # fmt: skip
# The Python packages that the builder has, for all backends (an empty name) and for single ones
# (kernels-data/src/python_dependencies.json). It stops at others, but newer revisions know more.
PYTHON_DEPENDENCIES: Mapping[str, tuple[str, ...]] = {
    "": ("einops", "helion", "tvm-ffi"),
    "cuda": ("nvidia-cutlass-dsl",),
    "neuron": ("nki",),
    "tpu": (),
    "xpu": ("onednn",),
}

_NUMERIC = r"[0-9]{1,3}(\.[0-9]{1,3}){0,3}"
_NAME = Text(
    what="a kernel's name",
    pattern="[a-z][-a-z0-9]*[a-z0-9]",
    hint="use small letters, digits and dashes, with a letter first and no dash at the end",
    # It is part of names of files, and may become one of a branch or a tag.
    longest=64,
)
_REPO_ID = Text(
    what="a repository of the form owner/name",
    pattern="[A-Za-z0-9][A-Za-z0-9_.-]*/[A-Za-z0-9][A-Za-z0-9_.-]*",
)
# kernels-data/src/config/git_url.rs.
_GIT_URL = Text(
    what="the address of a git repository",
    pattern=r"(https?|git|ssh|git\+ssh|git\+https?)://[^\s\u0000-\u001f\u007f-\u009f/]"
    r"[^\s\u0000-\u001f\u007f-\u009f]*|[A-Za-z0-9_.-]+@[A-Za-z0-9_.-]+:"
    r"[^/\s\u0000-\u001f\u007f-\u009f][^\s\u0000-\u001f\u007f-\u009f]*",
    hint="as in https://github.com/owner/name or git@github.com:owner/name",
)
# Nix compares bounds with text in them too ("2.13rc1"); the builder's parser takes numbers alone.
_VERSION = Text(what="a version in quotes", pattern="[0-9A-Za-z.+_-]{1,64}", hint='as in "2.10"')
_ABI = Text(what="a version of numbers and dots in quotes", pattern=_NUMERIC, hint='as in "2.10"')
_TEXTS = List(Text())
_CAPABILITIES = List(
    Text(what='a compute capability such as "9.0a"', pattern=r"[0-9]{1,3}\.[0-9]{1,3}[af]?(\+PTX)?"),
    what="a list of compute capabilities",
)
_BACKEND = Text(what="a backend", choices=BACKENDS)
_KERNELS = List(
    Table(
        (
            Key(
                "repo-id",
                _REPO_ID,
                "The repository of the kernel on the Hub.",
                required_from=3,
                example="kernels-community/activation",
            ),
            Key("version", Whole(), "The version of the kernel: the branch vN of its repository.", example=1),
            Key("revision", Text(), "The branch, tag or commit of the kernel, in place of a version."),
        ),
        one_of=("version", "revision"),
        one_of_hint="give one of version and revision",
    ),
    what="a list of kernels",
)


def _packages(backend: str) -> List:
    known = PYTHON_DEPENDENCIES[backend]
    name = Text(
        what="the name of a package",
        pattern="[A-Za-z0-9]([A-Za-z0-9._-]{0,98}[A-Za-z0-9])?",
        suggestions=known,
    )
    return List(name, what="a list of names of packages")


def _depends(backend: str, *, with_kernels: bool = True) -> tuple[Key, ...]:
    """The keys for what the kernel needs when it runs: ``backend`` is empty for all."""
    used = f"with {backend}" if backend else "with every backend"
    known = PYTHON_DEPENDENCIES[backend]
    python = Key(
        "python-depends",
        _packages(backend),
        f"Python packages that the kernel imports {used}, by the builder's names"
        + (f": {', '.join(known)}." if known else "."),
        example=list(known[:1]) or None,
    )
    kernels = Key(
        "kernel-depends",
        _KERNELS,
        f"Kernels on the Hub that this one loads {used}, each with a version or a revision.",
        first=5,
        example=[{"repo-id": "kernels-community/activation", "version": 1}],
    )
    return (python, kernels) if with_kernels else (python,)


_PYEXT = Key(
    "pyext",
    _TEXTS,
    "Extensions of the files that are packed from the Python package, without the dot; others are left "
    "out. py and pyi unless given.",
    example=["py", "json"],
)
_INCLUDE = Key(
    "include", _TEXTS, "Folders with headers, relative to that of build.toml.", example=["csrc/include"]
)
_CXX_FLAGS = Key("cxx-flags", _TEXTS, "Further flags for the C++ compiler.", example=["-O3"])
_BINDING_SRC = "The sources and headers that bind the kernel to Python, relative to the folder of build.toml."

_GENERAL = Table(
    (
        Key(
            "name",
            _NAME,
            "The kernel's name: small letters, digits and dashes. Its Python package has the same name, with "
            "underscores for the dashes.",
            required_from=3,
            example="my-kernel",
        ),
        Key(
            "version",
            Whole(),
            "The kernel's major version: releases go to the branch vN of its repository on the Hub. Raise "
            "it for a change that breaks users.",
            required_from=4,
            example=1,
        ),
        Key(
            "edition",
            Whole(
                what="5, the only edition that a file can name",
                choices=(EDITION,),
                hint="files of editions before it have no such line; `kernel-builder update-build` adds it",
            ),
            "The edition of the format of build.toml.",
            required_from=5,
            example=5,
        ),
        Key(
            "license",
            Text(),
            "The kernel's license, by its identifier on the Hub or of SPDX.",
            required_from=4,
            example="Apache-2.0",
        ),
        Key(
            "upstream",
            _GIT_URL,
            "The git repository that the kernel's code was taken from.",
            example="https://github.com/owner/name",
        ),
        Key(
            "source",
            _GIT_URL,
            "The git repository that the kernel is built from: it holds build.toml and flake.nix.",
            example="https://github.com/owner/name",
        ),
        Key(
            "backends",
            List(_BACKEND),
            "The backends that the kernel is built for. Those that a [kernel.*] section compiles for, and "
            "those that it runs on without compiled code.",
            required_from=4,
            example=["cpu", "cuda"],
        ),
        *_depends(""),
        Key("universal", Flag(), "Whether nothing is compiled.", last=3, instead="say so by [torch-noarch]"),
        Key(
            "cuda-minver",
            _VERSION,
            "The oldest CUDA toolkit.",
            last=3,
            instead="write minver in [general.cuda]",
        ),
        Key(
            "cuda-maxver",
            _VERSION,
            "The newest CUDA toolkit.",
            last=3,
            instead="write maxver in [general.cuda]",
        ),
        Key(
            "hub",
            Table(
                (
                    Key(
                        "repo-id",
                        _REPO_ID,
                        "The repository on the Hub that the kernel is uploaded to.",
                        example="owner/my-kernel",
                    ),
                    Key(
                        "branch",
                        Text(),
                        "The branch to upload to, in place of the vN of the kernel's version.",
                    ),
                )
            ),
            "Where the kernel is on the Hub.",
        ),
        Key(
            "cuda",
            Table(
                (
                    Key(
                        "minver",
                        _VERSION,
                        "The oldest CUDA toolkit to build with, inclusive. Leaves out variants that every "
                        "kernel should have: set it only where older ones cannot compile the kernel.",
                        example="12.8",
                    ),
                    Key(
                        "maxver",
                        _VERSION,
                        "The newest CUDA toolkit to build with, inclusive. Leaves out variants that every "
                        "kernel should have: set it only where newer ones cannot compile the kernel.",
                        example="13.0",
                    ),
                    *_depends("cuda"),
                )
            ),
            "What concerns CUDA alone.",
        ),
        Key("neuron", Table(_depends("neuron")), "What concerns Neuron alone."),
        Key("tpu", Table(_depends("tpu", with_kernels=False)), "What concerns TPUs alone.", first=5),
        Key("xpu", Table(_depends("xpu")), "What concerns XPU alone."),
    )
)
_TORCH = Table(
    (
        Key("src", _TEXTS, _BINDING_SRC, example=["torch-ext/torch_binding.cpp"]),
        _INCLUDE,
        _PYEXT,
        _CXX_FLAGS,
        Key(
            "minver",
            _VERSION,
            "The oldest Torch to build for, inclusive. Leaves out variants that every kernel should have.",
            example="2.10",
        ),
        Key(
            "maxver",
            _VERSION,
            "The newest Torch to build for, inclusive. Leaves out variants that every kernel should have.",
            example="2.12",
        ),
        Key(
            "stable-abi",
            TextOrTable(
                _ABI,
                Table(
                    tuple(
                        Key(name, _ABI, f"The oldest Torch that the variants for {name} run with.")
                        for name in BACKENDS
                    )
                ),
                table_from=5,
                what="a version in quotes, or a table of them by backend",
            ),
            "Build with Torch's stable ABI of this version: one variant for that Torch and later ones. A "
            "version for all backends, or a table of them by backend.",
            example="2.10",
        ),
    )
)
_NOT_READ = "The builder's planning does not read it here, and its parser refuses it: remove it."
_TORCH_NOARCH = Table(
    (
        _PYEXT,
        Key(
            "cuda_capabilities",
            _CAPABILITIES,
            "The CUDA compute capabilities that the kernel runs on, for its metadata. All unless given.",
            example=["9.0"],
        ),
        Key(
            "rocm_archs",
            _TEXTS,
            "The ROCm architectures that the kernel runs on, for its metadata. All unless given.",
            example=["gfx942"],
        ),
        Key("minver", Anything(), _NOT_READ, is_ignored=True),
        Key("maxver", Anything(), _NOT_READ, is_ignored=True),
    )
)
_TVM_FFI = Table(
    (
        Key("src", _TEXTS, _BINDING_SRC, required_from=3, example=["tvm-ffi-ext/tvm_ffi_binding.cpp"]),
        _INCLUDE,
        _PYEXT,
        _CXX_FLAGS,
    )
)
_COMPONENT = Table(
    (
        Key(
            "backend",
            Text(what="a backend that is compiled for", choices=COMPILED_BACKENDS),
            "The backend that these sources are compiled for.",
            required_from=3,
            example="cuda",
        ),
        Key(
            "depends",
            List(
                Text(what="a library that the builder has", choices=DEPENDENCIES), what="a list of libraries"
            ),
            "The libraries that these sources are compiled with, of those that the builder has.",
            required_from=4,
            example=["torch"],
        ),
        Key(
            "src",
            _TEXTS,
            "The sources and headers of this section, relative to the folder of build.toml.",
            required_from=3,
            example=["csrc/kernel.cu"],
        ),
        _INCLUDE,
        _CXX_FLAGS,
        Key(
            "cuda-capabilities",
            _CAPABILITIES,
            "The CUDA compute capabilities to compile for, of those that the compiler has. All of the "
            "builder's unless given, which is best where the sources allow it.",
            only_for=("cuda",),
            example=["9.0a"],
        ),
        Key(
            "cuda-flags",
            _TEXTS,
            "Further flags for nvcc.",
            only_for=("cuda",),
            example=["--expt-relaxed-constexpr"],
        ),
        Key(
            "cuda-minver",
            _VERSION,
            "The oldest CUDA toolkit that compiles this section: builds with an older one leave it out.",
            only_for=("cuda",),
            example="12.8",
        ),
        Key(
            "rocm-archs",
            _TEXTS,
            "The ROCm architectures to compile for.",
            only_for=("rocm",),
            example=["gfx942"],
        ),
        Key("hip-flags", _TEXTS, "Further flags for the HIP compiler.", only_for=("rocm",), example=["-O3"]),
        Key("sycl-flags", _TEXTS, "Further flags for the SYCL compiler.", only_for=("xpu",), example=["-O3"]),
    ),
    switch="backend",
)
# All that build.toml may say; docs/build.schema.json is made from this.
BUILD_TOML = Table(
    (
        Key("general", _GENERAL, "What the kernel is, and what it is built for.", required_from=3),
        Key("torch", _TORCH, "The binding of a kernel that is compiled as an extension of Torch."),
        Key("torch-noarch", _TORCH_NOARCH, "A kernel for Torch that is Python alone, such as one in Triton."),
        Key("tvm-ffi", _TVM_FFI, "The binding of a kernel that is compiled for TVM-FFI."),
        Key(
            "kernel",
            Named(
                "a section's name",
                # Generated files show it.
                pattern=r"[A-Za-z0-9_.-]{1,64}",
                hint="use up to 64 letters without accents, digits, dashes, underscores and dots",
                of=_COMPONENT,
            ),
            "The sections of compiled sources, each for one backend: [kernel.<name>].",
        ),
    ),
    one_of=("torch", "torch-noarch", "tvm-ffi"),
    one_of_from=4,
    one_of_hint="a kernel has one of [torch] with the sources of the binding, [torch-noarch] for Python "
    "alone and [tvm-ffi]",
)


class Component(NamedTuple):
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
    sycl_flags: tuple[str, ...] = ()


class Binding(NamedTuple):
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


class KernelDependency(NamedTuple):
    """A kernel that this one loads: a repository on the Hub, with a version or a revision."""

    repo_id: str
    version: int | None
    revision: str | None


class Manifest(NamedTuple):
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

    @property
    def version_branch(self) -> str:
        """The branch on the Hub that the kernel's variants go to: ``general.hub.branch``, else ``v`` and the
        version. Rule: ``get_repo_and_branch`` of kernel-builder/src/upload.rs (8ac69fc5)."""
        return self.branch or f"v{self.version}"

    def place(self, key: str) -> Place:
        """Where ``key`` stands in build.toml."""
        return self.file.place(key)

    def repository(self, purpose: str) -> str:
        """``repo_id``, which is needed to ``purpose``. Raises ``WrongInput`` where there is none."""
        if not self.repo_id:
            raise WrongInput(
                f"no repository to {purpose}",
                where=self.place("general"),
                repair="give --repo-id, or set general.hub.repo-id",
            )
        return self.repo_id


def load(kernel_dir: Path) -> Manifest:
    """Read ``kernel_dir/build.toml``.

    Raises one ``WrongInput`` with all that is wrong (``error.all``), each with its line and column.
    """
    file = toml_file.read(
        kernel_dir / "build.toml",
        repair="give the folder of a kernel in the kernel-builder format",
    )
    _check_path(file.path)
    edition = _edition(file.values)
    schema.raise_faults(file, _faults(file, edition))
    return _read(file, edition)


def _faults(file: TomlFile, edition: int) -> Iterator[Fault]:
    general = file.values.get("general")
    named = general.get("edition") if isinstance(general, dict) else None
    is_later = isinstance(named, int) and named > EDITION
    for fault in schema.check(file, BUILD_TOML, edition):
        # What else a later edition may say is not known here.
        if not is_later or fault.path == ("general", "edition"):
            yield fault


def _edition(values: Mapping[str, Any]) -> int:
    """The edition that a file is to be read as (kernels-data/src/config/compat.rs)."""
    general = values.get("general")
    if not isinstance(general, dict):
        return 3
    # One that is wrong or misspelt is an error of its own, from which no others should follow.
    known = {key.name for key in _GENERAL.keys}
    misspelt = [name for name in general if name not in known and len(name) < 10][:50]
    if "edition" in general or schema.nearest("edition", misspelt):
        return EDITION
    return 4 if "backends" in general else 3


def _check_path(path: Path) -> None:
    """Paths are in outputs and in generated files, which are UTF-8."""
    try:
        os.path.abspath(path).encode()
    except UnicodeEncodeError as error:
        raise WrongInput(
            "the path of the kernel's folder is not UTF-8", where=Place(path), repair="rename the folder"
        ) from error


def _read(file: TomlFile, edition: int) -> Manifest:
    """The manifest of a file without errors."""
    values = file.values
    general = values["general"]
    cuda = general.get("cuda", {})
    hub = general.get("hub", {})
    backends = tuple(dict.fromkeys(general.get("backends", ())))
    components = tuple(_component(name, section) for name, section in values.get("kernel", {}).items())
    return Manifest(
        file=file,
        name=general["name"],
        edition=edition,
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
        # The builder does not read python-depends of neuron (kernels-data/src/config/mod.rs).
        backend_python_depends={
            backend: tuple(general[backend].get("python-depends", ()))
            for backend in ("cuda", "tpu", "xpu")
            if backend in general
        },
        backend_kernel_depends={
            backend: _dependencies(general[backend])
            for backend in ("cuda", "neuron", "xpu")
            if backend in general
        },
        universal=general.get("universal", False),
        warnings=tuple(_warnings(file, edition)),
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
        sycl_flags=tuple(section.get("sycl-flags", ())),
    )


def _dependencies(section: dict[str, Any]) -> tuple[KernelDependency, ...]:
    return tuple(
        KernelDependency(item["repo-id"], item.get("version"), item.get("revision"))
        for item in section.get("kernel-depends", ())
    )


def _warnings(file: TomlFile, edition: int) -> Iterator[str]:
    """What the builder ignores, and what a later step of it refuses, each with its place."""
    general = file.values["general"]
    if edition == 4:
        yield (
            f"{file.place('general')}: is of edition 4, which kernel-builder upgrades in memory "
            "(`kernel-builder update-build` writes it as edition 5)"
        )
    for index, backend in enumerate(general.get("backends", ())):
        if backend in ("cann", "neuron"):
            where = file.place(("general", "backends", index))
            yield f"{where}: the builder has no build sets for {backend} yet"
    for name in ("minver", "maxver"):
        if name in file.values.get("torch-noarch", {}):
            where = file.place(("torch-noarch", name))
            yield f"{where}: the builder does not read torch-noarch.{name}, and its parser refuses it"
    for path, version in _versions(file.values):
        if not re.fullmatch(r"[0-9]+(\.[0-9]+)*", version):
            yield (
                f"{file.value_place(path)}: {schema.dotted(path)} is {version!r}, and kernel-builder's "
                "parser takes numbers and dots alone"
            )
    if edition > 3:
        yield from _unknown_packages(file, general)


def _versions(values: Mapping[str, Any]) -> Iterator[tuple[KeyPath, str]]:
    bounds = ("minver", "maxver")
    tables: list[tuple[KeyPath, Mapping[str, Any], tuple[str, ...]]] = [
        (("general", "cuda"), values["general"].get("cuda", {}), bounds),
        (("torch",), values.get("torch", {}), bounds),
    ]
    for name, section in values.get("kernel", {}).items():
        tables.append((("kernel", name), section, ("cuda-minver",)))
    for path, table, names in tables:
        for name in names:
            if name in table:
                yield (*path, name), table[name]


def _unknown_packages(file: TomlFile, general: Mapping[str, Any]) -> Iterator[str]:
    for backend, known in PYTHON_DEPENDENCIES.items():
        around: tuple[str, ...] = ("general", backend) if backend else ("general",)
        table = general.get(backend, {}) if backend else general
        for index, name in enumerate(table.get("python-depends", ())):
            if name not in known:
                where = file.place((*around, "python-depends", index))
                repair = schema.suggestion(name, known) if known else "it has none"
                yield (
                    f"{where}: kernel-builder knows no Python package {name!r} for "
                    f"{backend or 'all backends'} ({repair})"
                )
