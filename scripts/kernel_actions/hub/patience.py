"""How the Hub's client waits and tries again: a client of httpx2 that huggingface_hub uses for all it sends.

A Hub that is busy (429), that fails (5xx), or a connection that breaks is asked again, a bounded number of
times, after as long as it asks for (``Retry-After``) or ever longer pauses. What was asked may have been done
although no answer came. That is no matter here: a branch, a tag or a repository that is there already is what
was wanted, and a commit names its parent, so that the second one is refused (412) and planned anew. Only a
pull request would be opened twice: it is not asked for again once it may have arrived.
"""

from __future__ import annotations

import hashlib
import os
import random
import re
import time
from collections.abc import Mapping
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import Any

import httpx2
from huggingface_hub import set_client_factory
from huggingface_hub.utils import _http, logging

from kernel_actions import console, digests
from kernel_actions.errors import WrongSurroundings, printable

# How often a request is sent in all, and the first pause in seconds: half a minute until it is given up.
ATTEMPTS = 6
PAUSE = 1.0
# What a Hub may ask to wait at once, in seconds. Longer than this, the job had better end.
LONGEST_WAIT = 300.0
# In seconds: to connect, and between two pieces of an answer. The Hub may take a minute for a large commit.
TIMEOUT = httpx2.Timeout(120.0, connect=20.0)

_TEMPORARY = frozenset({408, 425, 429, 500, 502, 503, 504})
# Errors that no second attempt mends.
_LASTING = (httpx2.UnsupportedProtocol, httpx2.LocalProtocolError, httpx2.ProxyError)
_RESET = re.compile(r"(?:^|;)\s*t=(\d{1,9})\b")
_LARGEST_CHECKED = 50_000_000
# The tag of a file that is kept in git itself, on most Hubs its git id.
_GIT_ID = re.compile(r'(?:W/)?"([0-9a-f]{40})"')
# What huggingface_hub asks for its own sake, and does without.
_OPTIONAL = "/api/agent-harnesses"


class PatientClient(httpx2.Client):
    """Sends requests again that may succeed then. Others, and answers that are read as they arrive, are
    left to huggingface_hub, which sends and resumes those again itself."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        # What was given up on is not asked for many times over by a caller that tries again, too.
        self._given_up: set[tuple[str, str]] = set()
        self._process = os.getpid()

    def close(self) -> None:
        """Close the connections, which are this process's. huggingface_hub closes them in each child that is
        forked, too: there a lock may be held for ever, by a thread that the child does not have."""
        if os.getpid() == self._process:
            super().close()

    def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Send ``request``, again where that may help.

        Raises what httpx2 raises, and ``WrongSurroundings`` when the Hub asks to wait for too long.
        """
        place = f"{request.method} {request.url.host}{request.url.path}"
        key = (request.method, str(request.url))
        is_known_bad = key in self._given_up
        for attempt in range(1, ATTEMPTS + 1):
            is_last = attempt == ATTEMPTS or is_known_bad or not _can_be_sent_again(request)
            try:
                response = super().send(request, **options)
                if not options.get("stream"):
                    _check_whole(response)
                if response.status_code not in _TEMPORARY:
                    self._given_up.discard(key)
                    return response
                asked = wait_asked_for(response.headers)
                if asked is not None and asked > LONGEST_WAIT:
                    raise WrongSurroundings(
                        f"{request.url.host} asks to wait for {console.duration(asked)} "
                        f"(HTTP {response.status_code})",
                        repair="run again then: what arrived is not sent twice",
                    )
                if is_last or not _may_repeat(request, response.status_code):
                    self._note(key, attempt)
                    return response
                response.close()
                what = f"HTTP {response.status_code}"
            except httpx2.TransportError as error:
                if is_last or isinstance(error, _LASTING) or not _may_repeat(request, None, error):
                    self._note(key, attempt)
                    raise
                asked, what = None, printable(str(error)) or type(error).__name__
            pause = asked if asked is not None else PAUSE * 2 ** (attempt - 1) * random.uniform(0.8, 1.2)
            console.say(f"{place}: {what}; trying again in {console.duration(pause)}")
            time.sleep(pause)
        raise AssertionError("the last attempt ends otherwise")

    def _note(self, key: tuple[str, str], attempt: int) -> None:
        if attempt == ATTEMPTS:
            self._given_up.add(key)


def _can_be_sent_again(request: httpx2.Request) -> bool:
    """Whether the answer is needed, and the body is at hand as a whole; a file's is not."""
    return isinstance(request.stream, httpx2.ByteStream) and request.url.path != _OPTIONAL


def _may_repeat(request: httpx2.Request, status: int | None, error: Exception | None = None) -> bool:
    """Whether sending it again cannot do it twice."""
    if "create_pr" not in request.url.params:
        return True
    return status == 429 or isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout)


def _check_whole(response: httpx2.Response) -> None:
    """Raises ``RemoteProtocolError`` for an answer in JSON that ends in the middle, and for a file that is
    not what its tag says: huggingface_hub copies what is kept in git itself by sending it again, unseen."""
    kind = response.headers.get("content-type", "")
    if response.is_success and kind.startswith("application/json") and response.content:
        if len(response.content) > _LARGEST_CHECKED:
            return
        try:
            response.json()
        except ValueError as error:
            raise httpx2.RemoteProtocolError(
                "the answer ends in the middle", request=response.request
            ) from error
    is_file = response.request.method == "GET" and "/resolve" in response.url.path
    tag = _GIT_ID.fullmatch(response.headers.get("etag", "")) if is_file else None
    if tag and response.status_code == 200 and tag.group(1) not in _ids(response.content):
        raise httpx2.RemoteProtocolError("the answer is not the file", request=response.request)


def _ids(data: bytes) -> tuple[str, str]:
    """What a Hub may name a file by in 40 digits: its git id, or its plain SHA-1."""
    return digests.git_id(data), hashlib.sha1(data, usedforsecurity=False).hexdigest()


def wait_asked_for(headers: Mapping[str, str]) -> float | None:
    """The seconds that an answer asks to wait, by ``Retry-After`` (seconds, or a date) or the Hub's own
    ``ratelimit``; ``None`` when it does not."""
    text = headers.get("retry-after", "").strip()
    if re.fullmatch(r"\d{1,9}", text):
        return float(text)
    if text:
        until = _date(text)
        # By the Hub's own clock, where it tells: this machine's may be wrong.
        now = _date(headers.get("date", "")) or datetime.now(timezone.utc)
        if until is not None:
            return max(0.0, (until - now).total_seconds())
    if found := _RESET.search(headers.get("ratelimit", "")):
        return float(found.group(1))
    return None


def _date(text: str) -> datetime | None:
    try:
        found = parsedate_to_datetime(text)
    except (TypeError, ValueError, IndexError):
        return None
    return found if found.tzinfo else found.replace(tzinfo=timezone.utc)


def install() -> None:
    """Have huggingface_hub send everything by a patient client from now on."""
    # Its own warnings name whole addresses, of which those for uploads are signed.
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    if _http._GLOBAL_CLIENT_FACTORY is not _client:
        # Once: it closes the client that other threads may be using.
        set_client_factory(_client)


def _client() -> httpx2.Client:
    hooks = _http.default_client_factory().event_hooks
    return PatientClient(event_hooks=hooks, follow_redirects=True, timeout=TIMEOUT)
