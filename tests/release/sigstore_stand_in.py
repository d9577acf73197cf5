"""A Sigstore of one's own on loopback: the identity of a job, Fulcio, Rekor and the description of them.

The real client signs and verifies with it as with the public one, down to certificates (RFC 5280), their
timestamps (RFC 6962), the proof of inclusion and the signed checkpoint. Only the keys are those of a test.
"""

from __future__ import annotations

import base64
import hashlib
import json
import struct
import threading
import time
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import jwt
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

ISSUER = "https://token.actions.githubusercontent.com"
REQUEST_TOKEN = "gha_planted"
# What Fulcio writes of an identity: https://github.com/sigstore/fulcio/blob/main/docs/oid-info.md
_OID = "1.3.6.1.4.1.57264.1."
_TIMESTAMPS = x509.ObjectIdentifier("1.3.6.1.4.1.11129.2.4.2")


def workflow(repository: str = "acme/relu", file: str = "release.yml", ref: str = "refs/heads/main") -> str:
    """The identity of a job, as a certificate has it."""
    return f"https://github.com/{repository}/.github/workflows/{file}@{ref}"


class SigstoreStandIn:
    """Runs until `close`. ``repository`` is whose job it is; ``refuses`` what answers with an error:
    ``token``, ``certificate``, ``entry`` or ``exchange``; ``seen`` has the places that were asked."""

    def __init__(self, folder: Path) -> None:
        self.repository = "acme/relu"
        self.refuses = ""
        self.seen: list[str] = []
        self._authority, self._timestamps, self._log = (
            ec.generate_private_key(ec.SECP256R1()) for _ in range(3)
        )
        self._root = self._root_certificate()
        stand_in = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                is_known = self.headers["Authorization"].lower() == f"bearer {REQUEST_TOKEN}"
                query = parse_qs(urlsplit(self.path).query)
                stand_in._answer(
                    self, "token", (lambda: stand_in._token(query["audience"][0])) if is_known else None
                )

            def do_POST(self) -> None:
                value = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if self.path == "/oauth/token":
                    stand_in._answer(self, "exchange", lambda: stand_in._exchanged(value))
                elif self.path == "/api/v2/signingCert":
                    token = self.headers["Authorization"].removeprefix("Bearer ")
                    stand_in._answer(self, "certificate", lambda: stand_in._certificate(token, value))
                else:
                    stand_in._answer(self, "entry", lambda: stand_in._entry(value))

            def log_message(self, format: str, *arguments: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        self.trust_config = folder / "trust-config.json"
        self.trust_config.write_text(json.dumps(self._description()))
        event = folder / "event.json"
        event.write_text(json.dumps({"repository": {"private": False}}))
        # What a job has in its environment.
        self.variables = {
            "GITHUB_ACTIONS": "true",
            "GITHUB_EVENT_PATH": str(event),
            "ACTIONS_ID_TOKEN_REQUEST_URL": f"{self.url}/token?version=2",
            "ACTIONS_ID_TOKEN_REQUEST_TOKEN": REQUEST_TOKEN,
        }

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, handler: Any, what: str, value: Any) -> None:
        self.seen.append(what)
        is_refused = what == self.refuses or value is None
        data = json.dumps({"message": "no"} if is_refused else value()).encode()
        handler.send_response(403 if is_refused else 201)
        if what in ("token", "exchange") and not is_refused:
            handler._headers_buffer[0] = b"HTTP/1.0 200 OK\r\n"
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)

    # The identity of the job.

    def _token(self, audience: str) -> dict[str, str]:
        now = int(time.time())
        claims = {
            "iss": ISSUER, "aud": audience, "sub": f"repo:{self.repository}:environment:hub",
            "iat": now, "nbf": now, "exp": now + 300, "repository": self.repository,
            "job_workflow_ref": workflow(self.repository).removeprefix("https://github.com/"),
        }  # fmt: skip
        return {"value": jwt.encode(claims, "a key that nobody checks here" * 2, algorithm="HS256")}

    # The Hub, which has this repository's workflow as a trusted publisher.

    def _exchanged(self, value: Any) -> dict[str, Any]:
        assert value["grant_type"] == "urn:ietf:params:oauth:grant-type:token-exchange"
        claims = jwt.decode(value["subject_token"], options={"verify_signature": False})
        assert claims["aud"] == self.url
        return {"access_token": f"hf_jwt_{value['resource']}", "token_type": "bearer", "expires_in": 3600}

    # Fulcio.

    def _root_certificate(self) -> x509.Certificate:
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "stand-in")])
        key = self._authority.public_key()
        usage = dict.fromkeys(
            ("digital_signature", "content_commitment", "key_encipherment", "data_encipherment",
             "key_agreement", "encipher_only", "decipher_only"), False,
        )  # fmt: skip
        return (
            _builder(name, name, key, days=1)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(x509.KeyUsage(**usage, key_cert_sign=True, crl_sign=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .sign(self._authority, hashes.SHA256())
        )

    def _certificate(self, token: str, value: Any) -> dict[str, Any]:
        claims = jwt.decode(token, options={"verify_signature": False})
        request = x509.load_pem_x509_csr(base64.b64decode(value["certificateSigningRequest"]))
        identity = f"https://github.com/{claims['job_workflow_ref']}"
        repository = f"https://github.com/{claims['repository']}"
        usage = dict.fromkeys(
            ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement",
             "key_cert_sign", "crl_sign", "encipher_only", "decipher_only"), False,
        )  # fmt: skip
        key = request.public_key()
        builder = (
            _builder(x509.Name([]), self._root.subject, key, days=0)
            .add_extension(x509.KeyUsage(**usage, digital_signature=True), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CODE_SIGNING]), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._authority.public_key()),
                critical=False,
            )
            .add_extension(
                x509.SubjectAlternativeName([x509.UniformResourceIdentifier(identity)]), critical=True
            )
        )
        issuer = x509.UnrecognizedExtension(x509.ObjectIdentifier(_OID + "1"), claims["iss"].encode())
        builder = builder.add_extension(issuer, critical=False)
        for number, text in (("8", claims["iss"]), ("9", identity), ("12", repository)):
            extension = x509.UnrecognizedExtension(x509.ObjectIdentifier(_OID + number), _der(0x0C, text))
            builder = builder.add_extension(extension, critical=False)
        # The certificate without its timestamp is what the timestamp is of.
        plain = builder.sign(self._authority, hashes.SHA256()).tbs_certificate_bytes
        moment = int(time.time() * 1000)
        signed = struct.pack(">BBQH", 0, 0, moment, 1) + _key_id(self._authority.public_key())
        signed += len(plain).to_bytes(3, "big") + plain + struct.pack(">H", 0)
        signature = self._timestamps.sign(signed, ec.ECDSA(hashes.SHA256()))
        one = struct.pack(">B", 0) + _key_id(self._timestamps.public_key()) + struct.pack(">QH", moment, 0)
        one += struct.pack(">BBH", 4, 3, len(signature)) + signature
        listed = struct.pack(">HH", len(one) + 2, len(one)) + one
        extension = x509.UnrecognizedExtension(_TIMESTAMPS, _der(0x04, listed))
        made = builder.add_extension(extension, critical=False).sign(self._authority, hashes.SHA256())
        chain = [one.public_bytes(serialization.Encoding.PEM).decode() for one in (made, self._root)]
        return {"signedCertificateEmbeddedSct": {"chain": {"certificates": chain}}}

    # Rekor.

    def _entry(self, value: Any) -> dict[str, Any]:
        body = json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
        root = hashlib.sha256(b"\0" + body).digest()
        log_id = _key_id(self._log.public_key())
        note = f"stand-in - 1\n1\n{base64.b64encode(root).decode()}\n"
        signature = self._log.sign(note.encode(), ec.ECDSA(hashes.SHA256()))
        promised = {
            "body": base64.b64encode(body).decode(),
            "integratedTime": int(time.time()),
            "logID": log_id.hex(),
            "logIndex": 0,
        }
        data = json.dumps(promised, sort_keys=True, separators=(",", ":")).encode()
        promise = base64.b64encode(self._log.sign(data, ec.ECDSA(hashes.SHA256()))).decode()
        mark = base64.b64encode(log_id[:4] + signature).decode()
        proof = {
            "logIndex": 0, "treeSize": 1, "rootHash": root.hex(), "hashes": [],
            "checkpoint": f"{note}\n\u2014 stand-in {mark}\n",
        }  # fmt: skip
        return {
            root.hex(): {
                **promised, "verification": {"inclusionProof": proof, "signedEntryTimestamp": promise},
            }
        }  # fmt: skip

    def _description(self) -> dict[str, Any]:
        """What a client has to know, as https://github.com/sigstore/protobuf-specs describes it."""
        valid = {"start": "2020-01-01T00:00:00Z"}
        service = {"url": self.url, "majorApiVersion": 1, "validFor": valid, "operator": "stand-in"}

        def log(key: ec.EllipticCurvePrivateKey) -> dict[str, Any]:
            der = key.public_key().public_bytes(
                serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
            )
            return {
                "baseUrl": self.url,
                "hashAlgorithm": "SHA2_256",
                "publicKey": {
                    "rawBytes": base64.b64encode(der).decode(),
                    "keyDetails": "PKIX_ECDSA_P256_SHA_256",
                    "validFor": valid,
                },
                "logId": {"keyId": base64.b64encode(hashlib.sha256(der).digest()).decode()},
            }

        root = base64.b64encode(self._root.public_bytes(serialization.Encoding.DER)).decode()
        return {
            "mediaType": "application/vnd.dev.sigstore.clienttrustconfig.v0.1+json",
            "trustedRoot": {
                "mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1",
                "tlogs": [log(self._log)],
                "ctlogs": [log(self._timestamps)],
                "certificateAuthorities": [
                    {
                        "subject": {"organization": "stand-in", "commonName": "stand-in"},
                        "uri": self.url,
                        "certChain": {"certificates": [{"rawBytes": root}]},
                        "validFor": valid,
                    }
                ],
            },
            "signingConfig": {
                "mediaType": "application/vnd.dev.sigstore.signingconfig.v0.2+json",
                "caUrls": [service],
                "oidcUrls": [service],
                "rekorTlogUrls": [service],
                "rekorTlogConfig": {"selector": "ANY"},
                "tsaConfig": {"selector": "ANY"},
            },
        }


def _builder(subject: x509.Name, issuer: x509.Name, key: Any, days: int) -> x509.CertificateBuilder:
    now = datetime.now(timezone.utc)
    until = now + (timedelta(days=days) if days else timedelta(minutes=10))
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=1))
        .not_valid_after(until)
    )


def _key_id(key: ec.EllipticCurvePublicKey) -> bytes:
    der = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(der).digest()


def _der(tag: int, value: str | bytes) -> bytes:
    """A primitive value of ASN.1."""
    data = value.encode() if isinstance(value, str) else value
    size = bytes([len(data)]) if len(data) < 128 else b""
    if not size:
        length = len(data).to_bytes(2, "big").lstrip(b"\0")
        size = bytes([0x80 | len(length)]) + length
    return bytes([tag]) + size + data
