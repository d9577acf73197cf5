"""kernel-actions.toml: which runners build and test, and what else the suite cannot guess.

The file is optional, in the kernel's folder, in ``.github/`` of the repository, or both: what the kernel's
own says counts. Every key has a default. It exists because build.toml refuses keys that kernel-builder
does not know.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from kernel_actions import toml_file
from kernel_actions.errors import Place, WrongInput
from kernel_actions.manifest import BACKENDS
from kernel_actions.toml_file import TomlFile

FILE_NAME = "kernel-actions.toml"

Labels = tuple[str, ...]

# Hosted runners of GitHub, where no label is configured.
_HOSTED: Mapping[str, Labels] = {
    "x86_64-linux": ("ubuntu-latest",),
    "aarch64-linux": ("ubuntu-24.04-arm",),
    "aarch64-darwin": ("macos-15",),
}
# Labels that the runner program gives itself on each system.
_SELF_HOSTED: Mapping[str, Labels] = {
    "x86_64-linux": ("self-hosted", "linux", "x64"),
    "aarch64-linux": ("self-hosted", "linux", "arm64"),
    "aarch64-darwin": ("self-hosted", "macos", "arm64"),
}
# What git takes in the name of a tag, cut down to what needs no quoting anywhere.
_TAG_PREFIX = re.compile(r"(?!.*(//|\.\.|/\.|\./|\.lock/))([A-Za-z0-9_][A-Za-z0-9_./-]*)?", re.ASCII)
_GPU_BACKENDS = ("cuda", "rocm", "xpu", "tpu")
# The largest value of each limit, and its unit. GitHub ends any job on a runner of one's own after 5 days.
_LIMITS = {"timeout": (7200, "minutes"), "cores": (1024, "cores"), "jobs": (1024, "builds at once")}
# The options of `matrix` that [matrix] can set for good.
SELECTORS = ("only", "skip", "backends", "systems", "torch")


class Limits(NamedTuple):
    """What a job may take: ``timeout`` in minutes, ``cores`` for each build, and ``jobs``, builds at once.

    ``None`` leaves it to the runner: GitHub ends a job after 6 hours, and the number of builds follows
    from the machine's cores and memory.
    """

    timeout: int | None = None
    cores: int | None = None
    jobs: int | None = None

    def over(self, general: "Limits") -> "Limits":
        """These, and those of ``general`` that are not set here."""
        return Limits(
            timeout=self.timeout or general.timeout,
            cores=self.cores or general.cores,
            jobs=self.jobs or general.jobs,
        )

    def as_json(self) -> dict[str, int]:
        """Those that are set, as keys of a job in the matrix."""
        named = (("timeout", self.timeout), ("cores", self.cores), ("jobs", self.jobs))
        return {name: value for name, value in named if value is not None}


class Selector(NamedTuple):
    """A key of ``[matrix]``: the values that select variants, and where they stand."""

    values: tuple[str, ...]
    where: Place


class Settings(NamedTuple):
    """What kernel-actions.toml says.

    ``build_runners`` and ``test_runners`` map ``<system>.<backend>`` or ``<system>`` to labels.
    ``demo`` is a Python file that the pipeline calls with the loaded kernel. ``tag_prefix`` is what
    stands before ``vX.Y.Z`` in the names of the kernel's git tags. ``limits`` are by backend, with the
    empty string for all. ``selectors`` are those of ``SELECTORS`` that ``[matrix]`` has.
    """

    demo: str | None = None
    tag_prefix: str = ""
    build_runners: Mapping[str, Labels] = MappingProxyType({})
    test_runners: Mapping[str, Labels] = MappingProxyType({})
    limits: Mapping[str, Limits] = MappingProxyType({})
    selectors: Mapping[str, Selector] = MappingProxyType({})

    def limit(self, backend: str) -> Limits:
        """The limits of a job of ``backend``: its own, else those of all."""
        return self.limits.get(backend, Limits()).over(self.limits.get("", Limits()))

    def build_runner(self, system: str, backend: str) -> Labels:
        """Labels of the runner that builds: compiling needs no GPU, so a hosted one will do."""
        return _chosen(self.build_runners, system, backend) or _HOSTED.get(system, ("self-hosted", system))

    def test_runner(self, system: str, backend: str) -> Labels:
        """Labels of the runner that tests: with a GPU where the backend needs one."""
        chosen = _chosen(self.test_runners, system, backend)
        if chosen:
            return chosen
        if backend in _GPU_BACKENDS:
            return (*_SELF_HOSTED.get(system, ("self-hosted", system)), backend)
        return self.build_runner(system, backend)


def load(kernel_dir: Path) -> Settings:
    """Read kernel-actions.toml of the kernel's folder, and that of the ``.github`` folder of the
    nearest folder that has one: what both say is as the kernel's own says.

    Raises ``WrongInput`` for an unknown key (with the nearest known one) or a wrong value.
    """
    merged: dict[str, Any] = {}
    for path in reversed([path for path in _places(kernel_dir) if path.is_file()]):
        own = _read(toml_file.read(path))
        shared = merged.get("limits", {})
        own["limits"] = {name: one.over(shared.get(name, Limits())) for name, one in own["limits"].items()}
        for name, value in own.items():
            merged[name] = {**merged.get(name, {}), **value} if isinstance(value, dict) else value
    return Settings(**merged)


def _places(kernel_dir: Path) -> list[Path]:
    """The kernel's own file, and the one of the nearest ``.github``."""
    # Up to the repository's root, where .git is, and no further.
    folder = kernel_dir.resolve()
    own = kernel_dir / FILE_NAME
    for parent in (folder, *folder.parents):
        if (shared := parent / ".github" / FILE_NAME).exists():
            return [own, shared]
        if (parent / ".git").exists():
            break
    return [own]


def _read(file: TomlFile) -> dict[str, Any]:
    """The fields of ``Settings`` that a file sets."""
    known = {
        "limits": (*_LIMITS, *BACKENDS),
        "matrix": SELECTORS,
        "pipeline": ("demo",),
        "release": ("tag-prefix",),
        "runners": ("build", "test"),
    }
    for table, values in file.values.items():
        if table not in known:
            raise _unknown(file, table, table, tuple(known))
        if not isinstance(values, dict):
            raise WrongInput(f"{table} is not a table", where=file.place(table))
        for key in values:
            if key not in known[table]:
                raise _unknown(file, f"{table}.{key}", key, known[table])
    found: dict[str, Any] = {}
    if "demo" in (pipeline := file.values.get("pipeline", {})):
        found["demo"] = pipeline["demo"]
        if not isinstance(found["demo"], str):
            raise WrongInput("pipeline.demo is not a string", where=file.place("pipeline.demo"))
    if "tag-prefix" in (release := file.values.get("release", {})):
        found["tag_prefix"] = _tag_prefix(file, release["tag-prefix"])
    runners = file.values.get("runners", {})
    found["build_runners"] = _labels(file, "runners.build", runners.get("build", {}))
    found["test_runners"] = _labels(file, "runners.test", runners.get("test", {}))
    found["limits"] = _all_limits(file, file.values.get("limits", {}))
    found["selectors"] = {
        name: _selector(file, f"matrix.{name}", value)
        for name, value in file.values.get("matrix", {}).items()
    }
    return found


def _tag_prefix(file: TomlFile, value: Any) -> str:
    if not isinstance(value, str) or not _TAG_PREFIX.fullmatch(value) or len(value) > 100:
        raise WrongInput(
            f"release.tag-prefix is {value!r}, which cannot start the name of a tag",
            where=file.place("release.tag-prefix"),
            repair='as in tag-prefix = "relu/": letters, digits and dashes, with slashes between',
        )
    return value


def _all_limits(file: TomlFile, values: Mapping[str, Any]) -> dict[str, Limits]:
    """``[limits]`` of all jobs, and ``[limits.<backend>]``."""
    found = {"": _limits(file, "limits", {key: value for key, value in values.items() if key in _LIMITS})}
    for backend, table in values.items():
        if backend in BACKENDS:
            key = f"limits.{backend}"
            if not isinstance(table, dict):
                raise WrongInput(f"{key} is not a table", where=file.place(key))
            for name in table:
                if name not in _LIMITS:
                    raise _unknown(file, f"{key}.{name}", name, tuple(_LIMITS))
            found[backend] = _limits(file, key, table)
    return {backend: limits for backend, limits in found.items() if limits != Limits()}


def _limits(file: TomlFile, key: str, values: Mapping[str, Any]) -> Limits:
    for name, value in values.items():
        largest, unit = _LIMITS[name]
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= largest:
            raise WrongInput(
                f"{key}.{name} is {str(value)[:40]}, which is not a whole number of {unit} from 1 to "
                f"{largest}",
                where=file.place(f"{key}.{name}"),
            )
    return Limits(**values)


def _selector(file: TomlFile, key: str, value: Any) -> Selector:
    values = [value] if isinstance(value, str) else value
    if not isinstance(values, list) or not all(isinstance(one, str) and one for one in values):
        raise WrongInput(
            f"{key} is not a list of strings",
            where=file.place(key),
            repair=f'as in {key[7:]} = ["*-cu130-*"]',
        )
    return Selector(tuple(values), file.place(key))


def _labels(file: TomlFile, key: str, values: Any) -> dict[str, Labels]:
    """Labels by system, or by system and backend: ``"x86_64-linux.cuda" = ["self-hosted", "gpu"]``."""
    if not isinstance(values, dict):
        raise WrongInput(f"{key} is not a table", where=file.place(key))
    found: dict[str, Labels] = {}
    for name, labels in values.items():
        place = file.place(f"{key}.{name}")
        if isinstance(labels, str):
            labels = [labels]
        if not isinstance(labels, list) or not labels or not all(isinstance(one, str) for one in labels):
            raise WrongInput(f"{key}.{name} is not a list of runner labels", where=place)
        system, _, backend = name.partition(".")
        if system not in _HOSTED:
            raise WrongInput(
                f"{system!r} is not a system", where=place, repair=f"one of {', '.join(_HOSTED)}"
            )
        found[f"{system}.{backend}" if backend else system] = tuple(labels)
    return found


def _chosen(runners: Mapping[str, Labels], system: str, backend: str) -> Labels | None:
    return runners.get(f"{system}.{backend}") or runners.get(system)


def _unknown(file: TomlFile, full: str, name: str, known: tuple[str, ...]) -> WrongInput:
    import difflib  # Not at the top: a file without mistakes does without.

    close = difflib.get_close_matches(name, known, n=1)
    repair = f"did you mean {close[0]}?" if close else f"one of {', '.join(known)}"
    return WrongInput(f"key {full!r} is not known", where=file.place(full), repair=repair)
