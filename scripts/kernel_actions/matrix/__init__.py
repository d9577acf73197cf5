"""``matrix``: the jobs that build and test kernels, planned without Nix."""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernel_actions import console, manifest, planning, schema, settings, variants
from kernel_actions.builder_source import Source
from kernel_actions.errors import EXIT_DONE, KernelActionsError, Place, WrongInput, printable
from kernel_actions.manifest import BACKENDS
from kernel_actions.matrix import jobs as jobs_
from kernel_actions.matrix import monorepo
from kernel_actions.matrix.jobs import Job, Part
from kernel_actions.matrix.monorepo import Concerned
from kernel_actions.named_tuple import NamedTuple
from kernel_actions.planning import KernelPlan
from kernel_actions.settings import Selector, Settings
from kernel_actions.variants import LeftOut, Variant

if TYPE_CHECKING:
    from kernel_actions.cli import Options

# A file of durations has a line for each variant.
_LARGEST_DURATIONS = 10_000_000


class Selection(NamedTuple):
    """What the options of ``matrix`` and ``[matrix]`` of kernel-actions.toml keep.

    A selector that is not there keeps everything. ``untrusted`` keeps only what hosted runners build.
    """

    scope: str
    selectors: Mapping[str, Selector]
    untrusted: bool = False

    def reason_against(self, variant: Variant) -> tuple[str, Place | None] | None:
        """Why ``variant`` is not selected, and where that is said; ``None`` when it is."""
        if self.scope == "release" and not variant.bundled:
            return "not in the builder's bundle (scope release)", None
        if self.scope == "pr" and not variant.chosen_for_ci:
            return "not the one that the builder's CI builds (scope pr)", None
        names = (variant.name, *variant.arch_names)
        for key, values in (
            ("backends", (variant.backend,)),
            ("systems", (variant.system,)),
            # A noarch variant serves every Torch of its build sets.
            ("torch", variant.torches),
        ):
            selector = self.selectors.get(key)
            if selector and not any(value in selector.values for value in values):
                return f"{', '.join(values)} is not in {_shown(key, selector)}", _place(selector)
        if (only := self.selectors.get("only")) and not any(_matches(name, only.values) for name in names):
            return f"does not match {_shown('only', only)}", _place(only)
        if skip := self.selectors.get("skip"):
            for pattern in skip.values:
                if any(_matches(name, (pattern,)) for name in names):
                    return f"matches {_shown('skip', skip)} {pattern}", _place(skip)
        return None


class PlannedKernel(NamedTuple):
    """A kernel's part of the matrix: the selected variants, and what was left out.

    ``held_back`` of the latter were left out as the code is untrusted. ``changed`` is why it is planned,
    where only changed kernels are.
    """

    directory: str
    plan: KernelPlan
    selected: tuple[Variant, ...]
    left_out: tuple[LeftOut, ...]
    settings: Settings
    held_back: int = 0
    changed: str = ""

    @property
    def name(self) -> str:
        """The kernel's name."""
        return self.plan.manifest.name

    def jobs(self) -> list[Job]:
        """A job for each selected variant; one that several systems share is built once."""
        return [
            Job(
                parts=(Part(self.name, self.directory, variant),),
                runner=self.settings.build_runner(variant.system, variant.backend),
                test_runner=self.settings.test_runner(variant.system, variant.backend),
                limits=self.settings.limit(variant.backend),
            )
            for variant in self.selected
        ]


class Matrix(NamedTuple):
    """The jobs of all kernels, and the kernels that were left out as a whole, each with its reason.

    ``checked`` are the name and the folder of each kernel that compliance has to look at: those that are
    planned, and those with a changed file that no build or test reads. Of ``untrusted`` code only what hosted
    runners test is tested.
    """

    kernels: tuple[PlannedKernel, ...]
    jobs: tuple[Job, ...]
    unchanged: tuple[tuple[str, str], ...] = ()
    checked: tuple[tuple[str, str], ...] = ()
    untrusted: bool = False

    @property
    def tests(self) -> tuple[Job, ...]:
        """The jobs that can be tested."""
        return tuple(job for job in self.jobs if not self.untrusted or settings.is_hosted(job.test_runner))

    @property
    def held_back(self) -> int:
        """The number of variants that are not built, or not tested, as the code is untrusted."""
        untested = sum(len(job.parts) for job in self.jobs) - sum(len(job.parts) for job in self.tests)
        return sum(kernel.held_back for kernel in self.kernels) + untested

    def as_json(self) -> dict[str, Any]:
        """The plan for programs."""
        builders = {one.plan.builder.commit: one.plan.builder.as_json() for one in self.kernels}
        return {
            "include": [job.as_json() for job in self.jobs],
            "filtered": [
                {
                    "kernel": kernel.name,
                    "variant": one.name,
                    "system": one.system,
                    "reason": one.reason,
                    **({"where": str(one.where)} if one.where else {}),
                }
                for kernel in self.kernels
                for one in kernel.left_out
            ],
            "count": len(self.jobs),
            # What a plan was made for. Several kernels may be built with several revisions.
            "builder": next(iter(builders.values())) if len(builders) == 1 else None,
            "kernels": [
                {
                    "kernel": one.name,
                    "dir": one.directory,
                    "variants": len(one.selected),
                    "builder": one.plan.builder.as_json(),
                    **({"changed": one.changed} if one.changed else {}),
                }
                for one in self.kernels
            ],
            "checked": [{"kernel": name, "dir": directory} for name, directory in self.checked],
            "unchanged": [{"dir": directory, "reason": reason} for directory, reason in self.unchanged],
        }


def select(plan: KernelPlan, directory: str, own: Settings, selection: Selection) -> PlannedKernel:
    """The selected variants of a kernel's plan. Pure."""
    selected: list[Variant] = []
    left_out = list(plan.variants.left_out)
    held_back: set[str] = set()
    for variant in plan.variants.variants:
        reason = selection.reason_against(variant)
        runner = own.build_runner(variant.system, variant.backend)
        if reason is None and selection.untrusted and not settings.is_hosted(runner):
            reason = f"is built on {runner}, which untrusted code does not get", None
            held_back.add(variant.name)
        if reason is None:
            selected.append(variant)
        else:
            left_out.append(LeftOut(variant.name, variant.system, *reason))
    # One that several systems share is built on a hosted runner if any of them has one.
    held_back -= {one.name for one in selected}
    return PlannedKernel(directory, plan, variants.build_once(selected), tuple(left_out), own, len(held_back))


def source(options: Options) -> Source:
    """Where the options say that the builder is."""
    return Source(options.builder_rev, Path(options.builder_dir) if options.builder_dir else None)


def selection(options: Options, own: Settings) -> Selection:
    """What the options keep, else what kernel-actions.toml says. Raises ``WrongInput`` for unknown names."""
    given = {
        name: Selector(tuple(values), Place(Path(f"--{name}")))
        for name in settings.SELECTORS
        if (values := getattr(options, name))
    }
    selectors = {**own.selectors, **given}
    _check_known("backends", selectors, BACKENDS)
    _check_known("systems", selectors, variants.SYSTEMS)
    return Selection(options.scope, selectors, options.untrusted)


def run(options: Options) -> int:
    """The command ``matrix``."""
    from kernel_actions.matrix import output

    if options.explain:
        from kernel_actions.matrix import explain

        return explain.run(options, options.explain)
    durations = _durations(options.durations)
    concerned = _concerned(options)
    kernels = _plan_all(concerned.planned, options)
    for kernel in kernels:
        for warning in (*kernel.plan.manifest.warnings, *kernel.plan.builder.remarks):
            console.say(printable(f"kernel-actions: warning: {warning}"))
    for name, directory, other in _same_names(kernels):
        where = printable(f"{directory} and {other}")
        console.say(
            f"kernel-actions: warning: {where} are both named {name}: artifacts of one replace the other's"
        )
    planned = jobs_.group((job for kernel in kernels for job in kernel.jobs()), options.group_by)
    packed = tuple(jobs_.pack(planned, options.max_jobs, durations))
    matrix = Matrix(
        tuple(kernels),
        packed,
        tuple((one.directory.as_posix(), one.reason) for one in concerned.unchanged),
        _checked(concerned, kernels),
        options.untrusted,
    )
    _check_empty(matrix, options)
    output.PRINTERS[options.format](matrix)
    return EXIT_DONE


def _same_names(kernels: Sequence[PlannedKernel]) -> Iterator[tuple[str, str, str]]:
    """The kernels whose name an earlier one has: the name, its folder and the earlier one's."""
    first: dict[str, str] = {}
    for kernel in kernels:
        other = first.setdefault(kernel.name, kernel.directory)
        if other != kernel.directory:
            yield kernel.name, kernel.directory, other


def _concerned(options: Options) -> Concerned:
    """The kernels to plan and to check, and those that are unchanged."""
    folders = options.kernel_dirs
    if options.discover:
        folders = monorepo.discover(Path(options.discover))
    if options.changed_since:
        from kernel_actions.matrix import changes  # Not at the top: it runs git, which most plans do without.

        return changes.concerned(folders, options.changed_since)
    return Concerned(dict.fromkeys(folders, ""), tuple(folders), ())


def _checked(concerned: Concerned, kernels: Sequence[PlannedKernel]) -> tuple[tuple[str, str], ...]:
    """The name and the folder of each kernel to check."""
    names = {one.directory: one.name for one in kernels}
    return tuple(
        (names.get(folder.as_posix()) or _name(folder), folder.as_posix()) for folder in concerned.checked
    )


def _name(folder: Path) -> str:
    """The name of a kernel that is not planned; that of its folder where its build.toml cannot be read, which
    checking it reports."""
    try:
        return manifest.load(folder).name
    except KernelActionsError:
        return folder.resolve().name


def _plan_all(folders: Mapping[Path, str], options: Options) -> list[PlannedKernel]:
    """The plan of each kernel. Raises what is wrong in any of them, all at once."""
    builder = source(options)
    kernels: list[PlannedKernel] = []
    errors: list[KernelActionsError] = []
    known: dict[Path, Mapping[str, Any]] = {}
    for folder in {folder.resolve(): folder for folder in folders}.values():
        try:
            own = settings.load(folder, known)
            wanted = selection(options, own)
            kernel = select(planning.plan(folder, builder), folder.as_posix(), own, wanted)
            kernels.append(kernel._replace(changed=folders[folder]))
        except KernelActionsError as error:
            errors.append(error)
    if errors:
        # What is wrong in the repository's kernel-actions.toml is so for each kernel, and said once.
        first, *others = {str(one): one for error in errors for one in error.all}.values()
        first.others = tuple(others)
        raise first
    return kernels


def _check_empty(matrix: Matrix, options: Options) -> None:
    if matrix.jobs or options.allow_empty:
        return
    if not matrix.kernels:
        what = f"no build or test of a kernel reads what has changed since {options.changed_since[:80]!r}"
        raise WrongInput(what, repair="allow it with --allow-empty")
    reasons = dict.fromkeys(one.reason for kernel in matrix.kernels for one in kernel.left_out)
    shown = list(reasons)[:5] + (
        [f"and {console.counted(len(reasons) - 5, 'more reason')}"] if len(reasons) > 5 else []
    )
    names = ", ".join(str(Path(kernel.directory) / "build.toml") for kernel in matrix.kernels[:3])
    raise WrongInput(
        f"no variant of {names} is selected: "
        + ("; ".join(shown) if shown else "the builder has no build set for its backends"),
        repair=_there_is(matrix, options) + "widen the selection, or allow it with --allow-empty",
    )


def _there_is(matrix: Matrix, options: Options) -> str:
    """What can be selected, in words, for the options that select nothing of it."""
    wanted = Selection(options.scope, {})
    there = [
        one
        for kernel in matrix.kernels
        for one in kernel.plan.variants.variants
        if wanted.reason_against(one) is None
    ]
    known = {
        "backends": [one.backend for one in there],
        "systems": [one.system for one in there],
        "torch": [torch for one in there for torch in one.torches],
    }
    said = [
        f"--{name} can be {', '.join(values)}; "
        for name, found in known.items()
        if (values := dict.fromkeys(found))
        and (given := getattr(options, name))
        and not values.keys() & given
    ]
    names = [name for one in there for name in (one.name, *one.arch_names)]
    if options.only and names and not any(_matches(name, tuple(options.only)) for name in names):
        said.append(f"the variants have names like {names[0]}; ")
    return "".join(said)


def _durations(path: str) -> dict[str, float]:
    """What variants took before, in seconds, from a JSON file."""
    if not path:
        return {}
    from kernel_actions import toml_file

    where = Place(Path(path))
    repair = 'as in {"relu/torch213-cxx11-cu130-x86_64-linux": 820}'
    try:
        values = json.loads(toml_file.read_bytes(Path(path), _LARGEST_DURATIONS))
    except OSError as error:
        raise WrongInput(f"cannot be read: {error.strerror}", where=where) from error
    except (ValueError, RecursionError) as error:
        raise WrongInput("is not JSON", where=where, repair=repair) from error
    if not isinstance(values, dict):
        raise WrongInput("is not an object of seconds by variant", where=where, repair=repair)
    for name, value in values.items():
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not 0 < value < 1e7:
            raise WrongInput(f"{name[:80]!r} is not a number of seconds", where=where, repair=repair)
    return {name: float(value) for name, value in values.items()}


def _check_known(name: str, selectors: Mapping[str, Selector], known: tuple[str, ...]) -> None:
    for value in selectors[name].values if name in selectors else ():
        if value not in known:
            close = schema.nearest(value, known)
            raise WrongInput(
                f"{_shown(name, selectors[name])} has {value[:80]!r}, which is not one of {', '.join(known)}",
                where=_place(selectors[name]),
                repair=f"did you mean {close}?" if close else "",
            )


def _shown(name: str, selector: Selector) -> str:
    return f"--{name}" if _place(selector) is None else f"matrix.{name}"


def _place(selector: Selector) -> Place | None:
    """Where a selector stands; ``None`` for one of the command line."""
    return None if str(selector.where).startswith("--") else selector.where


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
