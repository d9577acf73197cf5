"""How long it takes, in seconds that processors work, and against ``sha256sum`` of the same files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench import bench_compliance as bench
from tests.compliance.helpers import write, write_kernel
from tests.integration.conftest import git

pytestmark = pytest.mark.slow


def test_variants_take_no_longer_than_twice_their_hashes(tmp_path: Path) -> None:
    kernel = bench.write_variants(tmp_path / "kernel")
    commands = {"hashed": bench.sha256sum(kernel), "checked": bench.compliance(kernel)}
    seconds = bench.measure(commands, 3)
    assert seconds["checked"] <= 2 * seconds["hashed"], seconds


def test_the_sources_take_half_a_second_on_a_bare_python(tmp_path: Path) -> None:
    seconds = bench.measure({"one": bench.source_only(bench.ROOT)}, 5)
    assert seconds["one"] < 0.5
    # A large kernel, of 300 files with 100 lines each.
    kernel = write_kernel(tmp_path / "kernel")
    for number in range(300):
        text = "".join(f"def f{line}(x, y):\n    return x.a(y) + {line}\n" for line in range(50))
        write(kernel / f"torch-ext/tiny_scale/m{number}.py", text)
    seconds = bench.measure({"large": bench.source_only(kernel)}, 3)
    assert seconds["large"] < 5


@pytest.mark.parametrize("where", ["tests", "torch-ext/tiny_scale", ".", "csrc"])
def test_a_hundred_thousand_sources(where: str, tmp_path: Path) -> None:
    kernel = write_kernel(tmp_path / "kernel")
    bench.fill(kernel / where)
    git(kernel, "init", "--quiet")
    git(kernel, "add", "--all")
    git(kernel, "commit", "--quiet", "--message=All")
    seconds = bench.measure({"sources": bench.source_only(kernel)}, 1)
    assert seconds["sources"] < 10, seconds


def test_a_hundred_thousand_files_of_a_variant(tmp_path: Path) -> None:
    kernel = bench.write_files(tmp_path / "kernel")
    seconds = bench.measure({"built": bench.compliance(kernel)}, 1)
    assert seconds["built"] < 10, seconds
