"""Running CMake and Ninja on a generated project."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from kernel_actions import console, github, process
from kernel_actions.errors import KernelFailed, Place, WrongInput, WrongSurroundings
from kernel_actions.local_builder import headers, messages, project
from kernel_actions.local_builder.messages import CompilerError
from kernel_actions.local_builder.project import Project
from kernel_actions.local_builder.target import Target
from kernel_actions.local_builder.toolchain import Toolchain, tool
from kernel_actions.manifest import Manifest

# What one compiler takes, in bytes: Torch's headers in C++, and nvcc on device code.
_CXX_MEMORY = 1_500_000_000
_NVCC_MEMORY = 5_000_000_000
# Compilers say little that is worth reading after this many errors.
_SHOWN_ERRORS = 10
_STEP = re.compile(r"\[(?P<done>\d+)/(?P<all>\d+)\] (?:Building|Linking) \w+ (?P<what>.*)")
# The file, and its function where the error is not of the generation that follows the last of them.
_CMAKE_ERROR = re.compile(
    r"^CMake Error(?: (?:at|in) (?P<file>[^:\n]+):(?:\d+ \((?P<command>\w+)\))?)?", re.MULTILINE
)
_OF_MACHINE = ("cmake_minimum_required", "project", "find_package")
_CONFIGURED = "kernel-actions-configured"
# Runs a program that is asked to end when its parent is gone: after a `kill -9` no compiler goes on
# in a folder whose lock is free. Prctl's option 1 is PR_SET_PDEATHSIG; it outlasts the exec.
_WITH_PARENT = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, int(signal.SIGTERM))
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""


def check_toolchain(target: Target, toolchain: Toolchain) -> None:
    """Raise ``WrongSurroundings`` when this machine lacks what any compilation takes."""
    if toolchain.compiler is None:
        raise WrongSurroundings(
            "no C++ compiler is installed", repair="install g++ or clang++, or let CXX name one"
        )
    if not toolchain.compiler.has_shared_library:
        raise WrongSurroundings(
            f"{toolchain.compiler.path} finds no shared libstdc++: it would link a static copy, and an "
            "exception between the kernel and Torch would crash",
            repair="let CXX name another compiler, or install its libstdc++ for development",
        )
    if not (toolchain.python_include / "Python.h").is_file():
        raise WrongSurroundings(
            f"Python's headers are not installed: {toolchain.python_include}/Python.h is missing",
            repair="install python3-dev of your system",
        )
    if target.backend == "cuda":
        assert toolchain.nvcc is not None


class Build:
    """The compilation of one project, in the folder ``folder`` that holds its files."""

    def __init__(
        self,
        folder: Path,
        kernel: Manifest,
        target: Target,
        toolchain: Toolchain,
        made: Project,
        annotate: bool,
    ) -> None:
        # Beside the Python package, which may have any name but one with a dot.
        self.tree = folder / ".cmake"
        self.log = folder / "build.log"
        self._folder = folder
        self._kernel = kernel
        self._kernel_dir = kernel.directory
        self._target = target
        self._toolchain = toolchain
        self._project = made
        self._annotate = annotate

    def run(self, ops_name: str, jobs: int) -> Path:
        """Compile what has changed and return the extension.

        Raises ``KernelFailed`` with the place of a compile error, ``WrongInput`` for a header that no ``src``
        of build.toml lists, ``WrongSurroundings`` when the memory or the disk did not suffice, or a tool is
        missing.
        """
        self.log.write_bytes(b"")
        self._configure()
        if self._call([tool("ninja"), "-C", self.tree, "-j", str(jobs)]) != 0:
            self._fail_compiling()
        headers.check(self._kernel, self._dependencies(), self._tool_folders())
        extension = self.tree / f"{ops_name}.abi3.so"
        for stale in self.tree.glob("*.abi3.so"):
            if stale != extension:
                stale.unlink()
        return extension

    def _dependencies(self) -> dict[str, tuple[Path, ...]]:
        """What each source was compiled of, as the compilers said."""
        said = process.run([tool("ninja"), "-C", self.tree, "-t", "deps"])
        return headers.parse_dependencies(said.output, self.tree.resolve())

    def _tool_folders(self) -> tuple[Path, ...]:
        torch, nvcc = self._toolchain.torch, self._toolchain.nvcc
        found = [self._folder, self._toolchain.python_include, *self._toolchain.cuda_includes]
        found += [torch.folder] if torch else []
        found += [nvcc.path.parents[1] / name for name in ("include", "targets")] if nvcc else []
        return tuple(found)

    def _configure(self) -> None:
        """Run CMake, unless it has run with the same tools; Ninja runs it again by itself when
        CMakeLists.txt has changed."""
        mark = self.tree / _CONFIGURED
        arguments = [
            "-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={tool('ninja')}",
            *project.compiler_arguments(self._target, self._toolchain),
        ]  # fmt: skip
        # Ninja follows Torch's headers, but not by what a compiler or a variable was replaced.
        state = f"{self._folder}\n{arguments}\n{self._toolchain}\n"
        with contextlib.suppress(OSError):
            if mark.read_text(encoding="utf-8") == state:
                return
        shutil.rmtree(self.tree, ignore_errors=True)
        command: list[str | Path] = [tool("cmake"), "-S", self._folder, "-B", self.tree, *arguments]
        if self._call(command) != 0:
            output = self._output()
            self._check_surroundings(output)
            what = f"CMake cannot set the build up: {_cmake_error(output)}"
            if _is_of_project(output):
                raise WrongInput(
                    what,
                    where=Place(self._kernel_dir / "build.toml"),
                    repair=f"the whole log is {self.log}",
                )
            raise WrongSurroundings(what, where=Place(self.log))
        mark.write_text(state, encoding="utf-8")

    def _call(self, command: Sequence[str | Path]) -> int:
        """Run a program; its output goes to the log, and its steps are shown."""
        if sys.platform == "linux":
            command = [sys.executable, "-I", "-S", "-c", _WITH_PARENT, str(os.getpid()), *command]
        shown = console.is_verbose()
        with self.log.open("a", encoding="utf-8") as log:

            def on_line(line: str) -> None:
                log.write(line + "\n")
                if shown:
                    console.say(line)
                elif step := _STEP.match(line):
                    console.say(f"  [{step['done']}/{step['all']}] {self._name(step['what'])}")

            with github.untrusted_output() if shown else contextlib.nullcontext():
                return process.run(command, environment=_environment(os.environ), on_line=on_line).returncode

    def _name(self, what: str) -> str:
        """A step of Ninja as people call it: the source's path in the kernel."""
        output = what.split()[-1]
        known = [name for name in self._project.compiled if output.endswith(f"/{name}.o")]
        return max(known, key=len, default=Path(output).name.removesuffix(".o"))

    def _output(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")

    def _check_surroundings(self, output: str) -> None:
        if messages.is_out_of_space(output):
            raise WrongSurroundings(
                "the disk is full", where=Place(self.log), repair="free some space, then build again"
            )
        if messages.is_out_of_memory(output):
            raise WrongSurroundings(
                "a compiler was ended because the memory did not suffice",
                where=Place(self.log),
                repair="set MAX_JOBS to fewer compilers at once",
            )

    def _fail_compiling(self) -> None:
        output = self._output()
        self._check_surroundings(output)
        found = messages.errors(output, self._kernel_dir.resolve(), self._folder.resolve())
        if not found:
            last = next((line for line in reversed(output.splitlines()) if line.strip()), "no output")
            found = (CompilerError(last),)
        if self._annotate:
            # The first one is this command's own error, which is annotated like all of them.
            for error in found[1:_SHOWN_ERRORS]:
                github.annotate("error", error.message, where=self._place(error), title="compile error")
        with github.untrusted_output():
            for error in found[1:_SHOWN_ERRORS]:
                place = self._place(error)
                console.say(f"  also: {place}: {error.message}" if place else f"  also: {error.message}")
        more = f"; {len(found) - 1} more" if len(found) > 1 else ""
        raise KernelFailed(
            found[0].message, where=self._place(found[0]), repair=f"the whole log is {self.log}{more}"
        )

    def _place(self, error: CompilerError) -> Place | None:
        return Place(self._kernel_dir / error.path, error.line, error.column) if error.path else None


def job_count(environment: Mapping[str, str], has_cuda: bool) -> int:
    """How many compilers to run at once: ``MAX_JOBS``, else what cores and memory allow."""
    asked = environment.get("MAX_JOBS", "")
    if asked:
        if not re.fullmatch("[0-9]{1,6}", asked) or int(asked) < 1:
            raise WrongInput(f"MAX_JOBS is {asked[:40]!r}, which is not a whole number above 0")
        return int(asked)
    per_job = _NVCC_MEMORY if has_cuda else _CXX_MEMORY
    return max(1, min(_cores(), _memory() // per_job))


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _memory() -> int:
    """The memory that may be taken, in bytes: the machine's free one, or a container's if less."""
    with contextlib.suppress(OSError, ValueError):
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
        free = re.search(r"^MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
        available = int(free.group(1)) * 1024 if free else _all_memory()
        return available if limit == "max" else min(int(limit), available)
    return _all_memory()


def _all_memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _environment(environment: Mapping[str, str]) -> dict[str, str]:
    # The compilers' messages are read, so they have to be in English and without colours.
    kept = process.without_secrets(environment)
    for name in ("NINJA_STATUS", "CLICOLOR_FORCE", "GCC_COLORS", "MAKEFLAGS", "CMAKE_GENERATOR"):
        kept.pop(name, None)
    return {**kept, "LC_ALL": "C"}


def _is_of_project(output: str) -> bool:
    """Whether CMake's first error is about what build.toml lists.

    The generated file looks for compilers and libraries first, in ``project`` and ``find_package``: those
    are the machine's, and so is what CMake's own files say.
    """
    found = _CMAKE_ERROR.search(output)
    return found is not None and found["file"] == "CMakeLists.txt" and found["command"] not in _OF_MACHINE


def _cmake_error(output: str) -> str:
    """The text of the first error of CMake, without its call stack."""
    block = output.partition("CMake Error")[2].partition("Call Stack")[0]
    lines = [line.strip() for line in block.splitlines()[1:] if line.strip()]
    lines = lines[:3] or [line for line in output.splitlines() if line.strip()][-1:]
    return " ".join(lines) or "it said nothing"
