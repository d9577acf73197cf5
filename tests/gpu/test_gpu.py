"""What `test` does on a GPU. Run it by ``make gpu-test``, on a machine with one."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
OUT = Path(os.environ.get("KA_GPU_OUT", "/nonexistent"))
FAULTY = Path(__file__).parent / "faulty"
# Seconds that ending a hung kernel may take beyond its limit.
SLACK = 20.0
Record = Callable[[str, Any], None]


@dataclass(frozen=True)
class Kernel:
    """A kernel, where its variant was built, and the variant's name."""

    folder: Path
    build_dir: Path
    variant: str

    @property
    def report(self) -> dict[str, Any]:
        """The last report on its tests."""
        text = (self.build_dir / f"{self.variant}.test-report.json").read_text()
        value: dict[str, Any] = json.loads(text)
        return value


@dataclass(frozen=True)
class Finished:
    """How a command ended: its exit code, output and errors, and the seconds that it took."""

    returncode: int
    output: str
    errors: str
    seconds: float

    @property
    def last(self) -> str:
        """The last line of the errors."""
        return self.errors.splitlines()[-1] if self.errors else ""


def environment(**changes: str) -> dict[str, str]:
    """The variables of a user's shell."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("GITHUB_", "PYTEST_"))}
    return kept | {"KA_PYTHON": sys.executable} | changes


def kernel_actions(*arguments: str | Path, **variables: str) -> Finished:
    """Run a command of the suite."""
    started = time.monotonic()
    finished = subprocess.run(
        [ROOT / "scripts" / "kernel-actions", *map(str, arguments)],
        cwd=ROOT, env=environment(**variables), text=True, capture_output=True, timeout=400, check=False,
    )  # fmt: skip
    return Finished(finished.returncode, finished.stdout, finished.stderr, time.monotonic() - started)


def test_command(kernel: Kernel, *arguments: str, **variables: str) -> Finished:
    """Run the command ``test`` on a kernel."""
    where = ("--build-dir", str(kernel.build_dir), "--variant", kernel.variant)
    return kernel_actions("test", kernel.folder, *where, *arguments, **variables)


test_command.__test__ = False  # type: ignore[attr-defined]


@pytest.fixture(scope="session")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Kernel]:
    """The example and the faulty kernel, built for this machine by the local builder, both at once."""
    work = tmp_path_factory.mktemp("kernels")
    shutil.copytree(FAULTY, work / "faulty")

    def build(name: str, folder: Path) -> Kernel:
        output = work / f"{name}-build"
        finished = kernel_actions("build", folder, "--output", output, "--format", "json")
        assert finished.returncode == 0, finished.errors
        return Kernel(folder, output, json.loads(finished.output)["variant"])

    with ThreadPoolExecutor() as pool:
        running = {
            "grayscale": pool.submit(build, "grayscale", ROOT),
            "faulty": pool.submit(build, "faulty", work / "faulty"),
        }
        return {name: one.result() for name, one in running.items()}


def compute_apps() -> list[str]:
    """The processes that use the GPU, as nvidia-smi sees them."""
    query = ["nvidia-smi", "--query-compute-apps=pid,process_name", "--format=csv,noheader"]
    return [line for line in subprocess.check_output(query, text=True).splitlines() if line.strip()]


def used_memory() -> int:
    """MiB in use on the first GPU."""
    query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    return int(subprocess.check_output(query, text=True).split()[0])


def planted(said: str) -> set[int]:
    """The lines of the faulty kernel where a fault is planted: those whose comment says so."""
    lines = (FAULTY / "csrc" / "faulty.cu").read_text().splitlines()
    return {number for number, text in enumerate(lines, 1) if f"// planted: {said}" in text}


def test_without_a_visible_gpu(kernels: dict[str, Kernel], record_property: Record) -> None:
    finished = test_command(kernels["grayscale"], CUDA_VISIBLE_DEVICES="")
    record_property("seen", f"exit code {finished.returncode}: {finished.last}")
    assert finished.returncode == 3, finished.errors
    assert "needs a GPU and there is no GPU" in finished.errors and "CUDA_VISIBLE_DEVICES" in finished.errors
    assert kernels["grayscale"].report["reason"]["kind"] == "no-gpu"


def test_over_plain_pytest(kernels: dict[str, Kernel], record_property: Record) -> None:
    kernel = kernels["faulty"]
    folder = kernel.build_dir.parent / "local"
    shutil.copytree(kernel.build_dir / kernel.variant, folder / "build" / kernel.variant)
    plain, ours = [], []
    for _ in range(3):
        started = time.monotonic()
        subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests", "-k", "test_fill"],
            cwd=kernel.folder, env=environment(LOCAL_KERNELS=f"kernel-actions/faulty={folder}"),
            check=True, capture_output=True,
        )  # fmt: skip
        plain.append(time.monotonic() - started)
        finished = test_command(kernel, "--pytest-args=-k test_fill")
        assert finished.returncode == 0, finished.output + finished.errors
        ours.append(finished.seconds)
    more = min(ours) - min(plain)
    record_property("plain pytest, in seconds", plain)
    record_property("test, in seconds", ours)
    record_property("seen", f"{min(plain):.2f} s by pytest, {more:.2f} s more by test")
    assert more < 1.0


@pytest.mark.parametrize(
    ("tool", "clean", "faulty", "what", "where"),
    [
        ("memcheck", "fill", "beyond", "Invalid __global__ write", "beyond the end"),
        ("racecheck", "reverse", "race", "Race reported", "a race"),
        ("initcheck", "copy", "uninitialized", "Uninitialized __global__ memory read", "nobody may have"),
        ("synccheck", "meet", "diverging", "Barrier error detected", "not all threads"),
    ],
    ids=["memcheck", "racecheck", "initcheck", "synccheck"],
)
def test_the_sanitizer_finds_what_is_planted(
    kernels: dict[str, Kernel],
    record_property: Record,
    tool: str,
    clean: str,
    faulty: str,
    what: str,
    where: str,
) -> None:
    kernel, limit = kernels["faulty"], ("--test-time-limit", "60")
    plain = test_command(kernel, *limit, f"--pytest-args=-k test_{faulty}")
    assert plain.returncode == 0, f"without the sanitizer nobody sees it: {plain.errors}"
    finished = test_command(kernel, *limit, "--sanitize", tool, f"--pytest-args=-k test_{faulty}")
    report = kernel.report
    log = (kernel.build_dir / f"{kernel.variant}.sanitizer.log").read_text()
    (OUT / f"{tool}.log").write_text(log)
    found = [
        f"{one['path']}:{one['line']}: {one['what']}, {one['count']} times" for one in report["findings"]
    ]
    record_property("findings", report["findings"])
    record_property("seen", "; ".join(found[:2]) or f"nothing: {finished.last}")
    assert finished.returncode == 1, finished.output + finished.errors
    assert report["reason"]["kind"] == "sanitizer"
    assert any(
        what in one["what"] and one["path"] == "csrc/faulty.cu" and one["line"] in planted(where)
        for one in report["findings"]
    )
    finished = test_command(kernel, *limit, "--sanitize", tool, f"--pytest-args=-k test_{clean}")
    more = (kernel.build_dir / f"{kernel.variant}.sanitizer.log").read_text()
    (OUT / f"{tool}.log").write_text(f"{log}\nWhere nothing is planted:\n{more}")
    assert finished.returncode == 0, f"where nothing is planted: {finished.errors}"


def test_a_hung_kernel_is_ended_and_the_gpu_is_free(
    kernels: dict[str, Kernel], record_property: Record
) -> None:
    before = used_memory()
    limit = 10
    finished = test_command(
        kernels["faulty"], "--test-time-limit", str(limit), "--pytest-args=-k 'test_hang or test_later'"
    )
    report = kernels["faulty"].report
    after, apps = used_memory(), compute_apps()
    record_property("notes", report["notes"])
    record_property(
        "seen",
        f"limit {limit} s, all over after {finished.seconds:.1f} s; {before} MiB in use before, {after} MiB "
        f"after, by {len(apps)} processes",
    )
    assert finished.returncode == 1, finished.output + finished.errors
    assert report["reason"]["kind"] == "test-time-limit"
    assert "test_hang" in report["reason"]["text"] and report["not_run"] == 1
    assert (report["failures"][0]["path"], report["passed"]) == ("tests/test_faults.py", 0)
    assert finished.seconds < limit + SLACK
    assert after <= before + 64 and not apps


def test_a_hung_kernel_goes_with_the_command(kernels: dict[str, Kernel], record_property: Record) -> None:
    kernel, before = kernels["faulty"], used_memory()
    where = ("--build-dir", str(kernel.build_dir), "--variant", kernel.variant)
    process = subprocess.Popen(
        [ROOT / "scripts" / "kernel-actions", "test", kernel.folder, *where, "--pytest-args=-k test_hang"],
        cwd=ROOT, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while used_memory() < before + 256:
        assert process.poll() is None and time.monotonic() < deadline, "it has not come to the GPU"
        time.sleep(0.1)
    time.sleep(2)
    process.kill()
    process.wait()
    started = time.monotonic()
    while (after := used_memory()) > before + 64 and time.monotonic() < started + SLACK:
        time.sleep(0.1)
    seconds = time.monotonic() - started
    record_property("seen", f"killed by SIGKILL; the GPU is free after {seconds:.1f} s ({after} MiB in use)")
    assert after <= before + 64 and not compute_apps()


@pytest.mark.parametrize(
    ("name", "said"),
    [("test_illegal", "illegal memory access"), ("test_assert", "device-side assert")],
    ids=["an illegal access", "an assertion on the device"],
)
def test_what_breaks_the_gpu_is_told_of_its_test(
    kernels: dict[str, Kernel], record_property: Record, name: str, said: str
) -> None:
    finished = test_command(kernels["faulty"], f"--pytest-args=-k '{name} or test_later'")
    report = kernels["faulty"].report
    record_property("seen", f"exit code {finished.returncode}: {finished.last}")
    assert finished.returncode == 1, finished.output + finished.errors
    assert [one["test"].rpartition("::")[2] for one in report["failures"]] == [name]
    assert report["reason"]["kind"] == "crashed" and said in report["reason"]["text"]
    assert (report["passed"], report["not_run"]) == (0, 1)


def test_the_example_passes(kernels: dict[str, Kernel], record_property: Record) -> None:
    finished = test_command(kernels["grayscale"], "--opcheck", "--time-limit", "200")
    report = kernels["grayscale"].report
    (OUT / "example.test-report.json").write_text(json.dumps(report, indent=2))
    record_property("gpus", report["gpus"])
    record_property("seen", finished.output.splitlines()[-1] if finished.output else finished.last)
    assert finished.returncode == 0, finished.output + finished.errors[-4000:]
    assert report["verdict"] == "passed" and report["passed"] > 100
    gpu = report["gpus"][0]
    assert report["gpu"] == gpu["name"] and re.fullmatch(r"\d+\.\d", gpu["capability"])
    assert gpu["driver"] and gpu["free_before"] > 1 << 30 and gpu["free_after"] > 1 << 30
    assert (
        any(one["test"].startswith("opcheck::") for one in report["slowest"]) or "opcheck" in finished.errors
    )
