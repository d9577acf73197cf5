"""The command `upload`: the built variants to one branch of the Hub, in one commit."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernel_actions import built, card, console, digests, github, manifest, markdown
from kernel_actions.app import venv
from kernel_actions.built import BuiltVariant
from kernel_actions.card import Card
from kernel_actions.cli import Options
from kernel_actions.errors import EXIT_DONE, KernelFailed, Place, WrongInput
from kernel_actions.hub import client
from kernel_actions.hub.client import Hub, LocalFile, Plan, Uploaded
from kernel_actions.manifest import Manifest

_HEADER = ("variant", "added", "kept", "deleted")


@dataclass(frozen=True)
class Published:
    """Where the variants went and what changed there; ``card`` is ``None`` without one."""

    repo_id: str
    branch: str
    variants: Uploaded
    card: Uploaded | None


def run(options: Options) -> int:
    """Upload every variant under ``options.build_dir``, and the card if there is one.

    Raises what ``publish`` raises.
    """
    published = publish(
        options.kernel_dir,
        Path(options.build_dir),
        repo_id=options.repo_id,
        branch=options.branch,
        address=options.hub,
        token=options.token,
        create_pr=options.create_pr,
        dry_run=options.dry_run,
        allow_local_build=options.allow_local_build,
    )
    _report(options, published)
    return EXIT_DONE


def check_options(options: Options) -> None:
    """Raises ``WrongInput`` where there is nothing to upload, or nowhere to upload it to."""
    kernel = manifest.load(options.kernel_dir)
    client.check_repo_id(options.repo_id or kernel.repository("upload to"))
    _variants(options.kernel_dir / options.build_dir)


def _variants(build_dir: Path, names: Collection[str] = ()) -> tuple[BuiltVariant, ...]:
    variants = built.find(build_dir, names)
    if not variants:
        raise WrongInput(f"{build_dir} has no built variant", repair="build one first, or give --build-dir")
    return variants


def publish(
    kernel_dir: Path,
    build_dir: Path,
    *,
    names: Collection[str] = (),
    repo_id: str = "",
    branch: str = "",
    address: str = "",
    token: str = "",
    create_pr: bool = False,
    dry_run: bool = False,
    allow_local_build: bool = False,
) -> Published:
    """Upload the variants in ``build_dir``, or those of ``names``, and the card if there is one.

    ``build_dir`` is relative to ``kernel_dir``. What is empty has its default: the repository and
    the branch of build.toml, the Hub that HF_ENDPOINT names.

    Raises ``WrongInput``, ``KernelFailed`` (a gate refused) and ``WrongSurroundings``.
    """
    kernel = manifest.load(kernel_dir)
    repo_id = repo_id or kernel.repository("upload to")
    client.check_repo_id(repo_id)
    build_dir = kernel_dir / build_dir
    variants = _variants(build_dir, names)
    local = read(variants, kernel)
    for variant in variants:
        start = f"{variant.path_in_repo}/"
        built.check_intact(
            variant.path,
            {path[len(start) :]: file.sha256 for path, file in local.items() if path.startswith(start)},
        )
    branch = branch or kernel.version_branch
    hub = client.connect(address, token)
    if not hub.is_embedded and not allow_local_build:
        check_published(variants)
    found = card.find(kernel, build_dir, repo_id)
    if found is not None:
        check_card(hub, found)

    local |= client.local_benchmarks(kernel_dir)
    count = console.counted(len(variants), "variant")
    console.say(f"Uploading {count} to {branch} of {repo_id} on {hub.address}")
    uploaded = client.upload(
        hub,
        repo_id,
        branch,
        local,
        [variant.path_in_repo for variant in variants],
        message=f"Upload {count} of {kernel.name}",
        keeps_benchmarks=not client.has_benchmarks(kernel_dir),
        create_pr=create_pr,
        dry_run=dry_run,
    )
    sent = None if found is None else _publish_card(hub, repo_id, found, create_pr=create_pr, dry_run=dry_run)
    return Published(repo_id, branch, uploaded, sent)


def _publish_card(hub: Hub, repo_id: str, found: Card, *, create_pr: bool, dry_run: bool) -> Uploaded:
    with tempfile.TemporaryDirectory(prefix="kernel-actions-card-") as name:
        path = Path(name, card.PUBLISHED_AS)
        path.write_bytes(found.data)
        return client.upload(
            hub,
            repo_id,
            client.MAIN,
            {card.PUBLISHED_AS: client.local_file(path)},
            (),
            message="Update the card",
            keeps_benchmarks=True,
            create_pr=create_pr,
            dry_run=dry_run,
        )


def check_card(hub: Hub, found: Card) -> None:
    """Raises ``WrongInput`` when the Hub would refuse the card's header, which it is asked before anything is
    sent: the variants are in another commit than the card."""
    errors = client.card_errors(hub, found.text)
    if errors:
        raise WrongInput("; ".join(errors), where=Place(found.source), repair="correct the card's header")


def read(variants: Sequence[BuiltVariant], kernel: Manifest) -> dict[str, LocalFile]:
    """The files of ``variants`` by their path on the Hub. Those that were read before are not read again.

    Raises ``KernelFailed`` unless every variant is of the version that build.toml says, and ``WrongInput``
    for what cannot be uploaded.
    """
    if kernel.version is None:
        raise WrongInput("has no version", where=kernel.place("general"), repair="add version = 1")
    for variant in variants:
        if variant.version != kernel.version:
            raise KernelFailed(
                f"is of version {variant.version}, but build.toml says {kernel.version}",
                where=Place(variant.path / "metadata.json"),
                repair="build the variant again, or remove it",
            )
    memory = digests.Memory(venv.cache_root(holds_token=True))
    local = client.local_folders({variant.path_in_repo: variant.path for variant in variants}, memory)
    memory.save()
    return local


def check_published(variants: Sequence[BuiltVariant]) -> None:
    """Raises ``KernelFailed`` unless every variant is of a Nix build, as what others load must be."""
    for variant in variants:
        if variant.builder != "nix":
            from kernel_actions.release.gate import built_how

            raise KernelFailed(
                f"{variant.name} {built_how(variant.builder)}, and only builds of Nix are published",
                where=Place(built.build_report_path(variant.path)),
                repair="publish what Nix built; --allow-local-build publishes this as it is",
            )


def _report(options: Options, published: Published) -> None:
    uploaded, card = published.variants, published.card
    rows = _rows(uploaded.plan)
    if options.format == "json":
        plan = uploaded.plan
        result = {
            "repo_id": published.repo_id,
            "branch": published.branch,
            "commit": uploaded.commit,
            "url": uploaded.url,
            "dry_run": options.dry_run,
            "bytes": uploaded.size,
            "added": plan.added,
            "kept": plan.kept,
            "deleted": plan.deleted,
            "card": None if card is None else {"commit": card.commit, "changed": not card.plan.is_empty},
        }
        print(json.dumps(result, indent=2))
        return
    lines = [_sentence(options, uploaded)]
    if card is not None and not card.plan.is_empty:
        lines.append(f"The card {'would be' if options.dry_run else 'was'} updated: {card.url}")
    print(console.table(_HEADER, rows))
    print("\n".join(lines))
    if options.format == "github":
        github.set_outputs({"commit": uploaded.commit, "url": uploaded.url})
        verdict: markdown.Verdict = "planned" if options.dry_run else "passed"
        title = f"Upload to {published.branch} of {published.repo_id}"
        github.add_summary(
            markdown.join(
                markdown.heading(verdict, title),
                markdown.lines(lines),
                markdown.link(uploaded.url),
                markdown.table(_HEADER, rows),
            )
        )


def _sentence(options: Options, uploaded: Uploaded) -> str:
    size = console.size(uploaded.size)
    if uploaded.plan.is_empty:
        return f"Nothing to change: {uploaded.url}"
    if options.dry_run:
        return f"Dry run, nothing was changed: {size} would be sent to {uploaded.url}"
    return f"Sent {size} as commit {uploaded.commit}: {uploaded.url}"


def _rows(plan: Plan) -> list[tuple[str, str, str, str]]:
    """The number of files of each variant, and of all that is outside of variants."""
    counts: dict[str, list[int]] = {}
    for column, paths in enumerate((plan.added, plan.kept, plan.deleted)):
        for path in paths:
            parts = path.split("/")
            is_in_variant = len(parts) > 2 and parts[0] == "build"
            counts.setdefault(parts[1] if is_in_variant else "(others)", [0, 0, 0])[column] += 1
    return [
        (name, str(added), str(kept), str(deleted)) for name, (added, kept, deleted) in sorted(counts.items())
    ]
