"""Signatures of variants, by the real client of Sigstore and a stand-in for its services."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import HfApi
from kernel_actions import built
from kernel_actions.errors import KernelFailed, WrongInput, WrongSurroundings
from kernel_actions.hub import client
from kernel_actions.hub.client import LocalFile, RemoteFile
from kernel_actions.release import rollback, signing, verification
from kernel_actions.release.signing import Expected, Signature
from sigstore.models import ClientTrustConfig
from sigstore.verify import Verifier

from tests.release.helpers import CPU, CUDA, Kernel, command
from tests.release.sigstore_stand_in import REQUEST_TOKEN, SigstoreStandIn, workflow
from tests.release.test_release import heads, put, titles

Tree = Callable[[str, str], dict[str, str]]
METADATA = b'{"name": "relu"}'


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SigstoreStandIn]:
    """Services, and a job that may ask for its identity."""
    server = SigstoreStandIn(tmp_path)
    for name, value in server.variables.items():
        monkeypatch.setenv(name, value)
    yield server
    server.close()


@pytest.fixture
def bundle(stand_in: SigstoreStandIn, tmp_path: Path) -> Path:
    """A signature of METADATA."""
    path = tmp_path / "bundle"
    with signing.signer(str(stand_in.trust_config)) as sign:
        path.write_bytes(sign(METADATA))
    return path


@pytest.fixture
def checker(stand_in: SigstoreStandIn) -> signing.Checker:
    return signing.Checker(str(stand_in.trust_config))


# A signature.


@pytest.mark.parametrize(
    ("expected", "problem"),
    [
        (None, ""),
        (Expected("acme/relu"), ""),
        (Expected(workflow()), ""),
        (Expected("acme/other"), "OIDCSourceRepositoryURI does not match"),
        (Expected(workflow(repository="acme/other")), "do not match"),
        (Expected(workflow(file="other.yml")), "do not match"),
        (Expected(workflow(ref="refs/heads/side")), "do not match"),
        (Expected("acme/relu", "https://example.org"), "OIDCIssuer"),
        (Expected("acme"), "do not match"),
    ],
)
def test_who_signed(checker: signing.Checker, bundle: Path, expected: Expected | None, problem: str) -> None:
    found = checker.check(METADATA, bundle.read_bytes(), expected)
    assert problem in found.problem and bool(problem) == bool(found.problem)
    assert found.signer == ("" if problem else workflow())


@pytest.mark.parametrize(
    "act",
    [
        lambda value: value.clear(),
        lambda value: value.update(mediaType="x"),
        lambda value: value["verificationMaterial"].update(tlogEntries=[]),
        lambda value: value["verificationMaterial"]["certificate"].update(rawBytes="AAAA"),
        lambda value: value["messageSignature"].update(signature="AAAA"),
        lambda value: value["verificationMaterial"]["tlogEntries"][0].update(integratedTime="1"),
        lambda value: value["verificationMaterial"]["tlogEntries"][0]["inclusionProof"].update(
            rootHash="AAAA"
        ),
        lambda value: value["verificationMaterial"]["tlogEntries"][0].update(canonicalizedBody="e30="),
    ],
)
def test_a_bundle_that_was_tampered_with(
    checker: signing.Checker, bundle: Path, act: Callable[[Any], Any]
) -> None:
    value = json.loads(bundle.read_bytes())
    act(value)
    bundle.write_text(json.dumps(value))
    assert checker.check(METADATA, bundle.read_bytes()).problem.startswith(
        "has a signature that does not hold: "
    )


@pytest.mark.parametrize(
    "data", [b"", b"{", b"\xff\0", b"[]", b"null", b"[" * 100_000, b" " * 2_000_000], ids=range(7)
)
def test_what_is_no_bundle(checker: signing.Checker, bundle: Path, data: bytes) -> None:
    bundle.write_bytes(data)
    assert checker.check(METADATA, bundle.read_bytes()).problem.startswith("has a ")


def test_other_content_and_other_keys_do_not_hold(
    checker: signing.Checker, bundle: Path, tmp_path: Path
) -> None:
    assert checker.check(METADATA + b" ", bundle.read_bytes()).problem
    other = tmp_path / "other"
    other.mkdir()
    strangers = SigstoreStandIn(other)
    assert signing.Checker(str(strangers.trust_config)).check(METADATA, bundle.read_bytes()).problem
    strangers.close()


@pytest.mark.parametrize("what", ["token", "certificate", "entry"])
def test_services_that_refuse(stand_in: SigstoreStandIn, what: str) -> None:
    stand_in.refuses = what
    with pytest.raises(WrongSurroundings, match=r"cannot sign: .*--sign never") as caught:  # noqa: SIM117
        with signing.signer(str(stand_in.trust_config)) as sign:
            sign(METADATA)
    assert "\n" not in str(caught.value)
    assert REQUEST_TOKEN not in str(caught.value) and "eyJ" not in str(caught.value)


def test_a_description_that_is_none(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    for text in ("", "{}", "[]", '{"mediaType": 1}'):
        path.write_text(text)
        with pytest.raises(WrongInput, match="does not describe a Sigstore"):
            signing.Checker(str(path))
    with pytest.raises(WrongInput, match="No such file"):
        signing.Checker(str(tmp_path / "nothing"))


@pytest.mark.parametrize(
    ("sign", "variables", "is_private", "is_embedded", "wanted"),
    [
        ("auto", True, False, False, True),
        ("auto", True, True, False, False),
        ("auto", True, None, False, False),
        ("auto", True, False, True, False),
        ("auto", False, False, False, False),
        ("never", True, False, False, False),
        ("always", True, True, True, True),
    ],
)
def test_when_a_release_is_signed(
    stand_in: SigstoreStandIn,
    monkeypatch: pytest.MonkeyPatch,
    sign: signing.Sign,
    variables: bool,
    is_private: bool | None,
    is_embedded: bool,
    wanted: bool,
) -> None:
    event = Path(os.environ["GITHUB_EVENT_PATH"])
    event.write_text("{}" if is_private is None else json.dumps({"repository": {"private": is_private}}))
    if not variables:
        monkeypatch.delenv("ACTIONS_ID_TOKEN_REQUEST_URL")
    assert signing.wants(sign, is_embedded=is_embedded) == wanted


def test_a_missing_identity_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(WrongSurroundings, match="id-token: write"):
        signing.wants("always", is_embedded=True)


# A release.


@pytest.mark.slow
def test_a_release_is_signed_once_and_verified(
    kernel: Kernel, address: str, api: HfApi, repo_id: str, quick: list[str], stand_in: SigstoreStandIn,
    tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    options = {"sign": "always", "trust_config": str(stand_in.trust_config)}
    monkeypatch.setenv("GITHUB_REPOSITORY", "acme/relu")
    kernel.build()
    kernel.release(address, stages=("stage",), **options)
    assert stand_in.seen == ["token", "certificate", "entry", "entry"]
    # Finished by another run, and once more: nothing is signed again.
    done = kernel.release(address, **options)
    assert kernel.release(address, **options).is_unchanged
    assert len(stand_in.seen) == 4
    files = tree(repo_id, "v1")
    assert {path for path in files if path.endswith(".sigstore")} == {
        f"build/{name}/{built.SIGNATURE}" for name in (CPU, CUDA)
    }
    assert done.verified is not None
    assert {one.signer for one in done.verified.variants} == {workflow()}
    assert [one.action for one in kernel.release(address, **options).plan.variants] == ["unchanged"] * 2

    # By the loader's own verifier, with its own kind of policy.
    from kernels.verify import GitHubWorkflowPolicy, VerificationResult, verify_variant

    client.download(client.connect(address), repo_id, "v1", ["build/*"], tmp_path / "there")
    trusted = ClientTrustConfig.from_json(stand_in.trust_config.read_text()).trusted_root
    monkeypatch.setattr(Verifier, "production", lambda: Verifier(trusted_root=trusted))
    policy = GitHubWorkflowPolicy(repo_id="acme/relu", signer_uris=[workflow()])
    found = verify_variant(tmp_path / "there" / "build" / CPU, policies=[policy])
    assert found == VerificationResult.Success()

    # The command, with the identity that is expected and with another one.
    asked = ("verify", "--revision", "v1", "--hub", address, "--trust-config", options["trust_config"])
    finished = command(kernel.root, *asked, "--identity", "acme/relu")
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.count(workflow()) == 2
    finished = command(kernel.root, *asked, "--identity", "acme/other")
    assert finished.returncode == 1
    assert "has a signature that does not hold" in finished.stderr

    # And back: what is gone back to is verified with its signatures.
    first = heads(api, repo_id)["v1"]
    kernel.commit("fix: x", rounding="x = 1\n")
    kernel.build()
    kernel.release(address, **options)
    made = rollback.prepare(client.connect(address), repo_id, "v1.0.0")
    rollback.carry_out(made, options["trust_config"])
    assert {name: oid for name, oid in tree(repo_id, "v1").items() if name.endswith(".sigstore")} == {
        name: oid for name, oid in tree(repo_id, first).items() if name.endswith(".sigstore")
    }


def test_a_signature_of_others_is_not_promoted(
    kernel: Kernel, address: str, api: HfApi, repo_id: str, quick: list[str], bundle: Path,
    stand_in: SigstoreStandIn,
) -> None:  # fmt: skip
    kernel.build()
    kernel.release(address, stages=("stage",))
    assert verification.verify(repo_id, "release-1.0.0", address=address).is_passed
    found = verification.verify(repo_id, "release-1.0.0", address=address, expected=Expected("acme/relu"))
    assert {one.problem for one in found.variants} == {"is not signed"}
    # Of another metadata.json.
    put(api, repo_id, "release-1.0.0", f"build/{CPU}/{built.SIGNATURE}", bundle.read_bytes())
    trust_config = str(stand_in.trust_config)
    with pytest.raises(KernelFailed, match=f"{CPU}: has a signature that does not hold"):
        kernel.release(address, stages=("promote",), trust_config=trust_config)
    assert heads(api, repo_id).keys() == {"main", "release-1.0.0"}
    # Staged by the next run as it should be.
    kernel.release(address, sign="always", trust_config=trust_config)
    assert titles(api, repo_id, "v1") == ["Release 1.0.0", "initial commit"]


def test_a_signature_is_kept_by_uploads_as_long_as_it_holds(tmp_path: Path) -> None:
    path, signed = f"build/{CPU}/{built.SIGNATURE}", f"build/{CPU}/metadata.json"
    remote = {path: RemoteFile("1"), signed: RemoteFile("2")}

    def deleted(local: Mapping[str, LocalFile]) -> tuple[str, ...]:
        return client.plan(remote, local, [f"build/{CPU}"]).deleted

    assert deleted({signed: LocalFile(tmp_path, 1, "2", "")}) == ()
    assert deleted({signed: LocalFile(tmp_path, 1, "3", "")}) == (path,)
    assert deleted({}) == (path, signed) or deleted({}) == (signed, path)


def test_nothing_is_signed_unasked(
    kernel: Kernel, address: str, repo_id: str, quick: list[str], stand_in: SigstoreStandIn, tree: Tree
) -> None:
    kernel.build()
    kernel.release(address, sign="auto", trust_config=str(stand_in.trust_config))
    assert stand_in.seen == []
    assert not any(path.endswith(".sigstore") for path in tree(repo_id, "v1"))
    assert Signature("") == Signature("", "")


# Trusted publishing, by the same identity.


def test_the_identity_of_a_job_is_exchanged_at_the_hub_that_is_meant(
    stand_in: SigstoreStandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_OIDC_RESOURCE", "kernels/acme/relu")
    monkeypatch.setenv("HF_TOKEN", "hf_of_somebody")
    assert client._default_token(stand_in.url) == "hf_jwt_kernels/acme/relu"
    assert stand_in.seen == ["token", "exchange"]
    # A token that was asked for elsewhere, by a system that huggingface_hub does not know.
    monkeypatch.delenv("ACTIONS_ID_TOKEN_REQUEST_URL")
    monkeypatch.setenv("HF_OIDC_ID_TOKEN", stand_in._token(stand_in.url)["value"])
    assert client._default_token(stand_in.url) == "hf_jwt_kernels/acme/relu"
    monkeypatch.delenv("HF_OIDC_ID_TOKEN")
    with pytest.raises(WrongSurroundings, match="id-token: write"):
        client._default_token(stand_in.url)
    monkeypatch.setenv("HF_OIDC_RESOURCE", "")
    assert client._default_token(stand_in.url) == "hf_of_somebody"


@pytest.mark.parametrize("what", ["token", "exchange"])
def test_an_exchange_that_is_refused(
    stand_in: SigstoreStandIn, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.setenv("HF_OIDC_RESOURCE", "kernels/acme/relu")
    stand_in.refuses = what
    with pytest.raises(WrongSurroundings, match="name this workflow as a trusted publisher") as caught:
        client._default_token(stand_in.url)
    assert "\n" not in str(caught.value)
    assert REQUEST_TOKEN not in str(caught.value) and "eyJ" not in str(caught.value)
