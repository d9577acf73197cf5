"""What a kernel's flake.nix says about its variants: the ``torchVersions`` that it gives to the builder.

The builder's list of build sets goes through that function before anything else is decided (``flake.nix`` and
``nix-builder/lib/build-sets.nix`` of https://github.com/huggingface/kernels). It is evaluated here without
Nix, as far as ``nix_language`` knows what is written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernel_actions import console, toml_file
from kernel_actions.errors import Place, WrongInput, WrongSurroundings
from kernel_actions.named_tuple import NamedTuple

if TYPE_CHECKING:
    from kernel_actions.nix_language import Evaluation

_LARGEST = 1_000_000
# The builder's newest list has 25 build sets.
_MOST_BUILD_SETS = 1_000
_MOST_SYSTEMS = 50
_LONGEST_WORD = 100
# A version or a system: it becomes a part of names of folders and jobs, and of commands.
_WORD = re.compile(r"[A-Za-z0-9]+(?:[._+-][A-Za-z0-9]+)*")
_FLAGS = ("cpu", "metal", "tpu")
_VERSIONS = ("cudaVersion", "rocmVersion", "xpuVersion")
_BACKEND_KEYS = (*_FLAGS, *_VERSIONS)
_TYPES: dict[str, type] = {
    **dict.fromkeys((*_FLAGS, "bundleBuild", "upstreamVariant", "cxx11Abi", "tvmFfi", "sourceBuild"), bool),
    **dict.fromkeys(("torchVersion", *_VERSIONS, "tvmFfiVersion", "ptxasVersion"), str),
}
_SHOWN = {bool: "true or false", str: "a string"}
# What can give the builder a torchVersions that the text does not name: another file, or a name put together.
_MAY_NAME_IT = r"\b(?:import|callPackage|scopedImport)\b|[$][{][^{}]*[}]\s*="
_HOW_TO_GO_ON = (
    "install Nix, which is then asked, or write it with builtins such as map, filter and compareVersions"
)


class NeedsNix(WrongSurroundings):
    """Only Nix itself can evaluate what is written there."""


class Override(NamedTuple):
    """The ``build_sets`` that a flake.nix makes of the builder's.

    ``place`` is where it defines ``torchVersions``.
    """

    build_sets: list[dict[str, Any]]
    place: Place


def read_versions(text: str, place: Path) -> list[dict[str, Any]]:
    """The build sets of the builder's ``versions.nix``, whose ``text`` is from ``place``.

    Raises ``NeedsNix`` when it is a function, as before 2025-06-27, and ``WrongInput`` for anything else but
    a list of build sets.
    """
    from kernel_actions.nix_language import literal

    with _reported(place, NotALiteral):
        sets = literal.read_sets(text)
    if sets is None:
        raise NeedsNix(
            "is a function, as in builders before 2025-06-27, which only Nix can evaluate",
            where=Place(place, 1),
            repair="lock a newer builder: nix flake update",
        )

    def where(index: int, key: str) -> Place:
        return Place(place, sets[index].lines.get(key, sets[index].line))

    return _check([one.values for one in sets], where, Place(place))


def torch_versions(
    path: Path,
    defaults: list[dict[str, Any]],
    argument: str,
    locked: Mapping[str, Mapping[str, Any]] | None = None,
) -> Override | None:
    """What the flake.nix at ``path`` makes of the builder's build sets, ``defaults``.

    ``argument`` is what the builder takes: a ``function`` from its list to another, or (the oldest) a
    ``list``.
    ``locked`` is what flake.lock has for each input, if it is known: others are none.
    ``None`` when the flake gives none, and when there is no such file.

    Raises ``WrongInput`` when the flake is wrong, and ``NeedsNix`` when it is not understood.
    """
    text = _read(path)
    if text is None:
        return None
    from kernel_actions.nix_language import Evaluation, Unsupported

    evaluation = Evaluation(text)
    with _reported(path, NeedsNix):
        try:
            with evaluation.running():
                found = _Flake(evaluation).torch_versions(defaults, argument, locked)
        except Unsupported:
            # What is not understood cannot give what is not even named, but for another file's help.
            if "torchVersions" not in text and not re.search(_MAY_NAME_IT, text):
                return None
            raise
    if found is None:
        return None
    place = Place(path, evaluation.line_of_attribute("torchVersions"))
    return Override(_check(found.value, lambda index, key: place, place), place)


def check_build_sets(values: Any, where: Place) -> list[dict[str, Any]]:
    """``values``, which has to be a list of build sets. Raises ``WrongInput`` at ``where``."""
    return _check(values, lambda index, key: where, where)


class NotALiteral(WrongInput):
    """What should be written out is something to evaluate."""


@contextmanager
def _reported(path: Path, unknown: type[NeedsNix] | type[NotALiteral]) -> Iterator[None]:
    """Raise errors of the language as those of the suite; ``unknown`` for what is not understood."""
    from kernel_actions.nix_language import LanguageError, NixSyntaxError, Unsupported

    try:
        yield
    except Unsupported as error:
        where = Place(path, error.line, error.column)
        if unknown is NotALiteral:
            raise NotALiteral(
                f"is not a plain list of attribute sets: {error.message}", where=where
            ) from error
        raise NeedsNix(
            f"{error.message} cannot be evaluated without Nix", where=where, repair=_HOW_TO_GO_ON
        ) from error
    except LanguageError as error:
        start = "is not valid Nix: " if isinstance(error, NixSyntaxError) else ""
        raise WrongInput(start + error.message, where=Place(path, error.line, error.column)) from error


def _read(path: Path) -> str | None:
    try:
        data = toml_file.read_bytes(path, _LARGEST)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise WrongInput(f"cannot be read: {error.strerror}", where=Place(path)) from error
    if len(data) > _LARGEST:
        raise WrongInput("is larger than 1 MB, which no flake.nix needs", where=Place(path))
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise WrongInput("is not UTF-8", where=Place(path, line)) from error


class _Found(NamedTuple):
    """The value of ``torchVersions``, in Python's types."""

    value: Any


class _Flake:
    """The evaluation of a flake: its inputs are not known, but for the library of the builder."""

    def __init__(self, evaluation: Evaluation) -> None:
        self.evaluation = evaluation

    def torch_versions(
        self, defaults: list[dict[str, Any]], argument: str, locked: Mapping[str, Mapping[str, Any]] | None
    ) -> _Found | None:
        from kernel_actions.nix_language import NixError, Unsupported, flake_values

        evaluation = self.evaluation
        inputs = flake_values.Inputs(evaluation, locked)
        flake = evaluation.value()
        if not isinstance(flake, dict):
            raise NixError("is no attribute set")
        if "outputs" not in flake:
            raise NixError("has no outputs")
        outputs = evaluation.apply(flake["outputs"], inputs)
        calls = flake_values.calls_of_packages(evaluation, outputs)
        if not calls:
            raise Unsupported("outputs without packages of the builder")
        given = [call["torchVersions"] for call in calls if "torchVersions" in call]
        if not given:
            return None
        values = [self.result(one, defaults, argument) for one in given]
        if len(given) < len(calls) or any(value != values[0] for value in values):
            raise Unsupported("several calls of the builder with different torchVersions")
        return _Found(values[0])

    def result(self, value: Any, defaults: list[dict[str, Any]], argument: str) -> Any:
        from kernel_actions.nix_language import NixError

        evaluation = self.evaluation
        is_function = evaluation.is_function(value)
        if argument == "function":
            if not is_function:
                raise NixError("torchVersions is not a function from the builder's build sets to others")
            value = evaluation.apply(value, evaluation.from_python(defaults))
        elif is_function:
            raise NixError("torchVersions is a function, but the locked builder takes a list")
        return evaluation.to_python(value)


def _check(value: Any, where: Callable[[int, str], Place], whole: Place) -> list[dict[str, Any]]:
    """``value``, which has to be a list of build sets. Raises ``WrongInput``."""
    if not isinstance(value, list):
        raise WrongInput("the build sets are not a list", where=whole)
    if len(value) > _MOST_BUILD_SETS:
        found = console.counted(len(value), "build set")
        raise WrongInput(f"there are {found}, more than {_MOST_BUILD_SETS}", where=whole)
    for index, one in enumerate(value):
        if not isinstance(one, dict):
            raise WrongInput(f"build set {index + 1} is not an attribute set", where=whole)
        _check_set(one, lambda key, index=index: where(index, key))  # type: ignore[misc]
    return value


def _check_set(one: dict[str, Any], where: Callable[[str], Place]) -> None:
    for key in ("torchVersion", "systems"):
        if key not in one:
            raise WrongInput(f"a build set has no {key}", where=where(""))
    for key, kind in _TYPES.items():
        if key not in one:
            continue
        if type(one[key]) is not kind:
            raise WrongInput(f"{key} of a build set is not {_SHOWN[kind]}", where=where(key))
        if kind is str:
            _check_word(key, one[key], where(key))
    if not any(one.get(key) for key in _BACKEND_KEYS):
        raise WrongInput(
            f"build set of Torch {one['torchVersion']} has no backend: none of {', '.join(_BACKEND_KEYS)}",
            where=where(""),
        )
    systems = one["systems"]
    if not isinstance(systems, list) or len(systems) > _MOST_SYSTEMS:
        raise WrongInput("systems of a build set is not a list of a few strings", where=where("systems"))
    for system in systems:
        if not isinstance(system, str):
            raise WrongInput("systems of a build set is not a list of strings", where=where("systems"))
        _check_word("systems", system, where("systems"))


def _check_word(key: str, word: str, where: Place) -> None:
    if len(word) > _LONGEST_WORD or not _WORD.fullmatch(word):
        raise WrongInput(f"{key} of a build set has {word[:60]!r}, which is no such name", where=where)
