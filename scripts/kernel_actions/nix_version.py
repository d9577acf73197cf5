"""Versions as Nix compares them, which is what the builder does.

The rules of ``builtins.compareVersions``
(https://nix.dev/manual/nix/latest/language/builtins#builtins-compareVersions): a version is a
list of components, each all digits or without any; numbers compare as numbers; ``pre`` comes
before everything, also before the end; the end comes before everything else but ``pre``, and a
number after text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from itertools import zip_longest
from typing import Any

# What a component comes before and after, whatever it says.
_PRE, _END, _TEXT, _NUMBER = range(4)


def compare(left: str, right: str) -> int:
    """-1, 0 or 1, as ``left`` is older than, equal to or newer than ``right``."""
    for one, other in zip_longest(_components(left), _components(right), fillvalue=""):
        if one != other:
            a, b = _order(one), _order(other)
            if a != b:
                return -1 if a < b else 1
    return 0


def key(version: str) -> tuple[tuple[Any, ...], ...]:
    """Sort key: the oldest version first."""
    return (*map(_order, _components(version)), (_END,))


def keys(versions: Iterable[str]) -> dict[str, tuple[tuple[Any, ...], ...]]:
    """The sort key of each of ``versions``, of which many may be the same."""
    return {version: key(version) for version in set(versions)}


def _components(version: str) -> list[str]:
    return re.findall(r"[0-9]+|[^0-9.\-]+", version)


def _order(text: str) -> tuple[Any, ...]:
    """What tells the order of a component; of the end, too, which is empty."""
    # Other digits than these ("²") are text to Nix.
    if text.isascii() and text.isdigit():
        # Without `int`, which takes no number of thousands of digits.
        digits = text.lstrip("0")
        return (_NUMBER, len(digits), digits)
    if text == "pre":
        return (_PRE,)
    return (_TEXT, text) if text else (_END,)


def major_minor(version: str) -> str:
    """The first two components: ``7.1`` of ``7.1.2``; a missing one is 0."""
    parts = [*version.split("."), "0"]
    return ".".join(parts[:2])


def dotted(digits: str) -> str:
    """The version that ``digits`` of a variant's name mean, whose major one has one digit: ``2.13`` of
    ``213``, ``2.9`` of ``29`` and ``0.1`` of ``01``."""
    return f"{digits[0]}.{digits[1:]}"


@lru_cache(maxsize=1024)
def flat(version: str) -> str:
    """Major and minor without the dot, as in variant names: ``130`` of ``13.0`` and of ``13``.

    As the builder makes it of nixpkgs' ``lib.versions``: zeros are added to what is before a dash, and the
    first two components count.
    """
    numbers, dash, rest = version.partition("-")
    if "." not in numbers:
        numbers += ".0"
    return "".join(_components(numbers + dash + rest)[:2])
