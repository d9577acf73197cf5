"""compute-sanitizer of CUDA: how it is started, and what its log says."""

from __future__ import annotations

import functools
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from kernel_actions.errors import WrongSurroundings
from kernel_actions.test.model import Finding

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
# What ends the run when something was found and every test passed.
EXIT_CODE = 86
_NAME = "compute-sanitizer"
_LARGEST_LOG = 50_000_000
_PREFIX = "========="
# The log is kept beside the report.
SUFFIX = ".sanitizer.log"
# "Invalid __global__ write of size 4 bytes", "Uninitialized __global__ memory read of size 4 bytes",
# "Error: Race reported between …", "Barrier error detected. …", "Program hit cudaError… due to …".
_FINDING = re.compile(
    r"(?:Invalid|Uninitialized|Misaligned|Barrier error|Program hit|Leaked|Missing wait|Out-of-range"
    r"|(?:(?:Error|Warning): )?(?:Potential \w+ hazard|Race reported)|Internal Sanitizer Error|Host API)"
)
# What CUDA's runtime asks a driver for that does not have it: no fault of the kernel's.
_HARMLESS = re.compile(r"Program hit \w+ .* on CUDA API call to cuGetProcAddress")
# "ERROR SUMMARY: 3 errors", "RACECHECK SUMMARY: 2 hazards displayed (1 error, 1 warning)".
_SUMMARY = re.compile(rf"^{_PREFIX} (?:ERROR|RACECHECK) SUMMARY: (\d{{1,9}}) ", re.MULTILINE)
# What an error of the device makes of the calls after it.
_FOLLOWS = re.compile(r"Program hit cudaError\w+ .* due to|Program hit CUDA_ERROR_\w+ .* due to")
# "at fill(float *, int)+0x70 in /build/csrc/fill.cu:12", "at 0x70 in /build/fill.cu:12:fill(float *)".
_AT_NEW = re.compile(r"at (?P<function>.+?)\+0x[0-9a-f]+(?: in (?P<path>.+):(?P<line>\d{1,9}))?$")
_AT_OLD = re.compile(r"at 0x[0-9a-f]+ in (?:(?P<path>[^:]+):(?P<line>\d{1,9}):)?(?P<function>.+)$")


def program(environment: Mapping[str, str]) -> Path:
    """The tool. Raises ``WrongSurroundings`` where it is not."""
    places = [environment.get(name, "") for name in ("CUDA_HOME", "CUDA_PATH")]
    found = shutil.which(_NAME) or next(
        (
            path
            for place in (*filter(None, places), "/usr/local/cuda")
            if os.access(path := f"{place}/bin/{_NAME}", os.X_OK)
        ),
        None,
    )
    if found is None:
        raise WrongSurroundings(
            f"{_NAME} is not installed",
            repair="install the CUDA toolkit, or put its bin folder into the PATH",
        )
    return Path(found)


def command(program: Path, tool: str, log: Path) -> list[str | Path]:
    """What goes before the command that is to be watched."""
    return [
        program, "--tool", tool, "--log-file", log, "--error-exitcode", str(EXIT_CODE),
        "--target-processes", "all", "--print-limit", "1000",
    ]  # fmt: skip


def variables() -> dict[str, str]:
    """What makes tensors memory of their own: inside of Torch's pool no access is out of bounds."""
    return {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}


def read(log: Path) -> str:
    """The text of a log; empty where there is none."""
    try:
        with log.open("rb") as file:
            return file.read(_LARGEST_LOG).decode(errors="replace")
    except OSError:
        return ""


def trouble(text: str, returncode: int) -> str:
    """Why a log without findings does not say that there are none; empty when it does.

    Where the tool cannot watch a program it says so in words of its own, or nothing, and lets it run.
    """
    counts = [int(found[1]) for found in _SUMMARY.finditer(text)]
    said = [line.removeprefix(_PREFIX).strip() for line in text.splitlines() if line.startswith(_PREFIX)]
    said = [line for line in said if line and "SUMMARY" not in line and line != _NAME.upper()]
    if not counts:
        return f"{_NAME} has not watched the tests to their end: {said[0] if said else 'its log is empty'}"
    harmless = [block for block in _blocks(text) if _HARMLESS.match(block[0])]
    if sum(counts) > len(harmless) or (returncode == EXIT_CODE and not harmless):
        return f"{_NAME} counts errors, of which its log says: {said[0] if said else 'nothing'}"
    return ""


def parse(text: str, kernel_dir: Path) -> tuple[Finding, ...]:
    """The findings in the text of a log, in their order, each of a line and kind once, with how often."""
    counted: dict[tuple[str, str | None, str | None, int | None], int] = {}
    blocks = [block for block in _blocks(text) if not _HARMLESS.match(block[0])]
    for block in [block for block in blocks if not _FOLLOWS.match(block[0])] or blocks:
        what = block[0]
        function = path = None
        line = None
        for number, said in enumerate(block):
            at = _AT_NEW.search(said) or _AT_OLD.search(said)
            # The first line of a race holds the place itself.
            if at is not None and (number == 0 or said.startswith("at ")):
                function = at["function"]
                path = _own(kernel_dir, at["path"]) if at["path"] else None
                line = int(at["line"]) if path is not None and at["line"] else None
                break
        key = (what[:300], function[:200] if function else None, path, line)
        counted[key] = counted.get(key, 0) + 1
    return tuple(
        Finding(what, function, path, line, count, None)
        for (what, function, path, line), count in counted.items()
    )


def _blocks(text: str) -> list[list[str]]:
    """The lines of each finding: from one that names it to the next empty one."""
    blocks: list[list[str]] = []
    is_inside = False
    for raw in text.splitlines():
        if not raw.startswith(_PREFIX):
            continue
        said = raw[len(_PREFIX) :].strip()
        if not said:
            is_inside = False
        elif is_inside:
            blocks[-1].append(said)
        elif _FINDING.match(said):
            blocks.append([said])
            is_inside = True
    return blocks


@functools.lru_cache(maxsize=1024)
def _own(kernel_dir: Path, said: str) -> str | None:
    """The kernel's file that a name of the tool's means: often the last part of the path alone, and builders
    compile copies of the sources."""
    parts = Path(said).parts
    if ".." in parts or not parts:
        return None
    for start in range(1 if said.startswith("/") else 0, len(parts) - 1):
        if kernel_dir.joinpath(*parts[start:]).is_file():
            return Path(*parts[start:]).as_posix()
    named: set[str] = set()
    for folder, folders, files in os.walk(kernel_dir):
        folders[:] = [one for one in folders if not one.startswith(".") and one != "build"]
        if parts[-1] in files:
            named.add((Path(folder) / parts[-1]).relative_to(kernel_dir).as_posix())
    return named.pop() if len(named) == 1 else None
