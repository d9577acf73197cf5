"""Whatever a pull request holds: one finding that says so, soon, and never a traceback."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from kernel_actions import built
from kernel_actions.compliance import binary, elf, files, source, variant
from kernel_actions.compliance.engine import MOST_FINDINGS, Problem

from tests.compliance.cases import INIT, VARIANT, Change, added, linked
from tests.compliance.helpers import ID, NAME, ROOT, check, edit, said, sign, write


def _sparse(file: str, size: int) -> Change:
    def change(kernel: Path, _: dict[str, Path]) -> None:
        write(kernel / file, "")
        os.truncate(kernel / file, size)

    return change


def _replaced(file: str, target: str | None) -> Change:
    """A link to ``target`` in the place of a file, or a pipe."""

    def change(kernel: Path, _: dict[str, Path]) -> None:
        (kernel / file).unlink(missing_ok=True)
        if target is None:
            os.mkfifo(kernel / file)
        else:
            (kernel / file).symlink_to(target)

    return change


METADATA = f"{VARIANT}/metadata.json"
PACKAGE = "torch-ext/tiny_scale"
CASES: list[tuple[str, Change, str]] = [
    ("metadata-readable", _sparse(METADATA, 1_000_000_000), "metadata.json:: is larger than 5000000 bytes"),
    (
        "metadata-readable",
        added(METADATA, '{"a":' + "[" * 100_000),
        "metadata.json:1: the loader cannot read it: EOF while parsing a list",
    ),
    (
        "metadata-readable",
        lambda kernel, _: edit(kernel / METADATA, "{", '{"x": ' + "[" * 100_000 + "]" * 100_000 + ","),
        "metadata.json:: is nested too deeply",
    ),
    (
        "metadata-readable",
        added(METADATA, '{"name": "tiny-scale", "name": "tiny-scale"}'),
        "metadata.json:1: the loader cannot read it: duplicate field `name`",
    ),
    (
        "metadata-readable",
        added(METADATA, "[]"),
        "metadata.json:1: the loader cannot read it: invalid length 0, expected struct Metadata…",
    ),
    ("metadata-readable", _replaced(METADATA, None), "metadata.json:: is not a regular file"),
    ("metadata-readable", _replaced(METADATA, "/dev/zero"), "metadata.json:: is not a regular file"),
    (
        "metadata-readable",
        _replaced(METADATA, "gone"),
        "metadata.json:: cannot be read: No such file or directory",
    ),
    ("metadata-namespace", _replaced(f"{VARIANT}/_ops.py", None), "_ops.py:: is not a regular file"),
    (
        "metadata-namespace",
        _sparse(f"{VARIANT}/_ops.py", 2_000_000),
        "_ops.py:: is larger than 1000000 bytes",
    ),
    (
        "layout-special",
        _replaced(f"{VARIANT}/{ID}.abi3.so", None),
        f"{ID}.abi3.so:: is neither a file nor a folder",
    ),
    (
        "layout-links",
        _replaced(f"{VARIANT}/{ID}.abi3.so", "/dev/zero"),
        f"{ID}.abi3.so:: is a link out of the variant",
    ),
    ("binary-readable", _sparse(f"{VARIANT}/x.so", 1_900_000_000), "x.so:: is no library of Linux or macOS"),
    ("manifest-readable", _replaced("build.toml", "/dev/zero"), "build.toml:: is not a regular file"),
    (
        "manifest-readable",
        _sparse("build.toml", 1 << 40),
        "build.toml:: is larger than 1 MB, which no such file needs",
    ),
    ("flake-lock", _replaced("flake.lock", None), "flake.lock:: is not a regular file"),
    ("flake-lock", added("flake.lock", "[" * 100_000), "flake.lock:: is not JSON"),
    ("source-readable", _replaced(INIT, None), "__init__.py:: is not a regular file"),
    ("source-readable", _sparse(f"{PACKAGE}/x.py", 1 << 40), "x.py:: is larger than 1000000 bytes"),
    (
        "source-readable",
        added(f"{PACKAGE}/x.py", "(" * 50_000),
        "x.py:1: cannot be parsed: too many nested parentheses",
    ),
    ("source-readable", added(f"{PACKAGE}/x.py", "-" * 90_000 + "1"), "x.py:…"),
    ("source-readable", added(f"{PACKAGE}/x.py", "# coding: none\n"), "x.py:…"),
    ("source-readable", _sparse("csrc/scale.cpp", 1 << 40), "scale.cpp:: is larger than 10000000 bytes"),
    (
        "manifest-readable",
        lambda kernel, _: edit(kernel / "build.toml", "tiny-scale", "a" * 9000),
        "build.toml:2: general.name has 9000 characters",
    ),
    (
        "manifest-sources",
        lambda kernel, _: edit(kernel / "build.toml", "csrc/scale.cpp", f"csrc/{'a' * 9000}.cpp"),
        "build.toml:18: csrc/aaaa…",
    ),
    (
        "manifest-readable",
        lambda kernel, _: edit(kernel / "build.toml", "csrc/scale.cpp", "csrc/\\u0000.cpp"),
        "build.toml:…",
    ),
    (
        "source-readable",
        _replaced(f"{PACKAGE}/x.py", "/etc/hostname"),
        "x.py:: is a link out of the kernel's folder",
    ),
    # Links to all that is on the machine.
    (
        "source-tests",
        lambda kernel, _: (shutil.rmtree(kernel / "tests"), (kernel / "tests").symlink_to("/")),
        "tests:: no test is marked kernels_ci",
    ),
    (
        "source-tests",
        _replaced("tests/test_scale.py", "/etc/hostname"),
        "tests:: no test is marked kernels_ci",
    ),
    ("source-tests", _replaced("tests/test_scale.py", None), "tests:: no test is marked kernels_ci"),
    ("source-tests", added("tests/test_scale.py", "kernels_ci ("), "tests:: no test is marked kernels_ci"),
]


@pytest.mark.parametrize(
    ("slug", "change", "message"),
    CASES,
    ids=[f"{slug}-{number}" for number, (slug, _, _) in enumerate(CASES)],
)
def test_one_finding_soon(
    slug: str, change: Change, message: str, kernel: Path, libraries: dict[str, Path]
) -> None:
    change(kernel, libraries)
    started = time.monotonic()
    expected, cut, _ = message.partition("…")
    assert [one[: len(expected)] if cut else one for one in said(check(kernel), slug)] == [expected]
    assert time.monotonic() - started < 3


def test_a_listing_of_too_many_files_is_cut(kernel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MOST_FILES", 100)
    for number in range(150):
        write(kernel / VARIANT / "many" / f"{number}.pyc", "")
    report = check(kernel)
    assert said(report, "layout-size") == [
        f"{NAME}:: there are more than 100 files: not all of them were checked"
    ]
    found = said(report, "layout-bytecode")
    assert len(found) == MOST_FINDINGS + 1
    more = [one for one in found if one.endswith(f": there is more of this: only {MOST_FINDINGS} are listed")]
    assert len(more) == 1


DEEP = {
    "attributes": "a" + ".b" * 1200,
    "sums": "1" + "+1" * 1200,
    "calls": "a" + "()" * 1200,
    "signs": "-" * 1200 + "1",
    "lists": "[" * 90 + "]" * 90,
}


@pytest.mark.parametrize("what", DEEP)
def test_what_is_nested_deeply_is_looked_at_or_a_finding(what: str, kernel: Path) -> None:
    text = DEEP[what]
    write(
        kernel / INIT,
        f'__all__ = ["twice"]\nif {text}:\n    import numpy\nlib.impl({text})\n'
        f"@{text}\ndef twice(x: {text} = {text}): pass\nlib.register_fake({text})\n",
    )
    # Where Python itself cannot parse it, that is the finding. What a condition guards is no certain error.
    slugs = {one.rule.slug for one in check(kernel).findings if not one.variant}
    assert slugs <= {"source-later-imports", "source-readable", "source-fake"}, slugs
    assert slugs & {"source-later-imports", "source-readable"}


def test_a_rule_that_runs_out_of_depth_is_a_finding(kernel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def dig(_: object) -> list[Problem]:
        return dig(_)

    monkeypatch.setitem(source.RULES.functions, "source-all", dig)
    assert said(check(kernel), "source-all") == ["build.toml:: cannot be checked: it is nested too deeply"]


def test_more_python_than_a_kernel_has_is_not_read(kernel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernel_actions.compliance.kernel._LARGEST_ALL_PYTHON", 1000)
    for name in ("x", "y", "z"):
        write(kernel / PACKAGE / f"{name}.py", "#" * 500)
    assert said(check(kernel), "source-readable") == [
        "y.py:: is not read: there is more before it than a kernel has"
    ]


def test_text_that_looks_like_code_does_not_slow_the_search(kernel: Path) -> None:
    for text in (
        "/*" * 500_000,
        '"' * 1_000_001,
        "'" * 1_000_000,
        'R"x(' * 250_000,
        "#define \\\n" * 100_000,
    ):
        write(kernel / "csrc/scale.cpp", f"TORCH_LIBRARY\n{text}")
        started = time.monotonic()
        assert said(check(kernel), "source-literal-library") == []
        assert time.monotonic() - started < 3


def test_control_characters_are_shown_as_text(kernel: Path) -> None:
    write(
        kernel / "build.toml",
        (kernel / "build.toml").read_text().replace("csrc/scale.cpp", "\\u001b[2J\\n::error::x"),
    )
    report = check(kernel)
    finding = next(one for one in report.findings if one.rule.slug == "manifest-readable")
    assert finding.message.endswith(".src has the control character '\\x1b'")


def test_links_out_of_the_variant_are_not_read(kernel: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("secret")
    linked(str(secret))(kernel, {})
    sign(kernel / VARIANT)
    assert said(check(kernel), "metadata-digest") == [
        "metadata.json:2: the digest lists link.txt, which is not there"
    ]


def test_damaged_libraries_never_raise(libraries: dict[str, Path], tmp_path: Path) -> None:
    whole = libraries["glibc"].read_bytes()
    name = variant.parse_name(NAME)
    chance = random.Random(7)
    for number in range(400):
        data = bytearray(whole)
        for _ in range(chance.choice([1, 1, 4, 16])):
            # The headers at both ends decide the most.
            at = chance.choice(
                [chance.randrange(64), chance.randrange(-2000, 0), chance.randrange(len(data))]
            )
            data[at] = chance.choice([0, 127, 128, 255, chance.randrange(256)])
        if number % 8 == 0:
            del data[chance.randrange(len(data)) :]
        path = tmp_path / "damaged.so"
        path.write_bytes(data)
        read = binary.read(path, name)
        for finding in binary.RULES.check(read, read.where):
            assert finding.message.isprintable()


def test_headers_that_point_out_of_the_file_are_empty(libraries: dict[str, Path], tmp_path: Path) -> None:
    chance = random.Random(11)
    path = tmp_path / "damaged.so"
    started = time.monotonic()
    for library in ("rpath", "stripped"):
        whole = libraries[library].read_bytes()
        for _ in range(300):
            data = bytearray(whole)
            # The header of the file, those of its segments, and at its end those of its sections.
            for at in (chance.randrange(16, 64), chance.randrange(64, 700), -chance.randrange(1, 1800)):
                data[at : at + 4 if at + 4 else None] = chance.randbytes(4)
            path.write_bytes(data)
            header = elf.read_header(path)
            assert len(header.symbols) < 100_000 and len(elf.symbols_alone(header)) < 10_000_000
    assert time.monotonic() - started < 30


def test_a_huge_library_is_checked_by_its_symbols(
    libraries: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def messages(path: Path) -> list[str]:
        read = binary.read(path, variant.parse_name(NAME))
        return [one.message for one in binary.RULES.check(read, read.where)]

    expected = {name: messages(path) for name, path in libraries.items()}
    assert "uses pthread_create of GLIBC 2.34" in expected["glibc"]
    monkeypatch.setattr(binary, "LARGEST_WHOLE", 1000)
    monkeypatch.setattr(binary, "LARGEST_MACH_O", 1000)
    for name, path in libraries.items():
        if not name.startswith("macos"):
            assert messages(path) == expected[name], name
    cut = tmp_path / "cut.so"
    for size in (5000, 12_000):
        cut.write_bytes(libraries["good"].read_bytes()[:size])
        assert messages(cut) == ["is cut off"]
    cut.write_bytes(libraries["macos15"].read_bytes() + b"\0" * 1000)
    assert messages(cut) == ["is larger than 1000 bytes, and not read"]


def test_a_huge_library_takes_no_memory(libraries: dict[str, Path], tmp_path: Path) -> None:
    path = tmp_path / "huge.so"
    path.write_bytes(libraries["glibc"].read_bytes())
    os.truncate(path, 1_900_000_000)
    program = f"""
import resource
from pathlib import Path
from kernel_actions.compliance import binary, variant
resource.setrlimit(resource.RLIMIT_AS, (600_000_000, 600_000_000))
read = binary.read(Path({str(path)!r}), variant.parse_name({NAME!r}))
print(*(one.message for one in binary.RULES.check(read, read.where)))
"""
    finished = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": str(ROOT / "scripts")}, capture_output=True, text=True, check=False, timeout=20,
    )  # fmt: skip
    assert (finished.stdout, finished.stderr) == ("uses pthread_create of GLIBC 2.34\n", "")


def test_what_keeps_a_rule_from_looking_is_a_finding(kernel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> str:
        raise PermissionError(13, "Permission denied", str(kernel / VARIANT / "_ops.py"))

    monkeypatch.setattr(built, "file_hash", refuse)
    assert said(check(kernel), "metadata-digest") == ["_ops.py:: cannot be checked: Permission denied"]


def test_the_marker_is_the_one_of_the_tests() -> None:
    from kernel_actions import test
    from kernel_actions.compliance import kernel_tests

    assert kernel_tests.MARKER == test.MARKER
