"""What this machine can build with: Torch, a C++ compiler, nvcc, Python's headers, GPUs.

Torch is looked at without importing it, which would take seconds.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import platform
import re
import shlex
import shutil
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from kernel_actions import process
from kernel_actions.errors import WrongInput, WrongSurroundings

# Variables that change what compilers do, and so what a build is.
_COMPILER_VARIABLES = (
    "CPATH", "CPLUS_INCLUDE_PATH", "CUDAFLAGS", "CXXFLAGS", "LDFLAGS", "LIBRARY_PATH",
    "NVCC_APPEND_FLAGS", "NVCC_CCBIN", "NVCC_PREPEND_FLAGS", "SDKROOT",
)  # fmt: skip
_LAUNCHERS = frozenset({"ccache", "sccache"})
_OLD_ABI = "_GLIBCXX_USE_CXX11_ABI=0"
_DEFINITIONS = re.compile(r'^ *INTERFACE_COMPILE_DEFINITIONS "([^"$]*)"$', re.MULTILINE)


@dataclass(frozen=True)
class Torch:
    """An installed Torch. ``cuda`` is the CUDA version that it is a build for (``"13.0"``);
    ``libraries`` are the files in ``folder/lib`` that an extension is linked to, ``definitions`` the macros
    that its CMake targets give to whoever links to them."""

    version: str
    folder: Path
    libraries: tuple[str, ...]
    cuda: str | None = None
    hip: str | None = None
    cxx11_abi: bool = True
    definitions: tuple[str, ...] = ()

    @property
    def release(self) -> str:
        """The version up to its minor part, which decides what can be loaded: ``"2.13"``."""
        return ".".join(self.version.split("+")[0].split(".")[:2])


@dataclass(frozen=True)
class Compiler:
    """A C++ compiler; ``launcher`` is the compiler cache before it, if ``CXX`` names one.

    ``has_shared_library``: it links to the shared C++ library, not to a static copy.
    """

    path: Path
    kind: Literal["gcc", "clang"]
    version: str
    launcher: str = ""
    has_shared_library: bool = True


@dataclass(frozen=True)
class Nvcc:
    """CUDA's compiler, and the compute capabilities (``"9.0"``) that it can compile for."""

    path: Path
    version: str
    capabilities: tuple[str, ...]


@dataclass(frozen=True)
class Toolchain:
    """All of it; ``None`` is what this machine lacks.

    ``variables`` are variables of the environment that change what compilers do;
    ``capabilities`` are those of the GPUs at hand, or those that ``TORCH_CUDA_ARCH_LIST`` asks for.
    """

    system: str
    python_include: Path
    torch: Torch | None
    compiler: Compiler | None
    nvcc: Nvcc | None
    cuda_includes: tuple[Path, ...] = ()
    capabilities: tuple[str, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()


def detect(environment: Mapping[str, str] = os.environ) -> Toolchain:
    """The toolchain of this interpreter and machine.

    Raises ``WrongSurroundings`` on a system that kernels are not built for, and ``WrongInput``
    when ``CXX`` or ``CUDACXX`` names a program that is not there.
    """
    torch = find_torch()
    has_cuda = torch is not None and torch.cuda is not None
    return Toolchain(
        system=system_name(sys.platform, platform.machine()),
        python_include=Path(sysconfig.get_paths()["include"]),
        torch=torch,
        compiler=_find_compiler(environment),
        nvcc=_find_nvcc(environment),
        cuda_includes=_cuda_includes() if has_cuda else (),
        capabilities=_wanted_capabilities(environment) if has_cuda else (),
        variables=tuple((name, environment[name]) for name in _COMPILER_VARIABLES if environment.get(name)),
    )


def system_name(os_name: str, machine: str) -> str:
    """The builder's name of a system: ``x86_64-linux``, ``aarch64-linux``, ``aarch64-darwin``."""
    machines = {"x86_64": "x86_64", "amd64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64"}
    system = f"{machines.get(machine.lower(), machine)}-{os_name}"
    if system not in ("x86_64-linux", "aarch64-linux", "aarch64-darwin"):
        raise WrongSurroundings(
            f"kernels are not built for {system}", repair="use Linux, or macOS on Apple silicon"
        )
    return system


def find_torch() -> Torch | None:
    """The Torch of this interpreter."""
    folder = _package_folder("torch")
    if folder is None:
        return None
    try:
        facts = _assignments((folder / "version.py").read_text(encoding="utf-8"))
    except (OSError, SyntaxError):
        return None
    suffix = ".dylib" if sys.platform == "darwin" else ".so"
    cuda = facts.get("cuda")
    wanted = ["c10", "torch_cpu", "torch"] + (["c10_cuda", "torch_cuda"] if cuda else [])
    names = (f"lib{name}{suffix}" for name in wanted)
    config = _cmake_text(folder, "Torch/TorchConfig.cmake")
    found = _DEFINITIONS.findall(_cmake_text(folder, "Caffe2/Caffe2Targets.cmake"))
    definitions = (name for listed in found for name in listed.split(";") if name.isidentifier())
    return Torch(
        version=str(facts.get("__version__", "")),
        folder=folder,
        libraries=tuple(name for name in names if (folder / "lib" / name).exists()),
        cuda=cuda,
        hip=facts.get("hip"),
        cxx11_abi=_OLD_ABI not in config,
        definitions=tuple(dict.fromkeys(definitions)),
    )


def _cmake_text(torch: Path, name: str) -> str:
    """A file of Torch's CMake code; empty where it is missing."""
    try:
        return (torch / "share" / "cmake" / name).read_text(encoding="utf-8")
    except OSError:
        return ""


def _package_folder(name: str) -> Path | None:
    spec = importlib.util.find_spec(name)
    locations = list(spec.submodule_search_locations or ()) if spec else []
    return Path(locations[0]) if locations else None


def _assignments(source: str) -> dict[str, Any]:
    """The constants that the lines of a module assign, without running it."""
    found: dict[str, Any] = {}
    for node in ast.parse(source).body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        value = getattr(node, "value", None)
        if isinstance(value, ast.Constant):
            found.update({target.id: value.value for target in targets if isinstance(target, ast.Name)})
    return found


def tool(name: Literal["cmake", "ninja"]) -> Path:
    """The program of the Python package ``cmake`` or ``ninja``, else the one on the PATH.

    Raises ``WrongSurroundings`` when there is neither.
    """
    folder = _package_folder(name)
    if folder is not None and (folder / "data" / "bin" / name).is_file():
        return folder / "data" / "bin" / name
    # Packages of ninja since 1.13 put it beside the interpreter only.
    found = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    if found is None:
        raise WrongSurroundings(f"{name} is not installed", repair=f"python -m pip install {name}")
    return Path(found)


def _find_compiler(environment: Mapping[str, str]) -> Compiler | None:
    try:
        words = shlex.split(environment.get("CXX", ""))
    except ValueError as error:
        raise WrongInput(
            f"CXX is {environment['CXX']!r}, which is not a command: {error}", repair="name a compiler"
        ) from error
    launcher = words.pop(0) if words and Path(words[0]).name in _LAUNCHERS else ""
    if len(words) > 1:
        raise WrongInput(
            f"CXX is {environment['CXX']!r}, which is more than a compiler", repair="put flags into CXXFLAGS"
        )
    if words and shutil.which(words[0]) is None:
        raise WrongInput(f"CXX is {words[0]!r}, which cannot be run")
    for name in words or ("c++", "g++", "clang++"):
        found = shutil.which(name)
        if found is None:
            continue
        said = process.run([found, "--version"]).output
        version = re.search(r"\d+\.\d+(\.\d+)?", re.sub(r"\(.*?\)", "", said.partition("\n")[0]))
        return Compiler(
            path=Path(found),
            kind="clang" if "clang" in said else "gcc",
            version=version.group() if version else "",
            launcher=launcher,
            has_shared_library=_has_shared_library(found),
        )
    return None


def _has_shared_library(compiler: str) -> bool:
    """Whether ``compiler`` finds a shared libstdc++.

    Without one it links a static copy into the extension, and an exception that one copy throws
    crashes in the other, Torch's.
    """
    if not sys.platform.startswith("linux"):
        return True
    # A file that is not found is answered by its bare name.
    answer = process.run([compiler, "-print-file-name=libstdc++.so"]).output.strip()
    return answer != "libstdc++.so"


def _find_nvcc(environment: Mapping[str, str]) -> Nvcc | None:
    named = environment.get("CUDACXX")
    if named and shutil.which(named) is None:
        raise WrongInput(f"CUDACXX is {named!r}, which cannot be run")
    roots = [environment.get(name, "") for name in ("CUDA_HOME", "CUDA_PATH")]
    candidates = [named, *(f"{root}/bin/nvcc" for root in roots if root), "nvcc", "/usr/local/cuda/bin/nvcc"]
    for candidate in candidates:
        found = shutil.which(candidate) if candidate else None
        if found is None:
            continue
        version = re.search(r"release (\d+\.\d+)", process.run([found, "--version"]).output)
        if version is None:
            continue
        listed = process.run([found, "--list-gpu-arch"]).output
        numbers = re.findall(r"^compute_(\d+)$", listed, re.MULTILINE)
        return Nvcc(Path(found), version.group(1), tuple(f"{n[:-1]}.{n[-1]}" for n in numbers))
    return None


def _cuda_includes() -> tuple[Path, ...]:
    """Folders of CUDA's headers that were installed with Torch as Python packages: Torch's own
    headers need cuBLAS's and others', which a toolkit may have been installed without."""
    folder = _package_folder("nvidia")
    return tuple(sorted(folder.glob("*/include"))) if folder else ()


def _wanted_capabilities(environment: Mapping[str, str]) -> tuple[str, ...]:
    listed = environment.get("TORCH_CUDA_ARCH_LIST", "").replace(";", " ").split()
    if listed:
        for entry in listed:
            if not re.fullmatch(r"[0-9]{1,3}\.[0-9][af]?(\+PTX)?", entry):
                raise WrongInput(
                    f"TORCH_CUDA_ARCH_LIST has {entry!r}, which is not a compute capability",
                    repair="write them as in 8.0;9.0a+PTX",
                )
        return tuple(listed)
    if shutil.which("nvidia-smi") is None:
        return ()
    query = process.run(["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"])
    found = re.findall(r"^\s*(\d+\.\d)\s*$", query.output, re.MULTILINE)
    return tuple(sorted(set(found))) if query.returncode == 0 else ()
