"""setup-nix, matrix and build as a workflow has them, run by act on two machines that share a cache."""

from __future__ import annotations

import json
import subprocess
import tarfile
from pathlib import Path

import pytest
import yaml

from tests.integration.conftest import act
from tests.nix.conftest import CPU, CPU_NEW, Machine, change, make_kernel
from tests.nix.test_caches import Keys

CHECKOUT = {"uses": "actions/checkout@3d3c42e5aac5ba805825da76410c181273ba90b1"}
UPLOAD = "actions/upload-artifact@043fb46d1a93c77aae656e7c1c64a875d1fc6a0a"


def workflow(cache: str, keys: Keys) -> str:
    """Two variants are planned as one job, which sets Nix up, builds them, and hands them over."""
    names = "${{ join(matrix.variants, ' ') }}"
    setup = {"builder-cache": False, "substituters": cache, "trusted-public-keys": keys.public}
    pushed = f"{cache}?secret-key={keys.secret}"
    build = {"variant": names, "backend-tool": "nix", "archive": "built", "push-to": pushed}
    plan = {"scope": "release", "only": "*-cpu-x86_64-linux", "group-by": "backend"}
    jobs = {
        "plan": {
            "runs-on": "ubuntu-latest",
            "outputs": {"matrix": "${{ steps.matrix.outputs.matrix }}"},
            "steps": [CHECKOUT, {"id": "matrix", "uses": "org/kernel-actions/matrix@v1", "with": plan}],
        },
        "build": {
            "needs": "plan",
            "runs-on": "${{ matrix.runner }}",
            "strategy": {"matrix": "${{ fromJSON(needs.plan.outputs.matrix) }}"},
            "steps": [
                CHECKOUT,
                {"uses": "org/kernel-actions/setup-nix@v1", "with": {**setup, "variants": names}},
                {"id": "build", "uses": "org/kernel-actions/build@v1", "with": build},
                {"uses": UPLOAD, "with": {"name": "built", "path": "built/*.tar"}},
            ],
        },
    }
    return yaml.safe_dump({"name": "Nix", "on": "push", "permissions": {}, "jobs": jobs}, sort_keys=False)


@pytest.mark.slow
def test_the_second_machine_is_served_by_what_the_first_one_pushed(tmp_path: Path) -> None:
    cache, keys = f"file://{tmp_path}/cache", Keys(tmp_path, "right-1")
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "nix-cache-info").write_text("StoreDir: /nix/store\n")
    kernel = make_kernel(tmp_path / "author")
    change(
        kernel,
        {"before-build.sh": "sleep 5\n", ".github/workflows/nix.yml": workflow(cache, keys)},
    )
    logs = []
    for name in ("first", "second"):
        machine = Machine(tmp_path / name)
        (machine.folder / "nix.conf").write_text(machine.configuration)
        variables = {"NIX_REMOTE": f"local?root={machine.store}", "NIX_CONF_DIR": str(machine.folder)}
        listed = [part for pair in variables.items() for part in ("--env", "=".join(pair))]
        finished = act(kernel, tmp_path / f"{name}-act", "push", *listed, workflow="nix")
        logs.append(finished.stdout + finished.stderr)
        assert finished.returncode == 0, logs[-1]
    first, second = logs
    for variant in (CPU, CPU_NEW):
        assert f"Copied {variant} to {cache} in " in first
    # The first built, which took its time; the second fetched, and built nothing.
    assert "building tiny-torch-ext" in first and "building tiny-torch-ext" not in second
    reports = [_reports(tmp_path / f"{name}-act" / "artifacts" / "built") for name in ("first", "second")]
    assert [{one["origin"] for one in listed} for listed in reports] == [{"built"}, {"fetched"}]
    assert all(one["cache"] == cache and one["sandbox"] for one in reports[1])
    assert sum(one["seconds"] for one in reports[0]) >= 10 > sum(one["seconds"] for one in reports[1])
    assert [one["store_path"] for one in reports[0]] == [one["store_path"] for one in reports[1]]


def _reports(folder: Path) -> list[dict[str, str | float | bool]]:
    """The reports in the archives of an artifact."""
    found = []
    for path in sorted(folder.rglob("*.tar")):
        with tarfile.open(path) as archive:
            (name,) = [one for one in archive.getnames() if one.endswith(".build-report.json")]
            file = archive.extractfile(name)
            assert file is not None
            found.append(json.load(file))
        # As a job that takes them over does.
        subprocess.run(["tar", "-tf", path], check=True, stdout=subprocess.DEVNULL)
    return found
