"""The gate: each thing that may be missing is told, with what to do about it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kernel_actions import built, release
from kernel_actions.errors import KernelFailed
from kernel_actions.hub import client
from kernel_actions.release import gate, preparation
from kernel_actions.release.gate import Conditions

from tests.release.helpers import CPU, CUDA, Kernel, command

# What a Hub that others use takes.
STRICT = Conditions(
    commit="",
    planned=frozenset({CPU, CUDA}),
    known=frozenset({CPU, CUDA}),
    is_partial=False,
    takes_anything=False,
    takes_local_builds=False,
    has_uncommitted_changes=False,
)


class _NoFindings:
    findings = ()


def told(kernel: Kernel, **changed: Any) -> list[str]:
    """What is missing of what is in the kernel's build folder."""
    values = {**STRICT.__dict__, "commit": kernel.head, **changed}
    found = gate.candidates(built.find(kernel.root / "build"))
    missing = gate.lacks(found, Conditions(**values), _NoFindings(), Path("build"))  # type: ignore[arg-type]
    assert all(one.repair for one in missing)
    return [str(one) for one in missing]


def test_nothing_is_missing(kernel: Kernel) -> None:
    kernel.build()
    assert told(kernel) == []


def _change(kernel: Kernel, name: str, change: Callable[[dict[str, Any]], None]) -> None:
    path = kernel.root / "build" / name
    value = json.loads(path.read_bytes())
    change(value)
    path.write_text(json.dumps(value))


def _unprovenanced(kernel: Kernel) -> None:
    _change(kernel, f"{CPU}/metadata.json", lambda value: value.pop("provenance"))


@pytest.mark.parametrize(
    ("act", "expected"),
    [
        (lambda k: k.build(CPU), [f"{CUDA} was not built"]),
        (lambda k: k.build(CPU, tested=False), [f"{CUDA} was not built", f"{CPU} was not tested"]),
        (lambda k: k.test(CPU, verdict="failed", failed=2), [f"{CPU} failed its tests (2 of 5)"]),
        (lambda k: k.test(CPU, passed=0), [f"{CPU} failed its tests (0 of 0)"]),
        (lambda k: k.test(CPU, digest="0" * 64), [f"{CPU} was tested before it was built as it is now"]),
        (lambda k: k.build(CPU, dirty=True), [f"{CPU} was built with uncommitted changes"]),
        (lambda k: k.build(CPU, builder="local"), [f"{CPU} was built by the local builder"]),
        (
            lambda k: built.build_report_path(k.root / "build" / CPU).unlink(),
            [f"{CPU} has no build report"],
        ),
        (lambda k: k.build(CPU, commit="a" * 40), [f"{CPU} was built from commit aaaaaaaaaaaa, not"]),
        (_unprovenanced, [f"{CPU} does not say its commit"]),
        (
            lambda k: _change(k, f"{CPU}/metadata.json", lambda value: value.pop("digest")),
            [f"{CPU} does not list the hashes"],
        ),
        (
            lambda k: (k.root / "build" / f"{CPU}.test-report.json").write_text("{"),
            [f"{CPU} was tested before it was built"],
        ),
        (lambda k: k.build("torch-xpu"), ["torch-xpu is not among the variants of the locked builder"]),
    ],
)  # fmt: skip
def test_what_is_missing(kernel: Kernel, act: Callable[[Kernel], None], expected: list[str]) -> None:
    kernel.build()
    if CUDA in expected[0]:
        for path in sorted((kernel.root / "build").rglob("*"), reverse=True):
            path.unlink() if path.is_file() else path.rmdir()
    act(kernel)
    found = told(kernel)
    assert len(found) == len(expected), found
    assert all(one.startswith(start) for one, start in zip(found, expected, strict=True)), found


def test_a_variant_for_a_gpu_that_was_tested_without_one(kernel: Kernel) -> None:
    kernel.build()
    kernel.test(CUDA, gpu=None)
    assert told(kernel) == [f"{CUDA} was tested without a GPU (--require-gpu never)"]


def test_the_build_report_says_where_a_variant_of_an_old_builder_is_from(kernel: Kernel) -> None:
    kernel.build()
    _unprovenanced(kernel)
    _change(kernel, f"{CPU}.build-report.json", lambda value: value.update(commit=kernel.head, dirty=False))
    assert told(kernel) == []


def test_what_only_an_embedded_hub_takes(kernel: Kernel) -> None:
    kernel.build(CPU, dirty=True, builder="local")
    assert told(kernel, is_partial=True, takes_anything=True, has_uncommitted_changes=True) == []
    assert told(kernel, is_partial=True, has_uncommitted_changes=True) == [
        "the working tree has uncommitted changes",
        "a partial release is for an embedded Hub alone",
        f"{CPU} was built by the local builder",
        f"{CPU} was built with uncommitted changes",
    ]
    kernel.build(builder="local")
    assert told(kernel, takes_local_builds=True) == []


def test_an_empty_build_folder(kernel: Kernel) -> None:
    assert told(kernel) == ["build has no built variant", f"{CPU} was not built", f"{CUDA} was not built"]


def test_all_that_is_missing_is_in_the_table_and_one_line_says_it(kernel: Kernel, address: str) -> None:
    kernel.build(CPU, tested=False)
    (kernel.root / "build" / CPU / "extra.py").write_text("x = 1\n")
    finished = command(kernel.root, "release", "--hub", address)
    assert finished.returncode == 1
    assert [line.split("  ")[0] for line in finished.stdout.splitlines() if "  " in line][-3:] == [
        CUDA,
        CPU,
        CPU,
    ]
    assert "--variant torch-cuda, or release without it by --partial" in finished.stdout
    error = finished.stderr.splitlines()[-1]
    assert error.startswith(
        "kernel-actions: 1.0.0 is not released, 3 things are missing: torch-cuda was not built; "
    )
    value = json.loads(command(kernel.root, "release", "--hub", address, "--format", "json").stdout)
    assert [one["variant"] for one in value["missing"]] == [CUDA, CPU, CPU]
    assert value["report"].endswith("build/report.html")


def test_a_release_that_is_refused_leaves_a_page_and_one_summary(
    kernel: Kernel, address: str, tmp_path: Path
) -> None:
    kernel.build(CPU, tested=False)
    summary, outputs = tmp_path / "summary", tmp_path / "outputs"
    finished = command(
        kernel.root, "release", "--hub", address, "--format", "github",
        GITHUB_ACTIONS="true", GITHUB_STEP_SUMMARY=str(summary), GITHUB_OUTPUT=str(outputs),
    )  # fmt: skip
    assert finished.returncode == 1
    text = summary.read_text()
    assert text.startswith("### ❌ relu 1.0.0") and text.count("### ❌") == 1
    assert text.index("torch-cuda | was not built") < text.index("| system | torch |")
    page = (kernel.root / "build" / "report.html").read_text()
    assert "was not built" in page and "Failed" in page
    assert "build/report.html" in outputs.read_text()
    assert "\nReport: " in finished.stdout


def test_a_hub_that_others_use_is_strict(
    kernel: Kernel, address: str, quick: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "_says_it_is_embedded", lambda url: False)
    (kernel.root / "build.toml").write_text((kernel.root / "build.toml").read_text() + "\n")
    kernel.build(CPU, dirty=True, builder="local")
    with pytest.raises(
        KernelFailed, match="4 things are missing: the working tree has uncommitted changes"
    ) as caught:
        kernel.release(address, partial=True)
    assert "a partial release is for an embedded Hub alone" in str(caught.value)
    kernel.commit("Settle it")
    kernel.build()
    assert str(kernel.release(address).plan.version) == "1.0.0"


def test_variants_of_another_version_are_refused(kernel: Kernel, address: str) -> None:
    kernel.build(version=2)
    with pytest.raises(KernelFailed, match=r"is of version 2, but build\.toml says 1"):
        release.prepare(kernel.root, address=address)


def test_a_plan_is_not_needed_for_a_partial_rehearsal(
    kernel: Kernel, address: str, quick: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel.build(CPU)
    monkeypatch.setattr(preparation, "_planned", lambda *_unused, is_needed: (frozenset(), None, {}))
    assert kernel.release(address, partial=True).commit
