"""The files for runners of one's own do what docs/runners.md says, as far as a machine alone can show."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import shutil
import stat
import subprocess
import sysconfig
import tarfile
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import tomllib
import yaml

from tests.integration import shown
from tests.runners import chart
from tests.tools import needs

ROOT = Path(__file__).parents[2]
MACHINE = ROOT / "templates/runners/one-machine"
CLUSTER = ROOT / "templates/runners/kubernetes"
PAGE = (ROOT / "docs/runners.md").read_text()
SCRIPTS = ("clean-up", "install", "register")


def test_the_scripts_are_clean() -> None:
    shellcheck = Path(sysconfig.get_path("scripts")) / "shellcheck"
    subprocess.run([shellcheck, *(MACHINE / name for name in SCRIPTS)], check=True)
    assert all(os.access(MACHINE / name, os.X_OK) for name in SCRIPTS)


class GitHub(BaseHTTPRequestHandler):
    """Answers as the API does, and keeps what it was asked."""

    asked: list[tuple[str, str, dict[str, Any]]]
    answer: tuple[int, dict[str, Any]]

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.asked.append((self.path, self.headers["Authorization"], body))
        status, value = self.answer
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def github() -> Iterator[tuple[str, type[GitHub]]]:
    handler = type("Handler", (GitHub,), {"asked": [], "answer": (201, {"encoded_jit_config": "e30="})})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", handler
    server.shutdown()
    server.server_close()


def register(address: str, credentials: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    credentials.mkdir(exist_ok=True)
    (credentials / "token").write_text("planted-token\n")
    environment = {
        "PATH": os.environ["PATH"], "TOKEN_FILE": str(credentials / "token"), "GITHUB_API": address,
        "RUNNER_SCOPE": "repos/acme/relu", **variables,
    }  # fmt: skip
    return subprocess.run(
        [MACHINE / "register"], env=environment, text=True, capture_output=True, check=False, timeout=60
    )


@needs("curl", "jq")
def test_a_runner_for_one_job_is_asked_for(github: tuple[str, type[GitHub]], tmp_path: Path) -> None:
    address, seen = github
    finished = register(address, tmp_path / "credentials", RUNNER_LABELS='cuda,h100","x', RUNNER_GROUP="3")
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout == "ACTIONS_RUNNER_INPUT_JITCONFIG=e30=\n"
    ((path, token, body),) = seen.asked
    assert path == "/repos/acme/relu/actions/runners/generate-jitconfig"
    assert token == "Bearer planted-token"
    assert {"self-hosted", "linux", "cuda"} <= set(body["labels"])
    assert (body["runner_group_id"], body["work_folder"]) == (3, "_work")
    assert "planted-token" not in finished.stdout + finished.stderr


@needs("curl", "jq")
def test_a_refusal_is_one_line_and_no_configuration(github: tuple[str, type[GitHub]], tmp_path: Path) -> None:
    address, seen = github
    seen.answer = (403, {"message": "Resource not accessible"})
    finished = register(address, tmp_path / "credentials")
    assert finished.returncode != 0
    assert finished.stdout == ""
    assert "GitHub refused: Resource not accessible" in finished.stderr
    assert "planted-token" not in finished.stderr


def test_clean_up_ends_what_a_job_left_and_nothing_else(tmp_path: Path) -> None:
    home, workspace, temporary = tmp_path / "home", tmp_path / "work" / "relu", tmp_path / "tmp"
    shm = tmp_path / "shm"
    for folder in (
        home / "home" / ".cache",
        home / "node_modules" / "x",
        workspace / "result",
        temporary,
        shm,
    ):
        folder.mkdir(parents=True)
    (home / "pytest.ini").write_text("[pytest]\n")
    (home / "runner").mkdir()
    (shm / "left").write_text("x")
    (workspace / "result" / "file").write_text("x")
    os.chmod(workspace / "result", 0o555)
    outside = tmp_path / "outside"
    outside.write_text("kept")
    (workspace / "link").symlink_to(outside)
    (temporary / "left").write_text("x")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "nvidia-smi").write_text("#!/bin/sh\nprintf '7, a\\033[31mb, 5 MiB\\n'\n")
    (tmp_path / "bin" / "nvidia-smi").chmod(0o755)
    plain = {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    job = {**plain, "GITHUB_RUN_ID": "1"}
    left = subprocess.Popen(["sh", "-c", "trap '' TERM; while :; do sleep 0.1; done"], env=job)
    ours = subprocess.Popen(["sleep", "60"], env=plain)
    # Nothing else on this machine that has the mark: steps of other tests, or the job that runs these.
    text = (MACHINE / "clean-up").read_text()
    assert text.count("/proc/[0-9]*;") == 1
    hook = tmp_path / "clean-up"
    hook.write_text(text.replace("/proc/[0-9]*;", f"/proc/{left.pid} /proc/{ours.pid};"))
    try:
        # The hook is a step of the job, and has its variables too.
        finished = subprocess.run(
            ["bash", hook], text=True, capture_output=True, check=False, timeout=60,
            env={
                **job, "RUNNER_HOME": str(home), "GITHUB_WORKSPACE": str(workspace), "TMPDIR": str(temporary),
                "CLEAN_UP_PAUSE": "0.2", "CLEAN_UP_SHARED": str(shm),
            },
        )  # fmt: skip
        assert finished.returncode == 0, finished.stderr
        assert left.wait(timeout=10) == -9
        assert f"ended {left.pid} (sh)" in finished.stdout
        assert finished.stdout.endswith("other users hold memory of the GPU:\n7, a[31mb, 5 MiB\n")
        time.sleep(0.1)
        assert ours.poll() is None
    finally:
        for process in (left, ours):
            process.kill()
            process.wait()
    assert list(workspace.iterdir()) == [] and workspace.is_dir()
    assert list((home / "home").iterdir()) == [] and list(shm.iterdir()) == []
    assert {path.name for path in home.iterdir()} == {"home", "runner"}
    assert list(temporary.iterdir()) == []
    assert outside.read_text() == "kept"


def runner_archive(folder: Path) -> tuple[Path, str]:
    """What stands in for the archive of GitHub's runner, and its SHA-256."""
    archive = folder / "runner.tar.gz"
    (folder / "run.sh").write_text("#!/bin/sh\n")
    with tarfile.open(archive, "w:gz") as file:
        file.add(folder / "run.sh", "run.sh")
    return archive, hashlib.sha256(archive.read_bytes()).hexdigest()


def test_install_takes_the_very_archive_and_keeps_what_was_configured(tmp_path: Path) -> None:
    archive, digest = runner_archive(tmp_path)
    target = tmp_path / "root"

    def install(expected: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [MACHINE / "install", archive, expected], cwd=MACHINE,
            text=True, capture_output=True, check=False,
            env={"PATH": os.environ["PATH"], "DESTDIR": str(target)},
        )  # fmt: skip

    wrong = install("0" * 64)
    assert wrong.returncode == 1 and "is not the archive with this SHA-256" in wrong.stderr
    assert not target.exists()
    assert install(digest).returncode == 0
    assert stat.S_IMODE((target / "etc/kernel-runner").stat().st_mode) == 0o700
    configured = target / "etc/kernel-runner/runner.conf"
    assert stat.S_IMODE(configured.stat().st_mode) == 0o600
    configured.write_text("RUNNER_SCOPE=repos/acme/relu\n")
    assert install(digest).returncode == 0
    assert configured.read_text() == "RUNNER_SCOPE=repos/acme/relu\n"
    # The service starts what is installed, and nothing else.
    service = (MACHINE / "kernel-runner.service").read_text()
    for path in re.findall(r"/(?:usr/local/lib|opt|etc)/kernel-runner[\w./-]*", service):
        assert (target / path.lstrip("/")).exists() or path == "/etc/kernel-runner/token", path


def test_the_next_job_finds_nothing_of_the_one_before(tmp_path: Path) -> None:
    """What the service runs before each job, in a folder where a job left something in every place."""
    service = (MACHINE / "kernel-runner.service").read_text()
    (command,) = re.findall(r"^ExecStartPre=/bin/bash -c '(.*)'$", service, re.MULTILINE)
    programs, state = tmp_path / "programs", tmp_path / "state"
    (programs / "bin").mkdir(parents=True)
    (programs / "run.sh").write_text("#!/bin/sh\n")
    for folder in (
        "home/.config/pip",
        "runner/_work/_actions/org",
        "node_modules/x",
        ".venv",
        "..odd",
        "a b",
    ):
        (state / folder).mkdir(parents=True)
        (state / folder / "left").write_text("x")
    (state / "pytest.ini").write_text("[pytest]\n")
    (state / ".netrc").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").write_text("kept")
    os.mkfifo(state / "pipe")
    os.chmod(state / "node_modules" / "x", 0o500)
    for _ in range(2):
        command = command.replace("/opt/kernel-runner", str(programs))
        finished = subprocess.run(["bash", "-c", command], cwd=state, capture_output=True, check=False)
        assert finished.returncode == 0, finished.stderr
        left = {path.relative_to(state).as_posix() for path in state.rglob("*")}
        assert left == {"home", "runner", "runner/bin", "runner/run.sh"}
    assert (tmp_path / "elsewhere").read_text() == "kept"
    for line in ("PrivateTmp=yes", "PrivateIPC=yes", "TemporaryFileSystem=/dev/shm:mode=1777"):
        assert line in service.splitlines()


def test_the_service_keeps_the_token_from_jobs() -> None:
    service = (MACHINE / "kernel-runner.service").read_text()
    assert "User=kernel-runner" in service
    # What systemd loads as a credential can be read by the service's user, and so by jobs.
    assert "LoadCredential" not in service
    for line in (
        "NoNewPrivileges=yes",
        "KillMode=mixed",
        "TimeoutStopSec=5min",
        "InaccessiblePaths=/etc/kernel-runner",
    ):
        assert line in service
    assert "docker" not in service


def consoles(heading: str) -> list[list[str]]:
    """The commands of the consoles below a heading of the page, by the console."""
    section = PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    return [shown.console(block) for block in re.findall(r"```console\n(.*?)```", section, re.DOTALL)]


def test_the_commands_of_the_page_set_a_machine_up(tmp_path: Path) -> None:
    """With another root folder, and without a systemd that runs: it enables the service all the same."""
    root, files, programs = tmp_path / "root", tmp_path / "files", tmp_path / "bin"
    shutil.copytree(MACHINE, files)
    (root / "etc/nix").mkdir(parents=True)
    archive, digest = runner_archive(files)
    programs.mkdir()
    asked = tmp_path / "asked"
    for name, script in {
        "editor": f'test -w "$1" && echo "editor $1" >> {asked}',
        "systemctl": f"""\
echo "systemctl $*" >> {asked}
[ "$1" = enable ] || exit 0
shift
exec {shown.installed("systemctl")} --root={root} enable "${{@/--now/--quiet}}\"""",
    }.items():
        (programs / name).write_text(f"#!/usr/bin/env bash\n{script}\n")
        (programs / name).chmod(0o755)
    commands = [command for block in consoles("One machine with a GPU") for command in block]
    assert len(commands) == 6
    for command in commands:
        line = command.replace(" /etc/", f" {root}/etc/").replace("SHA256", digest)
        finished = subprocess.run(
            ["bash", "-euc", re.sub(r"actions-runner-\S+", archive.name, line)], cwd=files, input="planted\n",
            text=True, capture_output=True, check=False,
            env={"PATH": f"{programs}:{os.environ['PATH']}", "DESTDIR": str(root)},
        )  # fmt: skip
        assert finished.returncode == 0, f"{command}\n{finished.stderr}"
    assert asked.read_text().splitlines() == [
        f"editor {root}/etc/kernel-runner/runner.conf", "systemctl enable --now kernel-runner",
        "systemctl restart nix-daemon",
    ]  # fmt: skip
    token = root / "etc/kernel-runner/token"
    assert (token.read_text(), stat.S_IMODE(token.stat().st_mode)) == ("planted\n", 0o600)
    wanted = root / "etc/systemd/system/multi-user.target.wants/kernel-runner.service"
    assert wanted.readlink() == Path("/etc/systemd/system/kernel-runner.service")
    assert (root / "etc/nix/nix.conf").read_text() == (MACHINE / "nix.conf").read_text()


def test_the_service_is_one_for_systemd() -> None:
    command = [shown.installed("systemd-analyze"), "verify", "--man=no", MACHINE / "kernel-runner.service"]
    finished = subprocess.run(command, text=True, capture_output=True, check=False)
    # What it does not know it only warns of.
    assert (finished.returncode, finished.stderr) == (0, "")


def test_the_commands_for_a_cluster_go_together(tmp_path: Path) -> None:
    (commands,) = consoles("Many: Kubernetes")
    words = [shlex.split(command) for command in commands]
    installed = {one[2]: one for one in words if one[:2] == ["helm", "install"]}
    # The runners' labels, and the files of values, are those of the page and the folder.
    labels = tomllib.loads(re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)[0])["runners"]
    assert set(installed) - {"arc"} == {one for kind in labels.values() for (one,) in kind.values()}
    for name in set(installed) - {"arc"}:
        values = yaml.safe_load(
            (CLUSTER / installed[name][installed[name].index("--values") + 1]).read_text()
        )
        assert installed[name][-1] == installed["arc"][-1].removesuffix("-controller")
    made = {}
    for name in ("github_app_id", "github_app_installation_id", "github_app_private_key"):
        (tmp_path / name).write_text("planted")
    for one in (one for one in words if one[:2] == ["kubectl", "create"]):
        finished = subprocess.run(
            [shown.installed("kubectl"), *one[1:], "--dry-run=client", "--output=json"], cwd=tmp_path,
            env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "KUBECONFIG": "/dev/null"},
            text=True, capture_output=True, check=False,
        )  # fmt: skip
        assert finished.returncode == 0, finished.stderr
        resource = json.loads(finished.stdout)
        made[resource["kind"]] = resource
    namespace = made["Namespace"]["metadata"]["name"]
    assert made["Secret"]["metadata"] | {"creationTimestamp": None} == {
        "name": values["githubConfigSecret"], "namespace": namespace, "creationTimestamp": None,
    }  # fmt: skip
    assert set(made["Secret"]["data"]) == {path.name for path in tmp_path.iterdir()}
    for one in words:
        if "--namespace" in one and one[2] != "arc":
            assert one[one.index("--namespace") + 1] == namespace
        if "--filename" in one:
            assert (CLUSTER / one[one.index("--filename") + 1]).is_file()


def test_a_name_that_the_controller_does_not_take_is_found() -> None:
    """The schema is as strict as Kubernetes is with ``--validate=strict``."""
    pod = yaml.safe_load((CLUSTER / "gpu-values.yaml").read_text())["template"]["spec"]
    for part, name in (
        (pod, "restartpolicy"),
        (pod["containers"][0], "volumeMount"),
        (pod["volumes"][0], "dir"),
    ):
        part[name] = "x"
        assert not jsonschema.Draft202012Validator(chart.schemas()["pod"]).is_valid(pod)
        del part[name]
    assert jsonschema.Draft202012Validator(chart.schemas()["pod"]).is_valid(pod)


@pytest.mark.parametrize("name", [path.name for path in chart.VALUES])
def test_the_values_are_those_of_the_chart(name: str) -> None:
    values = yaml.safe_load((CLUSTER / name).read_text())
    assert set(values) <= chart.NAMES
    # A group is an organization's: a repository has none.
    assert values["githubConfigUrl"] == "https://github.com/OWNER" and values["runnerGroup"]
    jsonschema.Draft202012Validator(chart.schemas()["pod"]).validate(values["template"]["spec"])
    spec = values["template"]["spec"]
    (runner,) = spec["containers"]
    # The chart finds the runner by this name.
    assert (runner["name"], runner["command"]) == ("runner", ["/home/runner/run.sh"])
    volumes = {one["name"] for one in spec["volumes"]}
    mounted = {
        one["name"]
        for container in (runner, *spec.get("initContainers", ()))
        for one in container["volumeMounts"]
    }
    assert mounted == volumes
    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"]["runAsNonRoot"] is True
    # The image has a sudo that asks for no password.
    assert runner["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    assert "privileged" not in json.dumps(values)
    # No secret is in a file that is committed.
    assert isinstance(values["githubConfigSecret"], str)


def test_the_gpu_set_has_a_gpu_and_the_builds_share_a_cache() -> None:
    gpu = yaml.safe_load((CLUSTER / "gpu-values.yaml").read_text())["template"]["spec"]["containers"][0]
    assert gpu["resources"]["limits"]["nvidia.com/gpu"] == "1"
    claim = yaml.safe_load((CLUSTER / "cache.yaml").read_text())
    build = yaml.safe_load((CLUSTER / "build-values.yaml").read_text())["template"]["spec"]
    named = {
        one["persistentVolumeClaim"]["claimName"]
        for one in build["volumes"]
        if "persistentVolumeClaim" in one
    }
    assert named == {claim["metadata"]["name"]}
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    assert (claim["apiVersion"], claim["kind"]) == ("v1", "PersistentVolumeClaim")
    jsonschema.Draft202012Validator(chart.schemas()["claim"]).validate(claim["spec"])


def test_nix_builds_in_a_sandbox_and_trusts_root_alone() -> None:
    lines = (MACHINE / "nix.conf").read_text().splitlines()
    settings = dict(line.split(" = ", 1) for line in lines if line and not line.startswith("#"))
    assert (settings["sandbox"], settings["sandbox-fallback"]) == ("true", "false")
    assert settings["trusted-users"] == "root"
