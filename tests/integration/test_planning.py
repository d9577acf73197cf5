"""Planning with real git repositories, a server of files, and Nix."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from kernel_actions import builder

from tests.integration.conftest import ROOT, git, kernel_actions
from tests.tools import needs
from tests.unit.kernels import CUDA

UNKNOWN = "0123456789" * 4
VERSIONS = """\
# What a later builder may say.
[
  { torchVersion = "3.0"; cudaVersion = "14.1"; systems = [ "x86_64-linux" ]; bundleBuild = true; }
  { torchVersion = "3.0"; cpu = true; systems = [ "x86_64-linux" "aarch64-linux" ]; bundleBuild = true; }
]
"""
BUILD = """\
rec {
  supported = set: versionBetween minTorch (kernelConfig.toml.torch.minver or "2.0");
  frameworkSupported = true;
  stable = kernelConfig.toml.torch."stable-abi" or null; ForBackend = true;
}
"""
FILES = {
    "flake.nix": "{ gen = { torchVersions ? _: versions }: 1; backends = toml ? backends; }",
    "nix-builder/versions.nix": VERSIONS,
    "nix-builder/lib/build.nix": BUILD,
    "nix-builder/lib/gen-flake-outputs.nix": "{ backendBundle = { }; backendCi = { }; }",
}


def _kernel(folder: Path, name: str = "edge", lock: dict[str, Any] | None = None, flake: str = "") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "build.toml").write_text(CUDA.replace('"edge"', f'"{name}"'))
    text = (ROOT / "flake.lock").read_text() if lock is None else json.dumps(lock)
    (folder / "flake.lock").write_text(text)
    if flake:
        (folder / "flake.nix").write_text(flake)
    return folder


def _lock(**locked: Any) -> dict[str, Any]:
    locked = locked or {"type": "github", "owner": "huggingface", "repo": "kernels", "rev": UNKNOWN}
    nodes = {"root": {"inputs": {"kernel-builder": "kb"}}, "kb": {"locked": locked}}
    return {"nodes": nodes, "root": "root", "version": 7}


def _matrix(*arguments: object, **variables: str) -> tuple[int, dict[str, Any], str]:
    finished = kernel_actions(ROOT, "matrix", *map(str, arguments), "--format", "json", variables=variables)
    return finished.returncode, json.loads(finished.stdout or "{}"), finished.stderr


def _names(plan: dict[str, Any]) -> list[str]:
    return [name for entry in plan["include"] for name in entry["variants"]]


# --- Several kernels, and what changed ---


@pytest.fixture
def monorepo(tmp_path: Path) -> Path:
    """Three kernels in a repository with one commit."""
    root = tmp_path / "repo"
    for name in ("vision/blur", "vision/gray", "text/gelu"):
        _kernel(root / name, name.rpartition("/")[2])
    (root / "vision" / "common.h").write_text("// shared\n")
    (root / "README.md").write_text("# Kernels\n")
    git(root, "init", "--quiet", "--initial-branch=main")
    git(root, "add", ".")
    git(root, "commit", "--quiet", "--message=first")
    return root


def _changed(root: Path, since: str = "HEAD") -> set[str]:
    code, plan, err = _matrix("--discover", root, "--changed-since", since, "--allow-empty")
    assert code == 0, err
    return {entry["kernel"] for entry in plan["include"]}


def test_all_kernels_of_a_repository_are_planned_in_one_call(monorepo: Path) -> None:
    code, plan, err = _matrix("--discover", monorepo)
    assert (code, err) == (0, "")
    assert [one["kernel"] for one in plan["kernels"]] == ["gelu", "blur", "gray"]
    assert plan["count"] == 36
    assert {entry["dir"] for entry in plan["include"]} == {
        f"{monorepo}/{name}" for name in ("vision/blur", "vision/gray", "text/gelu")
    }
    code, grouped, _ = _matrix("--discover", monorepo, "--max-jobs", "6")
    assert grouped["count"] == 6 and sorted(_names(grouped)) == sorted(_names(plan))


def test_only_what_changed_is_planned(monorepo: Path) -> None:
    assert _changed(monorepo) == set()
    (monorepo / "text" / "gelu" / "new.cu").write_text("// not committed\n")
    assert _changed(monorepo) == {"gelu"}
    git(monorepo, "add", ".")
    git(monorepo, "commit", "--quiet", "--message=second")
    assert _changed(monorepo) == set()
    assert _changed(monorepo, "HEAD~1") == {"gelu"}
    (monorepo / "vision" / "common.h").write_text("// changed\n")
    # Nothing leads there.
    assert _changed(monorepo) == set()
    (monorepo / "vision" / "gray" / "k.cu").write_text('#include "../common.h"\n')
    git(monorepo, "add", ".")
    git(monorepo, "commit", "--quiet", "--message=third")
    (monorepo / "vision" / "common.h").write_text("// changed again\n")
    assert _changed(monorepo) == {"gray"}


def _plan_since(root: Path, since: str = "HEAD") -> dict[str, Any]:
    code, plan, err = _matrix("--discover", root, "--changed-since", since, "--allow-empty")
    assert code == 0, err
    return plan


def _write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def test_what_no_build_reads_plans_nothing(monorepo: Path) -> None:
    _write(
        monorepo,
        {
            ".github/workflows/build.yml": "on: push\n",
            "scripts/check.py": "print()\n",
            "flake.nix": "{ outputs = _: { }; }\n",
            "flake.lock": "{}\n",
            "text/gelu/README.md": "# GELU\n",
            "text/gelu/CARD.md": "# GELU\n",
            "text/gelu/benchmarks/benchmark.py": "print()\n",
            "text/gelu/kernel-actions.toml": '[release]\ntag-prefix = "gelu/"\n',
        },
    )
    plan = _plan_since(monorepo)
    assert plan["kernels"] == []
    # Compliance looks at what has changed in a kernel's folder, whether or not it is built.
    assert [one["kernel"] for one in plan["checked"]] == ["gelu"]
    reasons = {Path(one["dir"]).name: one["reason"] for one in plan["unchanged"]}
    assert reasons["gelu"] == "no file that its builds or tests read has changed since HEAD"
    assert reasons["blur"] == "unchanged since HEAD"


def test_what_a_change_plans_says_why(monorepo: Path) -> None:
    _write(monorepo, {"text/gelu/k.cu": "// new\n"})
    assert [one["changed"] for one in _plan_since(monorepo)["kernels"]] == ["text/gelu/k.cu has changed"]
    finished = kernel_actions(ROOT, "matrix", "--discover", str(monorepo), "--changed-since", "HEAD")
    assert ": text/gelu/k.cu has changed" in finished.stdout


def test_what_all_kernels_share_is_checked_with_one_of_them(monorepo: Path) -> None:
    _write(monorepo, {".github/workflows/build.yml": "on: push\n"})
    assert [one["kernel"] for one in _plan_since(monorepo)["checked"]] == ["gelu"]
    _write(monorepo, {"vision/gray/README.md": "# Gray\n"})
    assert [one["kernel"] for one in _plan_since(monorepo)["checked"]] == ["gray"]


@pytest.mark.parametrize(
    ("before", "after", "kernels"),
    [
        # What the default is, written down, changes nothing.
        ("", '[runners.test]\n"x86_64-linux.cuda" = ["self-hosted", "linux", "x64", "cuda"]\n', set()),
        ("", '[runners.test]\n"x86_64-linux.rocm" = ["gpu"]\n', set()),
        ("", '[runners.test]\n"x86_64-linux.cuda" = ["gpu"]\n', {"blur", "gray", "gelu"}),
        ("", '[test]\nrequirements = ["einops"]\n', {"blur", "gray", "gelu"}),
        ('[test]\nrequirements = ["einops"]\n', "", {"blur", "gray", "gelu"}),
        ('[test]\nrequirements = ["einops"]\n', '[test]\nrequirements = "einops"\n', set()),
        ("", '[compliance.rules.KA309]\nseverity = "error"\n', set()),
    ],
)
def test_settings_plan_what_they_change(monorepo: Path, before: str, after: str, kernels: set[str]) -> None:
    _write(monorepo, {".github/kernel-actions.toml": before})
    git(monorepo, "add", ".")
    git(monorepo, "commit", "--quiet", "--message=second")
    _write(monorepo, {".github/kernel-actions.toml": after})
    assert _changed(monorepo) == kernels


def test_the_owners_globs_count(monorepo: Path) -> None:
    _write(
        monorepo,
        {
            ".github/kernel-actions.toml": (
                '[changes]\nplan = ["data/**", "*/*/CARD.md"]\nignore = ["vision/*/notes.txt"]\n'
            ),
            "vision/gray/kernel-actions.toml": (
                '[changes]\nplan = "../common.h"\nignore = ["demo/**", "k.cu"]\n'
            ),
        },
    )
    git(monorepo, "add", ".")
    git(monorepo, "commit", "--quiet", "--message=second")
    for name, kernels in (
        ("vision/gray/demo/x.py", set()),
        ("vision/blur/demo/x.py", {"blur"}),
        ("vision/gray/notes.txt", set()),
        ("vision/gray/k.cu", set()),
        ("vision/common.h", {"gray"}),
        ("text/gelu/CARD.md", {"blur", "gray", "gelu"}),
        ("data/x/y", {"blur", "gray", "gelu"}),
    ):
        _write(monorepo, {name: "// changed\n"})
        assert _changed(monorepo) == kernels, name
        git(monorepo, "stash", "--quiet", "--include-untracked")


def test_globs_that_are_none_are_one_error(monorepo: Path) -> None:
    _write(monorepo, {".github/kernel-actions.toml": '[changes]\nplna = ["x"]\nignore = ["/x", ""]\n'})
    code, _, err = _matrix("--discover", monorepo, "--changed-since", "HEAD")
    assert code == 2
    assert "key 'changes.plna' is not known (did you mean plan?)" in err
    assert "changes.ignore has '/x', which is not a glob of paths" in err


def test_a_configuration_around_a_kernel_counts_where_it_is_of_pytest(monorepo: Path) -> None:
    _write(monorepo, {"pyproject.toml": "[tool.ruff]\nline-length = 100\n"})
    assert _changed(monorepo) == set()
    _write(monorepo, {"pyproject.toml": '[tool.pytest.ini_options]\naddopts = ["-x"]\n'})
    assert _changed(monorepo) == {"blur", "gray", "gelu"}


def test_warnings_of_git_are_no_files(monorepo: Path, tmp_path: Path) -> None:
    (monorepo / "text" / "gelu" / "k.cu").write_text("a\n")
    git(monorepo, "add", ".")
    git(monorepo, "commit", "--quiet", "--message=second")
    (monorepo / "text" / "gelu" / "k.cu").write_text("a\r\nb\r\n")
    config = tmp_path / "config"
    config.write_text("[core]\nautocrlf = input\nsafecrlf = warn\n")
    code, plan, _ = _matrix("--discover", monorepo, "--changed-since", "HEAD", GIT_CONFIG_GLOBAL=str(config))
    assert code == 0 and {entry["kernel"] for entry in plan["include"]} == {"gelu"}


def test_names_of_folders_are_no_commands_to_the_runner(tmp_path: Path) -> None:
    folder = tmp_path / "x\n::set-output name=matrix::{}\ny\x1b[31m"
    finished = kernel_actions(ROOT, "matrix", str(_kernel(folder)), "--format", "github")
    assert finished.returncode == 0
    assert not [line for line in finished.stdout.splitlines() if line.startswith("::")]
    assert "\x1b" not in finished.stdout


def test_a_file_name_with_anything_in_it_is_a_file_name(monorepo: Path) -> None:
    (monorepo / "vision" / "gray" / 'a\n"b$(c)é.cu').write_text("")
    assert _changed(monorepo) == {"gray"}


def test_renamed_and_removed_kernels(monorepo: Path) -> None:
    git(monorepo, "mv", "vision/gray", "vision/grey")
    assert _changed(monorepo) == {"gray"}
    git(monorepo, "commit", "--quiet", "--all", "--message=renamed")
    git(monorepo, "rm", "-r", "--quiet", "vision/blur")
    assert _changed(monorepo) == set()


def test_changes_are_counted_from_where_the_branch_began(monorepo: Path) -> None:
    git(monorepo, "switch", "--quiet", "--create", "feature")
    (monorepo / "text" / "gelu" / "k.cu").write_text("")
    git(monorepo, "add", ".")
    git(monorepo, "commit", "--quiet", "--message=on the branch")
    git(monorepo, "switch", "--quiet", "main")
    (monorepo / "vision" / "blur" / "k.cu").write_text("")
    git(monorepo, "add", ".")
    git(monorepo, "commit", "--quiet", "--message=on main meanwhile")
    git(monorepo, "switch", "--quiet", "feature")
    assert _changed(monorepo, "main") == {"gelu"}


def test_nothing_changed_is_an_error_unless_it_is_allowed(monorepo: Path) -> None:
    code, _, err = _matrix("--discover", monorepo, "--changed-since", "HEAD")
    assert (code, err.count("\n")) == (2, 1)
    assert (
        "no build or test of a kernel reads what has changed since 'HEAD' (allow it with --allow-empty)"
        in err
    )


def test_a_shallow_clone_says_so(monorepo: Path, tmp_path: Path) -> None:
    first = git(monorepo, "rev-parse", "HEAD").strip()
    git(monorepo, "commit", "--quiet", "--allow-empty", "--message=second")
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "--quiet", "--depth=1", f"file://{monorepo}", str(clone))
    code, _, err = _matrix("--discover", clone, "--changed-since", first)
    assert code == 2 and "there is no commit" in err and "fetch-depth: 0" in err
    git(clone, "fetch", "--quiet", "--depth=1", "origin", f"{first}:refs/heads/base")
    code, _, err = _matrix("--discover", clone, "--changed-since", "base")
    assert code == 3 and "no common ancestor in this shallow clone" in err and "fetch-depth: 0" in err


@pytest.mark.parametrize("before", ["0" * 40, "1234567890" * 4])
def test_where_a_push_began_with_nothing_all_kernels_are_concerned(monorepo: Path, before: str) -> None:
    # What GitHub names for the first push of a branch, and a commit that a forced push has dropped.
    code, plan, err = _matrix("--discover", monorepo, "--changed-since", before)
    assert (code, {entry["kernel"] for entry in plan["include"]}) == (0, {"gelu", "blur", "gray"})
    assert err == f"kernel-actions: warning: there is no commit {before} here: all kernels are planned\n"


@pytest.mark.parametrize("reference", ["nowhere", "--output=/tmp/x", "HEAD:README.md", "a b", "$(id)"])
def test_a_reference_that_is_none(monorepo: Path, reference: str) -> None:
    code, _, err = _matrix("--discover", monorepo, f"--changed-since={reference}")
    assert (code, err.count("\n")) == (2, 1)
    assert f"there is no commit {reference!r} here" in err


def test_without_a_repository_there_are_no_changes(tmp_path: Path) -> None:
    code, _, err = _matrix(_kernel(tmp_path / "k"), "--changed-since", "HEAD")
    assert (code, err.count("\n")) == (3, 1)
    assert "is not in a git repository with a commit" in err


def test_all_that_is_wrong_in_several_kernels_is_told_at_once(monorepo: Path) -> None:
    (monorepo / "vision" / "gray" / "build.toml").write_text(CUDA.replace("version = 1", "version = -1"))
    (monorepo / "text" / "gelu" / "flake.lock").unlink()
    code, plan, err = _matrix("--discover", monorepo)
    assert (code, plan, err.count("\n")) == (2, {}, 2)
    assert "gray/build.toml:3:11: general.version is -1" in err
    assert "gelu/flake.lock: there is no flake.lock" in err


# --- A builder that the data does not know ---


class _Files(ThreadingHTTPServer):
    """Serves files by repository, commit and path; answers ``failures`` first."""

    def __init__(self, files: dict[str, str]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files = files
        self.failures: list[int] = []
        self.asked: list[str] = []
        self.authorization: list[str | None] = []


class _Handler(BaseHTTPRequestHandler):
    server: _Files

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        self.server.authorization.append(self.headers.get("Authorization"))
        text = self.server.files.get(self.path)
        code = self.server.failures.pop(0) if self.server.failures else (200 if text is not None else 404)
        data = (text or "").encode() if code == 200 else b"no"
        self.send_response(code)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_arguments: Any) -> None:
        return


@pytest.fixture
def files() -> Iterator[_Files]:
    """A server that has an unknown revision of the builder."""
    prefix = f"/huggingface/kernels/{UNKNOWN}"
    server = _Files({f"{prefix}/{path}": text for path, text in FILES.items()})
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def variables(files: _Files, tmp_path: Path) -> dict[str, str]:
    """Variables under which only that server is asked, and nothing is kept from before."""
    return {
        "KA_GITHUB_RAW": f"http://127.0.0.1:{files.server_address[1]}",
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "RUNNER_TEMP": "",
        "PATH": _without_nix(tmp_path),
        "GITHUB_TOKEN": "ghs_planted",
    }


def _without_nix(tmp_path: Path) -> str:
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "python3").symlink_to(Path(sys.executable).resolve())
    for name in ("git", "bash", "env", "uname", "dirname", "readlink", "sed"):
        if found := shutil.which(name):
            (folder / name).symlink_to(found)
    return str(folder)


def test_an_unknown_revision_is_fetched_once(
    tmp_path: Path, files: _Files, variables: dict[str, str]
) -> None:
    kernel = _kernel(tmp_path / "k", lock=_lock())
    code, plan, err = _matrix(kernel, **variables)
    assert code == 0, err
    assert _names(plan) == ["torch30-cxx11-cu141-x86_64-linux"]
    assert plan["builder"] == {"repository": "huggingface/kernels", "commit": UNKNOWN}
    # Its rules are told from its code, which is no text that was seen before: it is said.
    assert f"warning: nix-builder/lib/build.nix of builder revision {UNKNOWN} is not one" in err
    # The token is GitHub's: no mirror gets it.
    assert set(files.authorization) == {None}
    asked = len(files.asked)
    assert _matrix(kernel, **variables)[1] == plan
    assert len(files.asked) == asked


def test_a_server_that_stumbles_is_asked_again(
    tmp_path: Path, files: _Files, variables: dict[str, str]
) -> None:
    files.failures = [503, 429]
    code, plan, _ = _matrix(_kernel(tmp_path / "k", lock=_lock()), **variables)
    assert code == 0 and plan["count"] == 1


@pytest.mark.parametrize(
    ("failures", "code", "message"),
    [
        ([500] * 9, 3, "answered 500"),
        ([403] * 9, 3, "answered 403"),
        ([404] * 9, 2, f"huggingface/kernels has no revision {UNKNOWN}, or is private"),
    ],
)
def test_a_revision_that_cannot_be_had_is_one_line(
    tmp_path: Path, files: _Files, variables: dict[str, str], failures: list[int], code: int, message: str
) -> None:
    files.failures = failures
    found, _, err = _matrix(_kernel(tmp_path / "k", lock=_lock()), **variables)
    assert (found, err.count("\n")) == (code, 1)
    assert message in err and "flake.lock: " in err and UNKNOWN in err
    if code == 3:
        assert "Nix is not installed (give a checkout of the builder with --builder-dir" in err


def test_a_revision_without_its_rules_is_not_guessed_at(
    tmp_path: Path, files: _Files, variables: dict[str, str]
) -> None:
    del files.files[f"/huggingface/kernels/{UNKNOWN}/nix-builder/lib/build.nix"]
    code, _, err = _matrix(_kernel(tmp_path / "k", lock=_lock()), **variables)
    assert (code, err.count("\n")) == (3, 1)
    assert "but not the rules beside it, lib/build.nix" in err
    assert not list((tmp_path / "cache").rglob("*.json"))


@pytest.mark.parametrize("address", ["nonsense", "http://[::1", "http://127.0.0.1:9"])
def test_a_server_that_is_none_is_waited_for_once(
    tmp_path: Path, variables: dict[str, str], address: str
) -> None:
    kernels = [_kernel(tmp_path / f"k{number}", f"k{number}", lock=_lock()) for number in range(5)]
    variables["KA_GITHUB_RAW"] = address
    code, _, err = _matrix(*kernels, **variables)
    assert (code, err.count("\n")) == (3, 5)
    assert err.count("cannot be reached") == 5 and "bug" not in err


def test_no_network_is_one_line(tmp_path: Path, variables: dict[str, str]) -> None:
    variables["KA_GITHUB_RAW"] = "http://127.0.0.1:9"
    code, _, err = _matrix(_kernel(tmp_path / "k", lock=_lock()), **variables)
    assert (code, err.count("\n")) == (3, 1)
    assert "127.0.0.1:9 cannot be reached" in err


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        ("{ lib }: { torchVersions = [ ]; }", 3, "is a function, as in builders before 2025-06-27"),
        ("[ { torchVersion = ", 2, "versions.nix:1:"),
        ('[ { torchVersion = "2.1; rm -rf /"; cpu = true; systems = [ "x" ]; } ]', 2, "versions.nix:1:"),
        ("{ }", 2, "versions.nix:1:"),
    ],
)
def test_a_versions_file_that_is_no_plain_list_is_one_line(
    tmp_path: Path, files: _Files, variables: dict[str, str], text: str, code: int, message: str
) -> None:
    files.files[f"/huggingface/kernels/{UNKNOWN}/nix-builder/versions.nix"] = text
    found, _, err = _matrix(_kernel(tmp_path / "k", lock=_lock()), **variables)
    assert (found, err.count("\n")) == (code, 1), err
    assert message in err


@pytest.mark.parametrize("content", ['{"nix-builder/versions.nix": 3}', "{}", "[" * 100_000, "", "[]"])
def test_a_broken_cache_is_as_none(
    tmp_path: Path, files: _Files, variables: dict[str, str], content: str
) -> None:
    kept = tmp_path / "cache" / "kernel-actions" / "builder" / f"huggingface+kernels@{UNKNOWN}.json"
    kept.parent.mkdir(parents=True)
    kept.write_text(content)
    code, plan, _ = _matrix(_kernel(tmp_path / "k", lock=_lock()), **variables)
    assert code == 0 and plan["count"] == 1


def test_a_fork_is_planned_from_its_own_files_and_named(
    tmp_path: Path, files: _Files, variables: dict[str, str]
) -> None:
    files.files = {path.replace("/huggingface/", "/somebody/"): text for path, text in files.files.items()}
    lock = _lock(type="github", owner="Somebody", repo="kernels", rev=UNKNOWN)
    code, plan, err = _matrix(_kernel(tmp_path / "k", lock=lock), **variables)
    assert code == 0, err
    assert plan["builder"]["repository"] == "somebody/kernels"
    assert "is not the builder itself but somebody/kernels" in err


@pytest.fixture
def checkout(tmp_path: Path) -> tuple[Path, str]:
    """A checkout of a builder, and the commit that has the files; its work tree has others by now."""
    folder = tmp_path / "builder"
    for path, text in FILES.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    git(folder, "init", "--quiet")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message=builder")
    (folder / "nix-builder" / "versions.nix").write_text("[ ]")
    return folder, git(folder, "rev-parse", "HEAD").strip()


def test_a_checkout_is_read_at_the_locked_commit(
    tmp_path: Path, checkout: tuple[Path, str], variables: dict[str, str], files: _Files
) -> None:
    folder, commit = checkout
    lock = _lock(type="github", owner="huggingface", repo="kernels", rev=commit)
    code, plan, err = _matrix(_kernel(tmp_path / "k", lock=lock), "--builder-dir", folder, **variables)
    assert code == 0, err
    assert _names(plan) == ["torch30-cxx11-cu141-x86_64-linux"]
    assert files.asked == []
    code, _, err = _matrix(_kernel(tmp_path / "k", lock=_lock()), "--builder-dir", folder, **variables)
    assert (code, err.count("\n")) == (3, 1)
    assert f"has no commit {UNKNOWN}" in err and f"git -C {folder} fetch" in err


def test_a_builder_without_history_is_read_as_it_lies_there(
    tmp_path: Path, checkout: tuple[Path, str], variables: dict[str, str]
) -> None:
    folder, _ = checkout
    shutil.rmtree(folder / ".git")
    (folder / "nix-builder" / "versions.nix").write_text(VERSIONS)
    lock = _lock(type="path", path="../builder")
    code, plan, err = _matrix(_kernel(tmp_path / "k", lock=lock), "--builder-dir", folder, **variables)
    assert code == 0, err
    assert _names(plan) == ["torch30-cxx11-cu141-x86_64-linux"]
    code, _, err = _matrix(_kernel(tmp_path / "k", lock=lock), **variables)
    assert (code, err.count("\n")) == (2, 1)
    assert "is locked to ../builder, which has no revision" in err and "--builder-dir" in err


@needs("nix")
def test_nix_reads_what_nobody_else_can(tmp_path: Path, checkout: tuple[Path, str]) -> None:
    folder, commit = checkout
    lock = _lock(type="git", url=f"file://{folder}", rev=commit)
    variables = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "RUNNER_TEMP": "", "HOME": str(tmp_path)}
    code, plan, err = _matrix(_kernel(tmp_path / "k", lock=lock), **variables)
    assert code == 0, err
    assert _names(plan) == ["torch30-cxx11-cu141-x86_64-linux"]


# --- flake.nix ---

FLAKE = """\
{{
  inputs.kernel-builder.url = "github:huggingface/kernels";
  outputs = {{ self, kernel-builder }}: kernel-builder.lib.genKernelFlakeOutputs {{
    inherit self;
    path = ./.;
    torchVersions = {function};
  }};
}}
"""
ONLY_213 = 'builtins.filter (v: builtins.compareVersions v.torchVersion "2.13" >= 0)'
# Needs regular expressions, which the evaluator leaves to Nix.
BY_MATCH = 'all: builtins.filter (v: builtins.match "2[.]13" v.torchVersion != null) all'


def test_flake_nix_is_part_of_the_plan(tmp_path: Path) -> None:
    kernel = _kernel(tmp_path / "k", flake=FLAKE.format(function=ONLY_213))
    code, plan, err = _matrix(kernel)
    assert (code, err) == (0, "")
    assert {entry["torch"] for entry in plan["include"]} == {"2.13"}
    reasons = {one["variant"]: one for one in plan["filtered"]}
    removed = reasons["torch212-cxx11-cu130-x86_64-linux"]
    assert removed["reason"] == "torchVersions of flake.nix leaves it out"
    assert removed["where"].startswith(f"{kernel}/flake.nix:6")
    finished = kernel_actions(ROOT, "matrix", "explain", "torch212-cxx11-cu130-x86_64-linux", str(kernel))
    assert f"out: torchVersions of flake.nix leaves it out ({kernel}/flake.nix:6" in finished.stdout


@needs("nix")
@pytest.mark.parametrize(
    "leak",
    [
        "builtins.readFile (/. + SECRET)",
        'builtins.readFile ((builtins.fetchTree { type = "path"; path = FOLDER; rev = REV; }) + "/id")',
        "__readFile (/. + SECRET)",
        "import (/. + SECRET)",
        '"${/. + SECRET}"',
        'builtins.getEnv "PLANTED"',
        "(builtins.fetchGit { url = FOLDER; }).rev",
        'builtins.fetchurl "http://127.0.0.1:9/x"',
        "builtins.toJSON <nixpkgs>",
    ],
)
def test_a_flake_that_goes_to_nix_reads_nothing_and_sends_nothing(tmp_path: Path, leak: str) -> None:
    secret = tmp_path / "secret" / "id"
    secret.parent.mkdir()
    secret.write_text("PLANTED-SECRET")
    for name, value in (("SECRET", secret), ("FOLDER", secret.parent), ("REV", "a" * 40)):
        leak = leak.replace(name, f'"{value}"') if name != "PLANTED" else leak
    # `match` is what sends it to Nix.
    function = f'all: if builtins.match "x" "x" == null then all else throw "leak ${{{leak}}}"'
    kernel = _kernel(tmp_path / "k", flake=FLAKE.format(function=function))
    code, _, err = _matrix(kernel, HOME=str(tmp_path), PLANTED="PLANTED-SECRET")
    assert (code, err.count("\n")) == (3, 1), err
    assert "PLANTED-SECRET" not in err
    assert "it asks for more than is at hand" in err


@needs("nix")
def test_what_only_nix_can_evaluate_is_asked_of_nix(tmp_path: Path) -> None:
    kernel = _kernel(tmp_path / "k", flake=FLAKE.format(function=BY_MATCH))
    code, plan, err = _matrix(kernel, HOME=str(tmp_path))
    assert code == 0, err
    assert {entry["torch"] for entry in plan["include"]} == {"2.13"}


def test_without_nix_the_construct_is_named(tmp_path: Path, variables: dict[str, str]) -> None:
    kernel = _kernel(tmp_path / "k", flake=FLAKE.format(function=BY_MATCH))
    code, _, err = _matrix(kernel, **variables)
    assert (code, err.count("\n")) == (3, 1)
    assert f"{kernel}/flake.nix:6:" in err and "match" in err


@pytest.mark.parametrize(
    "function",
    [
        "all: let x = x; in x",
        "all: let f = n: f (n + 1); in f 0",
        'all: let d = s: d "${s}${s}"; in d "x"',
        "all: let d = l: d (l ++ l); in d all",
        'all: map (v: v // { torchVersion = "$(touch x)"; }) all',
        'all: map (v: v // { systems = [ "../.." ]; }) all',
        "all: builtins.genList (_: builtins.head all) 100000",
        'all: throw "no"',
        "3",
        "all: (" * 5000,
    ],
)
def test_a_hostile_flake_ends_soon_in_one_line(
    tmp_path: Path, variables: dict[str, str], function: str
) -> None:
    kernel = _kernel(tmp_path / "k", flake=FLAKE.format(function=function))
    code, plan, err = _matrix(kernel, **variables)
    assert (plan, err.count("\n")) == ({}, 1), err
    assert code in (2, 3)
    assert f"{kernel}/flake.nix" in err


@pytest.mark.parametrize(
    "call",
    [
        "genKernelFlakeOutputs (import ./arguments.nix)",
        'genKernelFlakeOutputs { inherit self; path = ./.; ${"torch" + "Versions"} = ONLY; }',
    ],
)
def test_what_flake_nix_does_not_name_is_not_overlooked(
    tmp_path: Path, variables: dict[str, str], call: str
) -> None:
    flake = FLAKE.format(function="X")
    start, end = flake.index("genKernelFlakeOutputs"), flake.rindex("};") + 1
    flake = flake[:start] + call.replace("ONLY", f"({ONLY_213})") + flake[end:]
    code, plan, err = _matrix(_kernel(tmp_path / "k", flake=flake), **variables)
    if "import" in call:
        assert code == 3 and "flake.nix:3:" in err
    else:
        assert {entry["torch"] for entry in plan["include"]} == {"2.13"}


# --- Bad input ---


def test_a_large_build_toml_is_one_line(tmp_path: Path) -> None:
    kernel = _kernel(tmp_path / "k")
    (kernel / "build.toml").write_text("# " + "x" * 10_000_000)
    code, _, err = _matrix(kernel)
    assert (code, err.count("\n")) == (2, 1)
    assert "build.toml: is larger than 1 MB" in err


@pytest.mark.parametrize("name", ["a;id", "a\\nb", "../x", "a b", "$(id)", "A", "-x", "é"])
def test_a_hostile_name_is_one_line(tmp_path: Path, name: str) -> None:
    code, _, err = _matrix(_kernel(tmp_path / "k", name=name))
    assert (code, err.count("\n")) == (2, 1)
    assert "build.toml:2:8: " in err


def test_a_folder_with_any_name_is_planned(tmp_path: Path) -> None:
    code, plan, err = _matrix(_kernel(tmp_path / "a\n'b\" $(id) é"))
    assert (code, err) == (0, "")
    assert plan["include"][0]["dir"] == str(tmp_path / "a\n'b\" $(id) é")


# --- Large plans ---


def test_the_outputs_of_a_large_plan_fit(tmp_path: Path) -> None:
    root = tmp_path / "kernels"
    for number in range(80):
        _kernel(root / f"k{number:03}", f"k{number:03}")
    outputs, summary = tmp_path / "outputs", tmp_path / "summary"
    variables = {
        "GITHUB_OUTPUT": str(outputs),
        "GITHUB_STEP_SUMMARY": str(summary),
        "GITHUB_ACTIONS": "true",
    }
    finished = kernel_actions(
        ROOT,
        "matrix",
        "--discover",
        str(root),
        "--format",
        "github",
        "--max-jobs",
        "256",
        variables=variables,
    )
    assert finished.returncode == 0, finished.stderr
    text = outputs.read_text()
    # GitHub counts UTF-16.
    assert 2 * len(text) < 1 << 20
    assert summary.stat().st_size < 1 << 20
    include = json.loads(next(line for line in text.splitlines() if line.startswith('{"include"')))["include"]
    # A kernel has six variants of a system: with up to 256 jobs, one job does them all.
    assert len(include) == 160
    assert sum(len(entry["variants"]) for entry in include) == 80 * 12


def test_the_data_is_updated_from_a_checkout(tmp_path: Path, checkout: tuple[Path, str]) -> None:
    folder, commit = checkout
    git(folder, "checkout", "--quiet", "--", ".")
    git(folder, "remote", "add", "origin", "https://github.com/huggingface/kernels.git")
    git(folder, "switch", "--quiet", "--create", "other")
    (folder / "nix-builder" / "versions.nix").write_text(VERSIONS.replace("14.1", "14.2"))
    git(folder, "commit", "--quiet", "--all", "--message=newer")
    git(folder, "rm", "--quiet", "nix-builder/versions.nix")
    git(folder, "commit", "--quiet", "--message=not a builder any more")
    data = tmp_path / "data"
    shutil.copytree(builder.DATA, data)
    before = (data / "revisions.txt").read_text().splitlines()
    script = str(ROOT / "scripts" / "update_builder_data.py")

    def update() -> str:
        command = [sys.executable, script, str(folder), "--data", str(data)]
        finished = subprocess.run(command, check=False, capture_output=True, text=True)
        assert finished.returncode == 0, finished.stderr
        return finished.stdout

    said = update()
    assert f"{len(before) + 2} revisions, 2 of them new" in said
    assert "new texts of the code that selects and names variants" in said
    lines = (data / "revisions.txt").read_text().splitlines()
    assert lines == sorted(lines) and set(before) < set(lines)
    (added,) = [line for line in lines if line.startswith(commit)]
    table = json.loads((data / "tables" / f"{added.split()[1]}.json").read_text())
    assert [entry.get("cudaVersion") for entry in table] == ["14.1", None]
    assert added.endswith(" 0 - nix-builder/versions.nix huggingface/kernels")
    assert "were not recognised" in said
    # What is checked out is not on the list: the newest stays the one that was.
    assert (data / "newest.txt").read_text() == (builder.DATA / "newest.txt").read_text()
    # Again: nothing is new, and nothing differs.
    assert f"{len(lines)} revisions, 0 of them new" in update()
    assert (data / "revisions.txt").read_text().splitlines() == lines
    git(folder, "checkout", "--quiet", "HEAD~1")
    update()
    assert (data / "newest.txt").read_text().startswith(git(folder, "rev-parse", "HEAD").strip())
