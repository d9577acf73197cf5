"""A release of every planned variant, laid out as the builder does, through the gate of a real Hub.

It is a program too: ``rehearsal.py KERNEL_DIR BUILD_DIR DATA`` releases the variants in BUILD_DIR to an
embedded Hub with its data in DATA. The release takes it for a real Hub, so the gate asks for everything:
every planned variant, built by Nix at this commit and tested, and no broken rule.

Nix builds nothing here. This module writes the reports that Nix builds and tests would leave beside each
variant, and stand-ins for the extensions that were not compiled here. The outcome counts them. It shows that
the builder's output passes the gate; it says nothing about whether the kernel works.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from kernel_actions import built, console, planning
from kernel_actions.errors import KernelActionsError
from kernel_actions.variants import Variant

from public_kernels import layout, stand_in
from public_kernels.results import KernelOutcomes, Outcome
from public_kernels.workplace import Finished, Workplace

_MOST_MISSING = 50


def outcome(place: Workplace, kernel: KernelOutcomes) -> Outcome:
    """Lay all variants out, release them to an embedded Hub, and load the one for this machine from there."""
    if place.builder is None:
        return Outcome("elsewhere", "needs BUILDER")
    folder = place.folder / "release" / kernel.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        source = layout.Source.read(place.kernel_dir(kernel.name), place.revision.commit)
        templates = layout.Templates.read(place.builder, kernel.builder)
        compiled = _compiled(kernel, place.kernel_dir(kernel.name))
        kinds = lay_out(source, templates, compiled, folder / "build")
    except KernelActionsError as error:
        return Outcome("failed", "cannot be laid out", str(error))
    finished = place.python("release", *program(place.kernel_dir(kernel.name), folder))
    shutil.rmtree(folder, ignore_errors=True)
    return _read(finished, kinds)


def lay_out(
    source: layout.Source, templates: layout.Templates, compiled: Mapping[str, Path], build_dir: Path
) -> dict[str, str]:
    """Lay out every variant that the builder publishes, with the reports that Nix and tests leave.

    ``compiled`` are extensions by their variants. Returns, by variant, what its extension is: ``python`` (it
    has none), ``compiled here`` or ``stand-in``.
    """
    kinds: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for variant in planning.planned_variants(source.kernel.directory):
            if not variant.bundled or variant.name in kinds:
                continue
            extension, kinds[variant.name] = _extension(source, variant, compiled, Path(scratch))
            layout.write(build_dir / variant.name, source, variant, templates, extension)
            _report(build_dir / variant.name, variant, source.commit, kinds[variant.name])
    return kinds


def program(kernel_dir: Path, folder: Path) -> tuple[str, ...]:
    """The arguments of a Python process that releases what was laid out in ``build`` of ``folder``."""
    return (str(Path(__file__).resolve()), str(kernel_dir), str(folder / "build"), str(folder / "hub"))


def _compiled(kernel: KernelOutcomes, kernel_dir: Path) -> Mapping[str, Path]:
    """The extension that the stage `build` compiled, by its variant."""
    made = kernel.stages.get("build")
    if made is None or made.verdict != "passed":
        return {}
    name = str(made.facts["variant"])
    paths = list((kernel_dir / "build" / name).glob("*.abi3.so"))
    return {name: paths[0]} if paths else {}


def _extension(
    source: layout.Source, variant: Variant, compiled: Mapping[str, Path], scratch: Path
) -> tuple[Path | None, str]:
    kernel = source.kernel
    if not kernel.compiled_for(variant.backend):
        return None, "python"
    if variant.name in compiled:
        return compiled[variant.name], "compiled here"
    system = variant.system
    path = scratch / f"{variant.backend}-{system}.so"
    if not path.exists():
        ops_name = f"_{kernel.python_name}_{variant.backend}_{source.revision}"
        stand_in.make(path, ops_name, system, variant.backend)
    return path, "stand-in"


def _report(folder: Path, variant: Variant, commit: str, kind: str) -> None:
    """What the stages before a release leave beside a variant. Each says that it is a stand-in."""
    about = {"stand_in": True, "extension": kind}
    built.write_json(
        built.build_report_path(folder),
        {
            "variant": variant.name, "builder": "nix", "sandbox": True, "planned": True,
            "backend": variant.backend, "commit": commit, "dirty": False, **about,
        },
    )  # fmt: skip
    found = built.read(folder)
    gpu = "a stand-in" if variant.backend in built.GPU_BACKENDS else None
    built.write_json(
        folder.with_name(f"{folder.name}.test-report.json"),
        {
            "schema": 1, "verdict": "passed", "variant": variant.name, "digest": found.digest, "passed": 1,
            "failed": 0, "skipped": 0, "seconds": 0.0, "failures": [], "gpu": gpu, **about,
        },
    )  # fmt: skip


def _read(finished: Finished, kinds: Mapping[str, str]) -> Outcome:
    counted = {kind: list(kinds.values()).count(kind) for kind in sorted(set(kinds.values()))}
    facts: dict[str, Any] = {"variants": len(kinds), "extensions": counted, **finished.answer}
    words = {"python": "of Python", "stand-in": "stand-ins", "compiled here": "compiled here"}
    summary = console.counted(len(kinds), "variant")
    summary += f" ({', '.join(f'{count} {words[kind]}' for kind, count in counted.items())})"
    if finished.code is None:
        return finished.ended()
    if finished.code != 0:
        missing = facts.get("missing", [])
        detail = "; ".join(missing[:3]) + (f"; {len(missing) - 3} more" if len(missing) > 3 else "")
        detail = detail or finished.error or f"ended with {finished.code}"
        return Outcome("failed", f"refused: {summary}", detail, finished.seconds, facts=facts)
    loaded = f", {facts['loaded']} loaded" if facts.get("loaded") else ""
    return Outcome("passed", f"{summary}{loaded}", "", finished.seconds, facts=facts)


def main(kernel_dir: Path, build_dir: Path, data: Path) -> int:
    """Release the variants in ``build_dir``, and print what became of it as JSON."""
    from kernel_actions import git, release
    from kernel_actions.hub import client
    from kernel_actions.hub.embedded import embedded

    # For everything but its address, it is a Hub like the real one.
    client._says_it_is_embedded = lambda address: False
    scratch = data.with_name("git")
    git.scratch(kernel_dir, scratch)
    with embedded(data) as address:
        prepared = release.prepare(kernel_dir, build_dir, address=address, git_dir=scratch)
        missing = release.lacks(prepared)
        if missing:
            listed = list(dict.fromkeys(_lines(missing)))
            print(json.dumps({"missing": listed[:_MOST_MISSING], "missing_count": len(missing)}))
            return 1
        staged = release.stage(prepared)
        verified = release.verify(prepared, staged)
        commit = release.promote(prepared, staged, verified)
        release.tag(prepared, commit)
        answer = {
            "repository": prepared.plan.repo_id, "branch": prepared.plan.branch,
            "release": str(prepared.plan.version), "loaded": verified.loaded, "names": list(verified.names),
        }  # fmt: skip
    print(json.dumps(answer))
    return 0


def _lines(missing: Sequence[Any]) -> Iterator[str]:
    """What is missing, once for all variants that lack the same."""
    by_reason: dict[str, list[str]] = {}
    for lack in missing:
        by_reason.setdefault(lack.what, []).append(lack.variant)
    for what, names in by_reason.items():
        named = [name for name in names if name]
        who = named[0] if len(named) == 1 else console.counted(len(named), "variant")
        yield f"{who}: {what}" if named else what


if __name__ == "__main__":
    try:
        sys.exit(main(*map(Path, sys.argv[1:])))
    except KernelActionsError as error:
        console.say(f"kernel-actions: {error}")
        sys.exit(error.exit_code)
