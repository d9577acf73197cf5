"""Sigstore bundles of variants: who published a variant, to be checked by anybody.

The bundle lies beside a variant's metadata.json, as ``metadata.json.sigstore``, where ``kernels
verify-signature`` looks for it. It signs metadata.json, which has the hash of every other file. There is no
key to keep: the identity of the job that releases is certified for ten minutes, and the signature is entered
in a public log (https://docs.sigstore.dev/about/security/). The package ``sigstore`` is imported only when
something is signed or a signature is checked.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from kernel_actions import built, console, github
from kernel_actions.errors import KernelActionsError, WrongInput, WrongSurroundings, printable

if TYPE_CHECKING:
    from cryptography.x509 import Certificate
    from sigstore.models import ClientTrustConfig
    from sigstore.verify.policy import VerificationPolicy

Sign = Literal["auto", "always", "never"]

GITHUB_ISSUER = "https://token.actions.githubusercontent.com"

_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+", re.ASCII)
# A bundle has some kilobytes: a certificate, a signature and a proof of a dozen hashes.
LARGEST_BUNDLE = 1_000_000
_NO_IDENTITY = "this job may not ask for its identity, and nothing can be signed"
_GIVE_IDENTITY = "add `id-token: write` to the permissions of the job, or leave signatures out: --sign never"


@dataclass(frozen=True)
class Expected:
    """Who must have signed: an ``identity`` as a certificate has it (for a job of GitHub the address of its
    workflow with the reference), or a repository of GitHub, as ``owner/name``; and who vouches for it."""

    identity: str
    issuer: str = GITHUB_ISSUER

    def policy(self) -> VerificationPolicy:
        """The same for sigstore."""
        from sigstore.verify import policy

        if not _REPOSITORY.fullmatch(self.identity):
            return policy.Identity(identity=self.identity, issuer=self.issuer)
        return policy.AllOf(
            [
                policy.OIDCIssuerV2(self.issuer),
                policy.OIDCSourceRepositoryURI(f"https://github.com/{self.identity}"),
            ]
        )


class _Anybody:
    """A policy that whoever signed is as good as any other."""

    def verify(self, cert: Certificate) -> None:
        return None


@dataclass(frozen=True)
class Signature:
    """What became of a signature: who signed, and what is wrong (empty: nothing)."""

    signer: str
    problem: str = ""


def wants(sign: Sign, *, is_embedded: bool) -> bool:
    """Whether this release is to be signed. By default it is where a job may prove its identity, but for
    rehearsals and private repositories, whose names the public log would tell.

    Raises ``WrongSurroundings`` where it has to be signed, and there is no identity.
    """
    has_identity = bool(os.environ.get("ACTIONS_ID_TOKEN_REQUEST_URL"))
    if sign == "always" and not has_identity:
        raise WrongSurroundings(_NO_IDENTITY, repair=_GIVE_IDENTITY)
    if sign != "auto":
        return sign == "always"
    if has_identity and not is_embedded and github.is_private():
        console.say(
            "Not signed: the public log would tell the name of this private repository (--sign always)"
        )
        return False
    return has_identity and not is_embedded


@contextmanager
def signer(trust_config: str = "") -> Iterator[Callable[[bytes], bytes]]:
    """Yields what makes the bundle of a metadata.json.

    ``trust_config`` is a file that describes another Sigstore than the public one, as its clients take it.
    Raises ``WrongSurroundings`` when the identity or the services of Sigstore cannot be had.
    """
    with _explained("sign"):
        from sigstore.oidc import IdentityToken, detect_credential
        from sigstore.sign import SigningContext

        context = SigningContext.from_trust_config(_configuration(trust_config))
        token = detect_credential()
        if token is None:
            raise WrongSurroundings(_NO_IDENTITY, repair=_GIVE_IDENTITY)
        github.mask(token)
        with context.signer(IdentityToken(token)) as made:

            def sign(metadata: bytes) -> bytes:
                with _explained("sign"):
                    return made.sign_artifact(metadata).to_json().encode()

            yield sign


class Checker:
    """Checks bundles, by one state of the trusted keys: those of the public Sigstore, brought up to date
    where its servers answer, else as they come with the locked package; or those of ``trust_config``.

    Raises ``WrongInput`` for such a file that cannot be read.
    """

    def __init__(self, trust_config: str = "") -> None:
        from sigstore.verify import Verifier

        with _explained("check signatures"):
            self._verifier = Verifier(trusted_root=_configuration(trust_config, for_checks=True).trusted_root)

    def check(self, metadata: bytes, bundle: bytes, expected: Expected | None = None) -> Signature:
        """Check the bundle of a metadata.json. Without ``expected`` anybody may have signed it."""
        from cryptography.x509 import ExtensionNotFound
        from sigstore.errors import Error
        from sigstore.models import Bundle

        try:
            if len(bundle) > LARGEST_BUNDLE:
                return Signature("", f"has a {built.SIGNATURE} that is no bundle of Sigstore")
            read = Bundle.from_json(bundle)
            said = _signer(read.signing_certificate)
            required = _Anybody() if expected is None else expected.policy()
            self._verifier.verify_artifact(metadata, read, required)
        except (Error, ExtensionNotFound, ValueError, RecursionError) as error:
            reason = printable(str(error) or type(error).__name__)[:300]
            return Signature("", f"has a signature that does not hold: {reason}")
        return Signature(said)


def covers_files(metadata: bytes) -> bool:
    """Whether a signature of this metadata.json is one of the variant's files: it lists their hashes, as the
    builder has it do since ae36559c. ``kernels verify-signature`` refuses it otherwise too: ``DigestMissing``
    of kernels/verify.py (0.17.2)."""
    try:
        described = json.loads(metadata)
    except (ValueError, RecursionError):
        return False
    return isinstance(described, dict) and isinstance(described.get("digest"), dict)


def remembering_checker(trust_config: str, expected: Expected | None) -> Callable[[bytes, bytes], bool]:
    """Tells whether bundles hold, by one `Checker`, which is made when it is needed first."""
    made: list[Checker] = []

    def holds(metadata: bytes, bundle: bytes) -> bool:
        if not made:
            made.append(Checker(trust_config))
        return not made[0].check(metadata, bundle, expected).problem

    return holds


def own() -> Expected | None:
    """The repository of this job; ``None`` where it does not say."""
    repository = os.environ.get("GITHUB_REPOSITORY", "")
    return Expected(repository) if _REPOSITORY.fullmatch(repository) else None


def _signer(certificate: Certificate) -> str:
    """Who signed, as the certificate names them."""
    from cryptography.x509 import RFC822Name, SubjectAlternativeName, UniformResourceIdentifier

    names = certificate.extensions.get_extension_for_class(SubjectAlternativeName).value
    for kind in (UniformResourceIdentifier, RFC822Name):
        if found := names.get_values_for_type(kind):
            return printable(str(found[0]))
    return "(a name that cannot be shown)"


def _configuration(path: str, *, for_checks: bool = False) -> ClientTrustConfig:
    """The keys and services of Sigstore."""
    from sigstore.errors import Error
    from sigstore.models import ClientTrustConfig

    if path:
        try:
            return ClientTrustConfig.from_json(Path(path).read_text(encoding="utf-8"))
        except (OSError, ValueError, Error) as error:
            raise WrongInput(
                f"{path} does not describe a Sigstore: {printable(str(error))[:200]}",
                repair="give a file of the type application/vnd.dev.sigstore.clienttrustconfig.v0.1+json",
            ) from error
    if not for_checks:
        return ClientTrustConfig.production()
    try:
        return ClientTrustConfig.production()
    except Exception as error:
        console.say(
            "Signatures are checked by the keys that came with sigstore, as its servers cannot be asked: "
            f"{printable(str(error))[:200]}"
        )
        return ClientTrustConfig.production(offline=True)


@contextmanager
def _explained(action: str) -> Iterator[None]:
    """Turn sigstore's errors, of many classes, into one line. None has the identity's token in it."""
    # Its own warnings are about what is said here in one line.
    for name in ("sigstore", "tuf"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        yield
    except KernelActionsError:
        raise
    except ImportError as error:
        raise WrongSurroundings(
            f"cannot {action}: {error}", repair="install the package sigstore, or give --sign never"
        ) from error
    except Exception as error:
        causes = [error]
        while (cause := causes[-1].__cause__) is not None and isinstance(cause, Exception):
            causes.append(cause)
        said = "; ".join(dict.fromkeys(text for one in causes if (text := printable(str(one)))))
        raise WrongSurroundings(
            f"cannot {action}: {said[:300] or type(error).__name__}",
            repair="run again; --sign never releases without signatures" if action == "sign" else "run again",
        ) from error
