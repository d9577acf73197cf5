"""The command ``setup-nix``: configures the Nix that is there, and proves that builds will work.

It writes as little as will do: a file of the job, which goes with it; outside of a job the user's own
nix.conf gets an include; and only where a daemon takes nothing of that, the system's nix.conf does.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kernel_actions import built, console, github, markdown, process
from kernel_actions.errors import (
    EXIT_DONE,
    KernelActionsError,
    Place,
    WrongInput,
    WrongSurroundings,
)
from kernel_actions.nix import checks, cli, configuration, disk, namespaces, preflight
from kernel_actions.nix.configuration import Found, Setting, Store
from kernel_actions.nix.log import short_name

if TYPE_CHECKING:
    from kernel_actions.cli import Options

FILE = "kernel-actions.conf"
TOKENS = "access-tokens.conf"
CACHIX_API = "https://cachix.org/api/v1/cache"
_PIN = "give the key by trusted-public-keys; it is shown on https://app.cachix.org/cache/{name}"
_CACHE_NAME = re.compile(r"[a-z0-9][a-z0-9-]*")
_KEY = re.compile(r"[^\s:]+:[A-Za-z0-9+/]{43}=")
_ADDRESS = re.compile(r"(?:https?|file|s3|ssh|ssh-ng)://\S+|/\S*")
# nixpkgs refuses to be evaluated by an older one: lib/minver.nix.
_OLDEST_FOR_NIXPKGS = (2, 18)
_LARGEST_ANSWER = 100_000
_PATIENCE = 20.0
# Other jobs of the machine may write the system's file at the same time, the last of them wins.
_ATTEMPTS = 3


class Wish(NamedTuple):
    """What Nix is to use: caches, the keys that sign what they have, and the lines of nix.conf."""

    substituters: tuple[str, ...]
    keys: tuple[str, ...]
    lines: tuple[tuple[str, str], ...]
    requires_sandbox: bool


class State(NamedTuple):
    """What Nix uses. ``settings`` are the client's, ``system`` those of a daemon that takes none of them
    (else the client's), ``files`` the lines of all nix.conf, and ``sandbox`` what a build found out."""

    store: Store
    is_trusted: bool
    settings: dict[str, str]
    system: dict[str, str]
    files: tuple[Setting, ...]
    sandbox: tuple[str, str]

    @property
    def is_restricted(self) -> bool:
        """Whether a daemon works that takes few settings from this user."""
        return self.store.is_daemon and not self.is_trusted


def run(options: Options) -> int:
    """The command ``setup-nix``."""
    configuration.read_all(os.environ)  # Nix itself does not start with a line that it refuses.
    found = configuration.find()
    if options.find:
        return _tell_find(found, options.install)
    if found is None:
        raise WrongSurroundings(
            "Nix is not installed, and install is false" if github.is_actions() else "Nix is not installed",
            repair="see https://nixos.org/download" if not github.is_actions() else "set install: true",
        )
    _use(found)
    _mask(options)
    substituters, keys = _caches(options)
    freed = _free_disk(options)
    wish, state = _configure(options, substituters, keys)
    problems = differences(wish, state)
    _warn_of_threads(wish, state)
    if problems and not options.check_only and state.is_restricted:
        state = _configure_system(wish, state)
        problems = differences(wish, state)
    rows = _settings_rows(state)
    rows_of_caches, failures = _ask_caches(wish, state)
    shown: dict[str, Any] = {
        "nix": {"version": found.version, "flavour": found.flavour, "path": str(found.folder / "nix")},
        "store": {"url": state.store.url, "trusted": state.is_trusted},
        "sandbox": state.sandbox[0],
        "settings": {name: value for name, value, _ in rows},
        "caches": dict(rows_of_caches),
        "freed": dict(freed),
    }
    heading = f"{found.flavour} {found.version}, {_store_name(state)}, sandbox {state.sandbox[0]}"
    tables = [
        (heading, ("setting", "value", "from"), rows),
        ("Caches", ("cache", "answer"), rows_of_caches),
    ]
    if freed:
        tables.append(
            ("Disk space freed", ("folder", "size"), [(name, console.size(size)) for name, size in freed])
        )
    plan_problems: list[KernelActionsError] = []
    if options.variants and not problems and not failures:
        more, plan_problems = _preflight(
            options, found.version, state, shown, was_freed=bool(options.free_disk)
        )
        tables += more
    problems_of_all = [*problems, *failures, *plan_problems]
    _show(options, tables, shown, problems_of_all)
    _set_outputs(options, found, state, shown)
    if found.number < _OLDEST_FOR_NIXPKGS:
        _warn(
            f"{found.flavour} {found.version} is too old to evaluate nixpkgs, and with it the builder",
            "install 2.18 or newer",
        )
    _fail(problems_of_all)
    return EXIT_DONE


def _tell_find(found: Found | None, install: bool) -> int:
    """Tell the action whether to install Nix, and put one on the PATH that is not."""
    if found is None:
        print("Nix is not installed")
    else:
        print(f"{found.flavour} {found.version} is in {found.folder}")
        if not found.is_on_path:
            github.add_path(str(found.folder))
    github.set_outputs({"install": "true" if found is None and install else "false"})
    return EXIT_DONE


def _use(found: Found) -> None:
    """Have this process, and the steps after it, find Nix by its name."""
    if not found.is_on_path:
        os.environ["PATH"] = f"{found.folder}:{os.environ.get('PATH', '')}"
        github.add_path(str(found.folder))


def _mask(options: Options) -> None:
    for secret in (options.github_token, options.cachix_token):
        if secret and secret != "none":
            github.mask(secret)
            if not re.fullmatch(r"[!-~]+", secret):
                raise WrongInput("a token has white space in it, or a letter that is not ASCII")


def _caches(options: Options) -> tuple[list[str], list[str]]:
    """The caches to use and the keys to trust: the builder's, those given, and the one at Cachix."""
    substituters = [configuration.BUILDER_CACHE] if options.builder_cache else []
    keys = [configuration.BUILDER_KEY] if options.builder_cache else []
    for substituter in options.substituters:
        if not _ADDRESS.fullmatch(substituter):
            raise WrongInput(
                f"substituters has {_shown(substituter)!r}, which is no address of a cache",
                repair="as in https://…",
            )
        if _shown(substituter) != substituter:
            raise WrongInput(
                f"substituters has an address with a password in it: {_shown(substituter)}",
                repair="put it into a netrc file, which netrc-file of nix.conf names, as others read that",
            )
        substituters.append(substituter)
    for key in options.trusted_public_keys:
        if not _KEY.fullmatch(key):
            raise WrongInput(
                f"trusted-public-keys has {key[:80]!r}, which is no public key",
                repair="as in name-1:… with 44 letters of base 64",
            )
        keys.append(key)
    name = options.cachix
    if name:
        if not _CACHE_NAME.fullmatch(name):
            raise WrongInput(f"cachix is {name!r}, which is no name of a cache", repair="as in my-kernels")
        substituters.append(f"https://{name}.cachix.org")
        pinned = any(key.startswith(f"{name}.cachix.org-") for key in keys)
        if options.cachix_token or not pinned:
            answer = _ask_cachix(name, options.cachix_token)
            keys += [] if pinned else _keys_of(answer, name)
            _check_push(answer, name, options.cachix_token)
    elif options.cachix_token:
        raise WrongInput("there is a cachix-token, and no cache to push to", repair="name it by cachix")
    return list(dict.fromkeys(substituters)), list(dict.fromkeys(keys))


def _ask_cachix(name: str, token: str) -> dict[str, Any]:
    """What Cachix tells of a cache. KA_CACHIX_API names another to ask."""
    import http.client
    import urllib.error
    import urllib.request

    request = urllib.request.Request(f"{os.environ.get('KA_CACHIX_API') or CACHIX_API}/{name}")
    if token:
        request.add_unredirected_header("Authorization", f"Bearer {token}")
    repair = _PIN.format(name=name)
    try:
        with urllib.request.urlopen(request, timeout=_PATIENCE) as answer:
            value = json.loads(answer.read(_LARGEST_ANSWER))
    except urllib.error.HTTPError as error:
        if error.code in (401, 403) and token:
            what, repair = (
                f"Cachix does not take cachix-token for {name}",
                "make a new one, and store it as a secret",
            )
        elif error.code in (401, 403, 404):
            what = f"there is no public cache {name} at Cachix"
        else:
            what = f"Cachix answers {error.code} when asked for {name}"
        raise WrongSurroundings(what, repair=repair) from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise WrongSurroundings(f"Cachix cannot be asked for {name}: {error}", repair=repair) from error
    return value if isinstance(value, dict) else {}


def _keys_of(answer: dict[str, Any], name: str) -> list[str]:
    """The public keys of a cache, of which Cachix has told."""
    keys = answer.get("publicSigningKeys")
    valid = [key for key in keys or [] if isinstance(key, str) and _KEY.fullmatch(key)]
    if not valid:
        raise WrongSurroundings(f"Cachix tells no key of {name}", repair=_PIN.format(name=name))
    console.say(f"Cachix gives {name} the key {valid[0]}: trusted-public-keys can pin it")
    return valid


def _check_push(answer: dict[str, Any], name: str, token: str) -> None:
    """Raise ``WrongSurroundings`` where ``build`` will not be able to push with ``token``."""
    permission = answer.get("permission")
    if token and permission not in (None, "Write", "Admin"):
        raise WrongSurroundings(
            f"cachix-token may not push to {name}: Cachix gives it the permission {permission}",
            repair="make one with the permission to write",
        )
    if token and shutil.which("cachix") is None:
        raise WrongSurroundings(
            "there is a cachix-token, and no program cachix to push with",
            repair="install it in a step before: nix profile install nixpkgs#cachix",
        )


def _free_disk(options: Options) -> list[tuple[str, int]]:
    if not options.free_disk or options.check_only:
        return []
    if not disk.is_hosted(os.environ):
        _warn(
            "free-disk removes nothing here",
            "it is for runners of GitHub; others may use what is installed on this machine",
        )
        return []
    with github.group("Freeing disk space"):
        freed = disk.free()
    console.say(f"Freed {console.size(sum(size for _, size in freed))}")
    return freed


def _configure(options: Options, substituters: Sequence[str], keys: Sequence[str]) -> tuple[Wish, State]:
    """Write what is wanted where it concerns nobody else, and ask Nix what came of it."""
    files = configuration.read_all(os.environ)
    # Without what an earlier run has written, so that a second one comes to the same.
    others = [one for one in files if one.place.path.name != FILE]
    store_dir = Path(os.environ.get("NIX_STORE_DIR") or "/nix/store")
    lines = configuration.wanted(
        configuration.machine(store_dir),
        configuration.folded(others),
        substituters,
        keys,
        jobs=options.build_jobs,
        cores=options.build_cores,
        requires_sandbox=options.require_sandbox,
    )
    build_users = configuration.folded(others).get("build-users-group", "nixbld")
    if configuration.lacks_build_users(build_users):
        lines.append(("build-users-group", ""))
    wish = Wish(tuple(substituters), tuple(keys), tuple(lines), options.require_sandbox)
    if not options.check_only:
        store = configuration.store(_ATTEMPTS)
        is_restricted = store.is_daemon and not _is_trusted(store, configuration.effective())
        own = configuration.for_client(lines) if is_restricted else lines
        if github.is_actions() and os.environ.get("RUNNER_TEMP"):
            _write_for_job(options, own)
        else:
            _write_for_user(own)
    return wish, _state(options.require_sandbox)


def _is_trusted(store: Store, settings: dict[str, str]) -> bool:
    """Whether the daemon of ``store`` trusts this user: as it says, or by the configuration that it has."""
    if store.trusted is not None:
        return store.trusted
    return configuration.is_trusted(settings.get("trusted-users", "root"), *configuration.this_user())


def _write_for_job(options: Options, lines: Sequence[tuple[str, str]]) -> None:
    """A nix.conf of the job, which the runner removes with its other temporary files when the job ends."""
    folder = Path(os.environ["RUNNER_TEMP"]) / "kernel-actions" / "nix"
    if re.search(r"[:\n]", str(folder)):
        raise WrongSurroundings(
            "has a colon, or ends a line, in its name: Nix cannot be told of a file there",
            where=Place(folder),
            repair="give the runner another folder for its work",
        )
    try:
        _write_files_of_job(folder, options, lines)
    except OSError as error:
        raise WrongSurroundings(
            f"the job's nix.conf cannot be written: {error.strerror}",
            where=Place(folder),
            repair="see to it that the runner's temporary folder (RUNNER_TEMP) is there, and has space",
        ) from error
    path = folder / FILE
    others = [one for one in configuration.user_confs(os.environ) if one != path]
    listed = ":".join(map(str, [path, *others]))
    os.environ["NIX_USER_CONF_FILES"] = listed
    github.set_variables({"NIX_USER_CONF_FILES": listed})


def _write_files_of_job(folder: Path, options: Options, lines: Sequence[tuple[str, str]]) -> None:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    token = options.github_token
    if token and token != "none":
        host = re.sub(r"^https?://", "", os.environ.get("GITHUB_SERVER_URL") or "https://github.com")
        # Nobody but this user can ever read it.
        text = f"access-tokens = {host.strip('/')}={token}\n"
        built.write_whole(folder / TOKENS, text.encode(), mode=0o600)
        _take_out(token)
    else:
        (folder / TOKENS).unlink(missing_ok=True)
    built.write_changed(folder / FILE, configuration.text(lines, TOKENS))


def _take_out(token: str) -> None:
    """Remove the job's token from the system's nix.conf, which everybody can read.

    The installer puts it there.
    """
    path = configuration.system_conf(os.environ)
    try:
        content = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return
    without = configuration.without_token(content, token)
    if without != content:
        _write_as_root(path, without)


def _write_for_user(lines: Sequence[tuple[str, str]]) -> None:
    """A file of its own beside the user's nix.conf, which includes it."""
    conf = configuration.own_conf(os.environ)
    if conf is None:
        raise WrongSurroundings("there is no home folder for a nix.conf", repair="set HOME")
    try:
        conf.parent.mkdir(parents=True, exist_ok=True)
        with process.locked(conf.with_name(f".{FILE}.lock"), "Another command configures Nix"):
            built.write_changed(conf.with_name(FILE), configuration.text(lines))
            content = conf.read_text(encoding="utf-8") if conf.exists() else ""
            target = conf.resolve()
            built.write_changed(target, configuration.with_include(content, str(_beside(conf, target))))
    except OSError as error:
        raise WrongSurroundings(
            f"cannot be written: {error.strerror}",
            where=Place(conf),
            repair="put there, by what manages it: "
            + "; ".join(f"{name} = {value}" for name, value in lines),
        ) from error


def _beside(conf: Path, target: Path) -> Path | str:
    """How ``target``, the nix.conf that ``conf`` may be a link to, includes the file beside ``conf``."""
    return FILE if target.parent == conf.parent.resolve() else conf.with_name(FILE)


def _configure_system(wish: Wish, state: State) -> State:
    """Write what the daemon takes from the system's nix.conf alone, and have it read that."""
    lines = configuration.for_system(wish.lines)
    conf = configuration.conf_for_others(configuration.system_conf(os.environ))
    may_write = os.access(conf.parent, os.W_OK) or (github.is_actions() and disk.can_be_root())
    if configuration.is_managed(conf) or not may_write:
        return state
    for _ in range(_ATTEMPTS):
        drop_in = conf.with_name(FILE)
        before = configuration.folded(configuration.read(drop_in))
        text = configuration.text(configuration.united(lines, before))
        _write_as_root(drop_in, text)
        content = conf.read_text(encoding="utf-8") if conf.exists() else ""
        _write_as_root(conf, configuration.with_include(content, FILE))
        _restart_daemon()
        state = _state(wish.requires_sandbox)
        if not differences(wish, state):
            break
    return state


def _restart_daemon() -> None:
    """Have the daemon read its nix.conf, which it does when it starts."""
    root = disk.as_root()
    attempts = (
        [*root, "systemctl", "restart", "nix-daemon.service"],
        [*root, "launchctl", "kickstart", "-k", "system/org.nixos.nix-daemon"],
        [*root, "launchctl", "kickstart", "-k", "system/systems.determinate.nix-daemon"],
    )
    for attempt in attempts:
        if shutil.which(attempt[len(root)]) and process.run(attempt, time_limit=60.0).returncode == 0:
            return
    console.say("The Nix daemon was not restarted: there is no service of it")


def _state(requires_sandbox: bool) -> State:
    """What Nix uses now."""
    store = configuration.store(_ATTEMPTS)
    settings = configuration.effective()
    trusted = _is_trusted(store, settings)
    is_restricted = store.is_daemon and not trusted
    system = configuration.of_system() if is_restricted else settings
    is_macos = sys.platform == "darwin"
    if is_macos:
        # A sandbox of macOS shows the files outside of it: the setting has to do.
        sandbox: tuple[str, str] = ("off" if system.get("sandbox") == "false" else "on", "as it is set")
    else:
        sandbox = preflight.sandbox(settings.get("system", "x86_64-linux"))
    files = configuration.read_all(os.environ)
    return State(store, trusted, settings, system, tuple(files), sandbox)


def differences(wish: Wish, state: State) -> list[KernelActionsError]:
    """Where Nix does not use what it is to: each is an error with the line to add, to which file, by whom."""
    problems: list[KernelActionsError] = []
    conf = configuration.conf_for_others(configuration.system_conf(os.environ))

    def to_add(line: str) -> str:
        if state.is_restricted:
            if configuration.is_managed(conf):
                name, _, value = line.removeprefix("extra-").partition(" = ")
                values = " ".join(f'"{one}"' for one in value.split())
                listed = f"[ {values} ]" if name in configuration.LISTS else value
                return f"have an administrator add to configuration.nix: nix.settings.{name} = {listed};"
            return f"have root add to {conf}: {line} — and restart nix-daemon"
        return f"add to {configuration.own_conf(os.environ) or conf}: {line}"

    def overruled(name: str) -> str:
        variable = Path(configuration.VARIABLE)
        is_set = any(one.name == name and one.place.path == variable for one in state.files)
        return f": {variable} says otherwise" if is_set else ""

    features = set(state.settings.get("experimental-features", "").split())
    missing = [one for one in cli.FEATURES if one not in features]
    if missing:
        problems.append(
            WrongSurroundings(
                f"Nix has not enabled {' and '.join(missing)}{overruled('experimental-features')}",
                repair=to_add(f"extra-experimental-features = {' '.join(missing)}"),
            )
        )
    used = {_plain(one) for one in state.settings.get("substituters", "").split()}
    refused = {_plain(one) for one in state.store.refused}
    for substituter in wish.substituters:
        if _plain(substituter) in refused:
            what = f"the Nix daemon ignores the cache {substituter}: this user is not trusted"
        elif _plain(substituter) not in used:
            what = f"Nix does not use the cache {substituter}{overruled('substituters')}"
        else:
            continue
        problems.append(WrongSurroundings(what, repair=to_add(f"extra-substituters = {substituter}")))
    trusted_keys = state.system.get("trusted-public-keys", "").split()
    for key in wish.keys:
        if key not in trusted_keys:
            who = "the Nix daemon" if state.is_restricted else "Nix"
            problems.append(
                WrongSurroundings(
                    f"{who} does not trust the key {key.partition(':')[0]}{overruled('trusted-public-keys')}",
                    repair=to_add(f"extra-trusted-public-keys = {key}"),
                )
            )
    problem = _sandbox_problem(state, to_add, overruled("sandbox"))
    if problem is not None:
        if wish.requires_sandbox:
            problems.append(problem)
        else:
            _warn(problem.what, "what is built so must not be published")
    return problems


def _sandbox_problem(state: State, to_add: Callable[[str], str], why: str) -> KernelActionsError | None:
    """The error of builds that are not in a sandbox; ``None`` where they are."""
    found, said = state.sandbox
    if found == "off":
        place = configuration.origin(state.files, "sandbox")
        shown = why or (f", as {place} says" if place is not None and place.path.name != FILE else "")
        return WrongSurroundings(f"builds are in no sandbox{shown}", repair=to_add("sandbox = true"))
    if found == "unavailable":
        return WrongSurroundings(
            f"the sandbox cannot be used here: {said}",
            repair=f"{namespaces.repair()}; require-sandbox: false builds without, not to be published",
        )
    return None


def _warn_of_threads(wish: Wish, state: State) -> None:
    """Warn where more is built at once than the memory is enough for, as something else has the last word."""
    wanted = dict(wish.lines)
    for name in ("max-jobs", "cores"):
        used = state.settings.get(name, "")
        if used.isdigit() and name in wanted and not 1 <= int(used) <= int(wanted[name]):
            place = configuration.origin(state.files, name)
            _warn(
                f"{name} is {used}, as {place or 'Nix'} says, and the memory is enough for {wanted[name]}",
                "lower it there, or leave it out: builds may be killed",
            )


def _shown(text: str) -> str:
    """``text`` without the passwords of its addresses."""
    return process.without_credentials(text)


def _plain(substituter: str) -> str:
    """An address without what does not tell caches apart."""
    return substituter.partition("?")[0].rstrip("/")


def _settings_rows(state: State) -> list[tuple[str, str, str]]:
    """The effective settings, each with the line it comes from."""
    rows = []
    for name in configuration.SHOWN:
        source = state.system if state.is_restricted and name not in ("max-jobs", "cores") else state.settings
        if name not in source:
            continue
        place = configuration.origin(state.files, name)
        is_ours = place is not None and place.path.name == FILE
        rows.append((name, _shown(source[name]), "setup-nix" if is_ours else str(place or "default")))
    return rows


def _store_name(state: State) -> str:
    if not state.store.is_daemon:
        return f"store {state.store.url}"
    return f"daemon, which {'trusts' if state.is_trusted else 'does not trust'} this user"


def _ask_caches(wish: Wish, state: State) -> tuple[list[tuple[str, str]], list[KernelActionsError]]:
    """What each cache answers. One that was asked for has to; those of others are only told about."""
    rows: list[tuple[str, str]] = []
    failures: list[KernelActionsError] = []
    asked_for = {_plain(one) for one in wish.substituters}
    source = state.system if state.is_restricted else state.settings
    listed = [*source.get("substituters", "").split(), *wish.substituters]
    for cache in {_plain(one): one for one in reversed(listed)}.values():
        failure = preflight.cache_failure(cache)
        cache = _shown(cache)
        rows.append((cache, failure or "it answers"))
        if not failure:
            continue
        if _plain(cache) in asked_for:
            failures.append(
                WrongSurroundings(
                    f"the cache {cache} does not answer: {failure}",
                    repair="check its address and the network, then run again"
                    + ("; builder-cache: false goes without" if cache == configuration.BUILDER_CACHE else ""),
                )
            )
        else:
            _warn(f"the cache {cache} does not answer: {failure}", "what it has will be built")
    rows.reverse()
    return rows, failures


def _preflight(
    options: Options, version: str, state: State, shown: dict[str, Any], *, was_freed: bool
) -> tuple[list[Any], list[KernelActionsError]]:
    """What builds of the wanted variants will fetch and build: tables to show, and what is in their way."""
    kernel_dir = options.kernel_dir
    source = state.system if state.is_restricted else state.settings
    with checks.address(kernel_dir, version) as reference:
        plan = preflight.dry_run(kernel_dir, options.variants, reference)
    caches = source.get("substituters", "").split()
    wrong, _ = preflight.unverified(plan.fetched, caches, source.get("trusted-public-keys", ""))
    compiled = preflight.heavy([*plan.built, *(one.path for one in wrong)])
    store_dir = Path(os.environ.get("NIX_STORE_DIR") or "/nix/store")
    build_dir = Path(source.get("build-dir") or os.environ.get("TMPDIR") or tempfile.gettempdir())
    jobs = source.get("max-jobs", "1")
    spaces = disk.spaces(
        disk.needs(
            plan.unpacked,
            len(options.variants),
            len(plan.built),
            store=store_dir,
            build_dir=build_dir,
            kernel_dir=kernel_dir,
            jobs=int(jobs) if jobs.isdigit() else 1,
        )
    )
    signed = (
        "nothing to verify"
        if not plan.fetched
        else f"{len(plan.fetched) - len(wrong)} of {console.counted(len(plan.fetched), 'path')}"
    )
    rows = [*preflight.rows(plan), ("signatures", signed)]
    rows += [
        (f"disk of {', '.join(map(str, one.paths))}",
         f"{console.size(one.needed)} needed ({one.what}), {console.size(one.free)} free")
        for one in spaces
    ]  # fmt: skip
    shown["plan"] = {
        "variants": list(options.variants),
        "fetched": list(plan.fetched),
        "built": list(plan.built),
        "download": plan.download,
        "unpacked": plan.unpacked,
        "unverified": [one._replace(cache=_shown(one.cache))._asdict() for one in wrong],
        "disk": [
            {"paths": [str(path) for path in one.paths], "needed": one.needed, "free": one.free}
            for one in spaces
        ],
    }
    problems: list[KernelActionsError] = []
    for cache in dict.fromkeys(one.cache for one in wrong):
        of_cache = [one for one in wrong if one.cache == cache]
        signers = sorted({name for one in of_cache for name in one.signers})
        by = f"by {', '.join(signers)}" if signers else "by nobody"
        paths = console.counted(len(of_cache), "path")
        others = " and others" if len(of_cache) > 1 else ""
        problems.append(
            WrongSurroundings(
                f"the cache {_shown(cache)} has {paths} signed {by}, and by no trusted key: "
                f"Nix would build {short_name(of_cache[0].path)}{others}",
                repair="give the cache's key by trusted-public-keys"
                if signers
                else "have who pushes to the cache sign its paths",
            )
        )
    if compiled and not options.allow_compile:
        names = ", ".join(dict.fromkeys(name for name, _ in compiled[:4]))
        problems.append(
            WrongSurroundings(
                f"{compiled[0][1]} would be compiled, which takes hours: no cache has {names}",
                where=Place(kernel_dir / "flake.lock"),
                repair="pin a revision of the builder that its cache has, as nix flake update does; "
                "allow-compile: true compiles it all the same",
            )
        )
    try:
        disk.check(spaces, is_hosted=disk.is_hosted(os.environ), was_freed=was_freed)
    except WrongSurroundings as error:
        problems += error.all
    return [("Before the build", ("what", "found"), rows)], problems


def _show(
    options: Options,
    tables: Sequence[Any],
    shown: dict[str, Any],
    problems: Sequence[KernelActionsError],
) -> None:
    if options.format == "json":
        print(json.dumps(shown, indent=2))
        return
    for title, header, rows in tables:
        print(f"{title}\n\n{console.table(header, rows)}\n")
    if options.format == "github":
        heading = markdown.heading("failed" if problems else "passed", tables[0][0])
        # The settings are for looking up; what was found of the caches and the plan is for reading.
        settings, *others = (
            markdown.details(title if number else "Settings", markdown.table(header, rows))
            for number, (title, header, rows) in enumerate(tables)
        )
        listed = markdown.bullets(str(one) for one in problems)
        github.add_summary(markdown.join(heading, listed, *others, settings))


def _set_outputs(options: Options, found: Found, state: State, shown: dict[str, Any]) -> None:
    plan = shown.get("plan", {})
    github.set_outputs(
        {
            "version": found.version,
            "store": "daemon" if state.store.is_daemon else "local",
            "sandbox": state.sandbox[0],
            "settings": json.dumps(shown["settings"]),
            "download": str(plan.get("download", "")),
            "built": json.dumps([short_name(one) for one in plan["built"]]) if plan else "",
            "pushes": "true" if options.cachix_token else "false",
        }
    )


def _warn(what: str, repair: str) -> None:
    if github.is_actions():
        github.annotate("warning", f"{what} ({repair})", title="kernel-actions")
    else:
        console.say(f"Warning: {what} ({repair})")


def _fail(problems: Sequence[KernelActionsError]) -> None:
    if problems:
        first, *others = problems
        raise WrongSurroundings(first.what, where=first.where, repair=first.repair, others=tuple(others))


def _write_as_root(path: Path, content: str) -> None:
    """Write a file of the system whole, unless it holds ``content`` already; by sudo where this user may not.

    A link to it stays one.
    """
    path = path.resolve()
    if path.exists() and path.read_text(encoding="utf-8") == content:
        return
    if os.access(path.parent, os.W_OK):
        built.write_whole(path, content.encode())
        return
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", prefix="kernel-actions-") as file:
        file.write(content)
        file.flush()
        new = path.with_name(f".{path.name}.{os.getpid()}.new")
        commands: tuple[list[str | Path], ...] = (
            ["mkdir", "-p", path.parent],
            ["install", "-m", "0644", file.name, new],
            ["mv", "-f", new, path],
        )
        for command in commands:
            finished = process.run([*disk.as_root(), *command], time_limit=60.0)
            if finished.returncode != 0:
                raise WrongSurroundings(
                    f"cannot be written: {cli.reason(finished.output)}", where=Place(path)
                )
