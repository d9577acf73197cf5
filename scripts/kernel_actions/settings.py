"""kernel-actions.toml: which runners build and test, and what else the suite cannot guess.

The file is optional, in the kernel's folder, in ``.github/`` of the repository, or both: what the kernel's
own says counts. Every key has a default. It exists because build.toml refuses keys that kernel-builder
does not know.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from kernel_actions import schema, toml_file
from kernel_actions.errors import Place
from kernel_actions.manifest import BACKENDS
from kernel_actions.named_tuple import NamedTuple
from kernel_actions.schema import (
    NOT_EMPTY,
    Key,
    List,
    Named,
    Table,
    Text,
    TextOrList,
    TextsOrTable,
    Whole,
)  # fmt: skip
from kernel_actions.toml_file import TomlFile

FILE_NAME = "kernel-actions.toml"
# Before any edition: this file has none.
_ALWAYS = -1


class Runner(NamedTuple):
    """Where a job runs: the ``labels`` that its runner has, all of them, in the ``group``, if one is
    named."""

    labels: tuple[str, ...]
    group: str = ""

    def __str__(self) -> str:
        return ", ".join((*((f"group {self.group}",) if self.group else ()), *self.labels))

    def as_json(self) -> list[str] | dict[str, str | list[str]]:
        """As `runs-on` takes it, from an expression too: a list of labels, or a mapping with a group.

        Read in workflow-parser/src/workflow-v1.0.json of actions/languageservices at 4043eda1: ``runs-on`` is
        a string, a sequence of them, or a mapping of ``group`` and ``labels``. GitHub itself was not asked.
        """
        if not self.group:
            return list(self.labels)
        return {"group": self.group, **({"labels": list(self.labels)} if self.labels else {})}


# Hosted runners of GitHub, where no label is configured.
_HOSTED: Mapping[str, Runner] = {
    "x86_64-linux": Runner(("ubuntu-latest",)),
    "aarch64-linux": Runner(("ubuntu-24.04-arm",)),
    "aarch64-darwin": Runner(("macos-15",)),
}
# Labels that the runner program gives itself on each system.
_SELF_HOSTED: Mapping[str, tuple[str, ...]] = {
    "x86_64-linux": ("self-hosted", "linux", "x64"),
    "aarch64-linux": ("self-hosted", "linux", "arm64"),
    "aarch64-darwin": ("self-hosted", "macos", "arm64"),
}
GPU_BACKENDS = ("cuda", "rocm", "xpu", "tpu")
# The labels of GitHub's standard hosted runners: a machine for each job, which is thrown away after it. This
# is the whole list: a larger runner has any name (`ubuntu-22.04-large`, say), costs money, and may be in a
# network of its owner.
# https://docs.github.com/actions/reference/runners/github-hosted-runners (read on 2026-12-01)
_HOSTED_LABELS = frozenset(
    {
        "ubuntu-latest", "ubuntu-26.04", "ubuntu-24.04", "ubuntu-22.04", "ubuntu-slim",
        "ubuntu-26.04-arm", "ubuntu-24.04-arm", "ubuntu-22.04-arm",
        "windows-latest", "windows-2025", "windows-2025-vs2026", "windows-2022", "windows-11-arm",
        "macos-latest", "macos-26", "macos-15", "macos-14", "macos-26-intel", "macos-15-intel",
    }
)  # fmt: skip
# Longer ones name nothing, and a pattern of 100,000 brackets takes a minute.
_LONGEST_GLOB = 200


def _limit(name: str, unit: str, most: int, description: str, example: int) -> Key:
    whole = Whole(what=f"a whole number of {unit} from 1 to {most}", least=1, most=most)
    return Key(name, whole, description, example=example)


def _selector(name: str, description: str, example: str) -> Key:
    texts = TextOrList(
        Text(what="a string that is not empty", pattern=NOT_EMPTY, longest=_LONGEST_GLOB),
        what="a string or a list of strings",
        hint=f'as in {name} = ["{example}"]',
    )
    return Key(name, texts, description, example=[example])


# convertRunsOn in workflow-parser/src/model/converter/job/runs-on.ts of actions/languageservices at 4043eda1.
GROUP = Text(
    what="the name of a runner group",
    pattern=rf"(?!.*/.*/)(?![^/]*/$)((org|organization|ent|enterprise)/|(?!.*/)){NOT_EMPTY}",
    hint='as in group = "gpus", or "organization/gpus" for the one of that level',
    longest=200,
)


def _runners(name: str, description: str, example: Mapping[str, list[str]]) -> Key:
    label = Text(what="a runner's label", pattern=NOT_EMPTY)
    hint = 'as in "x86_64-linux.cuda" = ["self-hosted", "gpu"], with the quotes, or = { group = "gpus" }'
    runner = TextsOrTable(
        TextOrList(label, what="a list of runner labels, or a table with a group", hint=hint, least=1),
        Table(
            (
                Key("group", GROUP, "The runner group.", required_from=_ALWAYS, example="gpus"),
                Key(
                    "labels",
                    TextOrList(label, what="a list of runner labels", hint='as in labels = ["gpu"]'),
                    "Labels that the runner has as well.",
                    example=["gpu"],
                ),
            )
        ),
    )
    runners = Named(
        "a system, or a system and a backend",
        pattern=f"({'|'.join(_HOSTED)})(\\.({'|'.join(BACKENDS)}))?",
        hint=f'one of {", ".join(_HOSTED)}, alone or as in "x86_64-linux.cuda"',
        of=runner,
        what="a table",
    )
    return Key(name, runners, description, example=example)


def _paths(name: str, description: str, example: list[str]) -> Key:
    globs = TextOrList(
        Text(
            what="a glob of paths",
            # Paths have slashes, and start at a folder of the repository.
            pattern=rf"(?!/)(?!.*\\){NOT_EMPTY}",
            hint=f"with slashes, relative to the folder, as in {example[0]}",
            longest=200,
        ),
        what="a list of globs of paths",
        hint=f'as in {name} = ["{example[0]}"]',
    )
    return Key(name, globs, description, example=example)


_LIMITS = (
    # GitHub ends any job on a runner of one's own after 5 days.
    _limit(
        "timeout",
        "minutes",
        7200,
        "After how many minutes a job is ended; its build stops a quarter of an hour before, to keep what is "
        "finished. GitHub's own limit is 6 hours.",
        120,
    ),
    _limit("cores", "cores", 1024, "How many cores each build takes. All of the machine unless given.", 8),
    _limit(
        "jobs",
        "builds at once",
        1024,
        "How many builds run at once. It follows from the machine unless given.",
        2,
    ),
)
_SELECTORS = (
    _selector(
        "only", "Plan only variants that match one of these globs, as `matrix --only` does.", "*-cu130-*"
    ),
    _selector(
        "skip", "Leave out variants that match one of these globs, as `matrix --skip` does.", "*-cu126-*"
    ),
    _selector("backends", "Plan only these backends, as `matrix --backends` does.", "cuda"),
    _selector("systems", "Plan only these systems, as `matrix --systems` does.", "x86_64-linux"),
    _selector("torch", "Plan only these Torch versions, as `matrix --torch` does.", "2.13"),
)
# A rule of compliance, by its number or by its name.
_RULE = Text(
    what="a rule of compliance",
    pattern=r"KA[0-9]{3}|[a-z]+(-[a-z0-9]+)+",
    hint='by its number or its name in docs/rules.md, as in "KA309" or "source-tests"',
)
_WAIVER = Table(
    (
        Key("rule", _RULE, "The rule, by its number or its name.", required_from=_ALWAYS, example="KA705"),
        Key(
            "reason",
            Text(what="a reason in words", pattern=rf"(?=.*\S){NOT_EMPTY}", longest=500),
            "Why its findings are accepted. It is shown in every report.",
            required_from=_ALWAYS,
            example="the toolchain of our runners is replaced in spring",
        ),
        Key(
            "until",
            Text(
                what="a date in quotes",
                pattern="20[0-9]{2}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])"
                "|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|[12][0-9]))",
                hint='as in until = "2027-03-31"',
            ),
            "The last day that the waiver holds. From the next one on its findings count again.",
            required_from=_ALWAYS,
            example="2027-03-31",
        ),
        Key(
            "variant",
            Text(what="a glob of variants' names", pattern=r"[A-Za-z0-9_.*?\[\]!-]+", longest=_LONGEST_GLOB),
            "Waive only what is about variants that match this glob.",
            example="*-rocm*",
        ),
        Key(
            "path",
            Text(what="a glob of paths", pattern=NOT_EMPTY, longest=_LONGEST_GLOB),
            "Waive only what is in files that match this glob, relative to the kernel's folder.",
            example="torch-ext/my_kernel/legacy/*",
        ),
    ),
    what="a table of rule, reason and until",
)
# The options of `matrix` that [matrix] can set for good.
SELECTORS = tuple(key.name for key in _SELECTORS)
# All that kernel-actions.toml may say; docs/kernel-actions.schema.json is made from this.
SETTINGS_TOML = Table(
    (
        Key(
            "changes",
            Table(
                (
                    _paths(
                        "plan",
                        "Files whose change plans the kernel, beside those that its builds and tests read: "
                        "globs, relative to the kernel's folder, and in .github/kernel-actions.toml to the "
                        "folder that holds .github. `*` stays within a folder, `**` does not, and a folder "
                        "stands for all that is in it.",
                        ["../common/**", "CARD.md"],
                    ),
                    _paths(
                        "ignore",
                        "Files whose change plans nothing, whatever reads them; where both match, `plan` "
                        "counts.",
                        ["tools/**"],
                    ),
                )
            ),
            "Which changed files plan a kernel, for `matrix --changed-since`.",
        ),
        Key(
            "compliance",
            Table(
                (
                    Key(
                        "baseline",
                        Text(
                            what="the path of a file beside this one",
                            # Where a pull request that changes it is seen to do so.
                            pattern=r"(?!/)(?!(.*/)?\.\.(/|$))[^\\]+\.json",
                            hint='as in baseline = "kernel-actions-baseline.json"',
                            longest=200,
                        ),
                        "File of findings that are known, and fail nothing, from the folder of this file on; "
                        "`compliance --write-baseline` writes it.",
                        example="kernel-actions-baseline.json",
                    ),
                    Key(
                        "rules",
                        Named(
                            "a rule of compliance",
                            pattern=_RULE.pattern,
                            hint=_RULE.hint,
                            of=Table(
                                (
                                    Key(
                                        "severity",
                                        Text(what="a severity", choices=("error", "warning")),
                                        "Whether what breaks the rule fails the check.",
                                        required_from=_ALWAYS,
                                        example="error",
                                    ),
                                )
                            ),
                        ),
                        "Rules with another severity than their own.",
                        example={"KA309": {"severity": "error"}},
                    ),
                    Key(
                        "waivers",
                        List(_WAIVER, what="a list of waivers, [[compliance.waivers]]"),
                        "Findings that are accepted for a time, each with the reason. One that has ended "
                        "or waives nothing is a finding itself.",
                    ),
                )
            ),
            "What `compliance` makes of its rules.",
        ),
        Key(
            "limits",
            Table(
                (
                    *_LIMITS,
                    *(
                        Key(name, Table(_LIMITS), f"What a job of {name} may take, where it differs.")
                        for name in BACKENDS
                    ),
                )
            ),
            "What a job may take.",
        ),
        Key("matrix", Table(_SELECTORS), "Which variants are planned, where the command does not say."),
        Key(
            "pipeline",
            Table(
                (
                    Key(
                        "demo",
                        Text(),
                        "A Python file in the kernel's folder that `pipeline` calls with the loaded kernel.",
                        example="examples/demo.py",
                    ),
                )
            ),
            "What concerns `pipeline` alone.",
        ),
        Key(
            "release",
            Table(
                (
                    Key(
                        "tag-prefix",
                        # What git takes in the name of a tag, cut down to what needs no quoting anywhere.
                        Text(
                            what="the start of a tag's name",
                            pattern=r"(?!.*(//|\.\.|/\.|\./|\.lock/))([A-Za-z0-9_][A-Za-z0-9_./-]*)?",
                            hint='as in "relu/": letters, digits and dashes, with slashes between',
                            longest=100,
                        ),
                        "What stands before vX.Y.Z in the names of the kernel's git tags.",
                        example="my-kernel/",
                    ),
                )
            ),
            "What concerns `release` alone.",
        ),
        Key(
            "runners",
            Table(
                (
                    _runners(
                        "build",
                        "Labels of the runners that build, or their group, by system, or by system and "
                        "backend. Compiling needs no GPU.",
                        {"x86_64-linux": ["self-hosted", "linux", "x64", "nix"]},
                    ),
                    _runners(
                        "test",
                        "Labels of the runners that test, or their group, by system, or by system and "
                        "backend.",
                        {"x86_64-linux.cuda": ["self-hosted", "linux", "x64", "gpu"]},
                    ),
                )
            ),
            "Which runners the jobs are for.",
        ),
        Key(
            "test",
            Table(
                (
                    Key(
                        "allow-untested",
                        Named(
                            "a glob of variants' names",
                            pattern=r"[A-Za-z0-9_.*?\[\]!-]{1,200}",
                            hint='as in "*-rocm*" = "none of our runners has such a GPU"',
                            of=TextOrList(
                                Text(what="a reason in words", pattern=NOT_EMPTY),
                                what="a reason in words",
                                hint='as in "*-rocm*" = "none of our runners has such a GPU"',
                                least=1,
                            ),
                            what="a table of reasons",
                        ),
                        "Variants that may go untested, by globs of their names, each with the reason. It is "
                        "shown in every summary. A test that fails is a failure nevertheless.",
                        example={"*-rocm*": "none of our runners has such a GPU"},
                    ),
                    Key(
                        "environment-variables",
                        TextOrList(
                            Text(what="the name of a variable", pattern=r"[A-Za-z_][A-Za-z0-9_]*"),
                            what="a list of names of variables",
                            hint='as in environment-variables = ["MY_TESTS_SIZE"]',
                        ),
                        "Variables that the tests get beside those of docs/testing.md. None that holds a "
                        "secret.",
                        example=["MY_TESTS_SIZE"],
                    ),
                    Key(
                        "requirements",
                        TextOrList(
                            Text(what="a package with its versions", pattern=NOT_EMPTY),
                            what="a list of packages",
                            hint='as in requirements = ["einops>=0.8"]',
                        ),
                        "Python packages that the tests take, for `test --environment pip`, beside "
                        "python-depends of build.toml.",
                        example=["einops>=0.8"],
                    ),
                )
            ),
            "What the kernel's tests take, and which variants go without.",
        ),
    )
)


# In minutes: what a job has beside its build, to set Nix up and to keep what is finished.
_MARGIN = 15


class Limits(NamedTuple):
    """What a job may take: ``timeout`` in minutes, ``cores`` for each build, and ``jobs``, builds at once.

    ``None`` leaves it to the runner: GitHub ends a job after 6 hours, and the number of builds follows
    from the machine's cores and memory.
    """

    timeout: int | None = None
    cores: int | None = None
    jobs: int | None = None

    @property
    def time_limit(self) -> int | None:
        """Minutes for the build, so that the job is not ended meanwhile; ``None`` leaves it to the build."""
        return None if self.timeout is None else self.timeout - min(self.timeout // 4, _MARGIN)

    def over(self, general: Limits) -> Limits:
        """These, and those of ``general`` that are not set here."""
        return Limits(
            timeout=self.timeout or general.timeout,
            cores=self.cores or general.cores,
            jobs=self.jobs or general.jobs,
        )

    def as_json(self) -> dict[str, int | str]:
        """Those that are set, as keys of a job in the matrix."""
        named = (("timeout", self.timeout), ("cores", self.cores), ("jobs", self.jobs))
        limits: dict[str, int | str] = {name: value for name, value in named if value is not None}
        # As `build --time-limit` takes it.
        return limits if self.time_limit is None else limits | {"time_limit": f"{self.time_limit}m"}


_NO_LIMITS = Limits()


class Selector(NamedTuple):
    """A key of ``[matrix]``: the values that select variants, and where they stand."""

    values: tuple[str, ...]
    where: Place


class PathGlob(NamedTuple):
    """A glob of ``[changes]``, and the ``folder`` at which it starts."""

    folder: Path
    pattern: str


class Waiver(NamedTuple):
    """Findings of a rule that are accepted until the end of a day, as in ``2027-03-31``.

    ``rule`` is a number or a name. ``variant`` and ``path`` are globs, empty for all. ``is_own`` is not so
    of one that stands in the file that all kernels of a repository share.
    """

    rule: str
    reason: str
    until: str
    variant: str
    path: str
    where: Place
    is_own: bool


class Settings(NamedTuple):
    """What kernel-actions.toml says.

    ``build_runners`` and ``test_runners`` map ``<system>.<backend>`` or ``<system>`` to runners.
    ``demo`` is a Python file that the pipeline calls with the loaded kernel. ``tag_prefix`` is what
    stands before ``vX.Y.Z`` in the names of the kernel's git tags. ``limits`` are by backend, with the
    empty string for none. ``selectors`` are those of ``SELECTORS`` that ``[matrix]`` has. ``allow_untested``
    maps globs of variants' names to why those may go untested; ``test_requirements`` are packages that
    the tests take, and ``test_variables`` the variables that they get. ``severities`` are those of rules of
    compliance, each with where that is said, ``waivers`` what is accepted of their findings, and ``baseline``
    the file of those that are known. ``changes_plan`` and ``changes_ignore`` are the globs of ``[changes]``.
    """

    demo: str | None = None
    tag_prefix: str = ""
    build_runners: Mapping[str, Runner] = MappingProxyType({})
    test_runners: Mapping[str, Runner] = MappingProxyType({})
    limits: Mapping[str, Limits] = MappingProxyType({})
    selectors: Mapping[str, Selector] = MappingProxyType({})
    allow_untested: Mapping[str, str] = MappingProxyType({})
    test_requirements: tuple[str, ...] = ()
    test_variables: tuple[str, ...] = ()
    severities: Mapping[str, tuple[Literal["error", "warning"], Place]] = MappingProxyType({})
    waivers: tuple[Waiver, ...] = ()
    changes_plan: tuple[PathGlob, ...] = ()
    changes_ignore: tuple[PathGlob, ...] = ()
    baseline: Path | None = None

    def limit(self, backend: str) -> Limits:
        """The limits of a job of ``backend``: its own, else those of all."""
        return self.limits.get(backend, self.limits.get("", _NO_LIMITS))

    def build_runner(self, system: str, backend: str) -> Runner:
        """The runner that builds: compiling needs no GPU, so a hosted one will do."""
        hosted = _HOSTED.get(system, Runner(("self-hosted", system)))
        return _chosen(self.build_runners, system, backend) or hosted

    def test_runner(self, system: str, backend: str) -> Runner:
        """The runner that tests: with a GPU where the backend needs one."""
        chosen = _chosen(self.test_runners, system, backend)
        if chosen:
            return chosen
        if backend in GPU_BACKENDS:
            return Runner((*_SELF_HOSTED.get(system, ("self-hosted", system)), backend))
        return self.build_runner(system, backend)


def is_hosted(runner: Runner) -> bool:
    """Whether a job for this runner only runs on a standard one that GitHub hosts. A group may have any."""
    return not runner.group and len(runner.labels) == 1 and runner.labels[0] in _HOSTED_LABELS


def load(kernel_dir: Path, known: dict[Path, Mapping[str, Any]] | None = None) -> Settings:
    """Read kernel-actions.toml of the kernel's folder, and that of the ``.github`` folder of the
    nearest folder that has one: what both say is as the kernel's own says. ``known`` keeps what the latter
    says for the next kernel of the repository.

    Raises one ``WrongInput`` with all that is wrong (``error.all``), each with its line and column.
    """
    own = kernel_dir / FILE_NAME
    found = _read(own) if os.path.lexists(own) else {}
    general: Mapping[str, Any] = {}
    if (path := _shared(kernel_dir)) is not None:
        known = {} if known is None else known
        if path not in known:
            known[path] = _read(path)
        general = known[path]
    merged = {**general, **found}
    merged["selectors"] = {**general.get("selectors", {}), **found.get("selectors", {})}
    merged["severities"] = {**general.get("severities", {}), **found.get("severities", {})}
    shared = tuple(waiver._replace(is_own=False) for waiver in general.get("waivers", ()))
    merged["waivers"] = (*found.get("waivers", ()), *shared)
    for name in ("changes_plan", "changes_ignore"):
        merged[name] = (*found.get(name, ()), *general.get(name, ()))
    for name in ("build_runners", "test_runners"):
        ours = found.get(name, {})
        # What the kernel says of a system is about all of its backends.
        theirs = {
            key: runner for key, runner in general.get(name, {}).items() if key.partition(".")[0] not in ours
        }
        merged[name] = {**theirs, **ours}
    ours, theirs = found.get("limits", {}), general.get("limits", {})
    merged["limits"] = {
        backend: ours.get(backend, _NO_LIMITS)
        .over(ours.get("", _NO_LIMITS))
        .over(theirs.get(backend, _NO_LIMITS))
        .over(theirs.get("", _NO_LIMITS))
        for backend in ("", *BACKENDS)
        if ours or theirs
    }
    return Settings(**merged)


def _shared(kernel_dir: Path) -> Path | None:
    """The file of the nearest ``.github``, if there is one."""
    # Up to the repository's root, where .git is, and no further.
    folder = own = os.path.realpath(kernel_dir)
    found = None
    while True:
        path = os.path.join(folder, ".github", FILE_NAME)
        if found is None and os.path.lexists(path):
            found = Path(path)
        around = os.path.dirname(folder)
        if os.path.exists(os.path.join(folder, ".git")):
            return found
        if around == folder:
            # Outside of a repository what lies above may be anybody's.
            return found if found and found.parent.parent == Path(own) else None
        folder = around


def _read(path: Path) -> dict[str, Any]:
    """The fields of ``Settings`` that a file sets."""
    file = toml_file.read(path)
    schema.raise_faults(file, schema.check(file, SETTINGS_TOML))
    values = file.values
    limits = values.get("limits", {})
    own = {name: Limits(**limits[name]) for name in BACKENDS if name in limits}
    found: dict[str, Any] = {
        "build_runners": _read_runners(values.get("runners", {}).get("build", {})),
        "test_runners": _read_runners(values.get("runners", {}).get("test", {})),
        "limits": {"": Limits(**{name: one for name, one in limits.items() if name not in own}), **own},
        "selectors": {
            name: Selector(_texts(value), file.place(("matrix", name)))
            for name, value in values.get("matrix", {}).items()
        },
    }
    test = values.get("test", {})
    found["allow_untested"] = {
        pattern: "; ".join(_texts(why)) for pattern, why in test.get("allow-untested", {}).items()
    }
    for key, name in (("requirements", "test_requirements"), ("environment-variables", "test_variables")):
        if key in test:
            found[name] = _texts(test[key])
    for key, patterns in values.get("changes", {}).items():
        folder = path.parent.parent if path.parent.name == ".github" else path.parent
        found[f"changes_{key}"] = tuple(PathGlob(folder, pattern) for pattern in _texts(patterns))
    if "compliance" in values:
        found |= _compliance(file)
    if "demo" in values.get("pipeline", {}):
        found["demo"] = values["pipeline"]["demo"]
    if "tag-prefix" in values.get("release", {}):
        found["tag_prefix"] = values["release"]["tag-prefix"]
    return found


def _compliance(file: TomlFile) -> dict[str, Any]:
    section = file.values["compliance"]
    named = {"baseline": file.path.parent / section["baseline"]} if "baseline" in section else {}
    return {
        **named,
        "severities": {
            name: (rule["severity"], file.place(("compliance", "rules", name)))
            for name, rule in section.get("rules", {}).items()
        },
        "waivers": tuple(
            Waiver(
                rule=one["rule"],
                reason=one["reason"],
                until=one["until"],
                variant=one.get("variant", ""),
                path=one.get("path", ""),
                where=file.place(("compliance", "waivers", index)),
                is_own=True,
            )
            for index, one in enumerate(section.get("waivers", []))
        ),
    }


def _read_runners(values: Mapping[str, Any]) -> dict[str, Runner]:
    return {
        name: Runner(_texts(value.get("labels", [])), value["group"])
        if isinstance(value, dict)
        else Runner(_texts(value))
        for name, value in values.items()
    }


def _texts(value: str | list[str]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)


def _chosen(runners: Mapping[str, Runner], system: str, backend: str) -> Runner | None:
    return runners.get(f"{system}.{backend}") or runners.get(system)
