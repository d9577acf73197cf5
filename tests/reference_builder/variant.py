"""One variant, as nix-builder/lib makes it of the project that ``project`` renders.

Read at 8ac69fc5, and at the revisions before that lock public kernels: the source set is that of
lib/source-set.nix; noarch kernels are built by lib/extension/torch/no-arch.nix, which runs setup.py, and the
others by arch.nix, which runs CMake with the flags below; ``remove-bytecode-hook`` and ``hash-kernel-hook``
come after (pkgs/).
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernels_data import Digest, DigestAlgorithm

from tests.reference_builder import project
from tests.reference_builder.project import Builder, Kernel


@dataclass(frozen=True)
class Variant:
    """A variant in ``folder``; ``compiled`` and ``linked`` are the options that went into it: for each source
    those of the compiler, and those of the linker."""

    folder: Path
    metadata: Mapping[str, Any] | None
    compiled: Mapping[str, tuple[str, ...]]
    linked: tuple[str, ...]

    @property
    def files(self) -> tuple[str, ...]:
        """The variant's files, by their relative paths."""
        found = (path for path in self.folder.rglob("*") if path.is_file())
        return tuple(sorted(path.relative_to(self.folder).as_posix() for path in found))


def build(
    builder: Builder, kernel_dir: Path, commit: str, out: Path, work: Path, backend: str = "cpu"
) -> Variant:
    """Build the variant of the kernel in ``kernel_dir``, as of ``commit``, into ``out``.

    A noarch kernel is built for ``backend``, a compiled one for what this Torch is for.

    ``work`` is a folder for what is needed on the way. Neither folder may exist.
    """
    kernel = prepare(builder, kernel_dir, commit, work)
    compiled: dict[str, tuple[str, ...]] = {}
    linked: tuple[str, ...] = ()
    if kernel.is_noarch:
        _run([sys.executable, "setup.py", "build_kernel", "--backend", backend], work)
        shutil.copytree(work / "build", out)
    else:
        compiled, linked = _run_cmake(kernel, work, out)
    for cache in [path for path in out.rglob("__pycache__") if path.is_dir()]:
        shutil.rmtree(cache)
    (folder,) = out.iterdir()
    return Variant(folder, _hash(builder, folder), compiled, linked)


def prepare(builder: Builder, kernel_dir: Path, commit: str, work: Path) -> Kernel:
    """Make in ``work`` what the extension is built of: ``src`` of arch.nix and no-arch.nix."""
    kernel = Kernel.read(kernel_dir, commit)
    copy_sources(builder, kernel, kernel_dir, work)
    _check_layout(kernel, work)
    for name, text in project.files(builder, kernel).items():
        # kernel-builder refuses to overwrite (fileset.rs), and Nix does not tell it to.
        assert not (work / name).exists(), f"{name} is in the way of kernel-builder"
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_text(text, encoding="utf-8")
    return kernel


def copy_sources(builder: Builder, kernel: Kernel, kernel_dir: Path, work: Path) -> None:
    """lib/source-set.nix: what the builder has of the kernel."""
    rules = builder.needed("nix-builder/lib/source-set.nix")
    section = kernel.values.get("torch", {})
    if kernel.is_noarch and "torch-noarch" in rules:
        section = kernel.section
    extensions = section.get("pyext", ["py", "pyi"])
    names = {"build.toml", *section.get("src", ())}
    names.update(name for component in kernel.values.get("kernel", {}).values() for name in component["src"])
    names.update(["kernels.lock"] if '"kernels.lock"' in rules else [])
    for folder in ("torch-ext", "tests"):
        for path in (kernel_dir / folder).rglob("*"):
            if path.is_file() and path.name.endswith(tuple(f".{extension}" for extension in extensions)):
                names.add(path.relative_to(kernel_dir).as_posix())
    for name in sorted(names):
        target = work / os.path.normpath(name)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(kernel_dir / name, target)


def _check_layout(kernel: Kernel, work: Path) -> None:
    """pkgs/kernel-layout-check."""
    package = work / "torch-ext" / kernel.python_name
    assert (package / "__init__.py").is_file(), "the Python module must contain __init__.py"
    assert not (package / kernel.python_name).exists(), f"there must be no {kernel.python_name} in it"


def _run_cmake(kernel: Kernel, work: Path, out: Path) -> tuple[dict[str, tuple[str, ...]], tuple[str, ...]]:
    """arch.nix: its cmakeFlags, and what nixpkgs' hook for CMake adds that matters (Release, the prefix)."""
    tree = work / "build-tree"
    python = sys.executable
    _run(
        [
            "cmake", "-S", work, "-B", tree, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
            f"-DCMAKE_INSTALL_PREFIX={out}", "-DBUILD_ALL_SUPPORTED_ARCHS=ON", "-DCMAKE_SKIP_RPATH=ON",
            f"-DPython_EXECUTABLE={python}", f"-DPython3_EXECUTABLE={python}",
        ],
        work,
    )  # fmt: skip
    _run(["cmake", "--build", tree], work)
    _run(["cmake", "--install", tree], work)
    for folder in out.glob(f"_{kernel.python_name}_*_{kernel.revision}"):
        shutil.rmtree(folder)
    said = _run(["ninja", "-C", tree, "-t", "commands"], work)
    return options(said, {tree: "BUILD", work: "KERNEL"}, kernel.revision)


def options(
    commands: str, folders: Mapping[Path, str], revision: str
) -> tuple[dict[str, tuple[str, ...]], tuple[str, ...]]:
    """The options of each source's compiler and of the linker, from the ``commands`` of Ninja.

    Paths in ``folders`` have the names given there, those of Torch and Python names of their own, and the
    operators' name is OPS, so that the answers are the same on every machine.
    """
    compiled: dict[str, tuple[str, ...]] = {}
    linked: tuple[str, ...] = ()
    for command in commands.splitlines():
        for name, neutral in _replacements(folders, revision):
            command = re.sub(name, neutral, command)
        words = list(_words(command))
        if " -c " in command:
            compiled[words[-1].removeprefix("KERNEL/")] = tuple(sorted(words[:-1]))
        elif " -shared " in command:
            linked = tuple(word for word in words if not word.endswith(".o"))
    return compiled, linked


def _replacements(folders: Mapping[Path, str], revision: str) -> Iterator[tuple[str, str]]:
    import sysconfig

    import torch

    for folder, name in folders.items():
        yield re.escape(str(folder)), name
    yield re.escape(str(Path(torch.__file__).parent)), "TORCH"
    yield re.escape(sysconfig.get_paths()["include"]), "PYTHON"
    yield rf"_[a-z0-9_]+_{revision}(?![0-9a-z])", "OPS"


def _words(command: str) -> Iterator[str]:
    """The options of a compiler's command: without its program, its output and its list of dependencies."""
    words = iter(shlex.split(command.replace("&& :", "").removeprefix(": && ")))
    next(words)
    for word in words:
        if word in ("-o", "-MT", "-MF"):
            next(words)
        elif word not in ("-c", "-MD", ":", "&&"):
            yield f"{word} {next(words)}" if word == "-isystem" else word


def _hash(builder: Builder, folder: Path) -> Mapping[str, Any] | None:
    """``kernel-builder hash``, where hash-kernel-hook runs it: the digest gets its place among the fields."""
    path = folder / "metadata.json"
    if not path.exists():
        return None
    values: dict[str, Any] = json.loads(path.read_bytes())
    if builder.text("nix-builder/pkgs/hash-kernel-hook/hash-kernel-hook.sh") is not None:
        digest = Digest.hash_variant(DigestAlgorithm.SHA256, folder)
        values["digest"] = {"algorithm": "sha256", "files": dict(sorted(digest.files.items()))}
        structs = builder.needed(project.METADATA)
        order = list(project.fields(structs, "Metadata"))
        values = {key: values[key] for key in sorted(values, key=order.index)}
        path.write_text(json.dumps(values, indent=2, ensure_ascii=False), encoding="utf-8")
    return values


def _run(command: list[str | Path], folder: Path) -> str:
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    finished = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    assert finished.returncode == 0, f"{shlex.join(map(str, command))}:\n{finished.stdout[-4000:]}"
    return finished.stdout
