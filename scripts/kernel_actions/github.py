"""The only module that speaks to GitHub Actions: outputs, annotations, groups, masks, summary.

Formats: https://docs.github.com/actions/reference/workflow-commands-for-github-actions
"""

from __future__ import annotations

import os
import stat
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import IO, Any, Literal

from kernel_actions.errors import Place, WrongInput, WrongSurroundings, printable
from kernel_actions.named_tuple import NamedTuple

# The runner refuses a step's summary over 1 MiB as a whole, so stay below it.
SUMMARY_LIMIT = 1_000_000
# Where the files of public repositories are had one by one.
RAW_FILES = "https://raw.githubusercontent.com"
API = "https://api.github.com"
# What a job needs for issues, and for releases.
_ISSUES = "issues: write"
_RELEASES = "contents: write"
_RUNS = "actions: read"
# Of lists of the API: the most entries of a page, and the most pages that are read.
_PAGE = 100
_MOST_PAGES = 20
_LARGEST_ANSWER = 10_000_000
_ATTEMPTS = 3
# By these files a step sets outputs, the summary, and variables and the PATH of the steps after it.
STEP_FILES = frozenset({"GITHUB_ENV", "GITHUB_OUTPUT", "GITHUB_PATH", "GITHUB_STATE", "GITHUB_STEP_SUMMARY"})
# In seconds: how long an answer may take, of a file and of the API, and the pause before the second attempt.
_PATIENCE = 10.0
_API_PATIENCE = 30.0
_PAUSE = 0.5


def is_actions() -> bool:
    """Whether this process runs in a job of GitHub Actions."""
    return os.environ.get("GITHUB_ACTIONS") == "true"


@contextmanager
def kept_step_files() -> Iterator[None]:
    """Keep the files by which this step speaks to the runner as they are, whatever code runs meanwhile.

    Their folder can be read by all processes of the user, so a kernel's test finds them without the
    variables that name them; what it writes there would be variables, and the PATH, of the steps after this
    one. The runner reads them by their paths once the step has ended (actions/runner at 258d6c85,
    src/Runner.Worker/FileCommandManager.cs:75). One line says which had to be restored.
    """
    paths = {name: os.environ[name] for name in sorted(STEP_FILES) if os.environ.get(name)}
    before = {name: _step_file(path) for name, path in paths.items()}
    try:
        yield
    finally:
        changed = [name for name, path in paths.items() if _step_file(path) != before[name]]
        for name in changed:
            _restore(paths[name], before[name])
        if changed:
            text = f"what ran here changed {' and '.join(changed)}: the runner gets the files as they were"
            print(f"kernel-actions: warning: {text}", file=sys.stderr, flush=True)


def _step_file(path: str) -> tuple[bool, bytes]:
    """Whether there is anything at the path of a file of this step, and what is in it, if it is a file."""
    try:
        mode = os.lstat(path).st_mode
        if not stat.S_ISREG(mode):
            return True, f"not a file, but of the mode {mode:o}".encode()
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
            return True, file.read()
    except OSError:
        return False, b""


def _restore(path: str, before: tuple[bool, bytes]) -> None:
    import shutil
    from contextlib import suppress

    # A new file: what held the old one open, or linked to it, holds it still.
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path, ignore_errors=True)
    with suppress(FileNotFoundError):
        os.unlink(path)
    was_there, data = before
    if was_there:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644), "wb") as file:
            file.write(data)


def is_private() -> bool:
    """Whether the repository of this job is not public, or does not say that it is."""
    import json  # Not at the top: quick commands do without.

    try:
        with open(os.environ.get("GITHUB_EVENT_PATH", ""), "rb") as file:
            event = json.load(file)
        return bool(event["repository"]["private"] is not False)
    except (OSError, ValueError, KeyError, TypeError):
        return True


def set_outputs(outputs: Mapping[str, str]) -> None:
    """Set the step's outputs. Does nothing outside of Actions.

    A random delimiter keeps a value that holds line breaks from setting further outputs.
    """
    _append("GITHUB_OUTPUT", outputs)


def set_variables(variables: Mapping[str, str]) -> None:
    """Set variables of the environment for the steps after this one. Does nothing outside of Actions."""
    _append("GITHUB_ENV", variables)


def add_path(folder: str) -> None:
    """Put ``folder`` before the PATH of the steps after this one. Does nothing outside of Actions."""
    path = os.environ.get("GITHUB_PATH")
    if path:
        with open(path, "a", encoding="utf-8") as file:
            file.write(f"{folder}\n")


def _append(step_file: str, values: Mapping[str, str]) -> None:
    path = os.environ.get(step_file)
    if not path:
        return
    import secrets  # Not at the top: it takes a twentieth of the time of a quick command.

    with open(path, "a", encoding="utf-8") as file:
        for name, value in values.items():
            delimiter = f"end-{secrets.token_hex(16)}"
            file.write(f"{name}<<{delimiter}\n{value}\n{delimiter}\n")


def add_summary(markdown: str) -> None:
    """Append to the job's summary page. Does nothing outside of Actions."""
    path = os.environ.get("GITHUB_STEP_SUMMARY")
    if not path:
        return
    data = markdown.encode()
    if len(data) > SUMMARY_LIMIT:
        cut = data[:SUMMARY_LIMIT].decode(errors="ignore").rpartition("\n")[0]
        # What was begun is ended, so that the rest of the page is not taken for part of it.
        cut += "\n```" * (cut.count("```") % 2)
        cut += "\n\n</details>" * (cut.count("<details>") - cut.count("</details>"))
        data = f"{cut}\n\n(The rest is left out: a summary may have 1 MiB.)\n".encode()
    with open(path, "ab") as file:
        file.write(data + b"\n")


def tells_failure() -> bool:
    """Whether the summary of this step has said already that it failed, as ``markdown.heading`` does."""
    try:
        with open(os.environ.get("GITHUB_STEP_SUMMARY", ""), "rb") as file:
            return "### ❌ ".encode() in file.read()
    except OSError:
        return False


def annotate(
    level: Literal["error", "warning", "notice"],
    message: str,
    *,
    where: Place | None = None,
    title: str = "",
) -> None:
    """Show ``message`` on the job's page and at its line of the pull request.

    Control characters, in names of files too, are made visible: the log is a terminal.
    """
    properties = {"title": title} if title else {}
    if where is not None:
        properties["file"] = str(where.path)
        if where.line is not None:
            properties["line"] = str(where.line)
        if where.column is not None:
            properties["col"] = str(where.column)
    listed = ",".join(f"{name}={_escape_property(_visible(value))}" for name, value in properties.items())
    text = _escape(_visible(message))
    _command(f"::{level} {listed}::{text}" if listed else f"::{level}::{text}")


def mask(secret: str) -> None:
    """Have the runner replace ``secret`` by asterisks in everything that is logged from now on."""
    if is_actions():
        for line in secret.splitlines():
            if line:
                _command(f"::add-mask::{_escape(line)}")


@contextmanager
def group(title: str) -> Iterator[None]:
    """Fold what is logged meanwhile under ``title``. Shows only the title outside of Actions."""
    if not is_actions():
        print(title, file=sys.stderr, flush=True)
        yield
        return
    _command(f"::group::{_escape(title)}")
    try:
        yield
    finally:
        _command("::endgroup::")


@contextmanager
def untrusted_output() -> Iterator[None]:
    """Keep the runner from obeying workflow commands in what is logged meanwhile.

    Compilers and tests print what the kernel's author wrote, which may look like a command.
    """
    if not is_actions():
        yield
        return
    import secrets

    token = secrets.token_hex(16)
    sys.stdout.flush()
    _command(f"::stop-commands::{token}")
    try:
        yield
    finally:
        # What is held back would come after the end.
        sys.stdout.flush()
        _command(f"::{token}::")


def fetch_file(repository: str, commit: str, path: str, largest: int, deadline: float) -> str | None:
    """The text of a file of a repository at a commit; ``None`` when there is none.

    Uses the token of the job, if there is one, as it raises the rate limit. KA_GITHUB_RAW names a
    mirror to ask in place of GitHub. ``deadline`` is by ``time.monotonic``: slow answers end with it.
    Raises ``WrongSurroundings`` when nobody answers.
    """
    # The standard library's client: what asks for one small file runs without an environment.
    import http.client
    import urllib.error
    import urllib.request
    from urllib.parse import quote

    base = os.environ.get("KA_GITHUB_RAW") or RAW_FILES
    host = base.partition("://")[2].partition("/")[0] or base
    token = _token()
    failure = f"{host} did not answer in time"
    for attempt in range(_ATTEMPTS):
        if attempt:
            time.sleep(_PAUSE * 2 ** (attempt - 1))
        left = deadline - time.monotonic()
        if left <= 0:
            break
        try:
            request = urllib.request.Request(f"{base.rstrip('/')}/{quote(repository)}/{commit}/{quote(path)}")
            if token and base == RAW_FILES:
                # Not one that a redirect takes elsewhere.
                request.add_unredirected_header("Authorization", f"Bearer {token}")
            with urllib.request.urlopen(request, timeout=min(left, _PATIENCE)) as answer:
                return _read_text(answer, largest, deadline, f"{host}: {path}")
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return None
            failure = f"{host} answered {error.code} {error.reason}"
            if error.code < 500 and error.code != 429:
                break
        except (OSError, http.client.HTTPException, ValueError) as error:
            reason = getattr(error, "reason", None) or error or type(error).__name__
            failure = f"{host} cannot be reached: {reason}"
    raise WrongSurroundings(failure)


def _read_text(answer: IO[bytes], largest: int, deadline: float, what: str) -> str:
    """All that a server sends, unless it is too much or takes too long. Raises ``WrongSurroundings``."""
    data = b""
    # A time limit of the connection is for each read, and a server may send a byte at a time.
    while piece := answer.read1(65536):  # type: ignore[attr-defined]
        data += piece
        if len(data) > largest:
            raise WrongSurroundings(f"{what} is larger than {largest} bytes")
        if time.monotonic() > deadline:
            raise WrongSurroundings(f"{what} did not arrive in time")
    return data.decode(errors="replace")


def _token() -> str:
    # A job on GitHub Enterprise Server has a token of that server, which is none of GitHub's business.
    if os.environ.get("GITHUB_SERVER_URL", "https://github.com") != "https://github.com":
        return ""
    return os.environ.get("GITHUB_TOKEN") or os.environ.get("GH_TOKEN") or ""


class Refused(WrongSurroundings):
    """The API did not do what it was asked for: ``said`` is why, and ``status`` that of HTTP, 0 where no
    answer came, or none that can be understood."""

    def __init__(self, asked: str, said: str, status: int = 0, repair: str = "run it again") -> None:
        super().__init__(f"GitHub does not take {asked}: {said}", repair=repair)
        self.said = said
        self.status = status


class Issue(NamedTuple):
    """An issue of this job's repository: its number, text and address, and whether it is open."""

    number: int
    body: str
    address: str
    is_open: bool


def find_issue(token: str, label: str, marker: str) -> Issue | None:
    """The newest issue with ``label`` whose text has ``marker``, open or closed; ``None`` when there is none.

    Only who may write to the repository can give an issue a label. Raises ``WrongSurroundings``.
    """
    query = f"?labels={label}&state=all&sort=created&direction=desc&per_page=30"
    answer = _ask("GET", f"issues{query}", token, _ISSUES)
    found = [one for one in answer if isinstance(one, dict)] if isinstance(answer, list) else []
    # The API tells of pull requests as of issues.
    issues = [_issue(one) for one in found if "pull_request" not in one]
    return next((one for one in issues if marker in one.body), None)


def open_issue(token: str, title: str, body: str, label: str) -> Issue:
    """Open an issue; a label that is missing is made. Raises ``WrongSurroundings``."""
    value = {"title": title, "body": body, "labels": [label]}
    return _issue(_ask("POST", "issues", token, _ISSUES, value))


def change_issue(token: str, number: int, *, body: str, comment: str = "", close: bool = False) -> Issue:
    """Change the text of an issue, which tells nobody; add a comment, which does; and close it.

    Raises ``WrongSurroundings``.
    """
    state = {"state": "closed", "state_reason": "completed"} if close else {}
    changed = _issue(_ask("PATCH", f"issues/{number}", token, _ISSUES, {"body": body, **state}))
    if comment:
        _ask("POST", f"issues/{number}/comments", token, _ISSUES, {"body": comment})
    return changed


def _issue(value: Any) -> Issue:
    if not isinstance(value, dict) or not isinstance(value.get("number"), int):
        raise WrongSurroundings("GitHub's answer about an issue cannot be understood")
    body = value.get("body")
    return Issue(
        number=value["number"],
        body=body if isinstance(body, str) else "",
        address=str(value.get("html_url") or ""),
        is_open=value.get("state") == "open",
    )


def can_ask(token: str) -> bool:
    """Whether this job says its repository, and the API can be asked about it with ``token``."""
    return _hindrance(token) is None


def has_release(token: str, tag: str) -> bool:
    """Whether this job's repository has a release of ``tag``. Raises ``Refused``."""
    from urllib.parse import quote

    try:
        _ask("GET", f"releases/tags/{quote(tag, safe='')}", token, _RELEASES)
    except Refused as error:
        if error.status == 404:
            return False
        raise
    return True


def make_release(token: str, tag: str, *, commit: str, name: str, body: str, is_pre: bool) -> None:
    """Make the release of ``tag``, which is put on ``commit`` where it is missing. Raises ``Refused``."""
    value = {"tag_name": tag, "target_commitish": commit, "name": name, "body": body, "prerelease": is_pre}
    _ask("POST", "releases", token, _RELEASES, value)


class Artifact(NamedTuple):
    """An artifact of a run: its name, and when it was made, as the API writes times (ISO 8601, UTC, seconds),
    which sort as they follow each other."""

    name: str
    created: str


class Job(NamedTuple):
    """A job of a run, in one of its attempts: the name that people see, which begins with ``Caller / `` where
    another workflow called its own, and when it started and ended; empty where it has not."""

    name: str
    started: str
    completed: str


def artifacts_of_run(token: str) -> tuple[Artifact, ...]:
    """The artifacts of this job's run, of all attempts. Raises ``WrongSurroundings``.

    https://docs.github.com/rest/actions/artifacts#list-workflow-run-artifacts
    """
    listed = _pages("artifacts?", "artifacts", token)
    return tuple(Artifact(_text(one, "name"), _text(one, "created_at")) for one in listed)


def jobs_of_run(token: str) -> tuple[Job, ...]:
    """The jobs of this job's run, of all attempts. Raises ``WrongSurroundings``.

    https://docs.github.com/rest/actions/workflow-jobs#list-jobs-for-a-workflow-run
    """
    listed = _pages("jobs?filter=all&", "jobs", token)
    return tuple(
        Job(_text(one, "name"), _text(one, "started_at"), _text(one, "completed_at")) for one in listed
    )


def _pages(path: str, member: str, token: str) -> list[Mapping[str, Any]]:
    run = os.environ.get("GITHUB_RUN_ID", "")
    if not run.isascii() or not run.isdigit():
        raise WrongSurroundings("this job does not say which run it is of (GITHUB_RUN_ID)")
    listed: list[Mapping[str, Any]] = []
    for page in range(1, _MOST_PAGES + 1):
        answer = _ask("GET", f"actions/runs/{run}/{path}per_page={_PAGE}&page={page}", token, _RUNS)
        entries = answer.get(member) if isinstance(answer, dict) else None
        if not isinstance(entries, list) or not all(isinstance(one, dict) for one in entries):
            raise WrongSurroundings(f"GitHub's list of the run's {member} cannot be understood")
        listed += entries
        if len(entries) < _PAGE:
            return listed
    raise WrongSurroundings(f"the run has more than {_PAGE * _MOST_PAGES} {member}")


def _text(value: Mapping[str, Any], name: str) -> str:
    text = value.get(name)
    return text if isinstance(text, str) else ""


def _hindrance(token: str) -> WrongSurroundings | None:
    """Why the API is not asked with ``token``; ``None`` when it can be."""
    import re
    from urllib.parse import urlsplit

    repository = os.environ.get("GITHUB_REPOSITORY", "")
    if not token or re.fullmatch(r"[\w.-]+/[\w.-]+", repository, re.ASCII) is None:
        return WrongSurroundings(
            "there is no token for GitHub, or no repository",
            repair="run it in a job of GitHub Actions, and give it github-token",
        )
    parts = urlsplit(_api())
    if parts.scheme != "https" and parts.hostname not in {"127.0.0.1", "localhost", "::1"}:
        return WrongSurroundings(f"{_api()} is not encrypted, and everybody on the way could read the token")
    return None


def _api() -> str:
    return os.environ.get("GITHUB_API_URL") or API


def _ask(method: str, path: str, token: str, permission: str, value: Mapping[str, Any] | None = None) -> Any:
    """What the API says of ``path`` in this job's repository, for which the job needs ``permission``.

    Raises ``WrongSurroundings``, of which ``Refused`` are the answers, and those that did not come.
    """
    import http.client
    import json
    import urllib.error
    import urllib.request

    if hindrance := _hindrance(token):
        raise hindrance
    data = None if value is None else json.dumps(value).encode()
    address = f"{_api().rstrip('/')}/repos/{os.environ['GITHUB_REPOSITORY']}/{path}"
    request = urllib.request.Request(address, data, method=method)
    request.add_header("Accept", "application/vnd.github+json")
    request.add_header("X-GitHub-Api-Version", "2022-11-28")
    # Not one that a redirect takes elsewhere.
    request.add_unredirected_header("Authorization", f"Bearer {token}")
    asked = f"{method} {path.partition('?')[0]}"
    try:
        with urllib.request.urlopen(request, timeout=_API_PATIENCE) as answer:
            return json.loads(answer.read(_LARGEST_ANSWER))
    except urllib.error.HTTPError as error:
        said = f"HTTP {error.code} {printable(str(error.reason))}"
        if error.code in (401, 403, 404):
            raise Refused(asked, said, error.code, f"give the job `{permission}`") from error
        if error.code == 410:
            raise Refused(asked, said, error.code, "turn issues on in the repository's settings") from error
        raise Refused(asked, said, error.code) from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        said = printable(str(getattr(error, "reason", None) or error or type(error).__name__))
        raise Refused(asked, said) from error


def boolean(name: str, value: str) -> bool:
    """The boolean of an action's input, which always arrives as a string."""
    lowered = value.strip().lower()
    if lowered in {"true", "1", "yes", "on"}:
        return True
    if lowered in {"false", "0", "no", "off"}:
        return False
    raise WrongInput(f"{name} is {value!r}, which is neither true nor false")


def _command(text: str) -> None:
    # Progress goes to stderr and commands do too, so that stdout holds results alone.
    # The runner reads commands from both.
    print(text, file=sys.stderr, flush=True)


def _visible(text: str) -> str:
    return "".join(one if one.isprintable() or one in "\r\n" else repr(one)[1:-1] for one in text)


def _escape(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _escape_property(text: str) -> str:
    return _escape(text).replace(":", "%3A").replace(",", "%2C")
