"""setup-nix as it is run: by a job, on a laptop, as somebody whom a daemon does not trust; with caches that
answer, and others. All of it with the real Nix."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import stat
import subprocess
import time
from pathlib import Path

import pytest
from kernel_actions.nix import configuration, disk, preflight
from kernel_actions.nix.log import short_name

from tests.integration.conftest import git
from tests.setup_nix.conftest import (
    BASE,
    FLAKE,
    VARIANT,
    Cache,
    Private,
    python_of_nobody,
    served,
    step_values,
)
from tests.tools import ask, needs, program

TOKEN = "ghs_planted"
OTHER_KEY = "mine-1:" + "A" * 43 + "="


def settings_of(private: Private, variables: dict[str, str]) -> dict[str, str]:
    """What Nix uses in the steps after, which have ``variables``."""
    lines = private.nix("show-config", **variables).splitlines()
    return dict(line.split(" = ", 1) for line in lines if " = " in line)


def test_a_job_gets_a_configuration_of_its_own(private: Private) -> None:
    users = private.home / ".config" / "nix" / "nix.conf"
    users.parent.mkdir(parents=True)
    users.write_text("extra-substituters = file:///theirs\nconnect-timeout = 3\n")
    cache = private.folder / "own"
    cache.mkdir()
    (cache / "nix-cache-info").write_text("StoreDir: /nix/store\n")
    before = {path: path.read_bytes() for path in (private.conf, users)}
    given = ("--substituters", f"file://{cache}", "--trusted-public-keys", OTHER_KEY, "--format", "github")
    finished = private.run(*given, in_job=True, KA_GITHUB_TOKEN=TOKEN)
    assert finished.returncode == 0, finished.stderr
    # The others' files are as they were, and hold.
    assert {path: path.read_bytes() for path in before} == before
    variables = step_values(private.job / "env")
    assert list(variables) == ["NIX_USER_CONF_FILES"]
    settings = settings_of(private, variables)
    assert settings["substituters"].split() == ["file:///theirs", f"file://{cache}"]
    assert OTHER_KEY in settings["trusted-public-keys"]
    assert (settings["sandbox"], settings["sandbox-fallback"]) == ("true", "false")
    assert (settings["connect-timeout"], settings["http-connections"]) == ("3", "50")
    assert settings["trusted-users"] == "root"
    # The token is where Nix finds it, and nobody else.
    assert settings["access-tokens"] == f"github.com={TOKEN}"
    holding = [path for path in private.folder.rglob("*.conf") if TOKEN in path.read_text()]
    assert holding == [private.job_conf.with_name("access-tokens.conf")]
    assert stat.S_IMODE(holding[0].stat().st_mode) == 0o600
    shown = (finished.stdout + finished.stderr).replace(f"::add-mask::{TOKEN}", "")
    shown += (private.job / "output").read_text() + (private.job / "summary").read_text()
    assert TOKEN not in shown
    outputs = step_values(private.job / "output")
    assert (outputs["store"], outputs["sandbox"], outputs["built"]) == ("local", "on", "")
    assert json.loads(outputs["settings"])["sandbox"] == "true"
    assert (private.job / "summary").read_text().startswith("### ✅ Nix 2")
    # A second run changes nothing.
    written = {path: (path.read_bytes(), path.stat().st_ino) for path in (private.job_conf, users)}
    again = private.run(*given, in_job=True, KA_GITHUB_TOKEN=TOKEN, **variables)
    assert again.returncode == 0, again.stderr
    assert {path: (path.read_bytes(), path.stat().st_ino) for path in written} == written
    assert step_values(private.job / "env") == variables
    assert again.stdout == finished.stdout
    # And one without the token leaves none.
    assert private.run(in_job=True, KA_GITHUB_TOKEN="none").returncode == 0
    assert not holding[0].exists()


def test_no_program_is_given_a_token(private: Private) -> None:
    seen = private.folder / "seen"
    private.program("nix", f'{{ echo "$@"; env; }} >> {seen}\nexec {program("nix")} "$@"')
    key = OTHER_KEY.replace("mine-1", "mine.cachix.org-1")
    (private.folder / "mine").write_text(json.dumps({"publicSigningKeys": [key], "permission": "Write"}))
    private.program("cachix", "exit 0")
    with served(private.folder) as address:
        finished = private.run(
            "--cachix", "mine", in_job=True,
            KA_GITHUB_TOKEN=TOKEN, KA_CACHIX_TOKEN="cachix_planted", KA_CACHIX_API=address,
        )  # fmt: skip
    # Nobody answers for that cache here.
    assert finished.returncode == 3 and "https://mine.cachix.org does not answer" in finished.stderr
    assert step_values(private.job / "output")["pushes"] == "true"
    assert "show-config" in seen.read_text()
    assert "planted" not in seen.read_text()
    assert "cachix_planted" not in finished.stdout + finished.stderr.replace("::add-mask::cachix_planted", "")
    kept = [
        path for path in private.job.rglob("*") if path.is_file() and "cachix_planted" in path.read_text()
    ]
    assert kept == []


def test_a_token_that_cannot_push_is_told_before_anything_is_built(private: Private) -> None:
    answer = {"publicSigningKeys": [OTHER_KEY], "permission": "Read"}
    (private.folder / "mine").write_text(json.dumps(answer))
    with served(private.folder) as address:
        given = {"KA_CACHIX_API": address, "KA_CACHIX_TOKEN": "cachix_planted"}
        refused = private.run("--cachix", "mine", **given)
        (private.folder / "mine").write_text(json.dumps(answer | {"permission": "Admin"}))
        without_program = private.run("--cachix", "mine", **given)
    assert refused.returncode == 3 and "may not push to mine" in refused.stderr
    assert "no program cachix to push with" in without_program.stderr
    assert "planted" not in refused.stderr + without_program.stderr


def test_the_job_token_that_an_installer_left_for_all_to_read_is_taken_out(private: Private) -> None:
    private.conf.write_text(f"{BASE}access-tokens = github.com={TOKEN}\nmax-jobs = auto\n")
    finished = private.run(in_job=True, KA_GITHUB_TOKEN=TOKEN)
    assert finished.returncode == 0, finished.stderr
    assert private.conf.read_text() == f"{BASE}max-jobs = auto\n"


def test_on_a_laptop_the_users_nix_conf_includes_a_file(private: Private) -> None:
    users = private.home / ".config" / "nix" / "nix.conf"
    users.parent.mkdir(parents=True)
    users.write_text("cores = 1")
    commands = [private.command("--no-builder-cache") for _ in range(2)]
    both = [
        subprocess.Popen(
            command, env=private.environment | {"GITHUB_TOKEN": TOKEN}, stdout=subprocess.DEVNULL
        )
        for command in commands
    ]
    assert [one.wait(120) for one in both] == [0, 0]
    assert users.read_text() == "cores = 1\n!include kernel-actions.conf\n"
    text = (users.parent / "kernel-actions.conf").read_text()
    assert "sandbox-fallback = false\n" in text and "cores = 1\n" in text
    # A token on a laptop is not the job's, and would stay.
    assert not [path for path in private.home.rglob("*") if path.is_file() and TOKEN in path.read_text()]
    assert private.run("--check-only", "--format", "json").returncode == 0
    assert {path.name for path in users.parent.iterdir()} == {
        "nix.conf", "kernel-actions.conf", ".kernel-actions.conf.lock",
    }  # fmt: skip


@pytest.mark.parametrize("sandbox", ["false", "relaxed"])
def test_only_checking_writes_nothing(private: Private, sandbox: str) -> None:
    private.conf.write_text(BASE.replace("sandbox = true", f"sandbox = {sandbox}"))
    before = sorted(private.folder.rglob("*.conf"))
    finished = private.run("--check-only", "--substituters", "file:///nowhere")
    assert finished.returncode == 3
    assert f"builds are in no sandbox, as {private.conf}:4 says" in finished.stderr
    assert "Nix does not use the cache file:///nowhere" in finished.stderr
    assert "/nowhere/nix-cache-info is not there" in finished.stderr
    assert sorted(private.folder.rglob("*.conf")) == before and not list(private.home.iterdir())


def test_a_variable_that_overrules_is_named(private: Private) -> None:
    finished = private.run(NIX_CONFIG="sandbox = false\nexperimental-features = nix-command")
    assert finished.returncode == 3
    assert "builds are in no sandbox: NIX_CONFIG says otherwise" in finished.stderr
    assert "has not enabled flakes: NIX_CONFIG says otherwise" in finished.stderr


def test_a_variable_that_has_more_built_at_once_is_warned_of(private: Private) -> None:
    finished = private.run(NIX_CONFIG="# mine\nmax-jobs = 99\ncores = 0\n\nkeep-going = false")
    assert finished.returncode == 0, finished.stderr
    assert "max-jobs is 99, as NIX_CONFIG:2 says, and the memory is enough for" in finished.stderr
    assert "cores is 0, as NIX_CONFIG:3 says" in finished.stderr
    assert re.search(r"^max-jobs +99 +NIX_CONFIG:2$", finished.stdout, re.MULTILINE)
    assert re.search(r"^keep-going +false +NIX_CONFIG:5$", finished.stdout, re.MULTILINE)
    for text, said in (("nonsense", "Nix refuses this line"), ("include /gone.conf", "which is not there")):
        refused = private.run(NIX_CONFIG=f"cores = 1\n{text}")
        assert refused.returncode == 3 and "NIX_CONFIG:2: " in refused.stderr and said in refused.stderr


@pytest.mark.slow
def test_a_password_in_the_address_of_a_cache_is_shown_nowhere(private: Private) -> None:
    refused = private.run("--substituters", "https://me:hunter2@cache.example.org", in_job=True)
    assert refused.returncode == 2 and "an address with a password in it: https://***@" in refused.stderr
    theirs = "substituters = http://me:hunter2@127.0.0.1:9\nconnect-timeout = 1\ndownload-attempts = 1"
    private.conf.write_text(BASE.replace("substituters =", theirs))
    finished = private.run("--format", "github", in_job=True)
    assert finished.returncode == 0, finished.stderr
    assert "the cache http://***@127.0.0.1:9 does not answer" in finished.stderr
    assert "http://***@127.0.0.1:9" in finished.stdout
    shown = "".join(path.read_text() for path in private.job.rglob("*") if path.is_file())
    assert "hunter2" not in refused.stderr + finished.stdout + finished.stderr + shown


def test_without_a_home_no_file_of_others_is_written(private: Private) -> None:
    others = private.folder / "xdg"
    others.mkdir()
    finished = private.run(HOME="", XDG_CONFIG_DIRS=str(others))
    assert finished.returncode == 3 and "there is no home folder for a nix.conf" in finished.stderr
    assert list(others.iterdir()) == []


def test_a_folder_of_a_job_that_cannot_be_written_is_named(private: Private) -> None:
    finished = private.run(in_job=True, RUNNER_TEMP="/proc/gone")
    assert finished.returncode == 3
    assert "/proc/gone/kernel-actions/nix: the job's nix.conf cannot be written: No such" in finished.stderr
    finished = private.run(in_job=True, RUNNER_TEMP=str(private.folder / "a:b"))
    assert finished.returncode == 3 and "has a colon" in finished.stderr


def test_a_number_of_builds_that_is_none(private: Private) -> None:
    for given in ("--build-jobs=-1", "--build-cores=99999999999999"):
        finished = private.run(given)
        assert finished.returncode == 2 and "which is not from 0 to 1024" in finished.stderr


def test_a_nix_that_does_not_start_is_told(private: Private) -> None:
    private.program("nix", "exit 127")
    finished = private.run()
    assert finished.returncode == 3 and "bin/nix does not start: exit code 127" in finished.stderr


def test_a_nix_conf_with_an_error_is_named(private: Private) -> None:
    private.conf.write_text(f"{BASE}sandbox\n")
    finished = private.run()
    assert finished.returncode == 3
    assert f"{private.conf}:7: Nix refuses this line" in finished.stderr


def test_somebody_untrusted_is_told_the_lines_for_whom(private: Private) -> None:
    ask("root")
    private.conf.write_text(BASE.replace("sandbox = true", "sandbox = false"))
    private.start_daemon()
    cache = private.folder / "own"
    cache.mkdir()
    (cache / "nix-cache-info").write_text("StoreDir: /nix/store\n")
    given = ("--substituters", f"file://{cache}", "--trusted-public-keys", OTHER_KEY)
    finished = private.run(*given, as_nobody=True)
    assert finished.returncode == 3
    errors = finished.stderr
    assert f"the Nix daemon ignores the cache file://{cache}: this user is not trusted" in errors
    assert "the Nix daemon does not trust the key mine-1" in errors
    assert "builds are in no sandbox" in errors
    # What it says is what root has to do.
    lines = re.findall(rf"have root add to {private.conf}: (.+?) — and restart nix-daemon", errors)
    assert len(lines) == 3 and not any("trusted-users" in line for line in lines)
    private.conf.write_text(private.conf.read_text() + "".join(f"{line}\n" for line in lines))
    private.start_daemon()
    again = private.run(*given, as_nobody=True)
    assert again.returncode == 0, again.stderr
    assert "daemon, which does not trust this user, sandbox on" in again.stdout
    # Nothing of the system's was touched.
    assert [path.name for path in private.conf.parent.iterdir()] == ["nix.conf"]


def test_on_nixos_the_lines_are_those_of_its_configuration(private: Private) -> None:
    ask("root")
    managed = private.folder / "nix" / "store" / "x-nix.conf"
    managed.parent.mkdir(parents=True)
    private.conf.rename(managed)
    private.conf.symlink_to(managed)
    private.start_daemon()
    with private.sudo() as ran:
        finished = private.run("--substituters", "file:///own", as_nobody=True, in_job=True)
    assert finished.returncode == 3 and ran == ["true"]
    assert 'configuration.nix: nix.settings.substituters = [ "file:///own" ];' in finished.stderr
    assert managed.read_text() == BASE and private.conf.is_symlink()


@pytest.mark.parametrize("flavour", ["upstream", "Determinate"])
def test_a_daemon_is_configured_where_a_job_may(private: Private, flavour: str) -> None:
    ask("root")
    base = BASE.replace("sandbox = true", "sandbox = false")
    if flavour == "Determinate":
        base += "!include nix.custom.conf\n"
    private.conf.write_text(base)
    private.start_daemon()
    caches = [private.folder / name for name in ("one", "two")]
    for cache in caches:
        cache.mkdir()
        (cache / "nix-cache-info").write_text("StoreDir: /nix/store\n")
    drop_in = private.conf.with_name("kernel-actions.conf")
    with private.sudo() as ran:
        for cache in caches:
            finished = private.run(
                "--substituters", f"file://{cache}", "--trusted-public-keys", OTHER_KEY,
                as_nobody=True, in_job=True, KA_GITHUB_TOKEN=TOKEN,
            )  # fmt: skip
            assert finished.returncode == 0, finished.stderr
        assert ran.count("systemctl restart nix-daemon.service") == 2
        written = (private.conf.read_bytes(), drop_in.read_bytes())
        ran.clear()
        finished = private.run("--substituters", f"file://{caches[0]}", as_nobody=True, in_job=True)
        # The daemon has it all: nothing is written, nothing started again.
        assert finished.returncode == 0 and ran == []
    assert (private.conf.read_bytes(), drop_in.read_bytes()) == written
    text = drop_in.read_text()
    # Both jobs' caches, and nothing of what is a job's own.
    assert f"extra-substituters = file://{caches[0]} file://{caches[1]}\n" in text
    assert not re.search(r"trusted-users|access-tokens|max-jobs|cores", text) and TOKEN not in text
    # Determinate's daemon writes its nix.conf anew, which includes a file for what others set.
    if flavour == "Determinate":
        assert private.conf.read_text() == base
        assert private.conf.with_name("nix.custom.conf").read_text() == "!include kernel-actions.conf\n"
    else:
        assert private.conf.read_text() == f"{base}!include kernel-actions.conf\n"
    assert stat.S_IMODE(drop_in.stat().st_mode) == 0o644
    # The job's own has what a daemon takes from it: Nix warns of all else, at every command.
    own = dict(line.split(" = ") for line in private.job_conf.read_text().splitlines() if " = " in line)
    assert {"cores", "extra-substituters"} <= set(own) and "sandbox" not in own


@pytest.mark.slow
def test_jobs_that_configure_one_daemon_at_once_all_get_what_they_want(private: Private) -> None:
    ask("root")
    private.conf.write_text(BASE.replace("sandbox = true", "sandbox = false"))
    private.start_daemon()
    private.home.chmod(0o777)
    environment = private.environment | {"KA_PYTHON": python_of_nobody()}
    caches = [private.folder / name for name in ("one", "two", "three")]
    running = []
    with private.sudo():
        for cache in caches:
            cache.mkdir()
            (cache / "nix-cache-info").write_text("StoreDir: /nix/store\n")
            job = private.folder / f"job-{cache.name}"
            job.mkdir()
            job.chmod(0o777)
            variables = {name: str(job / Path(value).name) for name, value in private.of_job.items()}
            for name in ("env", "path", "output", "summary"):
                (job / name).touch()
                (job / name).chmod(0o666)
            variables |= {"GITHUB_ACTIONS": "true", "RUNNER_TEMP": str(job)}
            command = private.command("--no-builder-cache", f"--substituters=file://{cache}", as_nobody=True)
            running.append(
                subprocess.Popen(
                    command, env=environment | variables, cwd=private.folder, text=True,
                    stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                )
            )  # fmt: skip
        said = [one.communicate(timeout=120)[1] for one in running]
    assert [one.returncode for one in running] == [0, 0, 0], said
    assert private.conf.read_text().count("!include kernel-actions.conf") == 1
    assert sorted(path.name for path in private.conf.parent.iterdir()) == ["kernel-actions.conf", "nix.conf"]


def test_a_store_that_cannot_be_written_is_told(private: Private) -> None:
    ask("root")
    finished = private.run(as_nobody=True)
    assert finished.returncode == 3
    assert "Nix cannot" in finished.stderr and "start the Nix daemon" in finished.stderr
    assert "Traceback" not in finished.stderr


def without_namespaces(command: list[str]) -> list[str]:
    """``command`` where the kernel gives no namespaces, as in most containers."""
    script = 'echo 0 > /proc/sys/user/max_mnt_namespaces && exec "$@"'
    inside = ["unshare", "--map-root-user", "sh", "-c", script, "sh"]
    ask("limits of namespaces")
    return [*inside, *command]


def test_a_sandbox_that_is_not_to_be_had_is_told(private: Private) -> None:
    for arguments, code in (
        (("--no-builder-cache",), 3),
        (("--no-builder-cache", "--no-require-sandbox"), 0),
    ):
        finished = subprocess.run(
            without_namespaces(private.command(*arguments)),
            env=private.environment, text=True, capture_output=True, timeout=120, check=False,
        )  # fmt: skip
        assert finished.returncode == code, finished.stderr
        if code == 3:
            assert "the sandbox cannot be used here" in finished.stderr
            assert "mount namespaces are switched off here: run sudo sysctl" in finished.stderr
        else:
            assert "must not be published" in finished.stderr and "sandbox off" in finished.stdout


@pytest.mark.parametrize(
    ("answer", "message"), [("404", "does not appear to be a binary cache"), ("500", "500"), ("files", "")]
)
def test_a_cache_has_to_answer(
    private: Private, monkeypatch: pytest.MonkeyPatch, answer: str, message: str
) -> None:
    use(private, monkeypatch)
    (private.folder / "nix-cache-info").write_text(f"StoreDir: {private.folder / 'store'}\n")
    with served(private.folder, answer) as address:
        failure = preflight.cache_failure(address)
    assert message in failure and bool(message) == bool(failure)


def use(private: Private, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have functions of this process use the Nix of ``private``, without pauses."""
    for name, value in private.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(preflight, "_PAUSE", 0.01)


def test_a_cache_that_hangs_or_is_not_there_ends_in_time(
    private: Private, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(private, monkeypatch)
    monkeypatch.setattr(preflight, "_ATTEMPTS", 2)
    monkeypatch.setattr(preflight, "_CACHE_PATIENCE", -3)
    with served(private.folder, "hang") as address:
        started = time.monotonic()
        assert "did not answer within" in preflight.cache_failure(address)
        assert time.monotonic() - started < 20
    monkeypatch.setattr(preflight, "_CACHE_PATIENCE", 5)
    assert "connect" in preflight.cache_failure(address).lower()


def plan(private: Private, kernel: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return private.run("--variants", VARIANT, "--format", "json", *arguments, str(kernel))


def test_what_will_be_fetched_and_built_is_told(private: Private, kernel: Path, cache: Cache) -> None:
    with served(cache.folder) as address:
        finished = plan(private, kernel, "--substituters", address, "--trusted-public-keys", cache.key)
    assert finished.returncode == 0, finished.stderr
    shown = json.loads(finished.stdout)
    assert shown["caches"] == {address: "it answers"}
    assert shown["plan"]["fetched"] == [cache.torch]
    assert [short_name(one) for one in shown["plan"]["built"]] == ["relu-torch-ext"]
    assert shown["plan"]["unverified"] == []
    table = private.run("--variants", VARIANT, *cache.options, str(kernel))
    assert "1 path: 0 B to download" in table.stdout and "1: relu-torch-ext" in table.stdout
    assert "1 of 1 path" in table.stdout


@pytest.mark.parametrize("signed", [True, False])
def test_a_path_that_no_trusted_key_signs_stops_the_job(
    private: Private, kernel: Path, cache: Cache, signed: bool
) -> None:
    if not signed:
        cache.unsign()
    other = cache.make_key("other-1")
    finished = plan(
        private, kernel, "--substituters", f"file://{cache.folder}", "--trusted-public-keys", other
    )
    assert finished.returncode == 3
    assert f" signed by {'good-1' if signed else 'nobody'}, and by no trusted key" in finished.stderr
    # Nix would build them with no more than a warning.
    assert "torch would be compiled" in finished.stderr
    assert len(json.loads(finished.stdout)["plan"]["unverified"]) == 1


def test_torch_is_not_compiled_unasked(private: Private, kernel: Path) -> None:
    finished = plan(private, kernel)
    assert finished.returncode == 3
    assert (
        "torch would be compiled, which takes hours: no cache has python3.13-torch-2.13.0" in finished.stderr
    )
    assert f"{kernel}/flake.lock" in finished.stderr
    assert plan(private, kernel, "--allow-compile").returncode == 0


def test_a_kernel_is_planned_wherever_it_is(private: Private, cache: Cache) -> None:
    """Nix 2.8 by itself takes no repository in a folder whose name has a space."""
    kernel = private.folder / "of Jürgen" / "kernel"
    kernel.mkdir(parents=True)
    (kernel / "flake.nix").write_text(FLAKE)
    git(kernel, "init", "--quiet", "--initial-branch=main")
    git(kernel, "add", "--all")
    git(kernel, "commit", "--quiet", "--message=feat: all")
    finished = plan(private, kernel, *cache.options)
    assert finished.returncode == 0, finished.stderr
    assert json.loads(finished.stdout)["plan"]["fetched"] == [cache.torch]


def test_a_variant_that_is_none_is_told_with_those_near_it(private: Private, kernel: Path) -> None:
    finished = private.run("--variants", "torch213-cxx11-cpu-x86_64-linx", str(kernel))
    assert finished.returncode == 2 and f"did you mean {VARIANT}" in finished.stderr
    for wrong in ('x"; abort', "--help", "../x"):
        finished = private.run(f"--variants={wrong}", str(kernel))
        assert finished.returncode == 2, finished.stderr
    finished = private.run("--variants", VARIANT, str(private.home))
    assert finished.returncode == 2 and "there is no flake.nix" in finished.stderr


@needs("mounts")
def test_a_disk_that_would_be_full_stops_the_job(private: Private, kernel: Path, cache: Cache) -> None:
    small = private.folder / "small"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", small]
    subprocess.run(mount, check=True)
    try:
        (small / "flake.nix").write_text(FLAKE)
        finished = private.run("--variants", VARIANT, *cache.options, str(small))
    finally:
        subprocess.run(["umount", "--lazy", small], check=True)
    assert finished.returncode == 3
    assert (
        f"{small} would be full: 500.0 MB are needed (results 500.0 MB), 2.1 MB are free" in finished.stderr
    )


def test_killed_at_any_time_leaves_no_half_a_file(private: Private) -> None:
    users = private.home / ".config" / "nix"
    users.mkdir(parents=True)
    (users / "nix.conf").write_text("connect-timeout = 3\n")
    for delay in (0.05, 0.1, 0.2, 0.3, 0.5, 0.8):
        running = subprocess.Popen(
            private.command("--no-builder-cache"), env=private.environment,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        time.sleep(delay)
        running.send_signal(signal.SIGKILL)
        running.wait()
        assert (users / "nix.conf").read_text() in (
            "connect-timeout = 3\n", "connect-timeout = 3\n!include kernel-actions.conf\n",
        )  # fmt: skip
        ours = users / "kernel-actions.conf"
        assert not ours.exists() or ours.read_text().endswith("narinfo-cache-negative-ttl = 60\n")
        assert "connect-timeout = 3" in private.nix("show-config")
    assert private.run().returncode == 0


def test_what_a_cache_at_cachix_is_signed_with_is_asked_for(private: Private) -> None:
    key = OTHER_KEY.replace("mine-1", "mine.cachix.org-1")
    (private.folder / "mine").write_text(json.dumps({"publicSigningKeys": [key]}))
    with served(private.folder) as address:
        known = private.run("--cachix", "mine", KA_CACHIX_API=address)
        unknown = private.run("--cachix", "other", KA_CACHIX_API=address)
        hostile = private.run("--cachix", "../mine", KA_CACHIX_API=address)
    # Read-only, as for the pull request of a fork; that cache cannot be reached from here.
    assert f"Cachix gives mine the key {key}" in known.stderr
    assert (
        f"extra-trusted-public-keys = {key}"
        in (private.home / ".config" / "nix" / "kernel-actions.conf").read_text()
    )
    assert unknown.returncode == 3 and "there is no public cache other" in unknown.stderr
    assert hostile.returncode == 2
    lonely = private.run(KA_CACHIX_TOKEN="cachix_planted")
    assert lonely.returncode == 2 and "planted" not in lonely.stderr


def test_nix_is_found_where_installers_put_it(private: Private) -> None:
    profile = private.home / ".nix-profile" / "bin"
    profile.mkdir(parents=True)
    without = path_without_nix(private)
    absent = private.run("--find", in_job=True, PATH=str(without))
    assert absent.returncode == 0 and step_values(private.job / "output") == {"install": "true"}
    assert private.run("--find", "--no-install", in_job=True, PATH=str(without)).returncode == 0
    assert step_values(private.job / "output") == {"install": "false"}
    refused = private.run(PATH=str(without))
    assert refused.returncode == 3 and "Nix is not installed" in refused.stderr
    for name in ("nix", "nix-store"):
        (profile / name).symlink_to(os.path.realpath(program(name)))
    found = private.run("--find", in_job=True, PATH=str(without))
    assert str(profile) in found.stdout
    assert step_values(private.job / "output") == {"install": "false"}
    assert (private.job / "path").read_text() == f"{profile}\n"


def path_without_nix(private: Private) -> Path:
    """A folder with the programs of this machine's PATH but for Nix's."""
    folder = private.folder / "without-nix"
    folder.mkdir()
    for one in os.environ["PATH"].split(":"):
        for path in Path(one).glob("*") if os.path.isdir(one) else ():
            link = folder / path.name
            if not path.name.startswith("nix") and not link.exists() and not link.is_symlink():
                link.symlink_to(path)
    return folder


def test_disk_space_is_not_freed_on_the_machines_of_others(private: Private) -> None:
    finished = private.run("--free-disk", in_job=True, RUNNER_ENVIRONMENT="self-hosted", RUNNER_OS="Linux")
    assert finished.returncode == 0 and "free-disk removes nothing here" in finished.stderr
    assert "Removing" not in finished.stderr


def test_what_an_image_carries_is_removed_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask("nix")
    carried = [tmp_path / pattern.replace("*", "1.12") for pattern, _ in disk.CARRIED]
    kept = [tmp_path / "opt" / "hostedtoolcache" / "Python", tmp_path / "home"]
    for folder in [*carried, *kept]:
        folder.mkdir(parents=True)
        (folder / "file").write_bytes(b"x" * 100_000)
    outside = tmp_path / "outside"
    outside.mkdir()
    shutil.rmtree(carried[1])
    carried[1].symlink_to(outside)
    monkeypatch.setattr(disk, "as_root", list)
    freed = disk.free(tmp_path)
    assert [name for name, _ in freed] == [str(one) for one in carried if one != carried[1]]
    assert all(size >= 0 for _, size in freed)
    assert not any(one.exists() for one in carried if one != carried[1])
    assert outside.exists() and all((one / "file").exists() for one in kept)


def test_the_settings_that_are_written_are_known_to_nix(private: Private) -> None:
    machine = configuration.machine(private.folder / "store")
    lines = configuration.wanted(machine, {}, ["file:///x"], [OTHER_KEY])
    finished = subprocess.run(
        ["nix", "show-config"], env=private.environment | {"NIX_CONFIG": configuration.text(lines)},
        text=True, capture_output=True, check=True,
    )  # fmt: skip
    assert "unknown setting" not in finished.stderr and machine.cores >= 1 and machine.memory > 0
