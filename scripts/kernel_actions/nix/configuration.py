"""nix.conf: what stands in it, what is to stand in it, and what Nix makes of it.

The order in which Nix reads is in its ``loadConfFile``: the system's nix.conf, then the files of the user
from the last to the first, then NIX_CONFIG; what is read later wins, and ``extra-`` appends. A daemon reads
the system's nix.conf alone, when it starts, and takes of a client that it does not trust little more than
substituters that it has in its own list (``ClientSettings::apply``).
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from kernel_actions import process
from kernel_actions.errors import Place, WrongSurroundings, printable
from kernel_actions.nix import cli

# Where the builder's own CI puts what it builds: huggingface/kernels, flake.nix.
BUILDER_CACHE = "https://huggingface.cachix.org"
BUILDER_KEY = "huggingface.cachix.org-1:ynTPbLS0W8ofXd9fDjk1KvoFky9K2jhxe6r4nXAkc/o="
# The settings that are shown, in this order.
SHOWN = (
    "experimental-features",
    "substituters",
    "trusted-public-keys",
    "sandbox",
    "sandbox-fallback",
    "max-jobs",
    "cores",
    "min-free",
    "max-free",
    "http-connections",
    "connect-timeout",
    "stalled-download-timeout",
    "keep-going",
    "build-users-group",
)
LISTS = frozenset({"experimental-features", "substituters", "trusted-public-keys", "trusted-users"})
# What a daemon takes from its own configuration alone, and what that and the client's have to say both.
_RESTRICTED = frozenset(
    {
        "extra-trusted-public-keys",
        "sandbox",
        "sandbox-fallback",
        "min-free",
        "max-free",
        "http-connections",
        "stalled-download-timeout",
        "narinfo-cache-negative-ttl",
    }
)
_SHARED = frozenset({"extra-experimental-features", "extra-substituters"})
# What a version of Nix says of a command that is another version's.
_OTHER = "is not a recognised command"
# What has the last word.
VARIABLE = "NIX_CONFIG"
HEADER = "# Written by `kernel-actions setup-nix`, which writes it anew each time.\n"
# Memory that a thread of nvcc takes when it compiles a kernel's templates, in bytes.
NVCC_THREAD = 5_000_000_000
# With more threads than this, several derivations are built at once.
_THREADS_OF_A_JOB = 16
_GIGABYTE = 1_000_000_000
_DEEPEST_INCLUDE = 20
# Even a daemon that collects garbage answers in this time, in seconds.
_PATIENCE = 60.0
# Where installers put Nix. A runner that was started before it was installed has none of them on its PATH.
_PLACES = (
    "/nix/var/nix/profiles/default/bin",
    "~/.nix-profile/bin",
    "~/.local/state/nix/profile/bin",
    "/run/current-system/sw/bin",
)


class Setting(NamedTuple):
    """A line of a nix.conf: ``value`` has its words, ``place`` is where it stands."""

    name: str
    value: str
    place: Place


class Machine(NamedTuple):
    """What settings depend on: ``cores``, ``memory`` and ``disk`` (of the store's file system) in bytes."""

    cores: int
    memory: int
    disk: int
    is_macos: bool = False


class Found(NamedTuple):
    """An installed Nix. ``flavour`` is what it calls itself: Nix, Lix, Determinate Nix."""

    folder: Path
    flavour: str
    version: str
    is_on_path: bool

    @property
    def number(self) -> tuple[int, int]:
        """Major and minor version."""
        major, minor, *_ = [*self.version.split("."), "0", "0"]
        return int(major), int(re.match(r"\d*", minor)[0] or 0)  # type: ignore[index]


class Store(NamedTuple):
    """What ``nix store ping`` tells: ``refused`` are substituters that the daemon does not take from this
    user; ``trusted`` is ``None`` where Nix does not tell."""

    url: str
    trusted: bool | None
    refused: tuple[str, ...]

    @property
    def is_daemon(self) -> bool:
        """Whether a daemon works for this user."""
        return self.url == "daemon" or self.url.startswith("unix:")

    @property
    def is_own(self) -> bool:
        """Whether this user's own processes work on it, with the settings that Nix shows."""
        return self.url.startswith(("local", "/"))


def find() -> Found | None:
    """The Nix that is installed, on the PATH or where installers put it. ``None`` without one.

    Raises ``WrongSurroundings`` when it does not start.
    """
    on_path = shutil.which("nix")
    places = [Path(place).expanduser() for place in _PLACES]
    folder = Path(on_path).parent if on_path else next((one for one in places if _is_nix(one)), None)
    if folder is None:
        return None
    finished = process.run([folder / "nix", "--version"], time_limit=_PATIENCE)
    found = re.search(r"^nix \(([^)]*)\) (\d\S*)", finished.output, re.MULTILINE)
    if finished.returncode != 0 or found is None:
        said = printable(finished.output)[:200] or f"exit code {finished.returncode}"
        raise WrongSurroundings(f"{folder}/nix does not start: {said}", repair="install Nix again")
    flavour = found[1].partition(",")[0]
    return Found(folder, re.sub(r" [\d.]+$", "", flavour), found[2], bool(on_path))


def _is_nix(folder: Path) -> bool:
    return os.access(folder / "nix", os.X_OK)


def read(path: Path, read_text: Callable[[Path], str] | None = None) -> list[Setting]:
    """The lines of a nix.conf in the order in which Nix takes them, those of included files in their place.

    Like Nix, takes a file that cannot be read for empty. Raises ``WrongSurroundings`` for a line that Nix
    refuses, and for an ``include`` of a file that is not there.
    """
    return list(_lines(path, read_text or _text, 0))


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


def _lines(path: Path, read_text: Callable[[Path], str], depth: int) -> Iterable[Setting]:
    try:
        text = read_text(path)
    except OSError:
        return
    if depth > _DEEPEST_INCLUDE:
        raise WrongSurroundings("includes itself", where=Place(path), repair="remove that include")
    for number, line in enumerate(text.split("\n"), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        where = Place(path, number)
        if words[0] in ("include", "!include") and len(words) == 2:
            other = path.parent / words[1]
            if other.exists():
                yield from _lines(other, read_text, depth + 1)
            elif words[0] == "include":
                raise WrongSurroundings(f"includes {other}, which is not there", where=where)
        elif len(words) < 2 or words[1] != "=":
            raise WrongSurroundings("Nix refuses this line", where=where, repair="write it as: name = value")
        else:
            yield Setting(words[0], " ".join(words[2:]), where)


def folded(settings: Iterable[Setting]) -> dict[str, str]:
    """The values that ``settings`` come to: later ones win, and ``extra-`` appends."""
    values: dict[str, str] = {}
    for name, value, _ in settings:
        if name.startswith("extra-"):
            base = name.removeprefix("extra-")
            values[base] = f"{values.get(base, '')} {value}".strip()
        else:
            values[name] = value
    return values


def origin(settings: Iterable[Setting], name: str) -> Place | None:
    """The line that has the last word on the setting ``name``; ``None`` where none has."""
    places = [one.place for one in settings if one.name.removeprefix("extra-") == name]
    return places[-1] if places else None


def system_conf(environment: Mapping[str, str]) -> Path:
    """The nix.conf of the system, which a daemon reads too."""
    return Path(environment.get("NIX_CONF_DIR") or "/etc/nix") / "nix.conf"


def conf_for_others(conf: Path) -> Path:
    """The file of the system's nix.conf that is for everybody's settings.

    Determinate's daemon writes nix.conf anew, and includes nix.custom.conf, which need not be there.
    """
    custom = conf.with_name("nix.custom.conf")
    try:
        includes = re.search(r"^\s*!?include\s+(?:\S*/)?nix\.custom\.conf\s*$", _text(conf), re.MULTILINE)
    except OSError:
        includes = None
    return custom if includes else conf


def is_managed(conf: Path) -> bool:
    """Whether a nix.conf is made by another configuration, as on NixOS: then it is not for writing."""
    return conf.is_symlink() and "/nix/store" in str(conf.resolve())


def user_confs(environment: Mapping[str, str]) -> list[Path]:
    """The user's nix.conf files, the one that wins first."""
    listed = environment.get("NIX_USER_CONF_FILES")
    if listed is not None:
        return [Path(one) for one in listed.split(":") if one]
    home = environment.get("HOME", "")
    first = environment.get("XDG_CONFIG_HOME") or (f"{home}/.config" if home else "")
    others = (environment.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(":")
    return [Path(folder) / "nix" / "nix.conf" for folder in (first, *others) if folder]


def own_conf(environment: Mapping[str, str]) -> Path | None:
    """The nix.conf that is this user's alone, and wins over the others; ``None`` without a home folder."""
    if "NIX_USER_CONF_FILES" not in environment:
        environment = {**environment, "XDG_CONFIG_DIRS": ":"}
    files = user_confs(environment)
    return files[0] if files else None


def read_all(environment: Mapping[str, str]) -> list[Setting]:
    """All settings of files, and of the variable NIX_CONFIG, in the order in which a client takes them."""
    files = [system_conf(environment), *reversed(user_confs(environment))]
    settings = [one for file in files for one in read(file)]
    text = environment.get(VARIABLE, "")
    return settings + read(Path(VARIABLE), lambda path: text if path == Path(VARIABLE) else _text(path))


def jobs_and_cores(cores: int, memory: int, per_thread: int = NVCC_THREAD) -> tuple[int, int]:
    """``max-jobs`` and ``cores`` such that as many threads of nvcc fit into ``memory`` bytes.

    Nix runs ``max-jobs`` builds at once, each with ``cores`` threads; the builder divides a build's threads
    between compilers and nvcc's own, so their product bounds all.
    """
    threads = max(1, min(cores, memory // per_thread))
    jobs = max(1, threads // _THREADS_OF_A_JOB)
    return jobs, threads // jobs


def free_space(disk: int) -> tuple[int, int]:
    """``min-free`` and ``max-free`` for a file system of ``disk`` bytes: below the first, Nix deletes what
    nothing refers to until the second is free."""
    least = min(5 * _GIGABYTE, disk // 20)
    return least, 2 * least


def machine(store_dir: Path) -> Machine:
    """This machine, as far as the control group of a container lets it be used."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    group = Path("/sys/fs/cgroup")
    limit = _first_word(group / "memory.max") or _first_word(group / "memory/memory.limit_in_bytes")
    if limit.isdigit():
        memory = min(memory, int(limit))
    quota = _first_word(group / "cpu.max")
    if quota.isdigit():
        period = int((group / "cpu.max").read_text().split()[1])
        cores = min(cores, max(1, int(quota) // period))
    folder = store_dir
    while not folder.exists():
        folder = folder.parent
    return Machine(cores, memory, shutil.disk_usage(folder).total, os.uname().sysname == "Darwin")


def _first_word(path: Path) -> str:
    try:
        return path.read_text().split()[0]
    except (OSError, IndexError):
        return ""


def wanted(
    machine: Machine,
    others: Mapping[str, str],
    substituters: Sequence[str],
    keys: Sequence[str],
    *,
    jobs: int = 0,
    cores: int = 0,
    requires_sandbox: bool = True,
) -> list[tuple[str, str]]:
    """The lines of nix.conf that builds need, for a ``machine`` with the settings ``others``.

    What others have set is kept: lists are extended, numbers of jobs and cores only lowered (``jobs`` and
    ``cores`` over 0 are taken as they are), and the rest is set where nobody has. The sandbox is no matter of
    taste: it is set in any case. No line makes a user trusted, who then could do what root can.
    """
    fitting_jobs, fitting_cores = jobs_and_cores(machine.cores, machine.memory)
    min_free, max_free = free_space(machine.disk)
    lines = [
        ("extra-experimental-features", " ".join(cli.FEATURES)),
        ("extra-substituters", " ".join(substituters)),
        ("extra-trusted-public-keys", " ".join(keys)),
        # Metal's compiler is outside of any sandbox: the builder's derivations ask for relaxed there.
        ("sandbox", "relaxed" if machine.is_macos else "true"),
        ("sandbox-fallback", "false" if requires_sandbox else "true"),
        ("max-jobs", str(jobs or _lowered(others.get("max-jobs", ""), fitting_jobs))),
        ("cores", str(cores or _lowered(others.get("cores", ""), fitting_cores))),
    ]
    for name, value in (
        ("min-free", str(min_free)),
        ("max-free", str(max_free)),
        ("http-connections", "50"),
        ("connect-timeout", "15"),
        ("stalled-download-timeout", "60"),
        # A job's other variants are built although one fails.
        ("keep-going", "true"),
        # What another job has just pushed is found.
        ("narinfo-cache-negative-ttl", "60"),
    ):
        if name not in others:
            lines.append((name, value))
    return [(name, value) for name, value in lines if value]


def _lowered(set_by_others: str, fitting: int) -> int:
    """The number that others have set where it is lower; 0 and ``auto`` mean all cores."""
    return min(int(set_by_others), fitting) if set_by_others.isdigit() and int(set_by_others) else fitting


def for_system(lines: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Those of ``lines`` that a daemon needs in its own configuration: the others hold for one job alone."""
    shared = _RESTRICTED | _SHARED
    return [(name, value) for name, value in lines if name in shared]


def for_client(lines: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Those of ``lines`` that a daemon takes from a user whom it does not trust; it warns of each other."""
    return [(name, value) for name, value in lines if name not in _RESTRICTED]


def united(lines: Iterable[tuple[str, str]], before: Mapping[str, str]) -> list[tuple[str, str]]:
    """``lines`` whose lists have the entries of ``before`` too, which another job has asked for."""
    result = []
    for name, value in lines:
        base = name.removeprefix("extra-")
        if base in LISTS:
            entries = dict.fromkeys([*before.get(base, "").split(), *value.split()])
            value = " ".join(entries)
        result.append((name, value))
    return result


def text(lines: Iterable[tuple[str, str]], *includes: str) -> str:
    """A nix.conf of ``lines`` that includes further files where they are there."""
    written = [f"{name} = {value}\n" for name, value in lines]
    return HEADER + "".join([*written, *(f"!include {name}\n" for name in includes)])


def with_include(content: str, name: str) -> str:
    """The nix.conf ``content`` that includes the file ``name`` last; as it is where it includes it."""
    line = f"!include {name}"
    if line in (one.strip() for one in content.splitlines()):
        return content
    return f"{content}{'' if not content or content.endswith(chr(10)) else chr(10)}{line}\n"


def without_token(content: str, token: str) -> str:
    """The nix.conf ``content`` without lines that hold ``token``."""
    return "".join(line for line in content.splitlines(keepends=True) if token not in line)


def effective(changes: Mapping[str, str] | None = None) -> dict[str, str]:
    """All settings as Nix has them; with ``changes`` to its environment, as it would have them.

    Raises ``WrongSurroundings`` when Nix does not tell, as for a nix.conf that it refuses.
    """
    # Named `config show` since 2.20; those with both print the same.
    for words in (("show-config",), ("config", "show")):
        # Whoever enables no features is to be told so by the answer.
        finished = process.run(
            ["nix", "--extra-experimental-features", "nix-command", *words],
            environment=cli.environment() | dict(changes or {}),
            time_limit=_PATIENCE,
        )
        pairs = [line.partition(" = ") for line in finished.output.splitlines() if " = " in line]
        if finished.returncode == 0 and pairs:
            return {name.strip(): value.strip() for name, _, value in pairs}
    raise WrongSurroundings(f"Nix does not show its configuration: {cli.reason(finished.output)}")


def of_system() -> dict[str, str]:
    """The settings that the system's nix.conf alone comes to, which are those of a daemon."""
    return effective({"NIX_USER_CONF_FILES": "", "NIX_CONFIG": ""})


def store(attempts: int = 1) -> Store:
    """The store that Nix works with. Raises ``WrongSurroundings`` when it cannot be reached.

    Further ``attempts`` come after a second each: another job may have its daemon start anew.
    """
    for attempt in range(attempts):
        if attempt:
            time.sleep(1.0)
        outputs = []
        # Named `store info` since 2.19.
        for verb in ("ping", "info"):
            finished = cli.run("store", verb, time_limit=_PATIENCE)
            outputs.append(finished.output)
            found = re.search(r"^Store URL: (\S+)", finished.output, re.MULTILINE)
            if finished.returncode == 0 and found is not None:
                trusted = re.search(r"^Trusted: (\d)", finished.output, re.MULTILINE)
                refused = re.findall(r"ignoring untrusted substituter '([^']+)'", finished.output)
                return Store(found[1], None if trusted is None else trusted[1] == "1", tuple(refused))
    said = next((one for one in outputs if _OTHER not in one), "")
    raise WrongSurroundings(
        f"Nix cannot use its store: {cli.reason(said)}",
        repair="start the Nix daemon, or run as the user who owns the store",
    )


def is_trusted(trusted_users: str, user: str, groups: Iterable[str]) -> bool:
    """Whether the setting ``trusted-users`` has ``user``, or one of its ``groups``."""
    listed = set(trusted_users.split())
    return "*" in listed or user in listed or any(f"@{group}" in listed for group in groups)


def this_user() -> tuple[str, list[str]]:
    """The name of the user who runs this, and those of its groups; numbers for those without a name."""
    import grp
    import pwd

    try:
        user = pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        user = str(os.geteuid())
    groups = []
    for number in {os.getegid(), *os.getgroups()}:
        try:
            groups.append(grp.getgrgid(number).gr_name)
        except KeyError:
            groups.append(str(number))
    return user, groups


def lacks_build_users(group: str) -> bool:
    """Whether root has nobody to build as: ``build-users-group`` is set, and has no members."""
    import grp

    if not group or os.geteuid() != 0:
        return False
    try:
        return not grp.getgrnam(group).gr_mem
    except KeyError:
        return True
