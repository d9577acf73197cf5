"""``wheel``: built or published variants as wheels, for machines that cannot use the Hub.

A wheel holds a variant as it is, byte for byte, as the package that the kernel is imported by: the hashes
of its metadata.json can be checked where it is installed. The runtime of Torch and of the backend is never
in it.
"""

from __future__ import annotations

import fnmatch
import hashlib
import json
import re
import tempfile
import unicodedata
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kernel_actions import __version__, built, console, download, git, github, manifest, markdown
from kernel_actions.built import BuiltVariant
from kernel_actions.errors import EXIT_DONE, KernelFailed, Place, WrongInput
from kernel_actions.hub import client
from kernel_actions.hub.client import Hub, RemoteFile
from kernel_actions.release import plan, record
from kernel_actions.release.record import Record
from kernel_actions.wheel import archive, index, metadata, tags
from kernel_actions.wheel.metadata import Kernel
from kernel_actions.wheel.tags import Identity

if TYPE_CHECKING:
    from kernel_actions.cli import Options

_METADATA = "metadata.json"
# A licence has some dozens of kilobytes.
_LARGEST = 5_000_000
_LICENSES = re.compile(r"(?:LICEN[CS]E|COPYING|NOTICE|AUTHORS)(?:[.-][A-Za-z0-9._-]{1,40})?", re.IGNORECASE)
_LIBRARY = re.compile(r"\.(?:so(?:\.[0-9.]+)?|dylib|dll|pyd)$")
# What comes with Torch or with the backend's runtime, and must be the one that Torch has loaded.
_FOREIGN = re.compile(
    r"(?:lib)?(?:torch|c10|caffe2|shm|cuda|cudart|cublas|cudnn|cufft|cupti|curand|cusolver|cusparse|nccl|"
    r"nvrtc|nvjitlink|nvtoolsext|nvshmem|amdhip|amd_comgr|hip|hsa|roc|rccl|miopen|sycl|ze_|mkl|dnnl|tvm|"
    r"stdc\+\+|gcc_s|gomp|python\d)",
    re.IGNORECASE,
)
_HEADER = ("variant", "wheel", "size")


@dataclass(frozen=True)
class Source:
    """Where a variant is from: its folder, and what is known of it. ``commit`` is that on the Hub; it and
    ``repo_id`` are empty for a variant that was built here."""

    folder: Path
    release: str
    licenses: tuple[Path, ...]
    repo_id: str = ""
    commit: str = ""
    builder: str = ""

    @property
    def variant(self) -> str:
        """The variant's name."""
        return self.folder.name


@dataclass(frozen=True)
class Made:
    """A wheel that was made: its path, its size in bytes and its SHA-256."""

    variant: str
    path: Path
    size: int
    hash: str


def check_options(options: Options) -> str:
    """The repository to take variants from; empty where they were built here. Raises ``WrongInput`` where
    there are none, or what is asked cannot be meant."""
    if options.wheel_version:
        metadata.version(options.wheel_version)
    if Path(options.output).exists() and not Path(options.output).is_dir():
        raise WrongInput(
            f"--output is {options.output}, which is not a folder", repair="choose another folder"
        )
    if options.revision:
        repo_id: str = options.repo_id or manifest.load(options.kernel_dir).repository("make wheels of")
        client.check_repo_id(repo_id)
        return repo_id
    if options.repo_id:
        raise WrongInput(
            "no revision of the repository is given", repair="give --revision: a tag, a branch or a commit"
        )
    _chosen(options)
    return ""


def run(options: Options) -> int:
    """The command ``wheel``.

    Raises ``KernelFailed`` for a variant that makes no wheel, ``WrongInput`` and ``WrongSurroundings``.
    """
    if options.index_only:
        _print(options.format, [], index.write(Path(options.output), options.index_address))
        return EXIT_DONE
    repo_id = check_options(options)
    seconds = download.source_date()
    version = metadata.version(options.wheel_version) if options.wheel_version else ""
    output = Path(options.output)
    with ExitStack() as stack:
        if repo_id:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kernel-actions-wheel-")))
            sources = _published(options, repo_id, folder, version)
        else:
            sources = _built(options, version)
        made = [_made(source, output, seconds) for source in sources]
    page = index.write(output, options.index_address) if options.index or options.index_address else None
    _print(options.format, made, page)
    return EXIT_DONE


def _made(source: Source, output: Path, seconds: int) -> Made:
    """``make``, with errors about what is published that name it, and not where it was downloaded to."""
    try:
        return make(source, output, seconds)
    except KernelFailed as error:
        if not source.repo_id or error.where is None:
            raise
        path = error.where.path.relative_to(source.folder.parent.parent)
        raise KernelFailed(
            f"{path} of {source.repo_id} at {source.commit[:12]}: {error.what}",
            repair="use another commit, and tell its publisher",
        ) from error


def make(source: Source, output: Path, seconds: int) -> Made:
    """Write the wheel of a variant into ``output``. Its bytes follow from the variant alone.

    Raises ``KernelFailed`` for a variant that is not intact, or that its tag would say too much of.
    """
    identity = tags.identify(source.variant)
    files = _files(source.folder)
    values = built.read_json(source.folder / _METADATA, repair="")
    kernel = metadata.read(values, source.folder / _METADATA, source.repo_id)
    if _METADATA not in files:
        raise KernelFailed(f"has no {_METADATA}", where=Place(source.folder))
    # So were variants laid out that old loaders read: the package in a folder of its name.
    is_folded = "__init__.py" not in files
    if is_folded:
        _check_folded(source.folder, kernel, files)
    if not identity.platform.startswith("manylinux"):
        _check_cases(source.folder, files)
    built.check_intact(source.folder)
    tag = identity.tag(uses_python=_check_libraries(source, identity, files))
    full = metadata.full_version(source.release, identity)
    stem = metadata.stem(kernel, full)
    info = f"{stem}.dist-info"
    licenses = {path.name: path for path in source.licenses}
    prefix = "" if is_folded else f"{kernel.package}/"
    content: dict[str, Path | bytes] = {f"{prefix}{name}": path for name, path in files.items()}
    if is_folded:
        content[f"{kernel.package}/{_METADATA}"] = content.pop(_METADATA)
    content |= {f"{info}/licenses/{name}": path for name, path in licenses.items()}
    content[f"{info}/METADATA"] = metadata.core_metadata(kernel, identity, full, sorted(licenses)).encode()
    content[f"{info}/WHEEL"] = metadata.wheel_file(identity, tag).encode()
    content[f"{info}/provenance.json"] = _provenance(source, kernel)
    path = output / f"{stem}-{tag}.whl"
    _make_folder(output)
    digest = archive.write(path, content, info, seconds)
    return Made(source.variant, path, path.stat().st_size, digest)


def _make_folder(output: Path) -> None:
    """Make the folder unless it is there; in a repository, such that git takes nothing in it for a change."""
    if not output.exists():
        output.mkdir(parents=True)
        if git.root(output) is not None:
            built.hide_from_git(output)


def _files(folder: Path) -> dict[str, Path]:
    """The variant's files by path in its folder. Raises ``KernelFailed`` for a name that is not plain, and
    ``WrongInput`` for a link out of it."""
    listed = client.local_files(folder, "variant")
    files = {path.removeprefix("variant/"): file.source for path, file in listed.items()}
    for name in files:
        try:
            download.check_path(name, folder.name)
        except WrongInput as error:
            raise KernelFailed(
                f"has a file {name!r}, whose name no builder makes", where=Place(folder)
            ) from error
    return files


def _check_folded(folder: Path, kernel: Kernel, files: dict[str, Path]) -> None:
    """Raise ``KernelFailed`` unless all that is installed would be in the kernel's own package: beside it,
    Python runs what others put there, as in a file ``….pth``."""
    if f"{kernel.package}/__init__.py" not in files:
        raise KernelFailed("has no __init__.py", where=Place(folder))
    for name in sorted(files.keys() - {_METADATA}):
        if not name.startswith(f"{kernel.package}/") or name == f"{kernel.package}/{_METADATA}":
            raise KernelFailed(
                f"has a file {name!r}, which is not in its package {kernel.package}", where=Place(folder)
            )


def _check_cases(folder: Path, files: dict[str, Path]) -> None:
    """Raise ``KernelFailed`` for two names that are one to macOS or Windows, where the wheel may go."""
    seen: dict[str, str] = {}
    for name in files:
        other = seen.setdefault(unicodedata.normalize("NFC", name).casefold(), name)
        if other != name:
            raise KernelFailed(
                f"has files {other!r} and {name!r}, which are one file on macOS and Windows",
                where=Place(folder),
                repair="rename one of them",
            )


def _check_libraries(source: Source, identity: Identity, files: dict[str, Path]) -> bool:
    """Check that the libraries keep what the tag says, and return whether one is an extension of Python."""
    libraries = {name: path for name, path in files.items() if _LIBRARY.search(name)}
    if identity.is_compiled and not libraries:
        raise KernelFailed("has no extension, but a name of one that has", where=Place(source.folder))
    for name, path in libraries.items():
        if not identity.is_compiled:
            raise KernelFailed("is a library, and a noarch variant has none", where=Place(path))
        if _FOREIGN.match(name.rpartition("/")[2]):
            raise KernelFailed(
                "comes with Torch or its backend, and is not to be in a wheel",
                where=Place(path),
                repair="link to it, and leave it to the Torch that is installed",
            )
        _check_abi(path, identity)
    return any(".abi3." in name for name in libraries)


def _check_abi(path: Path, identity: Identity) -> None:
    """Raise ``KernelFailed`` where the library needs more than its tag says."""
    from kernel_actions.compliance import binary, variant

    found = binary.read(path, variant.parse_name(identity.variant))
    rules = [
        binary.binary_readable,
        binary.binary_system,
        binary.binary_manylinux,
        binary.binary_needed,
        binary.binary_macos,
    ]
    if ".abi3." in path.name:
        rules.append(binary.binary_python_abi)
    for rule in rules:
        for problem in rule(found):
            raise KernelFailed(
                f"{problem.message}, which the tag of the wheel would not say",
                where=Place(path),
                repair="build it by the builder: kernel-actions compliance tells all that is wrong",
            )


def _provenance(source: Source, kernel: Kernel) -> bytes:
    """What the wheel was made of, for those who have only the wheel."""
    value = {
        "schema": 1,
        "kernel": kernel.name,
        "variant": source.variant,
        "release": source.release,
        "hub": {"repo_id": source.repo_id, "commit": source.commit} if source.repo_id else None,
        "builder": source.builder or None,
        "metadata": {"sha256": hashlib.sha256((source.folder / _METADATA).read_bytes()).hexdigest()},
        "provenance": kernel.provenance,
        "made_by": f"kernel-actions {__version__}",
    }
    return (json.dumps(value, indent=2) + "\n").encode()


def _chosen(options: Options) -> list[BuiltVariant]:
    """The variants of the kernel's build folder. Raises ``WrongInput`` where there are none."""
    build_dir = options.kernel_dir / options.build_dir
    found = [one for one in built.find(build_dir) if _is_wanted(one.name, options.only)]
    if not found:
        if not build_dir.is_dir():
            manifest.load(options.kernel_dir)  # Where there is no kernel either, that is what is wrong.
        there = ", ".join(one.name for one in built.find(build_dir))
        raise WrongInput(
            f"{build_dir} has no built variant" + (" of that name" if there else ""),
            repair=f"it has {there}"
            if there
            else "build one first: kernel-actions build; or give --repo-id and --revision",
        )
    return found


def _built(options: Options, version: str) -> list[Source]:
    """The variants of the kernel's build folder, with what else is to be in their wheels."""
    found = _chosen(options)
    licenses = _licenses(options.kernel_dir)
    if not version:
        console.say("No --wheel-version is given: these are wheels of a development version")
    return [
        Source(
            one.path,
            version or metadata.version(f"{one.version}.0.0.dev0"),
            licenses,
            builder=one.builder,
        )
        for one in found
    ]


def _is_wanted(name: str, patterns: Sequence[str]) -> bool:
    return not patterns or any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def _licenses(directory: Path) -> tuple[Path, ...]:
    """The licence files of a folder.

    A link to one elsewhere in the repository counts. No other does: what a link leads to is published.
    """
    listed = sorted(directory.iterdir()) if directory.is_dir() else []
    found: list[Path] = []
    for path in listed:
        if not _LICENSES.fullmatch(path.name):
            continue
        target = path.resolve()
        if path.is_symlink():
            root = git.root(directory) or directory
            if not target.is_relative_to(root.resolve()) or not _LICENSES.fullmatch(target.name):
                console.say(f"warning: {path} is a link to no licence of the repository, and is left out")
                continue
        if target.is_file() and target.stat().st_size <= _LARGEST:
            found.append(path)
    if not found:
        console.say(f"warning: {directory} has no licence file for the wheels")
    return tuple(found)


def _published(options: Options, repo_id: str, folder: Path, version: str) -> list[Source]:
    """The variants of a revision on the Hub, downloaded into ``folder`` and compared with their hashes."""
    hub = client.connect(options.hub, options.token)
    commit = client.resolve(hub, repo_id, options.revision)
    files = client.remote_files(hub, repo_id, commit)
    for path in files:
        download.check_path(path, repo_id)
    there = sorted(plan.variants_in(files))
    names = [name for name in there if _is_wanted(name, options.only)]
    if not names:
        raise WrongInput(
            f"{repo_id} has no such variant at {options.revision}",
            repair=f"it has {', '.join(there) or 'none at all'}",
        )
    wanted = {path: file for path, file in files.items() if plan.variant_of(path) in names}
    texts = _license_files(files)
    download.fetch(hub, repo_id, commit, wanted | texts, folder)
    known = _record(hub, repo_id, commit, files)
    licenses = tuple(folder / path for path in sorted(texts)) or _licenses_of_main(
        hub, repo_id, folder / "main"
    )
    sources = []
    for name in names:
        release = version or _release(known, name, options.revision, repo_id)
        builder = known.variants[name].builder if known and name in known.variants else ""
        sources.append(Source(folder / "build" / name, release, licenses, repo_id, commit, builder))
    return sources


def _license_files(files: Mapping[str, RemoteFile]) -> dict[str, RemoteFile]:
    """Those of a revision's files that are its licence."""
    return {path: file for path, file in files.items() if _LICENSES.fullmatch(path) and file.size <= _LARGEST}


def _licenses_of_main(hub: Hub, repo_id: str, folder: Path) -> tuple[Path, ...]:
    """The licence files that are beside the card."""
    texts = _license_files(client.remote_files(hub, repo_id, client.MAIN))
    if not texts:
        console.say(f"warning: {repo_id} has no licence file for the wheels")
        return ()
    folder.mkdir()
    download.fetch(hub, repo_id, client.MAIN, texts, folder)
    return tuple(folder / path for path in sorted(texts))


def _record(hub: Hub, repo_id: str, commit: str, files: dict[str, RemoteFile]) -> Record | None:
    data = client.read_file(hub, repo_id, commit, record.FILE_NAME) if record.FILE_NAME in files else None
    return None if data is None else record.read(data, f"{repo_id} at {commit[:12]}")


def _release(known: Record | None, name: str, revision: str, repo_id: str) -> str:
    """The release at a revision: the recorded one, or that of the tag that was given."""
    if known is not None:
        return metadata.version(str(known.release))
    if re.fullmatch(r"v\d+\.\d+\.\d+.*", revision):
        return metadata.version(revision.removeprefix("v"))
    raise WrongInput(
        f"{repo_id} records no release at {revision}, so {name} has no version",
        repair="give one by --wheel-version 1.2.0",
    )


def _print(form: str, made: Sequence[Made], page: Path | None) -> None:
    if form == "json":
        value = {
            "wheels": [
                {"variant": one.variant, "path": str(one.path), "bytes": one.size, "sha256": one.hash}
                for one in made
            ],
            "index": str(page) if page else None,
        }
        print(json.dumps(value, indent=2))
        return
    rows = [(one.variant, one.path.name, console.size(one.size)) for one in made]
    with github.untrusted_output():
        if made:
            print(console.table(_HEADER, rows) + ("\n" if page else ""))
        if page:
            print(f"Index: {page}")
    if form == "github":
        paths = json.dumps([str(one.path) for one in made])
        github.set_outputs({"wheels": paths, "index": str(page) if page else ""})
        whole = console.size(sum(one.size for one in made))
        title = f"{console.counted(len(made), 'wheel')}, {whole}"
        body = markdown.table(_HEADER, rows) if made else ""
        github.add_summary(
            markdown.join(markdown.heading("passed", title if made else "Package index"), body)
        )
