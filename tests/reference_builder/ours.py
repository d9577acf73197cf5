"""What our local builder makes of the same kernel for the same revision, in the same form."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernel_actions import build, builder, builder_output, manifest
from kernel_actions.builder_output import Output
from kernel_actions.git import GitState
from kernel_actions.local_builder import layout, project, sources, target, toolchain
from kernel_actions.local_builder.project import Project
from kernel_actions.local_builder.target import Target
from kernel_actions.local_builder.toolchain import tool
from kernel_actions.manifest import Manifest

from tests.reference_builder import variant

# A hidden name as that of build/.local/<variant>, which git and Ninja's `-t commands` leave alone.
_TREE = ".cmake"


def output_of(revision: str) -> Output:
    """The traits of the bundled ``revision``, which may be abbreviated."""
    lines = (builder.DATA / "revisions.txt").read_text(encoding="ascii").splitlines()
    commit = next(line[:40] for line in lines if line.startswith(revision))
    found = builder_output.bundled(commit)
    assert found is not None, f"{revision} is not in the bundled data"
    return found


def choose(kernel: Manifest, output: Output) -> Target:
    """The variant for the CPU that this machine builds."""
    tools = toolchain.detect()
    assert tools.torch is not None
    return target.choose(kernel, tools, target.variant_name(kernel, tools.system, tools.torch, "cpu"), output)


def describe(kernel_dir: Path, commit: str, revision: str) -> tuple[str, tuple[str, ...], dict[str, Any]]:
    """The variant's name, its files, and its metadata.json but for the digest."""
    kernel, output = manifest.load(kernel_dir), output_of(revision)
    chosen = choose(kernel, output)
    found = sources.read(kernel, chosen.backend, output)
    state = GitState(commit, False, kernel_dir)
    name = f"_{kernel.python_name}_cpu_{build.unique_id(state, found.hash)}"
    extension = Path("extension.so") if chosen.is_compiled else None
    listed = layout.files(kernel, chosen, found, name, extension, output)
    described = layout.metadata(kernel, chosen, name, state, (), output)
    return chosen.variant, tuple(sorted({*listed, layout.METADATA})), described


def ops_text(kernel_dir: Path, commit: str, revision: str) -> str:
    """``_ops.py``."""
    kernel, output = manifest.load(kernel_dir), output_of(revision)
    return project.ops_file(choose(kernel, output), f"_{kernel.python_name}_cpu_{commit[:7]}", output)


def options(
    kernel_dir: Path, commit: str, revision: str, work: Path
) -> tuple[Mapping[str, tuple[str, ...]], tuple[str, ...]]:
    """The options of the compiler for each source, and of the linker; nothing is compiled."""
    kernel, output, tools = manifest.load(kernel_dir), output_of(revision), toolchain.detect()
    chosen = choose(kernel, output)
    found = sources.read(kernel, chosen.backend, output)
    name = f"_{kernel.python_name}_cpu_{commit[:7]}"
    made: Project = project.generate(kernel, chosen, tools, name, found, output)
    for path, text in made.files.items():
        (work / path).parent.mkdir(parents=True, exist_ok=True)
        (work / path).write_text(text, encoding="utf-8")
    command = [tool("cmake"), "-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={tool('ninja')}", "-S", work]
    subprocess.run(
        [*command, "-B", work / _TREE, *project.compiler_arguments(chosen, tools)],
        check=True, capture_output=True,
    )  # fmt: skip
    said = subprocess.run(
        [tool("ninja"), "-C", work / _TREE, "-t", "commands"], check=True, capture_output=True, text=True
    ).stdout
    folders = {work / _TREE: "BUILD", work: "PROJECT", kernel_dir.resolve(): "KERNEL"}
    return variant.options(said, folders, commit[:7])
