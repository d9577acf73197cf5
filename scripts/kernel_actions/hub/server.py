"""The embedded Hub: the part of the Hub's HTTP interface that its clients use for kernels.

It is for this machine alone: it listens on loopback, asks for no token, and keeps web pages of
other sites out. Real clients talk to it unchanged when ``HF_ENDPOINT`` is its address and
``HF_HUB_DISABLE_XET=1`` is set, since it keeps large files by the LFS protocol.
"""

from __future__ import annotations

import base64
import errno
import json
import logging
import os
import re
import socket
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qs, quote, unquote

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from kernel_actions import __version__, console
from kernel_actions.cli import Options
from kernel_actions.errors import EXIT_DONE, WrongSurroundings, printable
from kernel_actions.hub import card_header, storage
from kernel_actions.hub.embedded import LIFELINE
from kernel_actions.hub.storage import Add, Commit, Delete, File, Files, Operation, Refused, Store

# Limits of one request: of a JSON or form body, of one line of a commit (a file in base64), in
# bytes; of the operations of a commit, and of its message, in characters.
LARGEST_BODY = 32_000_000
LONGEST_LINE = 4 * storage.LFS_THRESHOLD // 3 + 100_000
MOST_OPERATIONS = 25_000
LONGEST_MESSAGE = 64_000
# Sizes of a page, as on the real Hub.
TREE_PAGE = 1000
EXPANDED_PAGE = 50
COMMITS_PAGE = 50
# Of an error's text, in characters: clients refuse an answer with long headers.
_LONGEST_ERROR = 1000
# How long requests in flight may take to finish once the server was asked to end, in seconds.
_GRACE = 3

_LOOPBACK = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:[0-9]{1,5})?", re.IGNORECASE)
_KINDS = {str: "a text", int: "a whole number", bool: "true or false", list: "a list"}
_Kind = TypeVar("_Kind", str, int, bool, list[Any])


def run(options: Options) -> int:
    """Serve the Hub in the folder ``options.data`` until a signal ends it.

    Raises ``WrongInput`` for a folder that cannot be meant, ``WrongSurroundings`` when the port or the
    folder is taken.
    """
    folder = Path(options.data)
    with storage.open_store(folder) as store, _listen(options.port) as listener:
        port = listener.getsockname()[1]
        is_child = os.environ.get(LIFELINE) == "1"
        ready = f"Embedded Hub at http://127.0.0.1:{port} (data in {folder})"
        if not is_child:
            ready += f"\nUse it by: export HF_ENDPOINT=http://127.0.0.1:{port} HF_HUB_DISABLE_XET=1"
        server = _Server(
            uvicorn.Config(
                application(store),
                http="h11",
                ws="none",
                lifespan="off",
                log_config=None,
                # A warning is a request that is not HTTP; its answer says so already.
                log_level="error",
                access_log=False,
                proxy_headers=False,
                server_header=False,
                timeout_graceful_shutdown=_GRACE,
                # A release verifies for some seconds between two requests: a connection that is closed
                # right when the next one is sent over it would fail that one.
                timeout_keep_alive=300,
            ),
            ready,
        )
        if is_child:
            threading.Thread(target=_end_with_stdin, args=(server,), daemon=True).start()
        # uvicorn takes the signals for itself, finishes the requests in flight, and then raises
        # the signal anew: `interruptible` turns it into `Interrupted` as in every command.
        server.run(sockets=[listener])
    return EXIT_DONE


class _Server(uvicorn.Server):
    """A server that says when it is ready: the first line is how a parent learns the port."""

    def __init__(self, config: uvicorn.Config, ready: str) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        print(self._ready, flush=True)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # A request that is cut off from now on is no error, and no traceback is wanted for it.
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        await super().shutdown(sockets)


def _listen(port: int) -> socket.socket:
    # asyncio sets TCP_NODELAY only where the protocol is named; without it, each answer takes 40 ms.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen(128)
    except OSError as error:
        listener.close()
        is_taken = error.errno == errno.EADDRINUSE
        what = "is taken" if is_taken else f"cannot be used: {error.strerror}"
        repair = "give another; --port 0 takes a free one"
        raise WrongSurroundings(f"port {port} {what}", repair=repair) from error
    return listener


def _end_with_stdin(server: uvicorn.Server) -> None:
    # Not sys.stdin, whose lock this thread would still hold when the interpreter ends.
    while os.read(0, 4096):
        pass
    server.should_exit = True


def application(store: Store) -> Starlette:
    """The embedded Hub on ``store``, as an ASGI application."""
    hub = _Hub(store)
    repository = "/api/kernels/{owner}/{name}"
    files = "/kernels/{owner}/{name}"

    def route(path: str, handler: Callable[[Request], Any], *methods: str) -> Route:
        return Route(path, handler, methods=list(methods))

    return Starlette(
        routes=[
            route("/api/embedded-hub", hub.about, "GET"),
            route("/api/whoami-v2", hub.who, "GET"),
            route("/api/organizations/{owner}/overview", hub.organization, "GET"),
            route("/api/validate-yaml", hub.validate_yaml, "POST"),
            route("/api/repos/create", hub.create_repository, "POST"),
            route(repository, hub.info, "GET"),
            route(repository + "/revision/{revision}", hub.info, "GET"),
            route(repository + "/refs", hub.refs, "GET"),
            route(repository + "/branch/{branch}", hub.create_branch, "POST"),
            route(repository + "/branch/{branch}", hub.delete_branch, "DELETE"),
            route(repository + "/tag/{revision}", hub.create_tag, "POST"),
            route(repository + "/tag/{revision}", hub.delete_tag, "DELETE"),
            route(repository + "/tree/{revision}", hub.tree, "GET"),
            route(repository + "/tree/{revision}/{path:path}", hub.tree, "GET"),
            route(repository + "/paths-info/{revision}", hub.paths_info, "POST"),
            route(repository + "/commits/{revision}", hub.commits, "GET"),
            route(repository + "/preupload/{revision}", hub.preupload, "POST"),
            route(repository + "/commit/{revision}", hub.commit, "POST"),
            route(files + ".git/info/lfs/objects/batch", hub.lfs_batch, "POST"),
            route(files + ".git/info/lfs/objects/{oid}", hub.lfs_put, "PUT"),
            route(files + ".git/info/lfs/verify", hub.lfs_verify, "POST"),
            route(files + "/resolve/{revision}/{path:path}", hub.resolve, "GET"),
        ],
        middleware=[Middleware(_ThisMachineOnly)],
        exception_handlers={
            Refused: _refuse,
            HTTPException: _refuse_route,
            OSError: _fail,
            sqlite3.Error: _fail,
            ClientDisconnect: _gone,
        },
    )


class _ThisMachineOnly:
    """Refuses what a web page of another site can send, and keeps quoted paths quoted.

    A site may let its own name point to 127.0.0.1 (then the Host header tells), or send a form to
    this address (then the Origin header tells).
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        host = headers.get(b"host", b"").decode("latin-1")
        origin = headers.get(b"origin", b"").decode("latin-1")
        if not _LOOPBACK.fullmatch(host) or origin not in {"", f"http://{host}"}:
            answer = _error(403, "The embedded Hub answers only to this machine, at its loopback address")
            await answer(scope, receive, send)
            return
        # A revision may hold a slash: routes are matched before the quoting is undone.
        path = scope["raw_path"].decode("ascii", "replace")
        await self._app({**scope, "path": path}, receive, send)


class _Hub:
    """The handlers of all requests."""

    def __init__(self, store: Store) -> None:
        self._store = store

    # The Hub itself.

    async def about(self, request: Request) -> Response:
        return JSONResponse({"embedded": True, "version": __version__})

    async def who(self, request: Request) -> Response:
        return JSONResponse(
            {
                "type": "user",
                "name": "local",
                "fullname": "Whoever uses this machine",
                "orgs": [],
                "auth": {"accessToken": {"displayName": "none", "role": "write"}},
            }
        )

    async def organization(self, request: Request) -> Response:
        owner = unquote(request.path_params["owner"])
        if not await run_in_threadpool(self._store.has_owner, owner):
            raise Refused(404, f"Organization not found: {owner}")
        # Everything here was put here by whoever uses this machine.
        return JSONResponse({"name": owner, "fullname": owner, "trustedKernelPublisher": True})

    async def validate_yaml(self, request: Request) -> Response:
        text = _required(await _json_body(request), "content", str)
        found = await run_in_threadpool(card_header.problems, text)
        errors = [{"message": one.message} for one in found if one.kind != "warning"]
        warnings = [{"message": one.message} for one in found if one.kind == "warning"]
        return JSONResponse({"errors": errors, "warnings": warnings}, status_code=400 if errors else 200)

    # Repositories and references.

    async def create_repository(self, request: Request) -> Response:
        body = await _json_body(request)
        if body.get("type") != "kernel":
            raise Refused(400, "The embedded Hub keeps repositories of type kernel only")
        owner = _optional(body, "organization", str) or "local"
        repository = f"{owner}/{_required(body, 'name', str)}"
        is_new = await run_in_threadpool(self._store.create_repository, repository)
        answer = {"url": f"{_base(request)}/kernels/{repository}", "id": repository}
        if is_new:
            return JSONResponse(answer)
        return _error(409, "You already created this kernel repo", **answer)

    async def info(self, request: Request) -> Response:
        return JSONResponse(await run_in_threadpool(self._info, *_place(request)))

    def _info(self, repository: str, revision: str) -> dict[str, Any]:
        name = self._store.repository(repository)
        commit = self._store.resolve(name, revision)
        return {
            "id": name,
            "author": name.partition("/")[0],
            "sha": commit.id,
            "lastModified": commit.date,
            "private": False,
            "gated": False,
            "downloads": 0,
            "likes": 0,
        }

    async def refs(self, request: Request) -> Response:
        repository, _ = _place(request)
        refs = await run_in_threadpool(self._store.refs, repository)
        kinds = {"branches": "refs/heads/", "tags": "refs/tags/", "pullRequests": "refs/pr/"}
        answer: dict[str, list[dict[str, str]]] = {"converts": []}
        for kind, prefix in kinds.items():
            answer[kind] = [
                {"name": name.removeprefix(prefix), "ref": name, "targetCommit": target}
                for name, target in refs.items()
                if name.startswith(prefix)
            ]
        if not _flag(request.query_params.get("include_prs")):
            del answer["pullRequests"]
        return JSONResponse(answer)

    async def create_branch(self, request: Request) -> Response:
        body = await _json_body(request)
        start = _optional(body, "startingPoint", str) or "main"
        return await self._create_ref(request, f"refs/heads/{_parameter(request, 'branch')}", start)

    async def create_tag(self, request: Request) -> Response:
        tag = _required(await _json_body(request), "tag", str)
        return await self._create_ref(request, f"refs/tags/{tag}", _parameter(request, "revision"))

    async def _create_ref(self, request: Request, name: str, start: str) -> Response:
        repository, _ = _place(request)
        commit = await run_in_threadpool(self._store.resolve, repository, start)
        await run_in_threadpool(self._store.create_ref, repository, name, commit.id)
        return JSONResponse({"ref": name, "targetCommit": commit.id}, status_code=201)

    async def delete_branch(self, request: Request) -> Response:
        return await self._delete_ref(request, f"refs/heads/{_parameter(request, 'branch')}")

    async def delete_tag(self, request: Request) -> Response:
        return await self._delete_ref(request, f"refs/tags/{_parameter(request, 'revision')}")

    async def _delete_ref(self, request: Request, name: str) -> Response:
        repository, _ = _place(request)
        await run_in_threadpool(self._store.delete_ref, repository, name)
        return Response(status_code=204)

    # What a revision holds.

    async def tree(self, request: Request) -> Response:
        query = request.query_params
        folder = unquote(request.path_params.get("path", "")).strip("/")
        is_recursive, is_expanded = _flag(query.get("recursive")), _flag(query.get("expand"))
        most = EXPANDED_PAGE if is_expanded else TREE_PAGE
        limit = min(_count(request, "limit", most, least=1), most)
        items, is_last = await run_in_threadpool(
            self._page, *_place(request), folder, is_recursive, is_expanded, query.get("cursor", ""), limit
        )
        headers = {} if is_last else _next_page(request, cursor=items[-1]["path"])
        return JSONResponse(items, headers=headers)

    def _page(
        self,
        repository: str,
        revision: str,
        folder: str,
        is_recursive: bool,
        is_expanded: bool,
        cursor: str,
        limit: int,
    ) -> tuple[list[dict[str, Any]], bool]:
        """``limit`` entries of a folder after ``cursor``, and whether they are the last."""
        commit = self._store.resolve(repository, revision)
        files = self._store.files(commit)
        folders = storage.folder_ids(files)
        if folder not in folders:
            raise storage.entry_missing(folder, commit.id)
        prefix = f"{folder}/" if folder else ""
        paths = sorted(
            path
            for path in [*files, *folders]
            if path.startswith(prefix)
            and path > cursor
            and path
            and (is_recursive or "/" not in path[len(prefix) :])
        )
        items = [_item(path, files, folders) for path in paths[:limit]]
        if is_expanded:
            self._add_last_commits(repository, commit, items)
        return items, len(paths) <= limit

    async def paths_info(self, request: Request) -> Response:
        body = await _body(request)
        if request.headers.get("content-type", "").startswith("application/json"):
            values = _json(body)
            paths, is_expanded = _required(values, "paths", list), _optional(values, "expand", bool) or False
            if not all(isinstance(path, str) for path in paths):
                raise Refused(400, "paths is not a list of texts")
        else:
            try:
                form = parse_qs(body.decode("utf-8", "replace"), max_num_fields=MOST_OPERATIONS)
            except ValueError as error:
                raise Refused(413, f"a form may have {MOST_OPERATIONS} fields") from error
            paths, is_expanded = form.get("paths", []), _flag(form.get("expand", [""])[0])
        return JSONResponse(await run_in_threadpool(self._paths_info, *_place(request), paths, is_expanded))

    def _paths_info(
        self, repository: str, revision: str, paths: list[str], is_expanded: bool
    ) -> list[dict[str, Any]]:
        commit = self._store.resolve(repository, revision)
        files = self._store.files(commit)
        folders = storage.folder_ids(files)
        wanted = dict.fromkeys(path.strip("/") for path in paths)
        known = (path for path in wanted if path and (path in files or path in folders))
        items = [_item(path, files, folders) for path in known]
        if is_expanded:
            self._add_last_commits(repository, commit, items)
        return items

    def _add_last_commits(self, repository: str, commit: Commit, items: list[dict[str, Any]]) -> None:
        """Add to each item the commit that it is from."""
        missing = {item["path"]: item for item in items}
        history = list(self._store.history(repository, commit))
        for this, before in zip(history, [*history[1:], None], strict=True):
            files: Files = self._store.files(before) if before else {}
            folders = storage.folder_ids(files)
            for path, item in list(missing.items()):
                oid = files[path].oid if path in files else folders.get(path)
                if oid != item["oid"]:
                    item["lastCommit"] = {"id": this.id, "title": this.title, "date": this.date}
                    del missing[path]
            if not missing:
                break

    async def commits(self, request: Request) -> Response:
        page = _count(request, "p", 0)
        limit = min(_count(request, "limit", COMMITS_PAGE, least=1), 1000)
        history = await run_in_threadpool(self._history, *_place(request))
        shown = history[page * limit : (page + 1) * limit]
        is_last = len(history) <= (page + 1) * limit
        items = [
            {
                "id": commit.id,
                "title": commit.title,
                "message": commit.description,
                "date": commit.date,
                "authors": [{"user": "local"}],
            }
            for commit in shown
        ]
        return JSONResponse(items, headers={} if is_last else _next_page(request, p=str(page + 1)))

    def _history(self, repository: str, revision: str) -> list[Commit]:
        start = self._store.resolve(repository, revision)
        return list(self._store.history(repository, start))

    async def resolve(self, request: Request) -> Response:
        path = unquote(request.path_params["path"])
        return await run_in_threadpool(self._resolve, *_place(request), path)

    def _resolve(self, repository: str, revision: str, path: str) -> Response:
        commit = self._store.resolve(repository, revision)
        file = self._store.files(commit).get(path)
        if file is None:
            raise storage.entry_missing(path, commit.id)
        headers = {
            "ETag": f'"{file.etag}"',
            "X-Repo-Commit": commit.id,
            # A page that was put here must not act as one of this address.
            "X-Content-Type-Options": "nosniff",
            "Content-Security-Policy": "default-src 'none'; sandbox",
        }
        if file.is_lfs:
            headers |= {"X-Linked-Etag": f'"{file.sha256}"', "X-Linked-Size": str(file.size)}
        content = self._store.object_path(file.sha256)
        return FileResponse(
            content, headers=headers, media_type="application/octet-stream", stat_result=content.stat()
        )

    # Commits.

    async def preupload(self, request: Request) -> Response:
        body = await _json_body(request)
        return JSONResponse(await run_in_threadpool(self._preupload, *_place(request), body))

    def _preupload(self, repository: str, revision: str, body: dict[str, Any]) -> dict[str, Any]:
        files = self._store.files(self._store.resolve(repository, revision))
        answers = []
        for asked in _objects(body, "files"):
            path = storage.check_path(asked.get("path"))
            sample = _base64(_optional(asked, "sample", str) or "")
            is_large = _required(asked, "size", int) > storage.LFS_THRESHOLD
            answers.append(
                {
                    "path": path,
                    "uploadMode": "lfs" if is_large or storage.is_binary(sample) else "regular",
                    "shouldIgnore": False,
                    "oid": files[path].etag if path in files else None,
                }
            )
        return {"files": answers}

    async def lfs_batch(self, request: Request) -> Response:
        repository, _ = _place(request)
        body = await _json_body(request)
        if body.get("operation") != "upload":
            raise Refused(400, "The embedded Hub takes LFS uploads only; download by resolve")
        answers = await run_in_threadpool(self._lfs_batch, repository, body, _base(request))
        return JSONResponse(answers, media_type="application/vnd.git-lfs+json")

    def _lfs_batch(self, repository: str, body: dict[str, Any], base: str) -> dict[str, Any]:
        name = self._store.repository(repository)
        lfs = f"{base}/kernels/{name}.git/info/lfs"
        answers = []
        for asked in _objects(body, "objects"):
            oid, size = _required(asked, "oid", str), _required(asked, "size", int)
            if size > storage.LARGEST_FILE:
                raise Refused(413, f"a file may have {storage.LARGEST_FILE} bytes")
            if size < 0:
                raise Refused(400, f"no file has {size} bytes")
            answer: dict[str, Any] = {"oid": oid, "size": size}
            if not self._store.has_object(oid, size):
                answer["actions"] = {
                    "upload": {"href": f"{lfs}/objects/{oid}?size={size}"},
                    "verify": {"href": f"{lfs}/verify"},
                }
            answers.append(answer)
        return {"transfer": "basic", "objects": answers}

    async def lfs_put(self, request: Request) -> Response:
        repository, _ = _place(request)
        await run_in_threadpool(self._store.repository, repository)
        oid = _parameter(request, "oid")
        self._store.object_path(oid)
        size = min(_count(request, "size", storage.LARGEST_FILE), storage.LARGEST_FILE)
        with self._store.receive() as receiver:
            async for chunk in request.stream():
                if receiver.size + len(chunk) > size:
                    raise Refused(413, f"more than the {size} bytes that were announced")
                await run_in_threadpool(receiver.write, chunk)
            await run_in_threadpool(receiver.keep, oid)
        return Response(status_code=200)

    async def lfs_verify(self, request: Request) -> Response:
        body = await _json_body(request)
        oid, size = _required(body, "oid", str), _required(body, "size", int)
        if not await run_in_threadpool(self._store.has_object, oid, size):
            raise Refused(404, "the object was not uploaded, or has another size")
        return JSONResponse({})

    async def commit(self, request: Request) -> Response:
        repository, revision = _place(request)
        # Refuse before anything is received.
        await run_in_threadpool(self._store.resolve, repository, revision)
        header: dict[str, Any] = {}
        operations: list[Operation] = []
        async for line in _lines(request):
            entry = _json(line)
            key, value = _required(entry, "key", str), entry.get("value")
            if not isinstance(value, dict):
                raise Refused(400, "a line of the commit has no value")
            if key == "header":
                header = value
            elif key in {"deletedFile", "deletedFolder"}:
                path = storage.check_path(_required(value, "path", str).rstrip("/"))
                operations.append(Delete(path, is_folder=key == "deletedFolder"))
            else:
                operations.append(await run_in_threadpool(self._addition, key, value))
            if len(operations) > MOST_OPERATIONS:
                raise Refused(413, f"a commit may have {MOST_OPERATIONS} operations")
        title = _optional(header, "summary", str)
        description = _optional(header, "description", str) or ""
        if not title:
            raise Refused(400, "the commit has no summary")
        if len(title) + len(description) > LONGEST_MESSAGE:
            raise Refused(413, f"the message of a commit may have {LONGEST_MESSAGE} characters")
        if not operations:
            raise Refused(400, "the commit is empty")
        commit, number = await run_in_threadpool(
            self._store.add_commit,
            repository,
            revision,
            operations,
            title=title,
            description=description,
            parent=_optional(header, "parentCommit", str),
            as_pull_request=_flag(request.query_params.get("create_pr")),
        )
        url = f"{_base(request)}/kernels/{await run_in_threadpool(self._store.repository, repository)}"
        answer: dict[str, Any] = {
            "success": True,
            "commitOid": commit.id,
            "commitUrl": f"{url}/commit/{commit.id}",
            "hookOutput": "",
        }
        if number is not None:
            answer["pullRequestUrl"] = f"{url}/discussions/{number}"
        return JSONResponse(answer)

    def _addition(self, key: str, value: dict[str, Any]) -> Add:
        path = storage.check_path(value.get("path"))
        if key == "lfsFile":
            if value.get("algo", "sha256") != "sha256":
                raise Refused(400, f"the LFS file {path} has no SHA-256")
            oid, size = _required(value, "oid", str), _optional(value, "size", int)
            return Add(path, self._store.lfs_file(oid, size))
        if key != "file":
            raise Refused(400, f"operations named {key!r} are not known")
        content, encoding = _required(value, "content", str), value.get("encoding", "utf-8")
        if encoding not in ("base64", "utf-8"):
            raise Refused(400, f"the content of {path} is neither in base64 nor in utf-8")
        data = _base64(content) if encoding == "base64" else content.encode()
        if path == "README.md":
            _check_card(data)
        if len(data) > storage.LFS_THRESHOLD:
            raise Refused(413, f"{path} has more than {storage.LFS_THRESHOLD} bytes, which needs LFS")
        return Add(path, self._store.put(data))


def _check_card(data: bytes) -> None:
    """Refuse a commit whose README.md has a header that ``/api/validate-yaml`` refuses, as the Hub does
    (huggingface_hub#1927). Its words were not seen."""
    found = card_header.problems(data.decode(errors="replace"))
    errors = [one.message for one in found if one.kind != "warning"]
    if errors:
        raise Refused(400, f"Invalid metadata in README.md: {'; '.join(errors)}")


def _item(path: str, files: Files, folders: dict[str, str]) -> dict[str, Any]:
    """A file or folder, as the tree lists it."""
    file: File | None = files.get(path)
    if file is None:
        return {"type": "directory", "oid": folders[path], "size": 0, "path": path}
    item: dict[str, Any] = {"type": "file", "oid": file.oid, "size": file.size, "path": path}
    if file.is_lfs:
        pointer = storage.lfs_pointer(file.sha256, file.size)
        item["lfs"] = {"oid": file.sha256, "size": file.size, "pointerSize": len(pointer)}
    return item


# Requests.


def _place(request: Request) -> tuple[str, str]:
    """The repository and the revision that a request is about."""
    parameters = request.path_params
    owner, name = unquote(parameters["owner"]), unquote(parameters["name"])
    return f"{owner}/{name}", unquote(parameters.get("revision", "main"))


def _parameter(request: Request, name: str) -> str:
    return unquote(request.path_params[name])


def _base(request: Request) -> str:
    """This server's address, as the client knows it."""
    return f"http://{request.headers['host']}"


async def _body(request: Request) -> bytes:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > LARGEST_BODY:
            raise Refused(413, f"a request may have {LARGEST_BODY} bytes")
    return bytes(body)


async def _json_body(request: Request) -> dict[str, Any]:
    return _json(await _body(request))


def _json(data: bytes) -> dict[str, Any]:
    try:
        value = json.loads(data.decode())
        if b"\\u" in data:
            # Half a surrogate pair is JSON, but no text: it cannot be kept, or sent back.
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise Refused(400, "the request is not JSON in UTF-8") from error
    if not isinstance(value, dict):
        raise Refused(400, "the request is not a JSON object")
    return value


def _optional(values: dict[str, Any], key: str, kind: type[_Kind]) -> _Kind | None:
    """The value of ``key``, which must be of ``kind``; ``None`` when there is none."""
    value = values.get(key)
    # True is no number in JSON, as it is in Python.
    if value is None or (isinstance(value, kind) and (kind is bool or not isinstance(value, bool))):
        return value
    raise Refused(400, f"{key} is not {_KINDS[kind]}")


def _required(values: dict[str, Any], key: str, kind: type[_Kind]) -> _Kind:
    value = _optional(values, key, kind)
    if value is None:
        raise Refused(400, f"{key} is missing")
    return value


def _objects(body: dict[str, Any], key: str) -> Iterator[dict[str, Any]]:
    values = body.get(key)
    if not isinstance(values, list) or not all(isinstance(value, dict) for value in values):
        raise Refused(400, f"{key} is not a list of objects")
    yield from values


def _base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:
        raise Refused(400, "not base64") from error


async def _lines(request: Request) -> AsyncIterator[bytes]:
    """The lines of a body, which never has to be in memory as a whole."""
    rest = bytearray()
    async for chunk in request.stream():
        first, *others = chunk.split(b"\n")
        rest += first
        for other in others:
            if rest.strip():
                yield bytes(rest)
            rest = bytearray(other)
        if len(rest) > LONGEST_LINE:
            raise Refused(413, f"a line of a commit may have {LONGEST_LINE} bytes")
    if rest.strip():
        yield bytes(rest)


def _flag(text: str | None) -> bool:
    return (text or "").lower() in {"1", "true"}


def _count(request: Request, name: str, default: int, least: int = 0) -> int:
    """A number of the query, which is ``least`` or more."""
    text = request.query_params.get(name)
    if text is None:
        return default
    if not re.fullmatch("[0-9]{1,15}", text) or int(text) < least:
        raise Refused(400, f"{name} is not a number, or less than {least}: {text}")
    return int(text)


# Answers.


def _next_page(request: Request, **changed: str) -> dict[str, str]:
    query = {**request.query_params, **changed}
    listed = "&".join(f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in query.items())
    return {"Link": f'<{_base(request)}{request.scope["path"]}?{listed}>; rel="next"'}


def _error(status: int, message: str, code: str = "", **more: str) -> JSONResponse:
    message = message[:_LONGEST_ERROR]
    # Headers are ASCII, and an answer to HEAD has nothing else.
    headers = {"X-Error-Message": printable(message).encode("ascii", "replace").decode()}
    if code:
        headers["X-Error-Code"] = code
    return JSONResponse({"error": message, **more}, status_code=status, headers=headers)


async def _refuse(request: Request, refused: Exception) -> Response:
    assert isinstance(refused, Refused)
    answer = _error(refused.status, refused.message, refused.code)
    if refused.commit:
        answer.headers["X-Repo-Commit"] = refused.commit
    return answer


async def _refuse_route(request: Request, refused: Exception) -> Response:
    assert isinstance(refused, HTTPException)
    answer = _error(refused.status_code, f"The embedded Hub has no such address: {refused.detail}")
    answer.headers.update(refused.headers or {})
    return answer


async def _fail(request: Request, error: Exception) -> Response:
    # What the data folder's disk refuses: a full one, most often.
    reason = printable(getattr(error, "strerror", None) or str(error))
    console.say(f"kernel-actions: {request.method} {request.url.path}: {reason}")
    is_full = getattr(error, "errno", None) in {errno.ENOSPC, errno.EDQUOT} or "full" in reason
    return _error(507 if is_full else 500, reason)


async def _gone(request: Request, error: Exception) -> Response:
    # Nobody reads this answer: the client has closed the connection.
    return Response(status_code=400)
