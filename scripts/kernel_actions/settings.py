"""kernel-actions.toml: which runners build and test, and what else the suite cannot guess.

The file is optional, in the kernel's folder or in ``.github/`` of the repository; every key has a
default. It exists because build.toml refuses keys that kernel-builder does not know.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kernel_actions import toml_file
from kernel_actions.errors import WrongInput
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


@dataclass(frozen=True)
class Settings:
    """What kernel-actions.toml says.

    ``build_runners`` and ``test_runners`` map ``<system>.<backend>`` or ``<system>`` to labels.
    ``demo`` is a Python file that the pipeline calls with the loaded kernel. ``tag_prefix`` is what
    stands before ``vX.Y.Z`` in the names of the kernel's git tags.
    """

    demo: str | None = None
    tag_prefix: str = ""
    build_runners: Mapping[str, Labels] = field(default_factory=dict)
    test_runners: Mapping[str, Labels] = field(default_factory=dict)

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
    """Read kernel-actions.toml of the kernel's folder, else of the ``.github`` folder of the
    nearest folder that has one.

    Raises ``WrongInput`` for an unknown key (with the nearest known one) or a wrong value.
    """
    for path in _places(kernel_dir):
        if path.is_file():
            return _read(toml_file.read(path))
    return Settings()


def _places(kernel_dir: Path) -> list[Path]:
    # Up to the repository's root, where .git is, and no further.
    folder = kernel_dir.resolve()
    found = [kernel_dir / FILE_NAME]
    for parent in (folder, *folder.parents):
        found.append(parent / ".github" / FILE_NAME)
        if (parent / ".git").exists():
            break
    return found


def _read(file: TomlFile) -> Settings:
    known = {"pipeline": ("demo",), "release": ("tag-prefix",), "runners": ("build", "test")}
    for table, values in file.values.items():
        if table not in known:
            raise _unknown(file, table, table, tuple(known))
        if not isinstance(values, dict):
            raise WrongInput(f"{table} is not a table", where=file.place(table))
        for key in values:
            if key not in known[table]:
                raise _unknown(file, f"{table}.{key}", key, known[table])
    demo = file.values.get("pipeline", {}).get("demo")
    if demo is not None and not isinstance(demo, str):
        raise WrongInput("pipeline.demo is not a string", where=file.place("pipeline.demo"))
    tag_prefix = file.values.get("release", {}).get("tag-prefix", "")
    if not isinstance(tag_prefix, str) or not _TAG_PREFIX.fullmatch(tag_prefix) or len(tag_prefix) > 100:
        raise WrongInput(
            f"release.tag-prefix is {tag_prefix!r}, which cannot start the name of a tag",
            where=file.place("release.tag-prefix"),
            repair='as in tag-prefix = "relu/": letters, digits and dashes, with slashes between',
        )
    runners = file.values.get("runners", {})
    return Settings(
        demo=demo,
        tag_prefix=tag_prefix,
        build_runners=_labels(file, "runners.build", runners.get("build", {})),
        test_runners=_labels(file, "runners.test", runners.get("test", {})),
    )


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
    close = difflib.get_close_matches(name, known, n=1)
    repair = f"did you mean {close[0]}?" if close else f"one of {', '.join(known)}"
    return WrongInput(f"key {full!r} is not known", where=file.place(full), repair=repair)
