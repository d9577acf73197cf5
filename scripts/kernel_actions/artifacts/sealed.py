"""The digests of the archives of a run: the value that binds later jobs to what the build jobs uploaded.

It is an output of the job that takes the digests, after all builds and before any test. Another job can
replace an artifact, but not the output of a job.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from kernel_actions import built
from kernel_actions.errors import WrongInput

# As the name of a kernel, which is also that of its folder in an artifact's name.
_KERNEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_ARTIFACT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,250}")


def planned(text: str) -> dict[str, tuple[str, ...]]:
    """The variants of each artifact, as ``kernel/variant``, from the output ``archives`` of ``matrix``.

    Raises ``WrongInput`` for any other text.
    """
    value = _object(text, "planned", "the output `archives` of matrix")
    listed: dict[str, tuple[str, ...]] = {}
    for artifact, names in value.items():
        if _ARTIFACT.fullmatch(artifact) is None or not isinstance(names, list) or not names:
            raise WrongInput("--planned: not a list of variants by artifact")
        listed[artifact] = tuple(_name(name, "planned") for name in names)
    return listed


def dumps(digests: Mapping[str, str]) -> str:
    """``digests``, the SHA-256 of each archive by ``kernel/variant``, as one line."""
    return json.dumps(dict(sorted(digests.items())), separators=(",", ":"))


def loads(text: str) -> dict[str, str]:
    """The SHA-256 of each archive by ``kernel/variant``. Raises ``WrongInput`` for any other text."""
    value = _object(text, "sealed", "the output `sealed` of seal")
    digests: dict[str, str] = {}
    for name, digest in value.items():
        if not isinstance(digest, str) or _SHA256.fullmatch(digest) is None:
            raise WrongInput(f"--sealed: {_name(name, 'sealed')} has no SHA-256")
        digests[_name(name, "sealed")] = digest
    return digests


def split(name: str) -> tuple[str, str]:
    """The kernel and the variant of ``kernel/variant``."""
    kernel, _, variant = name.partition("/")
    return kernel, variant


def _object(text: str, option: str, source: str) -> dict[str, object]:
    if not text:
        raise WrongInput(f"--{option} is empty", repair=f"give it {source}")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict) or not value:
        raise WrongInput(f"--{option} is not {source}", repair=f"give it {source}, unchanged")
    return value


def _name(value: object, option: str) -> str:
    kernel, variant = split(value) if isinstance(value, str) else ("", "")
    if _KERNEL.fullmatch(kernel) is None or not built.is_name(variant):
        raise WrongInput(f"--{option}: {str(value)[:80]!r} is not kernel/variant")
    return f"{kernel}/{variant}"
