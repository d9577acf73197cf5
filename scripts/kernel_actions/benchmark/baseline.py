"""The built variant to compare with: one in a folder, or of a revision on the Hub."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from kernel_actions import built, console
from kernel_actions.built import BuiltVariant
from kernel_actions.errors import KernelFailed, Place, WrongInput
from kernel_actions.hub import client
from kernel_actions.manifest import Manifest


@dataclass(frozen=True)
class Found:
    """A baseline: its variant, what it was asked for by, and its commit on the Hub, if it is from there."""

    variant: BuiltVariant
    source: str
    commit: str | None = None


def find(
    source: str, variant: BuiltVariant, kernel: Manifest, *, repo_id: str, address: str, folder: Path
) -> Found:
    """The baseline that ``source`` names for ``variant``.

    A folder is a built variant, or holds one with the name of ``variant``. Anything else is a revision
    on the Hub at ``address``, whose variant of that name is downloaded into ``folder`` as somebody
    without a token would.

    Raises ``WrongInput`` when there is none, ``KernelFailed`` when it is not as it was built, and
    ``WrongSurroundings``.
    """
    path = Path(source)
    if path.is_dir():
        found = Found(_in_folder(path, variant), source)
    elif source.startswith((".", "/", "~")):
        raise WrongInput("there is no such folder", where=Place(path), repair="give a folder or a revision")
    else:
        found = _on_hub(source, variant, repo_id or kernel.repo_id or "", address, folder)
    built.check_intact(found.variant.path)
    return found


def identifier(variant: BuiltVariant) -> str:
    """The name by which metadata.json tells this build from all others; it is that of its operators."""
    where = variant.path / "metadata.json"
    try:
        metadata = json.loads(where.read_bytes())
        return str(metadata["id"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise KernelFailed("has no id", where=Place(where), repair="build the variant again") from error


def _in_folder(path: Path, variant: BuiltVariant) -> BuiltVariant:
    if (path / "metadata.json").is_file():
        return built.read(path)
    for folder in (path, path / "build"):
        if (folder / variant.name / "metadata.json").is_file():
            return built.read(folder / variant.name)
    raise WrongInput(
        f"has no built variant {variant.name}",
        where=Place(path),
        repair="give the folder of a variant, or one that holds it",
    )


def _on_hub(revision: str, variant: BuiltVariant, repo_id: str, address: str, folder: Path) -> Found:
    if not repo_id:
        raise WrongInput(
            f"no repository to take the baseline {revision!r} from",
            repair="give --repo-id, or set general.hub.repo-id",
        )
    client.check_repo_id(repo_id)
    hub = client.connect(address, is_anonymous=True)
    commit = client.resolve(hub, repo_id, revision)
    names = {
        parts[1]
        for path in client.remote_files(hub, repo_id, commit)
        if len(parts := path.split("/")) > 2 and parts[0] == "build"
    }
    if variant.name not in names:
        listed = ", ".join(sorted(names)[:5]) or "none"
        raise WrongInput(
            f"{revision} of {repo_id} has no variant {variant.name}: it has {listed}",
            repair="compare with another revision, or build a variant that it has",
        )
    console.say(f"Downloading {variant.name} of {repo_id} at {revision}")
    client.download(hub, repo_id, commit, [f"build/{variant.name}/*"], folder)
    return Found(built.read(folder / "build" / variant.name), f"{repo_id}@{revision}", commit)
