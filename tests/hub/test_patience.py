"""The client asks again where that may help, no longer and no oftener than it should, and says so."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator
from contextlib import nullcontext
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime
from typing import Any

import httpx2
import pytest
from huggingface_hub.utils import _http
from kernel_actions import process
from kernel_actions.errors import KernelActionsError, WrongSurroundings
from kernel_actions.hub import client, patience

from tests.hub.faulty import Faulty
from tests.hub.helpers import Server

NOW = datetime.now(timezone.utc).replace(microsecond=0)


@pytest.fixture
def proxy(shared: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Faulty]:
    monkeypatch.setattr(patience, "PAUSE", 0.01)
    one = Faulty(shared.url)
    yield one
    one.close()


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    made: list[float] = []
    monkeypatch.setattr(time, "sleep", made.append)
    return made


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-1"}, None),
        ({"retry-after": format_datetime(NOW + timedelta(seconds=90), usegmt=True),
          "date": format_datetime(NOW, usegmt=True)}, 90),
        ({"retry-after": format_datetime(NOW - timedelta(hours=1), usegmt=True)}, 0),
        ({"ratelimit": '"api";r=0;t=55'}, 55),
        ({"retry-after": "7", "ratelimit": '"api";r=0;t=55'}, 7),
    ],
)  # fmt: skip
def test_what_a_hub_asks_to_wait(headers: dict[str, str], seconds: float | None) -> None:
    assert patience.wait_asked_for(headers) == seconds


@pytest.mark.parametrize(
    "fault", ["reset", "500", "429", "429-date", "truncated", "reset-after", "reset-within"]
)
def test_a_fault_that_passes_is_not_seen(
    proxy: Faulty, repo: str, fault: str, capsys: pytest.CaptureFixture[str]
) -> None:
    hub = client.connect(proxy.url)
    proxy.arm(0, fault, times=2)
    found = client.refs(hub, repo)
    assert found is not None and found.branches.keys() == {"main"}
    assert len(proxy.seen) == 3
    assert capsys.readouterr().err.count("trying again in") == 2


def test_what_was_done_without_an_answer_is_not_done_twice(proxy: Faulty, repo: str) -> None:
    hub = client.connect(proxy.url)
    head = client.resolve(hub, repo, "main")
    for act in (
        lambda: client.create_branch(hub, repo, "v1", head),
        lambda: client.create_tag(hub, repo, "v1.0.0", head, "x"),
        lambda: client.create_repository(hub, f"{repo}-2"),
        lambda: client.delete_branch(hub, repo, "v1"),
    ):
        proxy.arm(0, "reset-after")
        act()
        # What was made is looked for, too.
        assert sum(not one.endswith("/refs") for one in proxy.seen) == 2
    changes = client.Changes(added={"a.txt": b"x"})
    proxy.arm(0, "")
    client.commit(hub, repo, "main", changes, parent=head, message="one")
    at = next(i for i, one in enumerate(proxy.seen) if "/commit/" in one)
    new = client.resolve(hub, repo, "main")
    proxy.arm(at, "reset-after")
    changes = client.Changes(added={"a.txt": b"y"})
    # The caller is told that the branch has moved: it looks, and finds what it wanted.
    assert client.commit(hub, repo, "main", changes, parent=new, message="two") is None
    assert client.read_file(hub, repo, "main", "a.txt") == b"y"
    assert [title for _, title in client.history(hub, repo, "main")][:2] == ["two", "one"]


def test_a_file_that_arrives_changed_is_not_copied(proxy: Faulty, repo: str) -> None:
    hub = client.connect(proxy.url)
    start = client.resolve(hub, repo, "main")
    changes = client.Changes(added={"a.txt": b"as it was verified"})
    verified = client.commit(hub, repo, "main", changes, parent=start, message="one")
    assert verified is not None
    # What is kept in git itself is read and sent once more by huggingface_hub.
    proxy.arm(fault="wrong-hash", match="^GET .*/resolve/")
    changes = client.Changes(copied={"b.txt": client.Copy(verified, "a.txt")})
    assert client.commit(hub, repo, "main", changes, parent=verified, message="two") is not None
    assert proxy.at >= 0
    assert client.read_file(hub, repo, "main", "b.txt") == b"as it was verified"


def test_a_file_whose_connection_breaks_is_read_again(proxy: Faulty, repo: str) -> None:
    hub = client.connect(proxy.url)
    start = client.resolve(hub, repo, "main")
    changes = client.Changes(added={"a.txt": b"as it is"})
    assert client.commit(hub, repo, "main", changes, parent=start, message="one") is not None
    proxy.arm(fault="reset-within", match="^GET .*/resolve/")
    assert client.read_file(hub, repo, "main", "a.txt") == b"as it is"
    assert proxy.at >= 0


def test_a_file_may_be_tagged_by_its_plain_sha1() -> None:
    request = httpx2.Request("GET", "https://hub/kernels/acme/relu/resolve/main/a.txt")
    for data, is_whole in ((b"x", True), (b"y", False)):
        headers = {"ETag": f'"{hashlib.sha1(b"x", usedforsecurity=False).hexdigest()}"'}
        answer = httpx2.Response(200, headers=headers, content=data, request=request)
        with nullcontext() if is_whole else pytest.raises(httpx2.RemoteProtocolError):
            patience._check_whole(answer)


def test_a_pull_request_is_not_opened_twice(proxy: Faulty, repo: str, tmp_path: Any) -> None:
    hub = client.connect(proxy.url)
    (tmp_path / "a.txt").write_text("x")
    local = {"build/x/a.txt": client.local_file(tmp_path / "a.txt")}

    def send() -> None:
        client.upload(hub, repo, "main", local, ["build/x"], message="x", create_pr=True)

    proxy.arm()
    send()
    at = next(i for i, one in enumerate(proxy.seen) if "/commit/" in one)
    for fault, count in (("reset-after", 1), ("500", 1), ("429", 2)):
        proxy.arm(at, fault)
        if fault == "429":
            send()
        else:
            with pytest.raises(WrongSurroundings):
                send()
        assert sum("/commit/" in one for one in proxy.seen) == count


@pytest.mark.parametrize(("fault", "words"), [("500", "run again later"), ("reset", "does not answer")])
def test_what_lasts_is_given_up(proxy: Faulty, repo: str, fault: str, words: str) -> None:
    hub = client.connect(proxy.url)
    proxy.arm(0, fault, times=1000)
    with pytest.raises(WrongSurroundings, match=words):
        client.refs(hub, repo)
    assert len(proxy.seen) == patience.ATTEMPTS


def test_pauses_grow_and_a_hub_that_asks_for_too_long_ends_it(
    shared: Server, repo: str, pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = Faulty(shared.url)
    hub = client.connect(proxy.url)
    proxy.arm(0, "500", times=1000)
    with pytest.raises(WrongSurroundings):
        client.refs(hub, repo)
    assert len(pauses) == patience.ATTEMPTS - 1
    assert 20 < sum(pauses) < 45
    pauses.clear()
    monkeypatch.setattr(patience, "wait_asked_for", lambda headers: 7200.0)
    proxy.arm(0, "429", times=1000)
    with pytest.raises(WrongSurroundings, match="asks to wait for 120 min 0 s"):
        client.refs(hub, repo)
    assert pauses == []
    proxy.close()


@pytest.mark.parametrize(("fault", "words"), [("401", "by KA_TOKEN"), ("403", "read permission")])
def test_what_is_refused_is_asked_once(proxy: Faulty, repo: str, fault: str, words: str) -> None:
    hub = client.connect(proxy.url)
    proxy.arm(0, fault, times=1000)
    with pytest.raises(KernelActionsError, match=words):
        client.refs(hub, repo)
    assert len(proxy.seen) == 1


def test_a_hub_that_says_nothing_is_given_up(
    proxy: Faulty, repo: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub.utils._http import close_session

    monkeypatch.setattr(patience, "TIMEOUT", 0.2)
    monkeypatch.setattr(patience, "ATTEMPTS", 2)
    close_session()
    hub = client.connect(proxy.url)
    proxy.hold = 0.5
    proxy.arm(0, "timeout", times=1)
    assert client.refs(hub, repo) is not None
    proxy.arm(0, "timeout", times=10)
    with pytest.raises(WrongSurroundings, match="does not answer"):
        client.refs(hub, repo)
    close_session()


def test_a_child_closes_no_connection_of_its_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    # huggingface_hub has each forked child close its client; where a thread held one of its locks when
    # it was forked, that child never started its program.
    class Closed(httpx2.BaseTransport):
        def close(self) -> None:
            os._exit(3)

    monkeypatch.setattr(_http, "_GLOBAL_CLIENT", patience.PatientClient(transport=Closed()))
    assert process.run(["true"]).returncode == 0
