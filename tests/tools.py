"""What tests need that a machine may lack: programs, and what a user may do there.

A test finds a program of `TOOLS` on the ``PATH`` only if it asks for it: by the marker ``needs``, or by `ask`
or `program` while it runs. A test that forgets to ask fails on every machine, also where the program is
installed; a test that asks is left out where the program is missing. The last lines of a run list what was
left out. In the CI, no test may be left out for want of what ``scripts/install-test-tools`` installs.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import pytest

INSTALLER = "scripts/install-test-tools"
PARSER = Path(__file__).resolve().parent / "workflow_parser" / "node_modules"
# Workers of pytest-xdist get the PATH that the first process has made; this one has it as it was.
_WHOLE_PATH = "KERNEL_ACTIONS_TESTS_PATH"
_REASON = re.compile(r"needs (?P<names>.+?)(?: \(|$)")


class Tool(NamedTuple):
    """Programs that come together: patterns of their names, and the packages of Debian from which
    `INSTALLER` installs them (none: it does not)."""

    programs: tuple[str, ...]
    packages: tuple[str, ...] = ()
    is_complete: Callable[[], bool] = lambda: True


TOOLS = {
    "nix": Tool(("nix", "nix-*"), ("nix-bin",)),
    "node": Tool(("node", "nodejs", "npm", "npx"), ("nodejs", "npm"), PARSER.is_dir),
    "kubectl": Tool(("kubectl",), ("kubernetes-client",)),
    "systemd": Tool(("systemd-analyze", "systemctl", "systemd-*"), ("systemd",)),
    "curl": Tool(("curl",), ("curl",)),
    "patchelf": Tool(("patchelf",), ("patchelf",)),
    "jq": Tool(("jq",), ("jq",)),
    "ip": Tool(("ip",), ("iproute2",)),
    "zstd": Tool(("zstd", "unzstd", "zstdcat", "zstdmt"), ("zstd",)),
    "aarch64-linux-gnu-gcc": Tool(
        ("aarch64-linux-gnu-gcc", "aarch64-linux-gnu-*"), ("gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross")
    ),
    # The programs of CUDA's toolkit, which its vendor's packages bring.
    "nvcc": Tool(("nvcc", "cuobjdump", "nvdisasm", "fatbinary", "nvlink", "ptxas")),
    # What is looked at where somebody has it, but installed for no test.
    "cachix": Tool(("cachix",)),
    "docker": Tool(("docker", "podman")),
    "gh": Tool(("gh",)),
    "helm": Tool(("helm",)),
    "kernel-builder": Tool(("kernel-builder",)),
    "pipx": Tool(("pipx",)),
    "pre-commit": Tool(("pre-commit",)),
    # The environment brings its own.
    "cmake": Tool(("cmake", "ctest", "cpack")),
    "ninja": Tool(("ninja", "ninja-build")),
}  # fmt: skip
# Programs that tests start themselves and that every machine has: those of POSIX, of util-linux and of
# binutils, git, a Python, a C++ compiler and make, as the README asks for.
EVERYWHERE = frozenset({
    "bash", "c++", "cat", "cc", "chmod", "chown", "clang", "clang++", "cp", "env", "false", "g++",
    "gcc", "git", "gzip", "head", "id", "install", "kill", "ldd", "ln", "ls", "make", "mkdir", "mount", "mv",
    "nm", "objcopy", "objdump", "prlimit", "ps", "python", "python3", "readelf", "readlink", "rm",
    "sed", "setpriv", "sh", "sleep", "strip", "sysctl", "tar", "touch", "true", "umount", "uname",
    "unshare",
})  # fmt: skip
ABILITIES: dict[str, Callable[[], bool]] = {
    "root": lambda: os.geteuid() == 0,
    "a user who is not root": lambda: os.geteuid() != 0,
    "Linux": lambda: sys.platform.startswith("linux"),
    # Checkouts that variables name.
    **{
        name: functools.partial(os.environ.__contains__, name)
        for name in ("KA_BUILDER_CHECKOUT", "KA_BUILDER_REPOSITORY", "KA_TEST_KERNELS_COMMUNITY")
    },
    "Torch": lambda: importlib.util.find_spec("torch") is not None,
    "mount namespaces": lambda: _succeeds("unshare", "--mount", "true"),
    "user namespaces": lambda: _succeeds("unshare", "--map-root-user", "--mount", "true"),
    "network namespaces": lambda: _succeeds("unshare", "--map-root-user", "--net", "true"),
    "limits of namespaces": lambda: _succeeds(
        "unshare", "--map-root-user", "sh", "-c", "echo 0 > /proc/sys/user/max_mnt_namespaces"
    ),
    "mounts": lambda: os.geteuid() == 0 and _succeeds(
        "unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", tempfile.gettempdir()
    ),
}  # fmt: skip


def needs(*names: str) -> pytest.MarkDecorator:
    """The marker of tests that need tools or abilities, by their names in `TOOLS` and `ABILITIES`."""
    return pytest.mark.needs(*names)


def ask(*names: str) -> None:
    """Give the running test the tools ``names``, as the marker ``needs`` would, or leave it out."""
    missing = [name for name in names if not _is_met(name)]
    if missing:
        leave_out(*missing)
    for name in names:
        if name in TOOLS:
            _session().grant(name)


def program(name: str) -> str:
    """The path of a program of one of `TOOLS` on this machine; the test is left out where it is missing."""
    tool = _tool_of(name)
    if tool is None:
        raise LookupError(f"{name} is in no tool of tests/tools.py")
    ask(tool)
    path = shutil.which(name, path=_session().whole_path)
    if path is None:
        leave_out(tool)
    return path


def optional(name: str) -> str | None:
    """The same where a test does without: ``None`` where it is missing."""
    tool = _tool_of(name)
    if tool is None:
        return shutil.which(name, path=_session().whole_path)
    return program(name) if _is_met(tool) else None


def leave_out(*names: str) -> NoReturn:
    """Leave the running test out, as it needs ``names``, which are missing. In the CI it fails instead where
    `INSTALLER` would have installed one."""
    installed = [name for name in names if name in TOOLS and TOOLS[name].packages]
    reason = f"needs {', '.join(names)}"
    if installed:
        reason += f" ({INSTALLER} installs {', '.join(installed)})"
    if installed and os.environ.get("CI") == "true":
        pytest.fail(f"{reason}, and in the CI no such test may be left out", pytrace=False)
    pytest.skip(reason)


def _is_met(name: str) -> bool:
    if name in ABILITIES:
        return _has_ability(name)
    tool = TOOLS[name]
    return shutil.which(tool.programs[0], path=_session().whole_path) is not None and tool.is_complete()


@functools.cache
def _has_ability(name: str) -> bool:
    return ABILITIES[name]()


def _succeeds(*command: str) -> bool:
    if shutil.which(command[0]) is None:
        return False
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False).returncode == 0


def _tool_of(program_name: str) -> str | None:
    """The tool that a program belongs to."""
    for name, tool in TOOLS.items():
        if any(fnmatch(program_name, pattern) for pattern in tool.programs):
            return name
    return None


class Session:
    """The plugin of pytest: the ``PATH`` of each test, and the account of what was left out."""

    def __init__(self, whole_path: str) -> None:
        self.whole_path = whole_path
        folders = (os.path.abspath(folder) for folder in whole_path.split(os.pathsep) if folder)
        self._folders = tuple(dict.fromkeys(folders))
        self._root = Path(tempfile.mkdtemp(prefix="kernel-actions-programs-"))
        # Some tests start programs as somebody else.
        self._root.chmod(0o755)
        self._granted: set[str] = set()
        # A program that tools share, or that stands twice on the PATH, is the first one, as for a shell.
        entries: dict[str, str] = {}
        for folder in self._folders:
            if os.path.isdir(folder):
                with os.scandir(folder) as listed:
                    for entry in listed:
                        entries.setdefault(entry.name, entry.path)
        for name, path in entries.items():
            target = self._root / (_tool_of(name) or "everywhere")
            target.mkdir(exist_ok=True)
            (target / name).symlink_to(path)

    @property
    def path(self) -> str:
        """The ``PATH`` of the test that runs now."""
        folders = [self._root / name for name in [*sorted(self._granted), "everywhere"]]
        return os.pathsep.join(str(folder) for folder in folders)

    def grant(self, name: str) -> None:
        """Have the running test find a tool."""
        if name not in self._granted:
            before = self.path
            self._granted.add(name)
            # The test may have put folders of its own around.
            os.environ["PATH"] = os.environ.get("PATH", "").replace(before, self.path)

    def check_start(self, program: str, search: str) -> None:
        """Fail where a test starts a program of the machine that not every machine has, without asking."""
        path = program if os.path.dirname(program) else shutil.which(program, path=search)
        if path is None:
            return
        folder, name = os.path.split(os.path.abspath(path))
        if folder not in self._folders and not Path(folder).is_relative_to(self._root):
            return
        tool = _tool_of(name)
        if name not in EVERYWHERE and not re.fullmatch(r"python[0-9.]*", name) and tool not in self._granted:
            raise AssertionError(
                f"a test starts {program}, which not every machine has: ask for it by tests/tools.py "
                f"({f'needs({tool!r})' if tool else 'an entry of TOOLS or EVERYWHERE'})"
            )

    def close(self) -> None:
        """Remove the folders."""
        shutil.rmtree(self._root, ignore_errors=True)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Each test begins and ends with the bare ``PATH``."""
        self._granted.clear()
        os.environ["PATH"] = self.path
        try:
            return (yield)
        finally:
            self._granted.clear()
            os.environ["PATH"] = self.path

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Give a test what its markers name, before its fixtures are made."""
        ask(*dict.fromkeys(name for mark in item.iter_markers("needs") for name in mark.args))


_current: list[Session] = []


def _session() -> Session:
    return _current[-1]


def start(config: pytest.Config) -> None:
    """Register the plugin, and have this process look for programs where a test may."""
    session = Session(os.environ.pop(_WHOLE_PATH, os.environ.get("PATH", os.defpath)))
    _current.append(session)
    os.environ["PATH"] = session.path
    if getattr(config.option, "dist", "no") != "no" and not hasattr(config, "workerinput"):
        os.environ[_WHOLE_PATH] = session.whole_path
    start_process = subprocess.Popen.__init__

    @functools.wraps(start_process)
    def checked(self: subprocess.Popen[Any], args: Any, *rest: Any, **keywords: Any) -> None:
        is_path = isinstance(args, (str, bytes, os.PathLike))
        first = keywords.get("executable") or (args if is_path else args[0])
        if not keywords.get("shell"):
            search = (keywords.get("env") or os.environ).get("PATH", os.defpath)
            session.check_start(os.fsdecode(first), os.fsdecode(search))
        start_process(self, args, *rest, **keywords)

    subprocess.Popen.__init__ = checked  # type: ignore[method-assign]
    config.pluginmanager.register(session, "kernel-actions-tools")

    def stop() -> None:
        subprocess.Popen.__init__ = start_process  # type: ignore[method-assign]
        os.environ["PATH"] = session.whole_path
        os.environ.pop(_WHOLE_PATH, None)
        _current.remove(session)
        session.close()

    config.add_cleanup(stop)


def left_out(reports: list[pytest.TestReport]) -> Iterator[str]:
    """The lines that say how many tests were left out for want of each tool, and how to install them."""
    counts: Counter[str] = Counter()
    total = 0
    for report in reports:
        reason = report.longrepr[2].removeprefix("Skipped: ") if isinstance(report.longrepr, tuple) else ""
        found = _REASON.match(reason)
        total += 1
        counts.update(found["names"].split(", ") if found else ["something else (pytest -rs names it)"])
    if not counts:
        return
    yield f"left out: {_tests(total)}, as this machine lacks"
    width = max(map(len, counts))
    for name, count in counts.most_common():
        can = "" if name not in TOOLS else INSTALLER if TOOLS[name].packages else "to be installed by you"
        yield f"  {name:<{width}}  {_tests(count)}{f'  ({can})' if can else ''}"
    if any(name in TOOLS and TOOLS[name].packages for name in counts):
        yield f"to install what is missing: {INSTALLER}"


def _tests(count: int) -> str:
    return f"{count} test{'' if count == 1 else 's'}"
