"""Settings of a user that stand in the way of every connection: each is named, with its cure.

Looked at where a connection is about to be made, since a plan and a local build do without.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from kernel_actions.errors import WrongSurroundings

# Files and folders of certificates. OpenSSL, and so Python, takes one that is missing for an empty store;
# httpcore2 2.16 (which the Hub's client uses) and requests 2.34 (adapters.py, cert_verify) raise OSError.
_CERTIFICATE_FILES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PIP_CERT")
# Read by int() as huggingface_hub is imported (2.4, constants.py, _as_int).
_SECONDS = ("HF_HUB_DOWNLOAD_TIMEOUT", "HF_HUB_ETAG_TIMEOUT")
# Those that httpx2 2.16 (_config.py, Proxy), uv and pip know.
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy")
_SCHEMES = frozenset({"http", "https", "socks5", "socks5h"})


def check(environment: Mapping[str, str]) -> None:
    """Raise ``WrongSurroundings`` for a variable with which no connection can be made."""
    for name in _CERTIFICATE_FILES:
        path = environment.get(name)
        if path and not os.path.exists(path):
            raise WrongSurroundings(
                f"{name} names {path}, which does not exist",
                repair=f"unset {name}, or name a file that is there",
            )
    for name in _PROXIES:
        address = environment.get(name, "")
        scheme, separator, _ = address.partition("://")
        if separator and scheme.lower() not in _SCHEMES:
            raise WrongSurroundings(
                f"{name}: no proxy is reached by {scheme[:20]}://",
                repair=f"unset {name}, or use {', '.join(sorted(_SCHEMES))}",
            )


def check_client(environment: Mapping[str, str]) -> None:
    """Raise ``WrongSurroundings`` for a variable that the Hub's client stumbles over when it is imported."""
    for name in _SECONDS:
        text = environment.get(name, "")
        if text and not re.fullmatch(r"\s*[+-]?\d+\s*", text):
            raise WrongSurroundings(
                f"{name}: {text[:40]!r} is not a whole number of seconds",
                repair=f"unset {name}, or set a number, as in {name}=30",
            )
