"""Versions as Nix compares them, which is what the builder does.

The rules of ``builtins.compareVersions``
(https://nix.dev/manual/nix/latest/language/builtins#builtins-compareVersions): a version is a
list of components, each all digits or without any; numbers compare as numbers; ``pre`` comes
before everything, also before the end; the end comes before everything else but ``pre``, and a
number after text.
"""

from __future__ import annotations

import re
from functools import cmp_to_key
from itertools import zip_longest

_COMPONENTS = re.compile(r"[0-9]+|[^0-9.\-]+")


def compare(left: str, right: str) -> int:
    """-1, 0 or 1, as ``left`` is older than, equal to or newer than ``right``."""
    for a, b in zip_longest(_COMPONENTS.findall(left), _COMPONENTS.findall(right), fillvalue=""):
        if a != b:
            if _is_before(a, b):
                return -1
            if _is_before(b, a):
                return 1
    return 0


key = cmp_to_key(compare)
"""Sort key: the oldest version first."""


def _compare_reversed(left: str, right: str) -> int:
    return compare(right, left)


newest_first = cmp_to_key(_compare_reversed)
"""Sort key: the newest version first."""


def _is_before(a: str, b: str) -> bool:
    if _is_number(a) and _is_number(b):
        # Without `int`, which takes no number of thousands of digits.
        a, b = a.lstrip("0"), b.lstrip("0")
        return (len(a), a) < (len(b), b)
    if a == "" and _is_number(b):
        return True
    if a == "pre" and b != "pre":
        return True
    if b == "pre":
        return False
    if _is_number(b):
        return True
    if _is_number(a):
        return False
    return a < b


def _is_number(component: str) -> bool:
    # Other digits than these ("²") are text to Nix.
    return component.isascii() and component.isdigit()


def major_minor(version: str) -> str:
    """The first two components: ``7.1`` of ``7.1.2``; a missing one is 0."""
    parts = [*version.split("."), "0"]
    return ".".join(parts[:2])


def flat(version: str) -> str:
    """Major and minor without the dot, as in variant names: ``130`` of ``13.0``."""
    return major_minor(version).replace(".", "")
