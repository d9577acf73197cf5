"""METADATA and WHEEL: what a wheel says of itself.

Formats: https://packaging.python.org/en/latest/specifications/core-metadata/ (2.4, for SPDX licences) and
https://packaging.python.org/en/latest/specifications/binary-distribution-format/.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from kernel_actions import __version__
from kernel_actions.errors import KernelFailed, Place, WrongInput, printable
from kernel_actions.wheel.tags import PYTHON, Identity

# `KernelName` of kernels' own parser of metadata.json.
_NAME = re.compile(r"[a-z][-a-z0-9]*[a-z0-9]")
_VERSION = re.compile(
    r"(0|[1-9]\d{0,8})\.(0|[1-9]\d{0,8})\.(0|[1-9]\d{0,8})((?:a|b|rc|\.dev|\.post)\d{1,8})?"
)
_SPELLED = re.compile(r"(\d+\.\d+\.\d+)-(?:(alpha|a|beta|b|rc)\.?(\d+)|(dev)\.?(\d+))")
_PRE = {"alpha": "a", "a": "a", "beta": "b", "b": "b", "rc": "rc"}


@dataclass(frozen=True)
class Kernel:
    """What metadata.json says of a variant that its wheel says too.

    ``license_expression`` is empty where the licence is none of SPDX; ``license`` is what was said.
    ``requires`` are Python packages that the kernel needs beside its framework.
    """

    name: str
    license: str
    license_expression: str
    requires: tuple[str, ...]
    links: tuple[tuple[str, str], ...]
    provenance: Any

    @property
    def package(self) -> str:
        """The name that Python imports it by."""
        return self.name.replace("-", "_")


def read(values: dict[str, Any], where: Path, repo_id: str = "") -> Kernel:
    """What metadata.json, whose values these are, says of a variant.

    Raises ``KernelFailed`` for what no wheel can say.
    """
    place = Place(where)
    name = values.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise KernelFailed(f"name {name!r} is not that of a kernel", where=place)
    needed = values.get("kernel-depends") or []
    if needed:
        raise KernelFailed(
            f"{name} needs other kernels, which only the loader of kernels gives it",
            where=place,
            repair="use it from the Hub, or from a cache: kernel-actions download",
        )
    license = values.get("license")
    text = printable(license) if isinstance(license, str) else ""
    backend = values.get("backend")
    kind = backend.get("type") if isinstance(backend, dict) else ""
    depends = values.get("python-depends")
    links = [("Hub", f"https://huggingface.co/kernels/{repo_id}")] if repo_id else []
    for label, key in (("Source", "source"), ("Upstream", "upstream")):
        if address := _address(values.get(key)):
            links.append((label, address))
    return Kernel(
        name=name,
        license=text,
        license_expression=_expression(text),
        requires=tuple(_packages(depends if isinstance(depends, list) else [], str(kind), place)),
        links=tuple(links),
        provenance=values.get("provenance"),
    )


def _address(value: object) -> str:
    """An address that can be a link; empty for what cannot."""
    if not isinstance(value, str) or not value.isascii() or not value.isprintable() or " " in value:
        return ""
    try:
        return value if urlsplit(value).scheme in ("http", "https") else ""
    except ValueError:
        return ""


def _expression(text: str) -> str:
    """``text`` as an SPDX expression, written as SPDX does; empty when it is none."""
    from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

    try:
        return str(canonicalize_license_expression(text)) if text else ""
    except InvalidLicenseExpression:
        return ""


def _packages(names: Sequence[object], backend: str, place: Place) -> Iterator[str]:
    """The Python packages of ``python-depends``, by the table of kernels' own loader."""
    from importlib.util import find_spec

    spec = find_spec("kernels")
    if not names or spec is None or spec.origin is None:
        return
    table = json.loads((Path(spec.origin).parent / "python_depends.json").read_bytes())
    known = {**table["general"], **table["backends"].get(backend, {})}
    for name in names:
        if not isinstance(name, str) or name not in known:
            raise KernelFailed(f"python-depends has {name!r}, which no loader knows", where=place)
        yield from (str(package["pkg"]) for package in known[name]["python"])


def version(text: str) -> str:
    """``text``, which is a release's version, as Python writes it: 1.2.0, 2.0.0rc1 for 2.0.0-rc.1.

    Raises ``WrongInput``.
    """
    spelled = _SPELLED.fullmatch(text)
    if spelled and spelled[2]:
        text = f"{spelled[1]}{_PRE[spelled[2]]}{int(spelled[3])}"
    elif spelled:
        text = f"{spelled[1]}.dev{int(spelled[5])}"
    if not _VERSION.fullmatch(text):
        raise WrongInput(f"{text!r} is no version of a wheel", repair="as in --wheel-version 1.2.0")
    return text


def full_version(release: str, identity: Identity) -> str:
    """The wheel's version: the release, and the variant as its local version."""
    return f"{release}+{identity.local}" if identity.local else release


def stem(kernel: Kernel, full: str) -> str:
    """What the wheel's name and that of its folder ``….dist-info`` begin with.

    A kernel's name may have two dashes in a row, and that of a wheel cannot.
    """
    return f"{re.sub('-+', '_', kernel.name)}-{full}"


def core_metadata(kernel: Kernel, identity: Identity, full: str, licenses: Sequence[str]) -> str:
    """The file METADATA; ``licenses`` are the names of the licence files."""
    lines = [
        "Metadata-Version: 2.4",
        f"Name: {kernel.name}",
        f"Version: {full}",
        f"Summary: The kernel {kernel.name} {identity.title}",
    ]
    lines += [f"Project-URL: {label}, {address}" for label, address in kernel.links]
    if kernel.license_expression:
        lines.append(f"License-Expression: {kernel.license_expression}")
    elif kernel.license:
        lines.append(f"License: {kernel.license}")
    lines += [f"License-File: {name}" for name in licenses]
    lines.append(f"Requires-Python: >={PYTHON}")
    lines += [f"Requires-Dist: {one}" for one in (*identity.requires, *kernel.requires)]
    lines.append("Description-Content-Type: text/markdown")
    return "\n".join(lines) + "\n\n" + _description(kernel, identity)


def _description(kernel: Kernel, identity: Identity) -> str:
    return (
        f"# {kernel.name}\n\n"
        f"The variant `{identity.variant}` of a kernel in the kernel-builder format, {identity.title}. "
        "It holds neither Torch nor a runtime of the backend: both come from the Torch that is installed, "
        "which has to be built for the same backend.\n\n"
        f"```python\nimport {kernel.package}\n```\n"
    )


def wheel_file(identity: Identity, tag: str) -> str:
    """The file WHEEL."""
    return (
        "Wheel-Version: 1.0\n"
        f"Generator: kernel-actions {__version__}\n"
        f"Root-Is-Purelib: {'false' if identity.is_compiled else 'true'}\n"
        f"Tag: {tag}\n"
    )
