"""Rules about the metadata.json of a built variant: KA6xx."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from typing import Any

from kernel_actions import built, git, nix_version, provenance
from kernel_actions.compliance import files
from kernel_actions.compliance.engine import Family, Problem
from kernel_actions.compliance.files import Entry
from kernel_actions.compliance.variant import METADATA, Variant
from kernel_actions.errors import Place, WrongInput
from kernel_actions.manifest import PYTHON_DEPENDENCIES

RULES: Family[Variant] = Family()

# Files that metadata.json does not list: itself, its signature, and what the loader does not fetch.
_UNLISTED = (METADATA, f"{METADATA}.sigstore")
_EXTENSIONS = (".so", ".dylib", ".dll", ".pyd")
_LARGEST_OPS = 1_000_000
_LARGEST_REPORT = 5_000_000
# The version of CUDA in the name of a variant.
_CUDA = re.compile(r"-cu(\d+)(\d)-")
# The first and the last version of CUDA that compiles for these capabilities. Source: the release notes of
# CUDA 11.8 to 13.0.
_CAPABILITIES = (
    ("11.8", "99", ("8.9", "9.0")),
    ("12.8", "99", ("10.0", "12.0")),
    ("12.9", "99", ("10.3", "12.1")),
    ("12.8", "12.9", ("10.1",)),
    ("13.0", "99", ("11.0",)),
    ("0", "12.9", ("5.0", "5.2", "5.3", "6.0", "6.1", "6.2", "7.0", "7.2")),
)
# What tells a revision from all others: a commit's first digits, or random characters. A version is shorter.
_REVISION = re.compile(r"[0-9a-z]{7,}")


@RULES.rule
def metadata_readable(variant: Variant) -> Iterator[Problem]:
    yield from variant.unread


@RULES.rule
def metadata_name(variant: Variant) -> Iterator[Problem]:
    if variant.metadata and variant.kernel and variant.metadata["name"] != variant.kernel.name:
        name = variant.metadata["name"]
        yield Problem(f"name is {name}, but build.toml says {variant.kernel.name}", variant.place("name"))


@RULES.rule
def metadata_version(variant: Variant) -> Iterator[Problem]:
    if variant.metadata and variant.kernel and variant.metadata["version"] != variant.kernel.version:
        version = variant.metadata["version"]
        yield Problem(
            f"version is {version}, but build.toml says {variant.kernel.version}", variant.place("version")
        )


@RULES.rule
def metadata_backend(variant: Variant) -> Iterator[Problem]:
    expected = variant.name.backend if variant.name else ""
    if variant.metadata and expected and variant.backend != expected:
        yield Problem(
            f"backend is {variant.backend}, but the folder's name says {expected}", variant.place("backend")
        )


@RULES.rule
def metadata_id(variant: Variant) -> Iterator[Problem]:
    if not variant.metadata:
        return
    where = variant.place("id")
    if not (variant.id.isascii() and variant.id.isidentifier()):
        yield Problem(f"id {variant.id!r} is not an identifier", where)
        return
    prefix = f"_{variant.metadata['name'].replace('-', '_')}_{variant.backend}_"
    if not variant.id.startswith(prefix):
        yield Problem(f"id {variant.id} does not begin with {prefix}", where)
    elif not _REVISION.search(variant.id.removeprefix(prefix)):
        yield Problem(f"id {variant.id} does not say which revision it was built from", where)


@RULES.rule
def metadata_extension(variant: Variant) -> Iterator[Problem]:
    if not variant.metadata or variant.name is None:
        return
    found = [
        entry.name
        for entry in variant.listing.entries
        if "/" not in entry.name and entry.name.endswith(_EXTENSIONS)
    ]
    if not variant.name.is_compiled:
        for name in found:
            yield Problem("is an extension, and a noarch variant has none", Place(variant.path / name))
    elif not any(name.partition(".")[0] == variant.id for name in found):
        has = f"there is {', '.join(found)}" if found else "there is none"
        yield Problem(f"no extension is named {variant.id}: {has}", variant.place("id"))


@RULES.rule
def metadata_namespace(variant: Variant) -> Iterator[Problem]:
    path = variant.path / "_ops.py"
    if not variant.id or not path.exists():
        return
    tree = files.parse_python(path, files.read(path, _LARGEST_OPS))
    # Noarch variants of the builder put the name together when they are loaded, from its parts.
    prefix = f"_{variant.metadata['name'].replace('-', '_')}_{variant.backend}_"
    unique = variant.id.removeprefix(prefix)
    wanted = {variant.id, unique, f"_{unique}"}
    if not any(_says(node, wanted) for node in ast.walk(tree)):
        yield Problem(f"does not load the operators of {variant.id}", Place(path))


@RULES.rule
def metadata_digest(variant: Variant) -> Iterator[Problem]:
    if not variant.metadata or variant.listing.cut:
        return
    digest = variant.metadata.get("digest")
    where = variant.place("digest")
    if digest is None:
        # Of a builder before ae36559c, where the report of the build lists them.
        where = Place(built.build_report_path(variant.path))
        digest = built.listed_digest(_report(variant))
    if digest is None:
        # Of a builder that writes none, building again would not help, and nothing asks for it.
        if variant.output is None or variant.output.writes_digest:
            yield Problem("there is no digest", Place(variant.path / METADATA), provenance.LISTS_HASHES)
        return
    if not isinstance(digest.get("files"), dict) or digest.get("algorithm") not in built.ALGORITHMS:
        yield Problem("has a digest that cannot be checked", where)
        return
    present = {entry.name: entry for entry in variant.listing.entries if _is_listed(variant, entry)}
    for name, expected in digest["files"].items():
        if name not in present:
            yield Problem(f"the digest lists {name}, which is not there", where)
        elif present[name].size <= files.LARGEST_FILE:
            found = built.file_hash(present[name].path, digest["algorithm"])
            if found != expected:
                message = f"has the hash {found}, but the digest says {expected}"
                yield Problem(message, Place(variant.path / name))
    for name in sorted(present.keys() - digest["files"].keys()):
        yield Problem("is not in the digest", Place(variant.path / name))


@RULES.rule
def metadata_provenance(variant: Variant) -> Iterator[Problem]:
    if not variant.metadata:
        return
    where = variant.place("provenance")
    source = provenance.read(variant.metadata, _report(variant))
    if source.problem:
        yield Problem(
            source.problem, variant.place("id"), "build the variant again, or remove its build report"
        )
    elif not source.commit:
        yield Problem("does not say which commit it was built from", where, provenance.SAYS_COMMIT)
    elif source.dirty:
        yield Problem("was built from sources that no commit holds", where)
    described = variant.metadata.get("provenance")
    builder = described.get("kernel-builder") if isinstance(described, dict) else None
    if isinstance(builder, dict) and builder.get("dirty"):
        yield Problem("was built by a builder that no commit holds", where)


@RULES.rule
def metadata_commit(variant: Variant) -> Iterator[Problem]:
    commit = provenance.read(variant.metadata, _report(variant)).commit
    state = git.state(variant.kernel.directory) if variant.kernel and commit else None
    if state is not None and commit != state.commit:
        yield Problem(
            f"was built from commit {commit[:12]}, and {state.commit[:12]} is checked out",
            variant.place("provenance"),
        )


@RULES.rule
def metadata_depends(variant: Variant) -> Iterator[Problem]:
    backend = variant.backend
    allowed = {*PYTHON_DEPENDENCIES[""], *PYTHON_DEPENDENCIES.get(backend, ())}
    if variant.kernel is not None:
        allowed |= set(variant.kernel.all_python_depends(backend))
    for name in variant.metadata.get("python-depends", ()):
        if name not in allowed:
            what = f"depends on {name}, which neither the builder nor build.toml names"
            yield Problem(what, variant.place("python-depends"))


@RULES.rule
def metadata_archs(variant: Variant) -> Iterator[Problem]:
    found = _CUDA.search(variant.path.name)
    archs = variant.metadata.get("backend", {}).get("archs")
    if found is None or not isinstance(archs, list):
        return
    cuda = f"{found[1]}.{found[2]}"
    for arch in archs:
        number = str(arch).removesuffix("+PTX").rstrip("af")
        for first, last, capabilities in _CAPABILITIES:
            is_outside = nix_version.compare(cuda, first) < 0 or nix_version.compare(cuda, last) > 0
            if number in capabilities and is_outside:
                what = f"declares {arch}, which CUDA {cuda} does not compile for"
                yield Problem(what, variant.place("backend"))


@RULES.rule
def metadata_sandbox(variant: Variant) -> Iterator[Problem]:
    path = built.build_report_path(variant.path)
    if not path.exists():
        return
    try:
        said = json.loads(files.read(path, _LARGEST_REPORT))
    except (ValueError, RecursionError):
        yield Problem("is not JSON", Place(path))
        return
    if isinstance(said, dict) and said.get("builder") == "nix-unsandboxed":
        yield Problem("says that the variant was built without a sandbox", Place(path))


def _report(variant: Variant) -> dict[str, Any]:
    """The report on the build of a variant; an empty one where there is none, and for what cannot be read."""
    path = built.build_report_path(variant.path)
    if not path.exists():
        return {}
    try:
        said = json.loads(files.read(path, _LARGEST_REPORT))
    except (ValueError, RecursionError, WrongInput):
        return {}
    return said if isinstance(said, dict) else {}


def _says(node: ast.AST, wanted: set[str]) -> bool:
    """Whether ``node`` is one of the names: an attribute, or the whole of a text."""
    if isinstance(node, ast.Attribute):
        return node.attr in wanted
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        # The files of tvm-ffi name the library by its file.
        return node.value.partition(".")[0] in wanted
    return False


def _is_listed(variant: Variant, entry: Entry) -> bool:
    """Whether the builder puts the file into the digest. Rule: ``kernels-data/src/digest.rs``."""
    if entry.name in _UNLISTED or entry.name.endswith(".pyc") or "__pycache__" in entry.name.split("/"):
        return False
    if not entry.is_link:
        return entry.is_file
    try:
        target = entry.path.resolve(strict=True)
    except (OSError, RuntimeError):
        return False
    # Links out of the variant are not followed; there is a rule against them.
    return target.is_file() and target.is_relative_to(variant.path.resolve())
