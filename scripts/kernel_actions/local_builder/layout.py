"""The folder of a variant, as kernel-builder lays it out.

::

    <variant>/__init__.py …       the kernel's Python package
    <variant>/_ops.py             how it reaches its operators
    <variant>/<ops name>.abi3.so  the extension (not in a noarch variant)
    <variant>/<package>/          an __init__.py that loads the one above, until e9152aa2
    <variant>/metadata.json       what the loader and compliance read; it holds all files' hashes

What there is of that follows the revision of the builder (``builder_output``).
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kernel_actions import __version__, built
from kernel_actions.builder_output import Output
from kernel_actions.errors import WrongSurroundings
from kernel_actions.git import GitState
from kernel_actions.local_builder import project, sources
from kernel_actions.local_builder.sources import Sources
from kernel_actions.local_builder.target import Target
from kernel_actions.manifest import KernelDependency, Manifest

METADATA = sources.METADATA
# In place of kernel-builder's version: what says in metadata.json that it was not kernel-builder.
BUILDER_VERSION = f"{__version__}+kernel-actions.local"


def files(
    manifest: Manifest,
    target: Target,
    found: Sources,
    ops_name: str,
    extension: Path | None,
    output: Output,
) -> dict[str, Path | str]:
    """The variant's files but for metadata.json, by relative path: a file to copy, or a text."""
    package_dir = manifest.directory / sources.PACKAGE_ROOT / manifest.python_name
    listed: dict[str, Path | str] = {name: package_dir / name for name in found.package}
    listed[sources.OPS_FILE] = project.ops_file(target, ops_name, output)
    if output.makes_package_folder:
        listed[f"{manifest.python_name}/__init__.py"] = project.template("old_loader.py")
    if extension is not None:
        listed[f"{ops_name}.abi3.so"] = extension
    return listed


def metadata(
    manifest: Manifest,
    target: Target,
    ops_name: str,
    git_state: GitState | None,
    capabilities: Sequence[str],
    output: Output,
) -> dict[str, Any]:
    """metadata.json but for the digest, with the keys that the revision of the builder writes, in its order.
    Schema: ``kernels-data/src/metadata.rs`` of kernels."""
    backend: dict[str, Any] = {"type": target.backend}
    archs = sorted(capabilities) if target.is_compiled else _noarch_archs(manifest, target)
    if archs:
        backend["archs"] = archs
    optional = {"upstream": manifest.upstream, "source": manifest.source}
    provenance: dict[str, Any] = {"kernel-builder": {"version": BUILDER_VERSION}}
    if git_state is not None:
        provenance["kernel"] = {output.commit_key: git_state.commit, "dirty": git_state.dirty}
    described = {
        "name": manifest.name,
        "id": ops_name,
        "version": manifest.version,
        "license": manifest.license,
        **{name: value for name, value in optional.items() if value is not None},
        "python-depends": list(manifest.all_python_depends(target.backend)),
        "kernel-depends": [_dependency(one) for one in manifest.all_kernel_depends(target.backend)],
        "backend": backend,
        "provenance": provenance,
    }
    return {key: described[key] for key in output.metadata if key in described}


def _noarch_archs(manifest: Manifest, target: Target) -> list[str]:
    """What ``[torch-noarch]`` says; of compiled kernels the capabilities that were compiled."""
    key = {"cuda": "cuda_capabilities", "rocm": "rocm_archs"}.get(target.backend, "")
    listed: list[str] = manifest.file.values.get("torch-noarch", {}).get(key, [])
    return listed


def _dependency(dependency: KernelDependency) -> dict[str, Any]:
    if dependency.version is not None:
        return {"repo-id": dependency.repo_id, "version": dependency.version}
    return {"repo-id": dependency.repo_id, "revision": dependency.revision}


def write(
    folder: Path, listed: Mapping[str, Path | str], described: Mapping[str, Any], output: Output
) -> None:
    """Write a variant into ``folder``, which must not exist. What links point to is copied, and
    modes are the same for everyone: 755 for folders and extensions, 644 for the rest.

    metadata.json is written as ``kernel-builder hash`` does (kernel-builder/src/hash.rs): two spaces, and no
    line break at its end.
    """
    folder.mkdir(parents=True, mode=0o755)
    folder.chmod(0o755)
    for name, content in sorted(listed.items()):
        path = folder / name
        for parent in reversed(path.relative_to(folder).parents[:-1]):
            (folder / parent).mkdir(exist_ok=True)
            (folder / parent).chmod(0o755)
        if isinstance(content, str):
            path.write_text(content, encoding="utf-8")
        else:
            shutil.copyfile(content, path)
        path.chmod(0o755 if path.suffix == ".so" else 0o644)
    if not output.metadata:
        return
    values = {**described, "digest": digest(folder)} if output.writes_digest else described
    whole = {key: values[key] for key in output.metadata if key in values}
    (folder / METADATA).write_text(json.dumps(whole, indent=2, ensure_ascii=False), encoding="utf-8")
    (folder / METADATA).chmod(0o644)


def check_digest() -> None:
    """Raise ``WrongSurroundings`` if what hashes a variant is not installed: before minutes of compiling."""
    try:
        import kernels_data  # noqa: F401
    except ImportError as error:
        raise WrongSurroundings(
            "the Python package kernels-data is not installed", repair="python -m pip install kernels-data"
        ) from error


def digest(folder: Path) -> dict[str, Any]:
    """The hashes of a variant's files, as metadata.json has them: kernel-builder's own code.

    Raises as ``check_digest`` does.
    """
    check_digest()
    from kernels_data import Digest, DigestAlgorithm

    found = Digest.hash_variant(DigestAlgorithm.SHA256, folder)
    return {"algorithm": "sha256", "files": dict(sorted(found.files.items()))}


def is_intact(folder: Path) -> bool:
    """Whether the variant's files are those that its metadata.json lists; ``False`` where it lists none, as
    before ae36559c."""
    try:
        described = json.loads((folder / METADATA).read_bytes())
        return isinstance(described, dict) and described.get("digest") == digest(folder)
    except (OSError, ValueError):
        return False


def swap_in(new: Path, folder: Path) -> None:
    """Put the finished variant ``new`` in the place of ``folder``; see ``recover``.

    Its report has to be written after.
    """
    # A report is of the variant beside it, also when this process ends right here.
    built.build_report_path(folder).unlink(missing_ok=True)
    old = _old(new)
    shutil.rmtree(old, ignore_errors=True)
    if folder.exists():
        folder.rename(old)
    new.rename(folder)
    shutil.rmtree(old, ignore_errors=True)


def recover(new: Path, folder: Path) -> None:
    """Undo what a build left behind that was ended while it wrote ``new`` or swapped it in."""
    old = _old(new)
    if old.exists() and not folder.exists():
        old.rename(folder)
    shutil.rmtree(old, ignore_errors=True)
    shutil.rmtree(new, ignore_errors=True)


def _old(new: Path) -> Path:
    return new.with_name(new.name + ".old")
