"""What no real client sends: the embedded Hub answers each request, by less than 500, and says nothing."""

from __future__ import annotations

import copy
import json
import socket
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import httpx2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kernel_actions.hub.server import application
from starlette.routing import Route

from tests.hub.helpers import Server

ENDED = (143, "kernel-actions: interrupted by SIGTERM\n")
FILE = {"path": "a/b.txt", "content": "eA==", "encoding": "base64"}
LFS = {"path": "a/c.bin", "algo": "sha256", "oid": "0" * 64, "size": 3}
REPOSITORY = "/api/kernels/{owner}/{name}"
FILES = "/kernels/{owner}/{name}"
# A good body of each endpoint; a list is sent as lines.
BODIES: dict[tuple[str, str], Any] = {
    ("GET", "/api/embedded-hub"): None,
    ("GET", "/api/whoami-v2"): None,
    ("GET", "/api/organizations/{owner}/overview"): None,
    ("POST", "/api/validate-yaml"): {"content": "text", "repoType": "kernel"},
    ("POST", "/api/repos/create"): {"name": "x", "organization": "acme", "type": "kernel"},
    ("GET", REPOSITORY): None,
    ("GET", REPOSITORY + "/revision/{revision}"): None,
    ("GET", REPOSITORY + "/refs"): None,
    ("POST", REPOSITORY + "/branch/{branch}"): {"startingPoint": "main"},
    ("DELETE", REPOSITORY + "/branch/{branch}"): None,
    ("POST", REPOSITORY + "/tag/{revision}"): {"tag": "v1.0.0", "message": "first"},
    ("DELETE", REPOSITORY + "/tag/{revision}"): None,
    ("GET", REPOSITORY + "/tree/{revision}"): None,
    ("GET", REPOSITORY + "/tree/{revision}/{path:path}"): None,
    ("POST", REPOSITORY + "/paths-info/{revision}"): {"paths": ["a/b.txt"], "expand": True},
    ("GET", REPOSITORY + "/commits/{revision}"): None,
    ("POST", REPOSITORY + "/preupload/{revision}"): {"files": [{"path": "x", "sample": "eA==", "size": 1}]},
    ("POST", REPOSITORY + "/commit/{revision}"): [
        {"key": "header", "value": {"summary": "x", "description": "y", "parentCommit": "0" * 40}},
        {"key": "file", "value": FILE},
        {"key": "lfsFile", "value": LFS},
        {"key": "deletedFile", "value": {"path": "a/b.txt"}},
        {"key": "deletedFolder", "value": {"path": "a/"}},
    ],
    ("POST", FILES + ".git/info/lfs/objects/batch"): {
        "operation": "upload",
        "objects": [{"oid": "0" * 64, "size": 3}],
    },
    ("PUT", FILES + ".git/info/lfs/objects/{oid}"): None,
    ("POST", FILES + ".git/info/lfs/verify"): {"oid": "0" * 64, "size": 3},
    ("GET", FILES + "/resolve/{revision}/{path:path}"): None,
}
QUERIES = ("limit", "cursor", "recursive", "expand", "p", "size", "create_pr", "include_prs")
PARAMETERS = {"owner": "acme", "name": "x", "revision": "main", "branch": "v1", "path:path": "a/b.txt"}

# JSON strings may hold half a surrogate pair.
texts = st.one_of(
    st.sampled_from(
        ["", "\ud800", "é", "\0", "0", "-1", "²", "9" * 20, "../x", "%", "a" * 3000, "refs/pr/1"]
    ),
    st.text(st.characters(), max_size=8),
)
scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.sampled_from([10**30, 0, -1]), st.floats(), texts
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(texts, inner, max_size=2)),
    max_leaves=3,
)


def places(body: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The keys that lead to each value of a body, and to the body itself."""
    yield above
    children = body.items() if isinstance(body, dict) else enumerate(body) if isinstance(body, list) else ()
    for key, child in children:
        yield from places(child, (*above, key))


def replaced(body: Any, place: tuple[Any, ...], value: Any) -> Any:
    if not place:
        return value
    body = copy.deepcopy(body)
    parent = body
    for key in place[:-1]:
        parent = parent[key]
    parent[place[-1]] = value
    return body


def content(body: Any) -> bytes:
    if body is None:
        return b""
    return "\n".join(json.dumps(line) for line in (body if isinstance(body, list) else [body])).encode()


def lines(key: str, value: dict[str, Any], **header: Any) -> list[dict[str, Any]]:
    """A commit of one operation."""
    return [{"key": "header", "value": {"summary": "x", **header}}, {"key": key, "value": value}]


@st.composite
def requests(draw: st.DrawFn) -> tuple[str, str, bytes, dict[str, str]]:
    """A method, an address, a body and a type of it, in which a few things are wrong."""
    method, path = draw(st.sampled_from(sorted(BODIES)))
    body = BODIES[method, path]
    wrong = draw(st.sampled_from(["body", "body", "body", "bytes", "path", "query"]))
    if wrong == "body":
        body = replaced(body, draw(st.sampled_from(list(places(body)))), draw(values))
    data = draw(st.binary(max_size=20)) if wrong == "bytes" else content(body)
    for name, good in {**PARAMETERS, "oid": "0" * 64}.items():
        value = draw(st.one_of(st.just(good), texts)) if wrong == "path" else good
        path = path.replace(f"{{{name}}}", quote(value, safe="", errors="surrogatepass"))
    if wrong == "query":
        query = draw(st.dictionaries(st.sampled_from(QUERIES), texts, min_size=1, max_size=3))
        path += "?" + "&".join(
            f"{name}={quote(value, errors='surrogatepass')}" for name, value in query.items()
        )
    kind = draw(st.sampled_from(["application/json", "application/x-www-form-urlencoded"]))
    return method, path, data, {"Content-Type": kind}


def with_a_repository(start: Callable[..., Server]) -> Server:
    server = start()
    server.api().create_repo("acme/x", repo_type="kernel")
    url = f"{server.url}/api/kernels/acme/x/commit/main"
    assert httpx2.post(url, content=content(lines("file", FILE))).status_code == 200
    return server


@pytest.fixture(scope="module")
def silent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that must have said nothing in the end."""
    server = Server(tmp_path_factory.mktemp("silent") / "data")
    try:
        server.api().create_repo("acme/x", repo_type="kernel")
        yield server
        assert server.end() == ENDED
    finally:
        server.process.kill()
        server.process.communicate()


def test_every_endpoint_is_tried() -> None:
    routes = [route for route in application(None).routes if isinstance(route, Route)]  # type: ignore[arg-type]
    found = {(method, route.path) for route in routes for method in route.methods or () if method != "HEAD"}
    assert found == BODIES.keys()


def test_wrong_types_and_texts_are_refused_in_silence(start: Callable[..., Server]) -> None:
    server = with_a_repository(start)
    with httpx2.Client(base_url=server.url) as client:

        @settings(
            derandomize=True,
            database=None,
            deadline=None,
            max_examples=600,
            suppress_health_check=list(HealthCheck),
        )
        @given(requests())
        def answered(request: tuple[str, str, bytes, dict[str, str]]) -> None:
            method, path, data, headers = request
            answer = client.request(method, path, content=data, headers=headers, follow_redirects=False)
            assert answer.status_code < 500
            if answer.status_code >= 400:
                assert answer.headers["X-Error-Message"]

        answered()
    assert server.end() == ENDED


def test_each_value_in_turn_is_of_another_type(start: Callable[..., Server]) -> None:
    """As above, but each place of each body, whatever the random numbers are."""
    server = with_a_repository(start)
    parameters = {"owner": "acme", "name": "x", "revision": "main", "branch": "v1"}
    with httpx2.Client(base_url=server.url, headers={"Content-Type": "application/json"}) as client:
        for (method, path), body in BODIES.items():
            for place in places(body) if body else ():
                for wrong in (5, -1, 1.5, True, "\ud800", "\0", ["x"], {"x": 1}, None):
                    data = content(replaced(body, place, wrong))
                    answer = client.request(method, path.format(**parameters), content=data)
                    assert answer.status_code < 500, (path, place, wrong)
        refs = client.get("/api/kernels/acme/x/refs").json()
    # Nothing was made of a name that was none.
    assert {ref["name"] for ref in refs["branches"] + refs["tags"]} == {"main", "v1", "v1.0.0"}
    assert server.end() == ENDED


MALFORMED: list[tuple[str, Any]] = [
    *(("commit/main", lines("file", FILE, parentCommit=parent))
     for parent in (123, ["x"], True, "", "main", "0" * 4, "0" * 41)),
    *(("commit/main", lines("file", FILE, **header))
       for header in ({"summary": "\ud800"}, {"summary": 5}, {"description": "\udfff"}, {"description": 5})),
    *(("commit/main", lines("file", {**FILE, **file}))
       for file in ({"content": "é"}, {"content": "eA="}, {"content": 5}, {"path": 5}, {"path": "\ud800"},
                    {"content": "\ud800", "encoding": "utf-8"}, {"encoding": "rot13"})),
    *(("commit/main", lines("lfsFile", {**LFS, **file}))
       for file in ({"oid": 5}, {"oid": "x"}, {"size": "3"}, {"size": True}, {"algo": "md5"})),
    *(("preupload/main", {"files": [{"path": "x", "sample": "eA==", "size": 1, **file}]})
       for file in ({"sample": "é"}, {"sample": 5}, {"size": "1"}, {"size": None}, {"path": ["x"]})),
    *(("preupload/main", {"files": files}) for files in (5, "x", [5], None)),
    *(("paths-info/main", {"paths": paths}) for paths in (5, "x", [5], None, ["\ud800"])),
    *(("tag/main", {"tag": tag}) for tag in (None, 5, "\ud800")),
    *(("branch/x", {"startingPoint": start}) for start in (5, ["x"], True)),
    ("tag/main", {}), ("tag/main", []), ("tag/main", 5),
]  # fmt: skip


@pytest.mark.parametrize(("path", "body"), MALFORMED, ids=repr)
def test_malformed_bodies_get_400(silent: Server, path: str, body: object) -> None:
    answer = httpx2.post(
        f"{silent.url}/api/kernels/acme/x/{path}",
        content=content(body),
        headers={"Content-Type": "application/json"},
    )
    assert answer.status_code == 400
    assert answer.headers["X-Error-Message"]


@pytest.mark.parametrize(
    "body",
    [{}, {"name": None}, {"name": 5}, {"name": "x", "organization": 5}, {"name": "\ud800"}, {"name": "x/y/z"},
     {"name": "x", "type": "model"}],
)  # fmt: skip
def test_repositories_without_a_name_get_400(silent: Server, body: dict[str, object]) -> None:
    answer = httpx2.post(f"{silent.url}/api/repos/create", content=content({"type": "kernel", **body}))
    assert answer.status_code == 400
    assert answer.headers["X-Error-Message"]


@pytest.mark.parametrize(
    "path", ["tree/main?limit=0", "tree/main?limit=-1", "tree/main?limit=x", "commits/main?limit=0",
             "commits/main?p=-1", "commits/main?p=%C2%B2"],
)  # fmt: skip
def test_pages_of_no_size_get_400(silent: Server, path: str) -> None:
    answer = httpx2.get(f"{silent.url}/api/kernels/acme/x/{path}")
    assert answer.status_code == 400
    assert answer.headers["X-Error-Message"]


def test_the_text_of_an_error_is_cut(silent: Server) -> None:
    body = {"name": "x" * 1_000_000, "organization": "acme", "type": "kernel"}
    answer = httpx2.post(f"{silent.url}/api/repos/create", json=body)
    assert answer.status_code == 400
    assert len(answer.headers["X-Error-Message"]) <= 1000


def test_what_is_hardly_http_is_refused_in_silence(start: Callable[..., Server]) -> None:
    server = with_a_repository(start)
    host = server.url.removeprefix("http://")
    good = f"Host: {host}\r\nConnection: close\r\n"
    file = "/kernels/acme/x/resolve/main/a/b.txt"
    upload = f"PUT /kernels/acme/x.git/info/lfs/objects/{'0' * 64} HTTP/1.1\r\n"
    heads = [
        "\0\0\0\r\n",
        "GET / HTTP/9.9\r\n",
        "GET /api/embedded-hub HTTP/1.1\r\nConnection: close\r\n",
        f"GET /api/embedded-hub HTTP/1.1\r\n{good}Host: {host}\r\n",
        "GET /api/embedded-hub HTTP/1.1\r\nHost: localhost:²\r\nConnection: close\r\n",
        f"GET /api/embedded-hub HTTP/1.1\r\n{good}Origin: http://[\r\n",
        f"GET /api/embedded-hub HTTP/1.1\r\n{good}Upgrade: websocket\r\n",
        f"GET /api/kernels/acme/x/tree/ü?limit=1 HTTP/1.1\r\n{good}",
        f"GET /api/kernels/acme/x/tree/%ff%/%zz HTTP/1.1\r\n{good}",
        f"GET http://evil.example/api/embedded-hub HTTP/1.1\r\n{good}",
        f"GET /api/organizations/{'a' * 60_000}/overview HTTP/1.1\r\n{good}",
        f"GET /api/organizations/{'a' * 90_000}/overview HTTP/1.1\r\n{good}",
        f"OPTIONS * HTTP/1.1\r\n{good}",
        f"DELETE /api/kernels/acme/x HTTP/1.1\r\n{good}",
        f"{upload}{good}Content-Length: -1\r\n",
        f"{upload}{good}Content-Length: 5\r\nContent-Length: 6\r\n",
        f"{upload}{good}Transfer-Encoding: chunked\r\n\r\nxyz\r\n",
    ]
    ranges = ["", "bytes", "bytes=", "bytes=-", "bytes=5-1", "bytes=x-y", f"bytes={'9' * 5000}-", "x=0-1"]
    heads += [f"GET {file} HTTP/1.1\r\n{good}Range: {value}\r\n" for value in ranges]
    for head in heads:
        with socket.create_connection(("127.0.0.1", int(host.partition(":")[2])), timeout=10) as connection:
            connection.sendall(head.encode("latin-1") + b"\r\n")
            answer = connection.makefile("rb").readline()
        assert answer.startswith((b"HTTP/1.1 2", b"HTTP/1.1 4")), (head[:80], answer)
    assert server.end() == ENDED
