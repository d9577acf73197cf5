"""A kernel's card: ``CARD.md``, which is published as ``README.md`` on ``main``.

It is a template, which the builder fills in when it makes a bundle (``fill-card``,
kernel-builder/src/card.rs; nix-builder/lib/build.nix, ``mkExtensionBundle``, 8ac69fc5), and whose header is
no YAML before that: 48 of the 49 cards of huggingface/kernels-community at 40d4194f. What is published here
is filled in the same way, unless the folder of the variants has the bundle's own, which is what the builder's
``upload`` takes (``collect_readme_commit_ops``, kernel-builder/src/upload.rs).

As the newest builder, so all: since 19aaa642 the layers may be in ``layers.py``, and since f093250f there is
``source``. ``repo_id`` is the repository that the card goes to, which is build.toml's unless another was
asked for.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from kernel_actions import console, process
from kernel_actions.compliance import files
from kernel_actions.errors import KernelActionsError, Place, WrongInput, WrongSurroundings
from kernel_actions.hub import card_header
from kernel_actions.manifest import Manifest

FILE_NAME = "CARD.md"
PUBLISHED_AS = "README.md"

_PROGRAM = Path(__file__).resolve().parent / "fill_card.py"
# The folders of packages, in the order in which the builder looks for the public names.
_PACKAGE_ROOTS = ("torch-ext", "tvm-ffi-ext")
_LARGEST = 1_000_000
_LARGEST_PYTHON = 2_000_000
# In seconds; it takes a tenth of one.
_PATIENCE = 60.0
_TEMPLATE_MARKS = ("{{", "{%", "{#")


@dataclass(frozen=True)
class Card:
    """What is published as the card: the ``text``, and the file ``source`` that it is from. ``is_filled_in``:
    the file is a template, so that the lines of the text are not those of the file."""

    source: Path
    text: str
    is_filled_in: bool

    @property
    def data(self) -> bytes:
        """The bytes to publish."""
        return self.text.encode()

    def place(self, line: int) -> Place:
        """Where a ``line`` of the text is in the file."""
        return Place(self.source) if self.is_filled_in else Place(self.source, line)

    def problem(self, found: card_header.Problem) -> str:
        """What is wrong with the header, in words that say where in the text where the file is another."""
        where = f" (line {found.line} once it is filled in)" if self.is_filled_in else ""
        return f"{found.message}{where}"


def find(kernel: Manifest, build_dir: Path, repo_id: str) -> Card | None:
    """The kernel's card, as it is to be published to ``repo_id``; ``None`` where there is none.

    Raises ``WrongInput`` for one that cannot be filled in or has a header that is no YAML, with the file and
    the line, and ``WrongSurroundings`` where minijinja is not installed.
    """
    own, bundled = kernel.directory / FILE_NAME, build_dir / FILE_NAME
    if not bundled.is_file():
        return checked(read(kernel, repo_id)) if own.is_file() else None
    card = checked(Card(bundled, _text(bundled, build_dir), is_filled_in=False))
    if own.is_file() and _filled_in(kernel) != card.text:
        console.say(
            f"{bundled} is published as the card; {own} gives another one now (remove the first if it is old)"
        )
    return card


def _filled_in(kernel: Manifest) -> str:
    """The card that a bundle of the sources would have; empty where they give none, which is no matter where
    there is another."""
    try:
        return read(kernel, kernel.repo_id or "").text
    except KernelActionsError:
        return ""


def read(kernel: Manifest, repo_id: str) -> Card:
    """The card of the sources, filled in. Its header is not looked at. Raises what ``find`` raises."""
    path = kernel.directory / FILE_NAME
    template = _text(path, kernel.directory)
    if not any(mark in template for mark in _TEMPLATE_MARKS):
        return Card(path, _plain(template), is_filled_in=False)
    return Card(path, _render(path, template, values(kernel, repo_id)), is_filled_in=True)


def checked(card: Card) -> Card:
    """``card``. Raises ``WrongInput`` when the Hub cannot read its header. Whether the license is one of its
    list is the Hub's to say, as that list grows."""
    for one in card_header.problems(card.text):
        if one.kind == "syntax":
            raise WrongInput(
                card.problem(one),
                where=card.place(one.line),
                repair="correct the header, between the lines ---",
            )
    return card


def _text(path: Path, folder: Path) -> str:
    """What a card holds. Raises ``WrongInput`` for a link out of ``folder``, as what it leads to is not
    published, and for what is no text."""
    if not path.resolve().is_relative_to(folder.resolve()):
        raise WrongInput("is a link out of its folder", where=Place(path), repair="put the file itself there")
    try:
        return files.read(path, _LARGEST).decode()
    except UnicodeDecodeError as error:
        raise WrongInput("is not text in UTF-8", where=Place(path), repair="save it as UTF-8") from error


def _plain(text: str) -> str:
    """``text`` as the template engine gives it, which leaves out the last line end."""
    return text.removesuffix("\n").removesuffix("\r") if text.endswith("\n") else text


def _render(path: Path, template: str, given: Mapping[str, Any]) -> str:
    if importlib.util.find_spec("minijinja") is None:
        raise WrongSurroundings(
            f"the Python package minijinja, which fills {path.name} in, is not installed",
            repair="python -m pip install minijinja",
        )
    with tempfile.TemporaryDirectory(prefix="kernel-actions-card-") as name:
        request, answer = Path(name, "request.json"), Path(name, "answer.json")
        request.write_text(json.dumps({"template": template, "values": given}), encoding="utf-8")
        try:
            finished = process.run(
                [sys.executable, "-IB", _PROGRAM, "--request", request, "--answer", answer],
                directory=Path(name),
                time_limit=_PATIENCE,
            )
            said = json.loads(answer.read_bytes())
        except WrongSurroundings as error:
            raise _not_filled_in(path, error.what) from error
        except (OSError, ValueError):
            # It was ended by a limit, or by the template engine, which does so where it gets no memory.
            code = finished.returncode
            how = f"signal {-code}" if code < 0 else f"exit code {code}"
            raise _not_filled_in(path, f"it needs more time or memory than a card may ({how})") from None
    if "error" in said:
        raise _not_filled_in(path, str(said["error"]), said.get("line"))
    return str(said["text"])


def _not_filled_in(path: Path, why: str, line: int | None = None) -> WrongInput:
    return WrongInput(
        f"cannot be filled in: {why}",
        where=Place(path, line),
        repair="correct the template; `kernel-builder fill-card` says the same",
    )


def values(kernel: Manifest, repo_id: str) -> dict[str, Any]:
    """What a card is filled in with: ``render_card`` of kernel-builder/src/card.rs (8ac69fc5)."""
    names = _public_names(kernel)
    functions = [name for name in names if name != "layers"]
    layers = _layers(kernel) if "layers" in names else []
    return {
        "repo_id": repo_id,
        "version": kernel.version,
        "functions": functions or None,
        "layers": layers or None,
        "has_benchmark": (kernel.directory / "benchmarks" / "benchmark.py").exists(),
        "upstream": _address(kernel.upstream),
        "source": _address(kernel.source),
        "license": (kernel.license or "").lower(),
    }


def _public_names(kernel: Manifest) -> list[str]:
    """The texts in the first list that is assigned to ``__all__`` and has one (``extract_all``)."""
    inits = (kernel.directory / root / kernel.python_name / "__init__.py" for root in _PACKAGE_ROOTS)
    for node in _statements(kernel, next((path for path in inits if path.exists()), None)):
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.List):
            continue
        if any(isinstance(one, ast.Name) and one.id == "__all__" for one in node.targets):
            found = [one.value for one in node.value.elts if isinstance(one, ast.Constant)]
            if names := [_valid(name) for name in found if isinstance(name, str)]:
                return names
    return []


def _layers(kernel: Manifest) -> list[str]:
    """The classes of the module ``layers`` (``extract_layers``, which looks into torch-ext alone)."""
    folder = kernel.directory / _PACKAGE_ROOTS[0] / kernel.python_name
    found = (path for path in (folder / "layers" / "__init__.py", folder / "layers.py") if path.exists())
    return [node.name for node in _statements(kernel, next(found, None)) if isinstance(node, ast.ClassDef)]


def _statements(kernel: Manifest, path: Path | None) -> list[ast.stmt]:
    """The statements of a file. There are none where it is missing or cannot be parsed, as for the builder,
    and where it is a link out of the kernel's folder, which no sandbox follows."""
    if path is None or not path.resolve().is_relative_to(kernel.directory.resolve()):
        return []
    try:
        return files.parse_python(path, files.read(path, _LARGEST_PYTHON)).body
    except WrongInput:
        return []


def _valid(text: str) -> str:
    """``text`` without halves of characters, which Python takes in a literal, and UTF-8 has not."""
    return text.encode(errors="replace").decode()


def _address(address: str | None) -> str | None:
    """An address as ``GitUrl::as_url`` gives it (kernels-data/src/config/git_url.rs, 8ac69fc5): git@host:path
    as ssh://git@host/path, and in the form in which the Rust crate ``url`` writes it: the scheme and, for the
    web, the host in lower case, with a path."""
    if address is None:
        return None
    if "://" not in address:
        host, _, path = address.partition(":")
        address = f"ssh://{host}/{path}"
    parts = urlsplit(address)
    if parts.scheme.lower() not in ("http", "https"):
        return urlunsplit(parts)
    user, _, host = parts.netloc.rpartition("@")
    netloc = f"{user}@{host.lower()}" if user else host.lower()
    return urlunsplit(parts._replace(netloc=netloc, path=parts.path or "/"))
