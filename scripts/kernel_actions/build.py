"""``build``: variants of a kernel by Nix, or one with the compiler and Torch of this machine.

This module is the command, and the local builder's part; ``nix/building.py`` is Nix's.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shutil
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernel_actions import (
    build_folder,
    builder,
    builder_output,
    builder_source,
    built,
    console,
    git,
    github,
    loading,
    manifest,
    markdown,
    process,
)
from kernel_actions.builder_output import Output
from kernel_actions.errors import EXIT_DONE, KernelFailed, Place, WrongInput, WrongSurroundings
from kernel_actions.git import GitState
from kernel_actions.local_builder import compilation, layout, project, sources, target, toolchain
from kernel_actions.local_builder.project import Project
from kernel_actions.local_builder.sources import Sources
from kernel_actions.local_builder.target import Target
from kernel_actions.local_builder.toolchain import Toolchain
from kernel_actions.manifest import Manifest

if TYPE_CHECKING:
    from kernel_actions.cli import Options

# As many digits as the builder takes of a commit.
_SHORT = 7
# What the builder's Torch for the CPU depends on, and pip's does not. Source: 8ac69fc5,
# nix-builder/pkgs/python-modules/torch/binary/generic.nix:273.
_BROUGHT_BY_TORCH = ("triton",)


@dataclass(frozen=True)
class BuildReport:
    """How a variant came to be; it is kept beside the variant, in ``<variant>.build-report.json``.

    ``planned``: the locked builder makes this variant too (``None``: not known). ``id`` is the name
    of the kernel's operators; ``commit`` is ``None`` outside of git; ``dirty``: what was built is
    not what the commit holds. ``torch``, ``compiler`` and ``nvcc`` are versions, ``None`` where nothing
    was compiled (with them). ``seconds`` is what the build took, ``bytes`` and ``files`` what the variant's
    folder holds. ``sources`` is a hash of the sources alone, ``fingerprint`` of all that went into it.
    ``digest`` has the hashes of the files where metadata.json lists none. ``reused``: it was there already.
    """

    variant: str
    builder: str
    sandbox: bool
    planned: bool | None
    backend: str
    id: str
    commit: str | None
    dirty: bool
    torch: str | None
    compiler: str | None
    nvcc: str | None
    seconds: float
    bytes: int
    files: int
    sources: str
    fingerprint: str
    path: Path
    digest: dict[str, Any] | None = None
    reused: bool = False

    def as_json(self) -> dict[str, Any]:
        """The report for programs, as it stands in the file beside the variant."""
        return {name: value for name, value in asdict(self).items() if name not in ("path", "reused")}


@dataclass(frozen=True)
class _Plan:
    """All that decides what a variant will hold."""

    kernel: Manifest
    target: Target
    tools: Toolchain
    found: Sources
    git_state: GitState | None
    ops_name: str
    made: Project
    output: Output

    @property
    def metadata(self) -> dict[str, Any]:
        return layout.metadata(
            self.kernel, self.target, self.ops_name, self.git_state, self.made.capabilities, self.output
        )

    @property
    def fingerprint(self) -> str:
        """One hash of everything: with the same one there is nothing to build."""
        # The project names the kernel's folder; where that is does not matter to what is built.
        folder = str(self.kernel.directory.resolve())
        files = {name: text.replace(folder, "") for name, text in self.made.files.items()}
        parts = [
            files, self.found.hashes, self.found.package, self.metadata,
            project.template("old_loader.py"), self.output,
            str(self.tools) if self.target.is_compiled else "",
        ]  # fmt: skip
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def run(options: Options) -> int:
    """The command ``build``.

    Raises ``WrongInput``, ``KernelFailed`` (a compile error) and ``WrongSurroundings``.
    """
    if _is_for_nix(options):
        from kernel_actions.nix import building

        return building.run(options)
    return _run_locally(options)


def _is_for_nix(options: Options) -> bool:
    """What builds: as ``--backend-tool`` says; ``auto`` is Nix for variants that are named, where it can.

    Without a name the variant is the one that this machine can load, which the local builder knows.
    """
    if options.import_tests or options.backend_tool == "nix":
        return True
    if options.backend_tool == "local" or not (options.kernel_dir / "build.toml").is_file():
        return False
    if not options.variant:
        return False
    from kernel_actions.nix import checks

    reason = checks.why_not_nix(options.kernel_dir)
    # The local builder starts anew in its environment, where this was said already.
    if not reason or sys.flags.no_site:
        console.say(f"Building with the local builder: {reason}" if reason else "Building with Nix")
    return not reason


def _run_locally(options: Options) -> int:
    """The command with the local builder, which takes an environment with Torch, unlike Nix."""
    if len(options.variant) > 1:
        raise WrongInput(
            f"the local builder builds one variant, and {len(options.variant)} are named",
            repair="name the one for this machine, or none; --backend-tool nix builds several",
        )
    for name in ("push-to", "check-reproducible", "export-tests"):
        if getattr(options, name.replace("-", "_")):
            raise WrongInput(f"--{name} is for builds by Nix", repair="give --backend-tool nix with it")
    if sys.flags.no_site:
        from kernel_actions.app import venv
        from kernel_actions.options import BUILD

        # The token for a cache is none of its business: its environment is made without secrets.
        without_token = BUILD._replace(options=tuple(one for one in BUILD.options if not one.secret))
        venv.restart_in(without_token, sys.argv[1:], "kernel")
    report = build(
        options.kernel_dir,
        options.variant[0] if options.variant else "",
        Path(options.output),
        annotate=options.format == "github",
    )
    archive = ""
    if options.archive:
        from kernel_actions.nix import results

        archive = str(options.kernel_dir / options.archive / f"{report.variant}.tar")
        results.pack(report.path, Path(archive))
    if options.format == "json":
        print(json.dumps({**report.as_json(), "path": str(report.path), "reused": report.reused}, indent=2))
        return EXIT_DONE
    header = ("variant", "folder", "files", "size", "time")
    took = "up to date" if report.reused else console.duration(report.seconds)
    row = (report.variant, str(report.path), str(report.files), console.size(report.bytes), took)
    print(console.table(header, [row]))
    if options.format == "github":
        github.set_outputs({"variant": report.variant, "path": str(report.path), "archive": archive})
        github.add_summary(
            markdown.join(
                markdown.heading("passed", f"Build: {report.variant}, {took}"), markdown.table(header, [row])
            )
        )
    return EXIT_DONE


def build(
    kernel_dir: Path,
    variant: str = "",
    output: Path = Path("build"),
    *,
    annotate: bool = False,
    tools: Toolchain | None = None,
    is_loaded: bool = True,
) -> BuildReport:
    """Build ``variant`` of the kernel (empty: the one that this machine can build and load) into
    ``output/<variant>``; ``output`` is relative to the kernel's folder unless it is absolute.

    Nothing is done when the variant is there and nothing has changed. The variant is replaced as a
    whole or not at all. ``annotate`` shows compile errors on the job's page. ``tools`` are in place of
    what this machine has. ``is_loaded``: the variant has to load in a fresh process.

    Raises ``WrongInput``, ``KernelFailed`` (a compile error) and ``WrongSurroundings``.
    """
    started = time.monotonic()
    kernel = manifest.load(kernel_dir)
    layout.check_digest()
    tools = tools or toolchain.detect()
    output_of_builder, remark = _output_of_builder(kernel_dir)
    chosen = target.choose(kernel, tools, variant, output_of_builder)
    target.check_dependencies(kernel, chosen)
    output = kernel_dir / output
    _check_folders(kernel, chosen, output)
    folder = output / chosen.variant
    work = build_folder.prepare(output) / chosen.variant
    is_planned = _is_planned(kernel_dir, chosen.variant)
    if is_planned is False:
        console.say(
            f"{chosen.variant} is not among the variants of the locked builder: it is for this machine alone"
        )
    lock = work.with_name(f"{chosen.variant}.lock")
    with build_folder.on_disk(output), process.locked(lock, f"Another command is building {chosen.variant}"):
        layout.recover(work.with_name(f"{chosen.variant}.new"), folder)
        plan = _plan(kernel, chosen, tools, output_of_builder)
        kept = _reusable(built.build_report_path(folder), folder, plan.fingerprint)
        if kept is not None:
            # For `pip install -e`, also where the folder was moved.
            _write_project(plan, work)
            _write_package(plan, work)
            return replace(kept, planned=is_planned)
        jobs = compilation.job_count(os.environ, chosen.backend == "cuda")
        if remark:
            console.say(remark)
        console.say(f"Building {chosen.variant} of {kernel.name} ({_with(chosen, tools)})")
        extension = _compile(plan, work, jobs, annotate)
        report = _lay_out(plan, work, folder, extension, is_loaded)
        report = replace(report, planned=is_planned, seconds=round(time.monotonic() - started, 1))
        built.write_json(built.build_report_path(folder), report.as_json())
    return report


def _check_folders(kernel: Manifest, chosen: Target, output: Path) -> None:
    """Raise ``WrongInput`` for an output folder that is not one for what is built alone, and for paths
    that cannot be compiled in."""
    listed = sources.folders(kernel, chosen.backend) if chosen.is_compiled else ()
    build_folder.check(kernel.directory, output, listed)
    directory, resolved = kernel.directory.resolve(), output.resolve()
    try:
        str(resolved).encode()
    except UnicodeEncodeError as error:
        raise WrongInput("--output is not UTF-8", where=Place(output), repair="rename the folder") from error
    paths = (("the kernel's folder", directory), ("the output folder", resolved))
    for what, path in paths if chosen.is_compiled else ():
        if unfit := sources.unfit_character(str(path)):
            raise WrongInput(
                f"the path of {what} has the character {unfit!r}, which CMake cannot take",
                where=Place(path),
                repair="use a folder without it",
            )


def _output_of_builder(kernel_dir: Path) -> tuple[Output, str]:
    """What the locked builder makes, and a remark; what the newest makes where none is locked."""
    try:
        return builder_source.find_output(kernel_dir, builder_source.from_environment())
    except WrongInput as error:
        commit = builder.newest()[0][:8]
        return builder_output.newest(), f"The variant will be as builder {commit} makes it: {error}"


def _plan(kernel: Manifest, chosen: Target, tools: Toolchain, output: Output) -> _Plan:
    if chosen.is_compiled:
        compilation.check_toolchain(chosen, tools)
    found = sources.read(kernel, chosen.backend, output)
    git_state = git.state(kernel.directory)
    if git_state is not None and not _is_tracked(found, kernel.directory):
        # The commit does not hold what is built.
        git_state = replace(git_state, dirty=True)
    backend = f"{chosen.backend}_" if output.backend_in_ops else ""
    ops_name = f"_{kernel.python_name}_{backend}{unique_id(git_state, found.hash)}"
    return _Plan(
        kernel=kernel,
        target=chosen,
        tools=tools,
        found=found,
        git_state=git_state,
        ops_name=ops_name,
        made=project.generate(kernel, chosen, tools, ops_name, found, output),
        output=output,
    )


def unique_id(git_state: GitState | None, source_hash: str) -> str:
    """What tells this state of the kernel from all others, as a part of the operators' name.

    It is the commit, as with the builder; where the commit does not say everything, a hash of the
    sources does, so that no two states share a name in one process.
    """
    if git_state is None:
        return f"local_{source_hash[:_SHORT]}"
    short = git_state.commit[:_SHORT]
    return f"{short}_dirty_{source_hash[:_SHORT]}" if git_state.dirty else short


def _is_tracked(found: Sources, directory: Path) -> bool:
    outside = {name for name in found.hashes if name.startswith("../")}
    return found.hashes.keys() - outside <= git.tracked(directory)


def _compile(plan: _Plan, work: Path, jobs: int, annotate: bool) -> Path | None:
    """Write the project, compile it, and return the extension; ``None`` for a noarch variant."""
    _write_project(plan, work)
    if not plan.target.is_compiled:
        _write_package(plan, work)
        return None
    compiling = compilation.Build(work, plan.kernel, plan.target, plan.tools, plan.made, annotate)
    extension = compiling.run(plan.ops_name, jobs)
    # Not before it compiled: who has installed the project keeps what worked.
    package = _write_package(plan, work)
    for stale in package.glob("*.abi3.so"):
        stale.unlink()
    (package / extension.name).symlink_to(Path("..") / extension.parent.name / extension.name)
    return extension


def _write_project(plan: _Plan, work: Path) -> None:
    """Write the project's files that have changed, but for those of the Python package."""
    for name, text in plan.made.files.items():
        if not name.startswith(f"{plan.kernel.python_name}/"):
            built.write_changed(work / name, text)


def _write_package(plan: _Plan, work: Path) -> Path:
    """Write the Python package: what is generated, and links to the author's files, so that what is
    edited there is seen at once by who installed the project."""
    package = work / plan.kernel.python_name
    for name, text in plan.made.files.items():
        if name.startswith(f"{plan.kernel.python_name}/"):
            built.write_changed(work / name, text)
    original = (plan.kernel.directory / sources.PACKAGE_ROOT / plan.kernel.python_name).resolve()
    wanted = {package / name: original / name for name in plan.found.package}
    for link in [path for path in package.rglob("*") if path.is_symlink()]:
        if link.suffix != ".so" and (link not in wanted or link.readlink() != wanted[link]):
            link.unlink()
    for link, file in wanted.items():
        if not link.is_symlink():
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(file)
    return package


def _lay_out(plan: _Plan, work: Path, folder: Path, extension: Path | None, is_loaded: bool) -> BuildReport:
    """Write the variant beside its place, load it, and swap it in."""
    new = work.with_name(f"{plan.target.variant}.new")
    listed = layout.files(plan.kernel, plan.target, plan.found, plan.ops_name, extension, plan.output)
    try:
        layout.write(new, listed, plan.metadata, plan.output)
        if is_loaded:
            _check_loads(plan, new)
        layout.swap_in(new, folder)
    finally:
        shutil.rmtree(new, ignore_errors=True)
    tools = plan.tools if plan.target.is_compiled else None
    sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
    return BuildReport(
        variant=plan.target.variant,
        builder="local",
        sandbox=False,
        planned=None,
        backend=plan.target.backend,
        id=plan.ops_name,
        commit=plan.git_state.commit if plan.git_state else None,
        dirty=plan.git_state is None or plan.git_state.dirty,
        torch=tools.torch.version if tools and tools.torch else None,
        compiler=f"{tools.compiler.kind} {tools.compiler.version}" if tools and tools.compiler else None,
        nvcc=tools.nvcc.version if tools and tools.nvcc and plan.target.backend == "cuda" else None,
        seconds=0.0,
        bytes=sum(sizes),
        files=len(sizes),
        sources=plan.found.hash,
        fingerprint=plan.fingerprint,
        path=folder,
        digest=built.missing_digest(folder),
    )


def _check_loads(plan: _Plan, folder: Path) -> None:
    """Load the variant in a fresh process, as the builder does before it publishes one.

    What compiles need not load: a symbol may be missing, or ``REGISTER_EXTENSION``, or the Python
    code may be wrong. A variant of Python alone can be built for a backend that this machine's Torch is
    not for: it is not loaded. Raises ``KernelFailed`` with what the loader says, and ``WrongSurroundings``
    where this Python lacks what the builder's Torch brings.
    """
    backend = plan.target.backend
    needs_others = plan.kernel.all_python_depends(backend) or plan.kernel.all_kernel_depends(backend)
    if needs_others or importlib.util.find_spec("kernels") is None:
        return  # It may lack here what it finds elsewhere.
    with tempfile.TemporaryDirectory(prefix="kernel-actions-load-") as name:
        # By itself and under its name, as the loader chooses variants by name.
        shutil.copytree(folder, Path(name) / "build" / plan.target.variant)
        answer = loading.load(["--folder", name], environment={})
    if not answer.get("expected", True) and not plan.target.is_compiled:
        console.say(f"Not loaded here: {answer['rejected']}")
        return
    problem = answer.get("error") or answer.get("rejected")
    if not problem:
        return
    said = f"{plan.target.variant} was built, but does not load: {problem}"
    where = Place(plan.kernel.directory / sources.PACKAGE_ROOT / plan.kernel.python_name)
    brought = next((name for name in _BROUGHT_BY_TORCH if f"No module named {name!r}" in problem), None)
    if brought is not None:
        raise WrongSurroundings(
            said, where=where, repair=f"install {brought}, which this Torch does not bring"
        )
    repair = "see that each function is defined as it is declared, in a file of `src` in build.toml"
    raise KernelFailed(said, where=where, repair=repair if "undefined symbol" in problem else "")


def _reusable(report: Path, folder: Path, fingerprint: str) -> BuildReport | None:
    """The report on the variant that is there, if nothing has changed since."""
    try:
        values = json.loads(report.read_bytes())
        kept = BuildReport(**values, path=folder, reused=True)
    except (OSError, ValueError, TypeError):
        return None
    return kept if kept.fingerprint == fingerprint and layout.is_intact(folder) else None


def _is_planned(kernel_dir: Path, variant: str) -> bool | None:
    """Whether the locked builder makes ``variant``; ``None`` where its plan is not known."""
    from kernel_actions import planning

    try:
        return any(one.name == variant for one in planning.planned_variants(kernel_dir))
    except (WrongInput, WrongSurroundings):
        return None


def _with(chosen: Target, tools: Toolchain) -> str:
    if not chosen.is_compiled or tools.torch is None or tools.compiler is None:
        return "Python alone"
    parts = [f"Torch {tools.torch.version}", f"{tools.compiler.kind} {tools.compiler.version}"]
    if chosen.backend == "cuda" and tools.nvcc is not None:
        parts.append(f"nvcc {tools.nvcc.version}")
    return ", ".join(parts)
