"""The CMake and Python project that a kernel's build.toml comes to. Values in, values out.

What is compiled how follows kernel-builder's CMake code, so that a kernel that compiles here
compiles there too: the macros, the include folders, the flags of each section for the languages
that they are for, and the compute capabilities of each section.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from string import Template

from kernel_actions import nix_version
from kernel_actions.builder_output import Output
from kernel_actions.errors import WrongInput, WrongSurroundings
from kernel_actions.kernel import python_packages
from kernel_actions.local_builder import cuda, sources
from kernel_actions.local_builder.sources import PACKAGE_ROOT, Sources
from kernel_actions.local_builder.target import Target
from kernel_actions.local_builder.toolchain import Toolchain, Torch
from kernel_actions.manifest import Component, Manifest

_TEMPLATES = Path(__file__).parent / "templates"
# What Torch's own CMake code and the builder's pass to nvcc, on top of what the languages need; the
# last one keeps the random names of temporary files out of the object files.
_NVCC_OPTIONS = ("-DENABLE_FP8", "--expt-relaxed-constexpr", "--expt-extended-lambda", "--objdir-as-tempdir")
# kernel-builder's lowest macOS for extensions without Metal.
_MACOS = "15.0"
# What templates/torch/noarch/_ops.py of the builder asks Torch for each backend (8ac69fc5, lines 7 to 26).
_IS_TORCH_FOR = {
    "tpu": 'hasattr(torch.backends, "tpu")',
    "neuron": 'hasattr(torch, "neuron")',
    "cuda": "torch.version.cuda is not None",
    "rocm": "torch.version.hip is not None",
    "metal": "torch.backends.mps.is_available()",
    "xpu": 'getattr(torch.version, "xpu", None) is not None',
}
_DARWIN_LINK_OPTIONS = """\
# Python's symbols come from the process that loads the extension.
target_link_options(kernel PRIVATE LINKER:-undefined,dynamic_lookup)
"""


class _Template(Template):
    # CMake and Python use the dollar and the braces themselves.
    delimiter = "@"


@dataclass(frozen=True)
class Project:
    """The project's files by their relative path, the sources that are compiled, and the compute
    capabilities that they are compiled for (empty without CUDA)."""

    files: dict[str, str]
    compiled: tuple[str, ...]
    capabilities: tuple[str, ...]


@dataclass(frozen=True)
class _Group:
    """Sources that are compiled alike."""

    title: str
    names: tuple[str, ...]
    includes: tuple[str, ...]
    cxx_flags: tuple[str, ...]
    cuda_flags: tuple[str, ...] = ()


def generate(
    manifest: Manifest,
    target: Target,
    toolchain: Toolchain,
    ops_name: str,
    found: Sources,
    output: Output,
) -> Project:
    """The project for one variant, as the builder of ``output`` compiles it.

    Raises ``WrongSurroundings`` when nvcc knows none of the capabilities that a section asks for.
    """
    files = {
        f"{manifest.python_name}/{sources.OPS_FILE}": ops_file(target, ops_name, output),
        "pyproject.toml": _pyproject(manifest, target, toolchain.torch, found, output),
    }
    if not target.is_compiled:
        return Project(files, (), ())
    assert toolchain.torch is not None
    groups, capabilities = _groups(manifest, target, toolchain)
    compiled = tuple(dict.fromkeys(name for group in groups for name in group.names))
    needs_name = sources.need_extension_name(found, compiled)
    is_linux = toolchain.system.endswith("-linux")
    files["CMakeLists.txt"] = _cmake_lists(
        manifest, target, toolchain, toolchain.torch, ops_name, groups, needs_name, output
    )
    files[f"{PACKAGE_ROOT}/registration.h"] = template("registration.h")
    if is_linux:
        files["compatibility.cpp"] = template("compatibility.cpp")
    files["setup.py"] = _filled(
        "setup.py.in",
        package=manifest.python_name,
        ops_name=ops_name,
        cmake_arguments="\n".join(
            f"                {argument!r}," for argument in compiler_arguments(target, toolchain)
        ),
    )
    return Project(files, compiled, capabilities)


def ops_file(target: Target, ops_name: str, output: Output) -> str:
    """``_ops.py``: how the kernel's Python code reaches its operators.

    Nothing in a noarch variant registers operators but its own Python code; the builder has named them by
    the backend of the Torch that imports it since 1fb18d40 (templates/torch/noarch/_ops.py), whatever
    backend the variant is for.
    """
    if target.is_compiled or not output.noarch_backends:
        return _filled("ops_compiled.py.in" if target.is_compiled else "ops_fixed.py.in", ops_name=ops_name)
    *asked, last = output.noarch_backends
    checks = "".join(
        f"    if {_IS_TORCH_FOR[backend]}:\n        return {backend!r}\n" for backend in asked
    ).replace("'", '"')
    before, _, after = ops_name.rpartition(f"_{target.backend}_")
    return _filled("ops_noarch.py.in", checks=checks, last=last, before=before, after=after)


def template(name: str) -> str:
    """The text of a template."""
    return (_TEMPLATES / name).read_text(encoding="utf-8")


def compiler_arguments(target: Target, toolchain: Toolchain) -> list[str]:
    """CMake's arguments that choose the compilers of ``toolchain``."""
    compiler = toolchain.compiler
    assert compiler is not None
    arguments = [f"-DCMAKE_CXX_COMPILER={compiler.path}"]
    if compiler.launcher:
        arguments.append(f"-DCMAKE_CXX_COMPILER_LAUNCHER={compiler.launcher}")
    if target.backend == "cuda":
        assert toolchain.nvcc is not None
        arguments.append(f"-DCMAKE_CUDA_COMPILER={toolchain.nvcc.path}")
        arguments.append(f"-DCMAKE_CUDA_HOST_COMPILER={compiler.path}")
        if compiler.launcher:
            arguments.append(f"-DCMAKE_CUDA_COMPILER_LAUNCHER={compiler.launcher}")
    return arguments


def _filled(template_name: str, /, **values: str) -> str:
    return _Template(template(template_name)).substitute(values)


def _groups(manifest: Manifest, target: Target, toolchain: Toolchain) -> tuple[list[_Group], tuple[str, ...]]:
    """The binding and the sections of the backend, and all capabilities that they compile for."""
    binding = manifest.binding
    title = "The binding: it registers the operators."
    _check_flags(manifest, "torch.cxx-flags", binding.cxx_flags)
    groups = [_Group(title, _normal(binding.src), binding.include, binding.cxx_flags)]
    everything: dict[str, None] = {}
    for component in sources.components(manifest, target.backend):
        cuda_flags = component.cuda_flags
        if target.backend == "cuda":
            found = _capabilities(manifest, component, toolchain)
            if found is None:
                continue
            everything.update(dict.fromkeys(found))
            cuda_flags = (*(flag for one in found for flag in cuda.flags(one)), *cuda_flags)
        key, names = f"kernel.{component.name}", _normal(component.src)
        _check_flags(manifest, f"{key}.cxx-flags", component.cxx_flags)
        _check_flags(manifest, f"{key}.cuda-flags", component.cuda_flags)
        groups.append(_Group(f"[{key}]", names, component.include, component.cxx_flags, cuda_flags))
    return groups, tuple(everything)


def _check_flags(manifest: Manifest, key: str, flags: Iterable[str]) -> None:
    """Raise ``WrongInput`` for a flag that would not come out of CMake's lists as it went in."""
    for flag in flags:
        reason = ""
        if "$<" in flag:
            reason = "has a generator expression of CMake"
        elif flag.endswith("\\"):
            reason = "ends with a backslash, which would join it with the next one"
        elif flag.count("[") != flag.count("]"):
            reason = "has brackets without their other half, which would join it with the next one"
        if reason:
            raise WrongInput(
                f"{key} has {flag!r}, which {reason}",
                where=manifest.place(key),
                repair="write the flag in another way, or a macro into a header",
            )


def _capabilities(manifest: Manifest, component: Component, toolchain: Toolchain) -> tuple[str, ...] | None:
    """The capabilities for a section; ``None`` when this CUDA is too old for the section, which
    the builder then leaves out."""
    nvcc = toolchain.nvcc
    assert nvcc is not None
    if component.cuda_minver is not None and nix_version.compare(nvcc.version, component.cuda_minver) < 0:
        return None
    found = cuda.capabilities(component.cuda_capabilities, toolchain.capabilities, nvcc)
    if not found:
        raise WrongSurroundings(
            f"nvcc {nvcc.version} compiles for none of the section's capabilities: "
            + ", ".join(component.cuda_capabilities or ()),
            where=manifest.place(f"kernel.{component.name}.cuda-capabilities"),
            repair=f"it compiles for {', '.join(cuda.defaults(nvcc))}",
        )
    return found


def _normal(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(Path(os.path.normpath(name)).as_posix() for name in names))


def _cmake_lists(
    manifest: Manifest,
    target: Target,
    toolchain: Toolchain,
    torch: Torch,
    ops_name: str,
    groups: Sequence[_Group],
    needs_name: frozenset[str],
    output: Output,
) -> str:
    is_cuda = target.backend == "cuda"
    is_linux = toolchain.system.endswith("-linux")
    standard = _cxx_standard(torch, output)
    names = list(dict.fromkeys(name for group in groups for name in group.names))
    compiled = [_source(name) for name in names] + (["compatibility.cpp"] if is_linux else [])
    return _filled(
        "CMakeLists.txt.in",
        before_project="".join(f"{line}\n" for line in _before_project(target, toolchain)),
        after_project="find_package(CUDAToolkit REQUIRED)\n" if is_cuda else "",
        name=manifest.python_name,
        languages="CXX CUDA" if is_cuda else "CXX",
        ops_name=ops_name,
        kernel_dir=_quoted(str(manifest.directory.resolve())),
        torch_dir=_quoted(str(torch.folder)),
        python_include=_quoted(str(toolchain.python_include)),
        sources=_lines(compiled),
        cxx_standard=standard,
        definitions=_lines(_definitions(target, torch)),
        properties=_lines(_target_properties(target, standard)),
        system_includes=_lines(_system_includes(target, toolchain)),
        compile_options=_lines(_compile_options(target, toolchain, output)),
        libraries=_lines(
            [*_torch_libraries(torch, is_linux=is_linux), *(["CUDA::cudart"] if is_cuda else [])]
        ),
        link_options="" if is_linux else _DARWIN_LINK_OPTIONS,
        source_properties="".join(f"{line}\n" for line in _source_properties(groups, needs_name)),
    )


def _torch_libraries(torch: Torch, *, is_linux: bool) -> Iterable[str]:
    """Torch's libraries as its own CMake targets link to them (Caffe2Targets.cmake, ``torch_library``): the
    extension needs them whether or not it uses a symbol of theirs."""
    for name in torch.libraries:
        path = f"${{TORCH_DIR}}/lib/{name}"
        if is_linux and name.startswith("libtorch"):
            # One argument, as CMake would put the second option elsewhere; the inner quotes are for a shell.
            yield f'"-Wl,--no-as-needed,\\"{path}\\" -Wl,--as-needed"'
        else:
            yield path


def _cxx_standard(torch: Torch, output: Output) -> str:
    """``define_gpu_extension_target`` of the builder's utils.cmake: as Torch's headers need it."""
    version = torch.version.partition("+")[0]
    is_20 = output.cxx20_since and nix_version.compare(version, output.cxx20_since) >= 0
    return "20" if is_20 else "17"


def _before_project(target: Target, toolchain: Toolchain) -> list[str]:
    lines = []
    if target.backend == "cuda":
        lines.append("set(CMAKE_CUDA_ARCHITECTURES OFF)")
        lines.append("set(CMAKE_CUDA_RUNTIME_LIBRARY Shared) # The one that Torch has loaded.")
    if toolchain.system.endswith("-darwin"):
        lines.append(f'set(CMAKE_OSX_DEPLOYMENT_TARGET "{_MACOS}" CACHE STRING "Oldest macOS to run on")')
    return lines


def _target_properties(target: Target, standard: str) -> list[str]:
    # Torch's libraries are loaded before the extension is, wherever they are.
    found = ["SKIP_BUILD_RPATH ON"]
    if target.backend == "cuda":
        found += [f"CUDA_STANDARD {standard}", "CUDA_STANDARD_REQUIRED ON", "CUDA_ARCHITECTURES OFF"]
    return found


def _system_includes(target: Target, toolchain: Toolchain) -> list[str]:
    found = [
        "${TORCH_DIR}/include", "${TORCH_DIR}/include/torch/csrc/api/include", "${PYTHON_INCLUDE_DIR}"
    ]  # fmt: skip
    if target.backend == "cuda":
        found += [_quoted(str(folder)) for folder in toolchain.cuda_includes]
    return found


def _definitions(target: Target, torch: Torch) -> list[str]:
    # `USE_SABI 3` of define_gpu_extension_target (utils.cmake): the API that all Pythons 3 have.
    found = ["Py_LIMITED_API=3", *torch.definitions]
    found += ["CUDA_KERNEL", "USE_CUDA=1"] if target.backend == "cuda" else ["CPU_KERNEL"]
    if not torch.cxx11_abi:
        found.append("_GLIBCXX_USE_CXX11_ABI=0")
    if target.stable_abi is not None:
        major, minor = nix_version.major_minor(target.stable_abi).split(".")
        # The encoding of torch/headeronly/version.h.
        found.append(f"TORCH_TARGET_VERSION={(int(major) << 56) | (int(minor) << 48):#018x}ULL")
    return found


def _compile_options(target: Target, toolchain: Toolchain, output: Output) -> list[str]:
    """Options for all sources: paths of this machine stay out of the binary, and so do since 3b5a3d27 GNU's
    unique symbols, through which two kernels in one process share what is static in a template. The
    builder passes that to C++ alone: its condition for CUDA (templates/torch/torch-extension.cmake, line
    25) asks for a language GPU_LANGUAGE, which is none."""
    # The longest path first: the kernel's folder usually holds this project's.
    folders = (
        ("${CMAKE_CURRENT_BINARY_DIR}", "cmake"), ("${CMAKE_CURRENT_SOURCE_DIR}", "."),
        ("${KERNEL_DIR}", "."), ("${TORCH_DIR}", "torch"), ("${PYTHON_INCLUDE_DIR}", "python"),
    )  # fmt: skip
    # Compilers try the mapping given last before the others.
    options = [f"-ffile-prefix-map={path}={name}" for path, name in reversed(folders)]
    assert toolchain.compiler is not None
    cxx_options = list(options)
    if toolchain.compiler.kind == "gcc" and not output.unique_symbols:
        cxx_options.append("-fno-gnu-unique")
    if target.backend != "cuda":
        return [f'"{option}"' for option in cxx_options]
    return [
        *(f'"$<$<COMPILE_LANGUAGE:CXX>:{option}>"' for option in cxx_options),
        # nvcc would split a path with a space in it: the inner quotes are for the shell that it calls.
        *(f'"$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=\\"{option}\\">"' for option in options),
        *(f'"$<$<COMPILE_LANGUAGE:CUDA>:{option}>"' for option in _NVCC_OPTIONS),
    ]


def _source_properties(groups: Sequence[_Group], needs_name: frozenset[str]) -> Iterable[str]:
    """What each group of sources is compiled with beyond the others."""
    if needs_name:
        yield "\n# The rest is not compiled again when only the name has changed."
        yield _property(sorted(needs_name), "COMPILE_DEFINITIONS", ["TORCH_EXTENSION_NAME=${OPS_NAME}"])
    for group in groups:
        in_cuda = [name for name in group.names if PurePosixPath(name).suffix == ".cu"]
        in_cxx = [name for name in group.names if name not in in_cuda]
        lines = [
            _property(group.names, "INCLUDE_DIRECTORIES", _includes(group.includes)),
            _property(in_cxx, "COMPILE_OPTIONS", [_quoted(flag) for flag in group.cxx_flags]),
            _property(in_cuda, "COMPILE_OPTIONS", [_quoted(flag) for flag in group.cuda_flags]),
        ]
        if any(lines):
            yield f"\n# {group.title}"
            yield from (line for line in lines if line)


def _property(names: Sequence[str], name: str, values: Sequence[str]) -> str:
    if not names or not values:
        return ""
    listed = "".join(f"\n  {_source(one)}" for one in names)
    return f"set_property(SOURCE{listed}\n  APPEND PROPERTY {name}\n{_lines(values, 4)}\n)"


def _includes(folders: Iterable[str]) -> list[str]:
    """The folders, and those of the same name in this project: there is the generated header."""
    normal = _normal(folders)
    return [
        *(_source(folder) for folder in normal),
        *(f"${{CMAKE_CURRENT_SOURCE_DIR}}/{folder}" for folder in normal if folder in (".", PACKAGE_ROOT)),
    ]


def _source(name: str) -> str:
    """A path in the kernel's folder."""
    if name == ".":
        return "${KERNEL_DIR}"
    path = f"${{KERNEL_DIR}}/{_escaped(name)}"
    return path if all(character.isalnum() or character in "/._-+" for character in name) else f'"{path}"'


def _quoted(text: str) -> str:
    return f'"{_escaped(text)}"'


def _escaped(text: str) -> str:
    """``text`` as CMake reads it back: no variable in it, and one element of a list."""
    for character in '\\"$;':
        text = text.replace(character, f"\\{character}")
    return text


def _lines(values: Iterable[str], indent: int = 2) -> str:
    return "\n".join(" " * indent + value for value in values)


def _pyproject(
    manifest: Manifest, target: Target, torch: Torch | None, found: Sources, output: Output
) -> str:
    folders = sorted({str(PurePosixPath(name).parent) for name in found.package} - {"."})
    packages = [manifest.python_name]
    packages += [f"{manifest.python_name}.{folder.replace('/', '.')}" for folder in folders]
    torch_requirement = "torch"
    if target.stable_abi is not None:
        torch_requirement = f"torch>={target.stable_abi}"
    elif target.is_compiled and torch is not None:
        torch_requirement = f"torch=={torch.release}.*"
    known = python_packages.table("depends")
    # A name that the builder does not know goes to no index: it refuses such a build.toml.
    depends = [known[name].name for name in manifest.all_python_depends(target.backend) if name in known]
    extensions = sources.package_extensions(manifest, target.backend, output)
    build_requires = ["setuptools>=64"]
    if target.is_compiled:
        build_requires += ["cmake>=3.26", "ninja", torch_requirement]
    return _filled(
        "pyproject.toml.in",
        name=_string(manifest.name),
        version=_string(f"{manifest.version}.0.0+local"),
        dependencies=_strings([torch_requirement, *depends]),
        build_requires=_strings(build_requires),
        packages=_strings(packages),
        package_data=_strings(f"*.{extension}" for extension in extensions if extension != "py"),
    )


def _strings(values: Iterable[str]) -> str:
    return ", ".join(_string(value) for value in values)


def _string(text: str) -> str:
    """A string of TOML: JSON's escapes are TOML's too. Neither it nor build.toml has control characters."""
    return json.dumps(text, ensure_ascii=False)
