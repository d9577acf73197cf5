"""What the builder makes at each revision that public kernels lock goes to the Hub, and back."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import HfApi
from kernel_actions import built, compliance, release, upload
from kernel_actions.errors import KernelFailed
from kernel_actions.hub import client
from kernel_actions.nix import results
from kernel_actions.release import gate, record, rollback, signing, verification
from kernel_actions.release.signing import Expected
from kernels_data import Digest, DigestAlgorithm

from tests.release import as_built
from tests.release.as_built import FIRST_WITH_DIGEST, LAST_WITHOUT_DIGEST, PUBLIC, REVISIONS
from tests.release.helpers import CPU, CUDA, Kernel, command
from tests.release.sigstore_stand_in import SigstoreStandIn
from tests.release.test_gate import told
from tests.release.test_release import put

Make = Callable[..., Kernel]
NEWEST = PUBLIC[-2]
# They know no edition 5, and this one names no commit either.
OF_EDITION_4 = (PUBLIC[-1], FIRST_WITH_DIGEST, LAST_WITHOUT_DIGEST)


@pytest.fixture
def made(kernel: Kernel) -> Make:
    """The kernel, locked to a revision, and built by it; once more where it was before."""

    def make(revision: str, *, report: bool = True) -> Kernel:
        as_built.lock(kernel, revision)
        path = kernel.root / "build.toml"
        text = path.read_text().replace("edition = 5\n", "")
        edition = "" if revision in OF_EDITION_4 else "edition = 5\n"
        path.write_text(text.replace("license", f"{edition}license", 1))
        kernel.commit(f"fix: lock builder {revision[:8]}")
        as_built.build(kernel, revision, report=report)
        return kernel

    return make


@pytest.mark.parametrize("revision", REVISIONS, ids=lambda one: one[:8])
def test_a_release_of_what_each_builder_makes(
    made: Make,
    address: str,
    quick: list[str],
    revision: str,
    api: HfApi,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The whole gate of a Hub that others use, rules included, then stage, verify, promote and tag."""
    # An embedded Hub does not ask for a commit.
    monkeypatch.setattr(client, "_says_it_is_embedded", lambda url: False)
    kernel = made(revision)
    prepared = release.prepare(kernel.root, address=address)
    assert [str(one) for one in release.lacks(prepared)] == []
    done = release.carry_out(prepared)
    assert done.verified is not None and done.verified.is_passed
    assert {one.name: one.result for one in done.verified.variants} == {CPU: "loaded", CUDA: "tested"}
    # What Nix built is published as it is.
    for name in (CPU, CUDA):
        path = api.hf_hub_download(
            kernel.repo_id, f"build/{name}/metadata.json", revision="v1", repo_type="kernel"
        )
        assert Path(path).read_bytes() == (kernel.root / "build" / name / "metadata.json").read_bytes()
    assert kernel.release(address).is_unchanged


@pytest.mark.parametrize("revision", (NEWEST, LAST_WITHOUT_DIGEST), ids=lambda one: one[:8])
def test_the_real_loader_loads_it(made: Make, address: str, revision: str) -> None:
    """Verification in its own process, which loads the variant with the package kernels."""
    kernel = made(revision)
    done = kernel.release(address)
    assert done.verified is not None
    assert (done.verified.loaded, done.verified.names) == (CPU, ("relu",))


@pytest.mark.parametrize("revision", REVISIONS, ids=lambda one: one[:8])
def test_a_hub_that_others_use_takes_it_too(made: Make, revision: str) -> None:
    """The gate without what an embedded Hub lets pass."""
    assert told(made(revision)) == []


def test_an_upload_of_what_each_builder_makes(made: Make, address: str, api: HfApi) -> None:
    for revision in REVISIONS:
        kernel = made(revision)
        published = upload.publish(kernel.root, Path("build"), address=address)
        assert published.branch == "v1" and published.variants.commit


# Before ae36559c and 81580bb9.


def test_a_variant_that_nothing_lists_is_refused_with_what_helps(made: Make) -> None:
    """It was built by Nix alone, or by this suite before it kept what is missing."""
    kernel = made(LAST_WITHOUT_DIGEST, report=False)
    found = gate.candidates(built.find(kernel.root / "build"))
    missing = gate.lacks(found, _conditions(kernel), _NoFindings(), Path("build"))  # type: ignore[arg-type]
    of_cpu = {one.what: one.repair for one in missing if one.variant == CPU}
    assert list(of_cpu) == [
        "has no build report", "does not list the hashes of its files", "does not say its commit",
    ]  # fmt: skip
    assert "lock builder ae36559c (2026-06-05) or newer" in of_cpu["does not list the hashes of its files"]
    assert "lock builder 81580bb9 (2026-07-07) or newer" in of_cpu["does not say its commit"]
    # The variant is what its builder makes: it is the release that cannot do without.
    report = compliance.check(kernel.root, built.find(kernel.root / "build"))
    assert [one for one in report.findings if one.rule.id == "KA608"] == []


class _NoFindings:
    findings = ()


def _conditions(kernel: Kernel) -> gate.Conditions:
    names = frozenset({CPU, CUDA})
    return gate.Conditions(kernel.head, names, names, False, False, False, False)


def test_a_report_on_another_build_is_not_believed(made: Make) -> None:
    kernel = made(LAST_WITHOUT_DIGEST)
    kernel.commit("fix: something else", extra="x = 1\n")
    for name in (CPU, CUDA):
        path = kernel.root / "build" / f"{name}.build-report.json"
        built.write_json(path, {**built.read_json(path), "commit": kernel.head})
    assert told(kernel) == [
        f"{name} its build report names commit {kernel.head[:12]}, which is not in its id"
        for name in (CPU, CUDA)
    ]


@pytest.mark.parametrize("act", ["change", "add", "remove"])
def test_files_that_changed_since_they_were_built(made: Make, address: str, act: str) -> None:
    """The report of the build has their hashes: rules, tests and uploads compare them."""
    kernel = made(LAST_WITHOUT_DIGEST)
    folder = kernel.root / "build" / CPU
    if act == "remove":
        (folder / "table.bin").unlink()
    else:
        (folder / ("__init__.py" if act == "change" else "extra.py")).write_text("__all__ = []\n")
    report = compliance.check(kernel.root, built.find(kernel.root / "build"))
    assert [one.variant for one in report.findings if one.rule.id == "KA608"] == [CPU]
    with pytest.raises(KernelFailed, match=r"is missing|is not the file that was built"):
        upload.publish(kernel.root, Path("build"), address=address)
    with pytest.raises(KernelFailed, match="breaks KA608"):
        kernel.release(address)


def test_verification_compares_the_files_with_the_record(
    made: Make, address: str, quick: list[str], api: HfApi
) -> None:
    """On the Hub nothing else lists the hashes: not metadata.json, and no report."""
    kernel = made(LAST_WITHOUT_DIGEST)
    kernel.release(address)
    found = _recorded(address, kernel.repo_id, "v1")
    hashes = found.variants[CPU].hashes
    assert hashes is not None and set(hashes["files"]) >= {"__init__.py", "_ops.py", "table.bin"}
    assert found.variants[CPU].digest == built.digest_of(hashes)
    put(api, kernel.repo_id, "v1", f"build/{CPU}/__init__.py", b"__all__ = []\n")
    verified = verification.verify(kernel.repo_id, "v1", address=address)
    assert {one.name: one.problem for one in verified.variants} == {
        CPU: "Hash mismatch: __init__.py", CUDA: ""
    }  # fmt: skip
    # Without the record's hashes nothing is known of them.
    value = json.loads(found.as_bytes())
    del value["variants"][CUDA]["hashes"]
    put(api, kernel.repo_id, "v1", record.FILE_NAME, json.dumps(value).encode())
    verified = verification.verify(kernel.repo_id, "v1", address=address)
    problems = {one.name: one.problem for one in verified.variants}
    assert problems[CUDA].startswith("lists no hashes in metadata.json, nor does kernel-actions.json")


def _recorded(address: str, repo_id: str, revision: str) -> record.Record:
    data = client.read_file(client.connect(address), repo_id, revision, record.FILE_NAME)
    assert data is not None
    return record.read(data, revision)


def test_a_later_release_keeps_what_is_recorded_and_a_rollback_goes_back(
    made: Make, address: str, quick: list[str], api: HfApi
) -> None:
    kernel = made(LAST_WITHOUT_DIGEST)
    first = kernel.release(address)
    made(NEWEST)
    shutil.rmtree(kernel.root / "build" / CUDA)
    second = kernel.release(address, partial=True)
    found = _recorded(address, kernel.repo_id, "v1").variants
    assert found[CPU].hashes is None and found[CUDA].hashes is not None
    assert second.verified is not None and second.verified.is_passed
    made_back = rollback.prepare(client.connect(address), kernel.repo_id, f"v{first.plan.version}")
    done = rollback.carry_out(made_back)
    assert done.verified is not None and done.verified.is_passed
    assert _recorded(address, kernel.repo_id, "v1").variants[CPU].hashes is not None
    assert verification.verify(kernel.repo_id, "v1", address=address).is_passed


def test_it_is_locked_and_downloaded(made: Make, address: str, quick: list[str], tmp_path: Path) -> None:
    """Neither asks for hashes of metadata.json: the Hub lists those of each file."""
    kernel = made(LAST_WITHOUT_DIGEST)
    kernel.release(address)
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "pyproject.toml").write_text(
        f'[project]\nname = "user"\nversion = "1"\n\n[tool.kernels.dependencies]\n"{kernel.repo_id}" = 1\n'
    )
    of_cpu = ("--platforms", "torch2.13-cpu-x86_64-linux")
    for arguments in (("lock", "--mode", "update"), ("lock",), ("download", *of_cpu, "--cache", "cache")):
        finished = command(folder, *arguments, "--hub", address, HF_ENDPOINT=address)
        assert finished.returncode == 0, finished.stderr
    locked = json.loads((folder / "kernels.lock").read_text())
    assert [one["dependency"]["repo-id"] for one in locked] == [kernel.repo_id]
    there = {path.name for path in (folder / "cache").rglob("*") if CPU in path.parts}
    assert {"metadata.json", "__init__.py", "_ops.py", "table.bin"} <= there


def test_a_signature_of_it_would_cover_nothing(
    made: Make,
    address: str,
    quick: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """`kernels verify-signature` refuses it as well: DigestMissing."""
    kernel = made(LAST_WITHOUT_DIGEST)
    services = SigstoreStandIn(tmp_path)
    for name, value in services.variables.items():
        monkeypatch.setenv(name, value)
    try:
        trust = str(services.trust_config)
        kernel.release(address, sign="always", trust_config=trust)
        assert f"Not signed: {CPU}, {CUDA}: their builder lists no hashes" in capsys.readouterr().err
        with signing.signer(trust) as sign:
            bundle = sign((kernel.root / "build" / CPU / "metadata.json").read_bytes())
        hub = HfApi(endpoint=address, token="unused")
        put(hub, kernel.repo_id, "v1", f"build/{CPU}/{built.SIGNATURE}", bundle)
        verified = verification.verify(
            kernel.repo_id, "v1", address=address, trust_config=trust, expected=Expected("acme/relu")
        )
    finally:
        services.close()
    assert {one.name: one.problem for one in verified.variants} == {
        CPU: "has a signature of metadata.json alone, which lists no hashes of the other files",
        CUDA: "is not signed",
    }


# The hashes that `build` puts into its report.


def test_the_hashes_are_those_that_the_builder_would_write(tmp_path: Path) -> None:
    folder = tmp_path / CPU
    for name in (
        "__init__.py", "layers/__init__.py", "layers/metadata.json", "metadata.json.sigstore", "a.pyc",
        "__pycache__/b.py", "layers/__pycache__/c.pyc", "_x.abi3.so",
    ):  # fmt: skip
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(os.urandom(3_000_000) if name.endswith(".so") else name.encode())
    (folder / "linked.py").symlink_to("__init__.py")
    (folder / "metadata.json").write_text("{}")
    found = built.missing_digest(folder)
    expected = Digest.hash_variant(DigestAlgorithm.SHA256, folder).files
    assert found == {"algorithm": "sha256", "files": dict(expected)}
    (folder / "metadata.json").write_text(json.dumps({"digest": found}))
    assert built.missing_digest(folder) is None


def test_a_build_of_nix_that_is_there_is_taken_again_if_its_report_lists_it(made: Make) -> None:
    kernel = made(LAST_WITHOUT_DIGEST)
    folder = kernel.root / "build" / CPU
    path = built.build_report_path(folder)
    said: dict[str, Any] = {**built.read_json(path), "store_path": "/nix/store/x"}
    built.write_json(path, said)
    assert results.is_current(folder, "/nix/store/x")
    # One of a kernel-actions that kept no hashes is written anew, and so are files that were changed.
    built.write_json(path, {**said, "digest": None})
    assert not results.is_current(folder, "/nix/store/x")
    built.write_json(path, said)
    (folder / "__init__.py").write_text("")
    assert not results.is_current(folder, "/nix/store/x")
