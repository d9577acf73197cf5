"""What a build's output means: messages at the kernel's own lines, registers, and why Nix failed. Pure."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

from kernel_actions.local_builder import messages
from kernel_actions.local_builder.messages import CompilerError

# Where Nix builds: /build in the sandbox of Linux, else a temporary folder, as its versions name it.
_BUILD_FOLDERS = (
    "/build",
    r"(?:/private)?/(?:tmp|var/tmp|var/folders/[^\s:(]+?)/nix-build-[^/\s:(]+(?:/build)?",
    r"/nix/var/nix/builds/[^/\s:(]+(?:/build)?",
)
# In it, the folder of the sources is the one that was unpacked: `source`, or `<hash>-source` from the store.
_SOURCES = r"(?<![\w./-])(?:{})/(?:[0-9a-z]{{32}}-)?source(?=/)"
# A path begins where a word does: to try every slash of a long line takes a time that grows with its square.
_STORE_SOURCE = re.compile(r"(?<![^\s:(\"'])/[^\s:(\"']*?/?store/[0-9a-z]{32}-source(?=/)")
# A path at the start of a line, as compilers that are called in the kernel's folder print it.
_RELATIVE = re.compile(r"^(?P<before>In file included from |\s+from )?(?P<path>[\w.+-][^\s:(]*)(?=[:(]\d)")
_WARNING = re.compile(
    r"(?P<path>[^\s:(][^:(]*)(?::(?P<line>\d{1,9}):(?:(?P<column>\d{1,9}):)?|\((?P<at>\d{1,9})\):) "
    r"warning(?: #\S+)?: (?P<message>.*)"
)
_ENTRY = re.compile(r"ptxas info\s*: Compiling entry function '(?P<name>[^']+)' for '(?P<arch>sm_\w+)'")
_SPILLS = re.compile(
    r"\b(\d{1,9}) bytes stack frame, (\d{1,9}) bytes spill stores, (\d{1,9}) bytes spill loads"
)
_REGISTERS = re.compile(r"ptxas info\s*: Used (\d{1,9}) registers")
# How Nix says that a derivation's own builder failed: until Nix 2.29, and since.
_FAILED = re.compile(
    r"builder for '(?P<old>[^']+\.drv)' failed(?P<how>[^;\n]*)"
    r"|Cannot build '(?P<new>[^']+\.drv)'\.\s*Reason:\s*builder failed(?P<new_how>[^\n]*)",
)
# What its limits do: max-build-log-size, max-silent-time and timeout.
_ENDED = re.compile(
    r"'(?P<derivation>[^'!]+\.drv)[^']*'[^\n]*?(?P<how>killed after writing more than \d+ bytes of log output"
    r"|timed out after \d+ seconds[^\n]*)"
)
_NO_SPACE = re.compile(r"No space left on device|Disk quota exceeded|database or disk is full", re.IGNORECASE)
_KILLED = re.compile(
    r"due to signal (?:9|15)\b|with exit code (?:137|143)\b|exit code (?:137|143)\b|Killed process|oom-kill"
)
_NETWORK = re.compile(
    r"unable to download|[Cc]ould(?:n't| not) (?:resolve|connect)|[Ff]ailed to connect"
    r"|[Cc]onnection (?:reset|refused|timed out)|Timeout was reached|[Oo]peration timed out"
    r"|HTTP error (?:429|5\d\d)|HTTP/\S+ (?:429|5\d\d)|SSL connection|TLS connect"
    r"|Temporary failure in name resolution|Network is unreachable|curl: \(\d+\)|unexpected end-of-file"
    r"|transfer closed|unable to access 'https?://|stalled|gnutls_handshake|early EOF|server returned nothing"
)
_SANDBOX = re.compile(
    r"sandbox|private mount namespace|user namespace|cloning builder process|unshar|pivot"
    r"|setting up a private|unable to make '/' private|/uid_map'|mounting /proc|namespaces? (?:are|is) not"
)
_SURROUNDINGS = re.compile(
    r"ermission denied|Read-only file system|read-only|cannot connect to (?:socket|daemon)"
    r"|experimental.*feature|opening lock file|cannot open connection|required to build|getting status of"
    r"|opening a file|build users|dubious ownership|not owned by|daemon|Too many open files"
    r"|Cannot allocate memory|SQLite|remounting"
)
_MISSING = re.compile(r"does not provide attribute")
_NO_DAEMON = re.compile(r"daemon disconnected|writing to (?:file|daemon).*Broken pipe")
# No message of a compiler that says where begins later in a line, and what goes on longer is shown no longer.
_LONGEST_LINE = 4000

Cause = Literal[
    "disk", "memory", "network", "sandbox", "attribute", "daemon", "surroundings", "builder", "evaluation",
    "unknown",
]  # fmt: skip


class Failure(NamedTuple):
    """Why Nix failed. ``derivation`` is the one whose builder failed, empty for another reason; ``text`` is
    what was said about it."""

    cause: Cause
    derivation: str
    text: str


class Warned(NamedTuple):
    """A compiler's warning at a line of the kernel; ``path`` is relative to its folder."""

    message: str
    path: str
    line: int
    column: int | None


class Registers(NamedTuple):
    """What ptxas says of a kernel for an architecture: registers of a thread, and bytes that did not fit."""

    name: str
    architecture: str
    registers: int
    stack: int
    spill_stores: int
    spill_loads: int


def unsandboxed(line: str, kernel_dir: Path, build_dir: str = "/build") -> str:
    """``line`` with the paths of a build's sources as those of the kernel in ``kernel_dir`` (absolute).

    ``build_dir`` is where the sandbox shows the build's folder (Nix's ``sandbox-build-dir``).
    """
    folder = str(kernel_dir)
    line = line[:_LONGEST_LINE]
    line = _sources(build_dir).sub(lambda _: folder, line)
    line = _STORE_SOURCE.sub(lambda _: folder, line)
    found = _RELATIVE.match(line)
    if found:
        inside = re.sub(r"^(?:\.\.?/)+", "", found["path"])
        if _is_file(kernel_dir / inside):
            start, end = found.span("path")
            line = f"{line[:start]}{folder}/{inside}{line[end:]}"
    return line


def _is_file(path: Path) -> bool:
    """Whether there is such a file; what a build prints may be too long for the name of any."""
    try:
        return path.is_file()
    except OSError:
        return False


@cache
def _sources(build_dir: str) -> re.Pattern[str]:
    return re.compile(_SOURCES.format("|".join((*_BUILD_FOLDERS, re.escape(build_dir)))))


def errors(lines: Iterable[str], kernel_dir: Path, build_dir: str = "/build") -> tuple[CompilerError, ...]:
    """The compilers' errors in a build's output, at the lines of the kernel in ``kernel_dir`` (absolute)."""
    text = "\n".join(unsandboxed(line, kernel_dir, build_dir) for line in lines)
    found: dict[CompilerError, None] = {}
    for error in messages.errors(text, kernel_dir, kernel_dir / "build"):
        message = error.message.replace(f"{kernel_dir}/", "")
        # What the builder generates is no file of the repository.
        is_own = error.path is not None and _is_file(kernel_dir / error.path)
        found[
            CompilerError(message, error.path, error.line, error.column) if is_own else CompilerError(message)
        ] = None
    return tuple(found)


def warnings(lines: Iterable[str], kernel_dir: Path, build_dir: str = "/build") -> tuple[Warned, ...]:
    """The compilers' warnings at the kernel's own lines, without repetitions."""
    found: dict[Warned, None] = {}
    for line in lines:
        if "warning" not in line:
            continue
        matched = _WARNING.fullmatch(unsandboxed(line, kernel_dir, build_dir))
        if matched is None:
            continue
        path = Path(os.path.normpath(matched["path"]))
        if path.is_relative_to(kernel_dir) and _is_file(path):
            column = int(matched["column"]) if matched["column"] else None
            place = int(matched["line"] or matched["at"])
            found[
                Warned(matched["message"].strip(), path.relative_to(kernel_dir).as_posix(), place, column)
            ] = None
    return tuple(found)


def registers(lines: Iterable[str]) -> tuple[Registers, ...]:
    """What ptxas says of each kernel (``-Xptxas -v``), those that spill most first."""
    found: dict[tuple[str, str], Registers] = {}
    entry: tuple[str, str] | None = None
    memory = (0, 0, 0)
    for line in lines:
        if matched := _ENTRY.search(line):
            entry, memory = (matched["name"], matched["arch"]), (0, 0, 0)
        elif entry and (matched := _SPILLS.search(line)):
            memory = (int(matched[1]), int(matched[2]), int(matched[3]))
        elif entry and (matched := _REGISTERS.search(line)):
            found[entry] = Registers(readable(entry[0]), entry[1], int(matched[1]), *memory)
            entry = None
    return tuple(
        sorted(
            found.values(), key=lambda one: (-one.spill_stores - one.spill_loads, -one.registers, one.name)
        )
    )


def readable(name: str) -> str:
    """A C++ symbol as its name without arguments: ``_ZN2ns5scaleEPfi`` → ``ns::scale``; else as it is."""
    if not name.startswith("_Z"):
        return name
    rest = name[2:].removeprefix("N")
    parts = []
    while found := re.match(r"(?:L|K)?(\d{1,3})", rest):
        length = int(found[1])
        part = rest[found.end() : found.end() + length]
        parts.append("(anonymous)" if part.startswith("_GLOBAL__N_") else part)
        rest = rest[found.end() + length :]
        if not name.startswith("_ZN"):
            break
    template = "<…>" if rest.startswith("I") and parts else ""
    return "::".join(parts) + template if parts else name


def cause(said: Sequence[str], lines_of: Mapping[str, Sequence[str]]) -> Failure:
    """Why Nix failed: ``said`` are its errors, ``lines_of`` what the derivations' builders printed."""
    text = "\n".join(said)
    if ended := _ENDED.search(text):
        return Failure("builder", ended["derivation"], ended["how"])
    failed = _FAILED.search(text)
    derivation = (failed["old"] or failed["new"] or "") if failed else ""
    lines = "\n".join(_lines_of(derivation, lines_of))
    first = _first_line(text)
    how = ((failed["how"] or failed["new_how"] or "") if failed else "").strip().rstrip(".")
    if found := re.search(r"cloning builder process.*|unable to start build process", text):
        # Before the disk: of namespaces that are used up it is said that no space is left, too.
        return Failure("sandbox", "", found.group())
    if _NO_SPACE.search(text) or (derivation and messages.is_out_of_space(lines)):
        return Failure("disk", derivation, first)
    if derivation:
        if _KILLED.search(f"{how}\n{lines}") or messages.is_out_of_memory(lines):
            return Failure("memory", derivation, how or first)
        # What a fetcher could not fetch is the network's fault, what a compiler refused is not.
        if re.search(r"^(?:curl: \(\d+\)|error: cannot download .* from any mirror)", lines, re.MULTILINE):
            return Failure("network", derivation, first)
        return Failure("builder", derivation, how or first)
    if _MISSING.search(text):
        return Failure("attribute", "", first)
    if _NO_DAEMON.search(text):
        return Failure("daemon", "", first)
    if _NETWORK.search(text):
        return Failure("network", "", first)
    if _SANDBOX.search(text):
        return Failure("sandbox", "", first)
    if _SURROUNDINGS.search(text):
        return Failure("surroundings", "", first)
    return Failure("evaluation" if text else "unknown", "", _last_reason(text))


def is_network(text: str) -> bool:
    """Whether a program failed because of the network, so that another attempt may do better."""
    return _NETWORK.search(text) is not None


def is_fetch(text: str) -> bool:
    """Whether something could not be fetched: the network failed, or a server refused."""
    return is_network(text) or re.search(r"HTTP error|cannot connect|timed out", text) is not None


def _lines_of(derivation: str, lines_of: Mapping[str, Sequence[str]]) -> Sequence[str]:
    return lines_of.get(derivation, ())


def _first_line(text: str) -> str:
    lines = [line.strip().removeprefix("error:").strip() for line in text.splitlines()]
    return next((line for line in lines if line), "")


def _last_reason(text: str) -> str:
    """What an evaluation's error ends with: the lines before it are its trace."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    reasons = [line.removeprefix("error:").strip() for line in lines if line.startswith("error:")]
    return next((reason for reason in reversed(reasons) if reason), _first_line(text))
