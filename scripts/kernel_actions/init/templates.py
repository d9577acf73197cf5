"""The workflows to choose from, and the reference to this suite in them."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

import kernel_actions
from kernel_actions import git
from kernel_actions.errors import WrongInput, WrongSurroundings
from kernel_actions.init.detection import parse_address

# What the templates say in place of the suite that is used.
_PLACEHOLDER = re.compile(r"\borg/kernel-actions((?:/[A-Za-z0-9_.-]+)*)@v\d+\b")
_REFERENCE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*/[A-Za-z0-9_.-]+@[A-Za-z0-9_][A-Za-z0-9_./-]*")
# What the header of a template tells those who copy it by hand.
_BY_HAND = re.compile(
    r"Copy it to \.github/workflows/ and replace `org` by the owner of the kernel-actions that you use\.\s*"
)
# The branch that the templates name, in what they do and in what they say.
_MAIN = re.compile(r"(?<![\w.-])main(?![\w.-])(?!/)")
_BRANCH = re.compile(r"[A-Za-z][A-Za-z0-9._/-]*")
_LONGEST_COMMENT = 118
# What the templates say of submodules, with the comment for those who copy them.
_SUBMODULES = re.compile(r"(?m)^( +submodules: )false( #.*)?$")


@dataclass(frozen=True)
class Template:
    """A workflow to copy: its name without ``.yml``, and its text."""

    name: str
    text: str


def find() -> dict[str, Template]:
    """All templates by name: those of the installed package, or of the checkout that this runs from."""
    package = Path(kernel_actions.__file__).resolve().parent
    for folder in (package / "workflow_templates", package.parents[1] / "templates" / "workflows"):
        if folder.is_dir():
            paths = sorted(folder.rglob("*.yml"))
            names = {path: path.relative_to(folder).with_suffix("").as_posix() for path in paths}
            return {name: Template(name, path.read_text(encoding="utf-8")) for path, name in names.items()}
    raise WrongSurroundings(
        f"the templates are not beside {package}", repair="install the package, or run it from its repository"
    )


def reference(text: str) -> str:
    """``text``, checked to be ``OWNER/REPO@REF``. Raises ``WrongInput``."""
    if not text:
        raise WrongInput(
            "it is not known which kernel-actions the workflows shall use",
            repair="give it: --uses OWNER/kernel-actions@v1, with your fork's owner, and a tag or a commit",
        )
    if not _REFERENCE.fullmatch(text) or ".." in text:
        raise WrongInput(
            f"--uses is {text[:80]!r}, which is not of the form OWNER/REPO@REF",
            repair="as in --uses OWNER/kernel-actions@v1, or with the commit after the @",
        )
    return text


def own_reference() -> str:
    """The repository that this suite was installed from or is a checkout of, at its major version's tag or
    what was asked for; empty when it is not known."""
    package = Path(kernel_actions.__file__).resolve().parent
    address, commit = _installed_from()
    if not address and (package.parents[1] / "templates" / "workflows").is_dir():
        address = git.remote_address(package.parent, "origin")
    found = parse_address(address) if address else None
    if found is None or found.host != "github.com":
        return ""
    return f"{found.owner}/{found.name}@{commit or 'v1'}"


def _installed_from() -> tuple[str, str]:
    """What pip, pipx and uv note of a package from git: its address, and the commit where one was asked for.

    https://packaging.python.org/en/latest/specifications/direct-url/
    """
    from importlib import metadata

    try:
        text = metadata.distribution("kernel-actions").read_text("direct_url.json")
        value = json.loads(text) if text else {}
        vcs = value.get("vcs_info")
        if not isinstance(vcs, dict) or vcs.get("vcs") != "git":
            return "", ""
        asked, commit = vcs.get("requested_revision"), vcs.get("commit_id")
        # The tag of a version stays one; a branch, which moves, becomes the commit that it was at.
        is_version = isinstance(asked, str) and re.fullmatch(r"v\d+(\.\d+)*", asked)
        return str(value.get("url", "")), str(asked if is_version else commit or "")
    except (metadata.PackageNotFoundError, ValueError, AttributeError):
        return "", ""


def filled(template: Template, uses: str, branch: str = "main", *, submodules: bool = False) -> str:
    """The template's text with ``uses`` (``OWNER/REPO@REF``) in place of the suite's placeholder, and the
    default ``branch`` in place of ``main``; without what it tells those who copy it by hand. With
    ``submodules`` a checkout that builds, tests or checks a kernel has them.

    Raises ``WrongInput`` for a branch whose name needs quotes in YAML.
    """
    if not _BRANCH.fullmatch(branch):
        raise WrongInput(
            f"the default branch is {branch[:80]!r}, which a workflow cannot name as it is",
            repair="rename it, or set the branch that git fetches: git remote set-head origin BRANCH",
        )
    repository, _, revision = uses.partition("@")
    text = _PLACEHOLDER.sub(lambda match: f"{repository}{match[1]}@{revision}", template.text)
    text = _MAIN.sub(branch, text)
    text = _SUBMODULES.sub(r"\1recursive" if submodules else r"\1false", text)
    lines = text.splitlines()
    header = next((index for index, line in enumerate(lines) if not line.startswith("#")), len(lines))
    return "\n".join([*_header(lines[:header]), *lines[header:]]) + "\n"


def _header(lines: list[str]) -> list[str]:
    """The comment at a template's top, without what concerns copying; its paragraphs are wrapped anew."""
    import textwrap

    paragraphs: list[str] = []
    for block in "\n".join(line[1:].strip() for line in lines).split("\n\n"):
        kept = _BY_HAND.sub("", " ".join(block.split())).strip()
        if kept:
            paragraphs.append(
                textwrap.fill(kept, _LONGEST_COMMENT, break_long_words=False, break_on_hyphens=False)
            )
    return [f"# {line}".rstrip() for line in "\n\n".join(paragraphs).splitlines()]
