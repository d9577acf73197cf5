"""``matrix explain``: why a variant is in or out."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from kernel_actions import cli

from tests.unit.kernels import CUDA


def _explain(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = cli.main(["matrix", "explain", *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.mark.parametrize(
    ("old", "new", "name", "verdict"),
    [
        ("", "", "torch213-cxx11-cu130-x86_64-linux", "in: planned, scope release"),
        (
            "[torch]\n",
            '[torch]\nminver = "2.13"\n',
            "torch212-cxx11-cu130-x86_64-linux",
            'out: Torch 2.12 is below torch.minver = "2.13" (build.toml:12:1)',
        ),
        (
            "[general.hub]\n",
            '[general.cuda]\nmaxver = "13.0"\n[general.hub]\n',
            "torch213-cxx11-cu132-x86_64-linux",
            'out: CUDA 13.2 is above general.cuda.maxver = "13.0" (build.toml:9:1)',
        ),
        ("", "", "torch-cpu", "out: cpu is not in general.backends (build.toml:6:1)"),
        (
            "[torch]\n",
            '[torch]\nstable-abi = "2.11"\n',
            "torch212-cxx11-cu130-x86_64-linux",
            "out: torch.stable-abi: a newer Torch covers it (build.toml:12:1)",
        ),
        (
            "[torch]\n",
            '[torch]\nstable-abi = "2.11"\n',
            "torch-stable-abi211-cu130-x86_64-linux",
            "in: planned",
        ),
    ],
)
def test_the_verdict_names_the_rule_and_the_line(
    kernel_dir: Callable[..., Path],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    old: str,
    new: str,
    name: str,
    verdict: str,
) -> None:
    monkeypatch.chdir(kernel_dir(CUDA.replace(old, new) if old else CUDA))
    code, out, _ = _explain(capsys, name)
    assert code == 0
    assert f": {verdict}" in out.splitlines()[0]
    assert "(nix-builder/versions.nix of huggingface/kernels 8ac69fc542a4)" in out


def test_what_a_planned_variant_is_made_of(
    kernel_dir: Callable[..., Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(kernel_dir(CUDA))
    (Path.cwd() / "kernel-actions.toml").write_text('[runners.test]\n"x86_64-linux.cuda" = ["h200"]\n')
    _, out, _ = _explain(capsys, "torch213-cxx11-cu126-x86_64-linux", "--format", "json")
    (found,) = json.loads(out)
    facts = {one["about"]: one["text"] for one in found["facts"]}
    assert found["in"] is True
    assert facts["build set"] == "Torch 2.13, cuda 12.6, x86_64-linux"
    assert facts["name"] == "[kernel.k] is compiled for cuda"
    assert facts["scope pr"].startswith("the one of cuda on x86_64-linux")
    assert facts["tested on"] == "h200"


def test_selectors_are_named(
    kernel_dir: Callable[..., Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(kernel_dir(CUDA))
    (Path.cwd() / "kernel-actions.toml").write_text('[matrix]\nskip = ["*-cu126-*"]\n')
    _, out, _ = _explain(capsys, "torch213-cxx11-cu126-x86_64-linux")
    assert "out: matches matrix.skip *-cu126-* (kernel-actions.toml:2:1)" in out
    _, out, _ = _explain(capsys, "torch213-cxx11-cu130-x86_64-linux", "--backends", "cpu")
    assert "out: cuda is not in --backends" in out


def test_a_shared_noarch_variant_is_explained_on_each_system(
    kernel_dir: Callable[..., Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = CUDA[: CUDA.index("[kernel.k]")].replace('["cuda"]', '["cpu"]')
    monkeypatch.chdir(kernel_dir(text))
    _, out, _ = _explain(capsys, "torch-cpu")
    assert out.count("torch-cpu on ") == 3
    assert out.count("it is built on x86_64-linux") == 2


def test_an_unknown_name_gets_the_nearest(
    kernel_dir: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = _explain(capsys, "torch213-cxx11-cu131-x86_64-linux", str(kernel_dir(CUDA)))
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "is no variant of edge" in err and "did you mean torch213-cxx11-cu13" in err
