"""Rules about what a pull request changes: each with what breaks it, what keeps it, and what is said."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from kernel_actions import compliance
from kernel_actions.cli import main
from kernel_actions.compliance.engine import Report
from kernel_actions.errors import WrongInput, WrongSurroundings

from tests.compliance.cases import INIT, UNKNOWN
from tests.compliance.helpers import edit, said, write, write_kernel
from tests.integration.conftest import git

Change = Callable[[Path], object]
OTHER = "9" * 40
CLASS = """
__all__ += ["Scale"]


class Scale:
    size: int

    def __init__(self, by): ...
    def forward(self, x): ...
    def _own(self): ...
"""
NOARCH = '[torch]\nsrc = ["torch-ext/binding.cpp"]'


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A kernel that keeps all rules, with one commit; the branch ``base`` stays at it."""
    kernel = write_kernel(tmp_path / "kernel")
    write(kernel / "torch-ext/tiny_scale/more.py", "def half(x, by=2):\n    pass\n")
    write(kernel / "data.bin", "\0\0")
    git(kernel, "init", "--quiet")
    _commit(kernel)
    git(kernel, "branch", "base")
    return kernel


def _commit(kernel: Path) -> None:
    git(kernel, "add", "--all")
    git(kernel, "commit", "--quiet", "--allow-empty", "--message=All")


def _check(kernel: Path, base: str = "base") -> Report:
    return compliance.check_folders(kernel, base=base)


def _write(name: str, text: str) -> Change:
    return lambda kernel: write(kernel / name, text)


def _bytes(name: str, data: bytes) -> Change:
    def change(kernel: Path) -> None:
        write(kernel / name, "")
        (kernel / name).write_bytes(data)

    return change


def _edit(name: str, old: str, new: str) -> Change:
    return lambda kernel: edit(kernel / name, old, new)


def _all(*changes: Change) -> Change:
    return lambda kernel: [change(kernel) for change in changes]


def _submodule(kernel: Path) -> None:
    git(kernel, "update-index", "--add", "--cacheinfo", f"160000,{OTHER},third_party/cutlass")
    (kernel / "third_party/cutlass").mkdir(parents=True)


BREAKS: dict[str, list[tuple[Change, str]]] = {
    "pull-request-build": [
        (_write("build/torch-cpu/__init__.py", ""), "__init__.py:: is in the folder of built variants"),
    ],
    "pull-request-binaries": [
        (_bytes("csrc/x.a", b"!<arch>\n\0"), "x.a:: is a binary file"),
        (_bytes("docs/x", b"\x7fELF\2\1\0"), "x:: is a binary file"),
        (_bytes("data.bin", b"\1\0"), "data.bin:: is a binary file"),
    ],
    "pull-request-links": [
        (
            lambda kernel: os.symlink("/etc/passwd", kernel / "csrc/x.h"),
            "x.h:: is a symbolic link to /etc/passwd",
        ),
    ],
    "pull-request-submodules": [
        (_submodule, "cutlass:: adds the submodule"),
        (
            _write(".gitmodules", '[submodule "x"]\n'),
            ".gitmodules:: changes where submodules come from",
        ),
    ],
    "pull-request-lock": [
        (
            _edit("flake.lock", "8ac69fc542a4306eade0759ef7c45b4f2ae57df0", UNKNOWN),
            "flake.lock:: locks kernel-builder to ffffffffffff in place of 8ac69fc542a4",
        ),
        (
            lambda kernel: write(kernel / "flake.lock", (kernel / "flake.lock").read_text() + "\n"),
            "flake.lock:: differs, with the same revisions",
        ),
    ],
    "pull-request-workflows": [
        (_write(".github/workflows/x.yml", "on: push\n"), "x.yml:: changes what runs in jobs"),
        (_write("tools/action.yml", "name: x\n"), "action.yml:: changes what runs in jobs"),
    ],
    "pull-request-size": [(_write("notes.txt", "x\n" * 600_000), "notes.txt:: has 1.2 MB")],
    "pull-request-api": [
        (
            _edit(INIT, '["twice"]', '["twice", "thrice"]'),
            "__init__.py:5: version 3 is kept, but thrice is new",
        ),
        (_edit(INIT, '["twice"]', "[]"), "__init__.py:5: version 3 is kept, but twice is gone"),
        (
            _edit(INIT, "def twice(x):", "def twice(x, *, by: int = 2):"),
            "__init__.py:5: version 3 is kept, but twice was (x) and is (x, *, by: int=2)",
        ),
        (
            _edit(INIT, "def twice(x):", "def twice(y):"),
            "__init__.py:5: version 3 is kept, but twice was (x) …",
        ),
    ],
    "pull-request-api-replaced": [
        (
            _all(
                _edit("build.toml", NOARCH, "[torch-noarch]"),
                lambda kernel: write(
                    kernel / "build.toml", (kernel / "build.toml").read_text().partition("[kernel.scale]")[0]
                ),
                _edit(INIT, "def twice(x):", "def twice(x, y):"),
            ),
            "__init__.py:5: version 3 is kept, but twice was (x) and is (x, y)",
        ),
        (
            _all(
                _edit("build.toml", "[torch]", '[torch]\nstable-abi = "2.11"'),
                _edit(INIT, '["twice"]', "[]"),
            ),
            "__init__.py:5: version 3 is kept, but twice is gone",
        ),
    ],
    "pull-request-policy": [
        (
            _write("kernel-actions.toml", '[release]\ntag-prefix = "x/"\n'),
            "kernel-actions.toml:: changes which rules count, or what else this suite does",
        ),
    ],
}
KEEPS: dict[str, list[Change]] = {
    "pull-request-build": [_write("build/action.yml", "name: x\n"), _write("builder/x", "")],
    "pull-request-binaries": [
        _bytes("docs/x.png", b"\x89PNG\r\n\x1a\n\0"),
        _write("docs/x.md", "ö\n"),
        lambda kernel: (kernel / "data.bin").unlink(),
    ],
    "pull-request-links": [_write("csrc/x.h", "/etc/passwd")],
    "pull-request-submodules": [_write("third_party/x.h", "")],
    "pull-request-lock": [_write("flake.nix", "{ }\n")],
    "pull-request-workflows": [_write("docs/workflows/x.yml", "on: push\n")],
    "pull-request-size": [_write("notes.txt", "x\n" * 400_000)],
    "pull-request-api": [
        _all(
            _edit("build.toml", "version = 3", "version = 4"), _edit(INIT, '["twice"]', '["twice", "thrice"]')
        ),
        # Types that nobody named before, other words inside, and what is not public.
        _edit(INIT, "def twice(x):", "def twice(x: int) -> int:"),
        _edit(INIT, "return ops.twice(x)", "return ops.twice(x) * 1\n\n\ndef _more(x):\n    pass"),
        _edit(INIT, '__all__ = ["twice"]', '__all__ = []\n__all__.append("twice")'),
        # The same function from another module.
        _all(
            _edit(INIT, "def twice(x):\n    return ops.twice(x)", "from .ways import double as twice"),
            _write("torch-ext/tiny_scale/ways.py", "from .deep import *\n"),
            _write("torch-ext/tiny_scale/deep.py", "def double(x):\n    pass\n"),
        ),
        # What cannot be told without running it.
        _edit(INIT, '__all__ = ["twice"]', "__all__ = sorted(globals())"),
        _edit("build.toml", "version = 3", 'version = "x"'),
    ],
    "pull-request-api-replaced": [
        _all(
            _edit("build.toml", "[torch]", '[torch]\nstable-abi = "2.11"'),
            _edit(INIT, '["twice"]', '["twice", "thrice"]'),
        ),
        _edit(INIT, '["twice"]', "[]"),
    ],
    "pull-request-policy": [_write("actions.toml", "")],
}


@pytest.mark.parametrize(
    ("slug", "change", "message"),
    [(slug, change, message) for slug, cases in BREAKS.items() for change, message in cases],
    ids=[f"{slug}-{number}" for slug, cases in BREAKS.items() for number in range(len(cases))],
)
@pytest.mark.parametrize("committed", [True, False])
def test_broken(slug: str, change: Change, message: str, committed: bool, repository: Path) -> None:
    change(repository)
    if committed and change is not _submodule:
        _commit(repository)
    elif change is not _submodule:
        git(repository, "add", "--all", "--force")
    report = _check(repository)
    expected, cut, _ = message.partition("…")
    assert [one[: len(expected)] if cut else one for one in said(report, slug)] == [expected]
    finding = next(one for one in report.findings if one.rule.slug == slug)
    assert finding.repair and finding.rule.link.startswith("https://")
    # Without a base nothing is compared.
    assert said(compliance.check(repository, source_only=True), slug) == []


@pytest.mark.parametrize(
    ("slug", "change"),
    [(slug, change) for slug, changes in KEEPS.items() for change in changes],
    ids=[f"{slug}-{number}" for slug, changes in KEEPS.items() for number in range(len(changes))],
)
def test_kept(slug: str, change: Change, repository: Path) -> None:
    change(repository)
    git(repository, "add", "--all", "--force")
    assert said(_check(repository), slug) == []


def test_an_unstable_kernel_may_change(repository: Path) -> None:
    edit(repository / "build.toml", "version = 3", "version = 0")
    _commit(repository)
    git(repository, "branch", "--force", "base")
    edit(repository / INIT, '["twice"]', "[]")
    assert said(_check(repository), "pull-request-api") == []


def test_methods_and_fields_of_classes_are_public(repository: Path) -> None:
    path = repository / INIT
    path.write_text(path.read_text() + CLASS)
    _commit(repository)
    git(repository, "branch", "--force", "base")
    edit(path, "size: int", "width: int")
    edit(path, "def forward(self, x)", "def forward(self, x, y=1)")
    edit(path, "def __init__(self, by): ...", "def reset(self): ...")
    edit(path, "def _own(self)", "def _own(self, x)")
    start = "__init__.py:5: version 3 is kept, but Scale."
    assert said(_check(repository), "pull-request-api") == [
        f"{start}__init__ is gone",
        f"{start}forward was (self, x) and is (self, x, y=1)",
        f"{start}reset(self) is new",
        f"{start}size is gone",
        f"{start}width is new",
    ]


def test_what_the_base_branch_did_meanwhile_is_not_the_pull_requests(repository: Path) -> None:
    git(repository, "checkout", "--quiet", "-b", "feature")
    write(repository / "csrc/new.h", "")
    _commit(repository)
    git(repository, "checkout", "--quiet", "base")
    edit(repository / INIT, '["twice"]', '["twice", "more"]')
    write(repository / ".github/workflows/x.yml", "on: push\n")
    _commit(repository)
    git(repository, "checkout", "--quiet", "feature")
    assert _check(repository).findings == ()


def test_a_kernel_in_a_folder_is_checked_with_what_all_share(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_kernel(tmp_path / "kernels" / name)
    git(tmp_path, "init", "--quiet")
    _commit(tmp_path)
    git(tmp_path, "branch", "base")
    for name in ("one", "two"):
        edit(tmp_path / "kernels" / name / INIT, '["twice"]', "[]")
        os.symlink("x", tmp_path / "kernels" / name / "link")
    write(tmp_path / ".github/workflows/x.yml", "on: push\n")
    _commit(tmp_path)
    found = _check(tmp_path / "kernels/one")
    assert [one.rule.id for one in found.findings if one.rule.id.startswith("KA4")] == [
        "KA406", "KA403", "KA408",
    ]  # fmt: skip
    # What all share is told once, with the first kernel that the pull request changes.
    found = _check(tmp_path / "kernels/two")
    assert [one.rule.id for one in found.findings if one.rule.id.startswith("KA4")] == ["KA403", "KA408"]


def test_hostile_names_and_contents(repository: Path) -> None:
    write(repository / "build" / "a\n::error::b\x1b[2J", "")
    write(repository / INIT, "__all__ = [" + "(" * 5000)
    write(repository / "torch-ext/tiny_scale/a.py", "from .a import *\nfrom . import *\n")
    os.mkfifo(repository / "pipe")
    git(repository, "add", "--all", "--force")
    report = _check(repository)
    assert said(report, "pull-request-build") == ["a\n::error::b\x1b[2J:: is in the folder of built variants"]
    assert said(report, "pull-request-api") == []


def test_a_name_that_is_not_utf_8_hides_no_binary(repository: Path) -> None:
    with open(os.fsencode(repository) + b"/csrc/\xff", "wb") as file:
        file.write(b"\x7fELF\0")
    git(repository, "add", "--all")
    assert said(_check(repository), "pull-request-binaries") == [
        "\ufffd:: cannot be looked at: No such file or directory"
    ]


def test_very_many_branches(repository: Path) -> None:
    commit = git(repository, "rev-parse", "HEAD").strip()
    packed = "".join(f"{commit} refs/heads/b{number:05}\n" for number in range(10_000))
    (repository / ".git/packed-refs").write_text(packed)
    edit(repository / INIT, '["twice"]', "[]")
    assert said(_check(repository, "b04711"), "pull-request-api") != []


@pytest.mark.parametrize(
    "base",
    ["--output=x", "-h", "--", "a..b", ":/All", "HEAD:build.toml", "a\n::error::b", "\x1b[2J", "x" * 9999,
     "$(touch x)", "@{-1}", "ö", "../x"],
)  # fmt: skip
def test_a_base_that_is_no_commit_is_said_in_one_line(
    base: str, repository: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(repository)
    assert main(["compliance", "--source-only", f"--base={base}"]) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.startswith("kernel-actions: there is no commit ")
    assert said.err.removesuffix("\n").isprintable() and len(said.err) < 300
    assert not (repository / "x").exists()


def test_what_the_repository_configures_for_git_is_not_run(repository: Path, tmp_path: Path) -> None:
    mark = tmp_path / "run"
    write(repository / ".gitattributes", "* diff=evil\n")
    for name in ("core.fsmonitor", "diff.external", "diff.evil.command", "diff.evil.textconv", "core.pager"):
        git(repository, "config", name, f"touch {mark}")
    edit(repository / "csrc/scale.cpp", "{}", "{ }")
    _check(repository)
    assert not mark.exists()


def test_a_circle_of_imports_ends(repository: Path) -> None:
    edit(repository / INIT, "def twice(x):\n    return ops.twice(x)", "from .a import *")
    write(repository / "torch-ext/tiny_scale/a.py", "from .b import *\n")
    write(repository / "torch-ext/tiny_scale/b.py", "from .a import *\nfrom . import *\n")
    git(repository, "add", "--all")
    assert said(_check(repository), "pull-request-api") == []


def test_a_base_that_is_not_there(repository: Path, tmp_path: Path) -> None:
    with pytest.raises(WrongInput, match="there is no commit 'gone' here"):
        _check(repository, "gone")
    with pytest.raises(WrongInput, match="there is no commit"):
        _check(repository, "--output=x")
    with pytest.raises(WrongSurroundings, match="is not in a git repository"):
        _check(write_kernel(tmp_path / "outside"), "base")


def test_the_command_takes_it(
    repository: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(repository)
    edit(repository / INIT, '["twice"]', "[]")
    assert main(["compliance", "--source-only"]) == 0
    assert main(["compliance", "--source-only", "--base", "base"]) == 1
    out = capsys.readouterr().out
    assert "torch-ext/tiny_scale/__init__.py:5:1  version 3 is kept, but twice is gone" in out
    assert "raise general.version of build.toml by one; if the release replaces every published" in out
