"""What a revision on the Hub holds, seen as a user without a token sees it.

Every file is downloaded and compared with what the Hub, the variant's metadata.json and
kernel-actions.json say of it. What this machine can load is loaded, in a fresh process with an empty
cache; the other variants must have passed their tests with exactly these files.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from kernel_actions import built, console, loading, process
from kernel_actions.errors import KernelFailed, WrongSurroundings
from kernel_actions.hub import client
from kernel_actions.hub.client import RemoteFile
from kernel_actions.release import plan, record, signing
from kernel_actions.release.record import Record
from kernel_actions.release.signing import Expected, Signature

Result = Literal["loaded", "tested", "untested", "kept", "failed"]

_PROGRAM = Path(__file__).resolve().parents[1]
# A job's own files and identity are no business of a kernel that is loaded to see whether it loads.
_WITHHELD = (
    "GITHUB_ENV", "GITHUB_OUTPUT", "GITHUB_PATH", "GITHUB_STATE", "GITHUB_STEP_SUMMARY", "HF_OIDC_RESOURCE",
)  # fmt: skip

_DIFFERENCES: Mapping[built.Difference, str] = {
    "changed": "Hash mismatch",
    "unknown": "Unknown file",
    "missing": "Missing file",
}


@dataclass(frozen=True)
class VerifiedVariant:
    """A variant and what became of it: ``loaded`` here, ``tested`` elsewhere with these very files,
    ``untested`` as the kernel allows, ``kept`` from before releases were recorded, or ``failed``, with the
    first ``problem``. ``signer`` is the identity that signed it; empty where it is not signed."""

    name: str
    files: int
    bytes: int
    digest: str
    result: Result
    problem: str = ""
    signer: str = ""


@dataclass(frozen=True)
class Verified:
    """What the commit ``commit`` of a repository holds. ``release`` is empty where no release is recorded.

    ``loaded`` is the variant that was loaded, with its public ``names``; empty when none is for this
    machine. ``problems`` are those of no variant.
    """

    repo_id: str
    commit: str
    release: str
    variants: tuple[VerifiedVariant, ...]
    loaded: str
    names: tuple[str, ...]
    problems: tuple[str, ...]

    @property
    def is_passed(self) -> bool:
        """Whether everything is as it should be."""
        return not self.problems and all(not one.problem for one in self.variants)

    def as_json(self) -> dict[str, Any]:
        """The result for programs."""
        return {"verdict": "passed" if self.is_passed else "failed", **asdict(self)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Verified:
        """The result that ``as_json`` was called on."""
        return cls(
            repo_id=value["repo_id"],
            commit=value["commit"],
            release=value["release"],
            variants=tuple(VerifiedVariant(**one) for one in value["variants"]),
            loaded=value["loaded"],
            names=tuple(value["names"]),
            problems=tuple(value["problems"]),
        )


def verify(
    repo_id: str,
    revision: str,
    *,
    address: str = "",
    expected: Expected | None = None,
    trust_config: str = "",
    loads: bool = True,
) -> Verified:
    """Download and check all variants at ``revision``, without any token. Without ``loads`` none of their
    code is run.

    Signatures are checked where there are some, and required of all variants if ``expected`` says whose;
    ``trust_config`` is that of `signing`. What is wrong with them is in the result. Raises ``WrongInput``
    when there is no such revision, ``WrongSurroundings`` when the Hub or the disk does not play along.
    """
    client.check_repo_id(repo_id)
    hub = client.connect(address, is_anonymous=True)
    commit = client.resolve(hub, repo_id, revision)
    files = {
        path: file
        for path, file in client.remote_files(hub, repo_id, commit).items()
        if plan.is_released(path)
    }
    names = sorted(plan.variants_in(files))
    problems: list[str] = []
    if not names:
        problems.append("there is no variant")
    with tempfile.TemporaryDirectory(prefix="kernel-actions-verify-") as name:
        folder = Path(name)
        patterns = ["build/*", "benchmarks/benchmark*.py", record.FILE_NAME]
        client.download(hub, repo_id, commit, patterns, folder)
        found, unreadable = _record(folder, f"{repo_id} at {commit[:12]}", record.FILE_NAME in files)
        problems += unreadable
        problems += _changed(folder, {path: one for path, one in files.items() if not plan.variant_of(path)})
        signed = _signatures(folder, names, expected, trust_config)
        wrong = {
            name: signed[name].problem or next(_file_problems(folder, name, files, found), "")
            for name in names
        }
    if found is not None:
        problems += [
            f"{name} is recorded, but not there" for name in sorted(found.variants.keys() - set(names))
        ]
    # What does not hold together is not run.
    is_sound = bool(names) and not problems and not any(wrong.values())
    is_loaded = is_sound and loads
    loaded, public, failure = _load(hub.address, repo_id, commit, names) if is_loaded else ("", (), "")
    if failure and not loaded:
        problems.append(failure)
    return Verified(
        repo_id=repo_id,
        commit=commit,
        release=str(found.release) if found else "",
        variants=tuple(
            replace(
                _variant(
                    name, files, found, wrong[name] or (failure if name == loaded else ""), name == loaded
                ),
                signer=signed[name].signer,
            )
            for name in names
        ),
        loaded="" if failure else loaded,
        names=public,
        problems=tuple(problems),
    )


def _signatures(
    folder: Path, names: Sequence[str], expected: Expected | None, trust_config: str
) -> dict[str, Signature]:
    """The signature of each variant. A metadata.json that lists no hashes is not worth one: it would vouch
    for no other file."""
    found = dict.fromkeys(names, Signature("", "is not signed" if expected is not None else ""))
    bundles = {name: folder / "build" / name / built.SIGNATURE for name in names}
    there = {name: bundle for name, bundle in bundles.items() if bundle.is_file()}
    if there:
        checker = signing.Checker(trust_config)
        for name, bundle in there.items():
            metadata = bundle.with_name("metadata.json")
            data = metadata.read_bytes() if metadata.is_file() else b""
            with bundle.open("rb") as file:
                found[name] = checker.check(data, file.read(signing.LARGEST_BUNDLE + 1), expected)
            if not found[name].problem and not signing.covers_files(data):
                what = "has a signature of metadata.json alone, which lists no hashes of the other files"
                found[name] = Signature("", what if expected is not None else "")
    return found


def in_fresh_process(
    repo_id: str, commit: str, address: str, trust_config: str = "", loads: bool = True
) -> Verified:
    """Run ``verify`` in a process that has no secrets and an empty cache.

    Raises ``WrongSurroundings`` when it does not get to a result.
    """
    with tempfile.TemporaryDirectory(prefix="kernel-actions-verify-") as name:
        home = Path(name)
        report = home / "report.json"
        environment = process.without_secrets(os.environ) | {"HF_HOME": str(home / "cache")}
        for variable in (*_WITHHELD, "GITHUB_ACTIONS", "HF_HUB_CACHE"):
            environment.pop(variable, None)
        finished = process.run(
            [
                sys.executable, "-I", _PROGRAM, "verify", "--repo-id", repo_id, "--revision", commit,
                "--hub", address, "--report", report, "--trust-config", trust_config,
                "--load" if loads else "--no-load",
            ],
            environment=environment,
            on_line=console.say if console.is_verbose() else None,
        )  # fmt: skip
        if report.is_file():
            return Verified.from_json(json.loads(report.read_bytes()))
    lines = [line for line in finished.output.splitlines() if line.strip()]
    said = lines[-1].removeprefix("kernel-actions: ") if lines else f"exit code {finished.returncode}"
    raise WrongSurroundings(f"{repo_id} at {commit[:12]} cannot be verified: {said}")


def check(verified: Verified) -> None:
    """Raise ``KernelFailed`` unless everything is as it should be, with the first problem."""
    problems = [
        *verified.problems,
        *(f"{one.name}: {one.problem}" for one in verified.variants if one.problem),
    ]
    if problems:
        more = f"; {len(problems) - 1} more" if len(problems) > 1 else ""
        raise KernelFailed(f"{verified.repo_id} at {verified.commit[:12]}: {problems[0]}{more}")


def _record(folder: Path, where: str, is_there: bool) -> tuple[Record | None, list[str]]:
    """The record of the release, and what is wrong with it."""
    if not is_there:
        return None, [f"there is no {record.FILE_NAME}: no release was recorded"]
    try:
        return record.read((folder / record.FILE_NAME).read_bytes(), where), []
    except KernelFailed as error:
        return None, [error.what]


def _file_problems(
    folder: Path, name: str, files: Mapping[str, RemoteFile], found: Record | None
) -> Iterator[str]:
    """What is wrong with the files of a variant, the most telling first."""
    listed = {path: file for path, file in files.items() if plan.variant_of(path) == name}
    yield from _changed(folder, listed)
    if f"build/{name}/metadata.json" not in listed:
        yield "has no metadata.json"
        return
    variant = folder / "build" / name
    expected = found.variants.get(name) if found else None
    is_unknown = found is not None and name in found.unknown
    # What was compared above need not be read again: those of the others differ, which was said.
    start = f"build/{name}/"
    hashes = {path.removeprefix(start): file.sha256 for path, file in listed.items() if file.sha256}
    recorded = expected.hashes if expected else None
    yield from _digest_problems(variant, recorded, is_required=not is_unknown, hashes=hashes)
    if found is None or is_unknown:
        return
    if expected is None:
        yield f"is not in {record.FILE_NAME}"
    elif client.local_file(variant / "metadata.json").sha256 != expected.metadata:
        yield f"has another metadata.json than {record.FILE_NAME} says"
    elif (built.read(variant).digest or (recorded and built.digest_of(recorded))) != expected.digest:
        yield f"has another digest than {record.FILE_NAME} says"


def _changed(folder: Path, listed: Mapping[str, RemoteFile]) -> Iterator[str]:
    """Which files are not those that the Hub lists."""
    for path, file in sorted(listed.items()):
        if not (folder / path).is_file():
            yield f"{path} was not served"
        elif not client.local_file(folder / path).is_same(file):
            yield f"{path} is not what the Hub lists"


def _digest_problems(
    variant: Path,
    recorded: Mapping[str, Any] | None = None,
    *,
    is_required: bool,
    hashes: Mapping[str, str] | None = None,
) -> Iterator[str]:
    """What metadata.json says of the variant's files, and is not so; or what is ``recorded`` of them where it
    is of a builder that lists none. ``hashes`` are those of ``built.differences``."""
    from kernels._rust import Metadata  # The loader\'s own: compliance/variant.py says why.

    try:
        has_digest = Metadata.read_from_file(variant / "metadata.json").digest is not None
    except (ValueError, RuntimeError, OSError) as error:
        yield f"has a metadata.json that the loader cannot read: {error}"
        return
    # Not by the loader's own code, which holds whole files in memory.
    digest = built.read_json(variant / "metadata.json")["digest"] if has_digest else recorded
    if digest is None:
        if is_required:
            yield f"lists no hashes in metadata.json, nor does {record.FILE_NAME} (release it again)"
        return
    for name, how in built.differences(variant, digest["algorithm"], digest["files"], hashes):
        yield f"{_DIFFERENCES[how]}: {name}"


def _load(address: str, repo_id: str, commit: str, names: Sequence[str]) -> tuple[str, tuple[str, ...], str]:
    """Load what this machine can: the variant (empty: none is for it), its public names, and what
    went wrong."""
    answer = loading.load(
        ["--repo-id", repo_id, "--revision", commit],
        {"HF_ENDPOINT": address, **dict.fromkeys(_WITHHELD, "")},
    )
    expected = str(answer.get("expected") or "")
    if "error" in answer:
        return expected, (), f"does not load: {answer['error']}"
    variant = str(answer.get("variant") or "")
    if variant != expected or (variant and variant not in names):
        return expected, (), f"the loader took {variant or 'nothing'}, not {expected or 'nothing'}"
    if variant and commit not in Path(str(answer.get("file"))).parts:
        return expected, (), "was loaded from elsewhere than this commit"
    return variant, tuple(str(one) for one in answer.get("names", ())), ""


def _variant(
    name: str, files: Mapping[str, RemoteFile], found: Record | None, problem: str, is_loaded: bool
) -> VerifiedVariant:
    listed = [file for path, file in files.items() if plan.variant_of(path) == name]
    expected = found.variants.get(name) if found else None
    result: Result = "loaded"
    if not problem and not is_loaded:
        result = "tested"
        if found is not None and name in found.unknown:
            result = "kept"
        elif expected is not None and expected.untested:
            result = "untested"
        elif expected is None or expected.tests is None or not expected.tests.is_passed:
            problem = "is not for this machine, and no tests of it are recorded"
    return VerifiedVariant(
        name=name,
        files=len(listed),
        bytes=sum(file.size for file in listed),
        digest=expected.digest if expected else "",
        result="failed" if problem else result,
        problem=problem,
    )
