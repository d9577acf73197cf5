"""``benchmark``: what is measured, compared and refused, with a small kernel and real processes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from huggingface_hub import HfApi

from tests.benchmark.conftest import BENCHMARK, HEAD, LOOPS, Kernel, write_variant
from tests.hub.helpers import Server
from tests.integration.conftest import ROOT, environment

FAST = ("--rounds", "8", "--max-rounds", "8")
WRONG = BENCHMARK.replace("return self.x + 1", "return self.x + 2")
METHOD = HEAD + "class Tiny(Benchmark):\n    def benchmark_a(self):\n        "


def test_measured_and_compared(kernel: Kernel, baseline: Callable[..., Path], tmp_path: Path) -> None:
    peers = (
        "\n    def peer_torch(self):\n        return lambda: self.x + 1\n"
        "\n    def peer_other(self):\n        import a_module_that_is_not_there\n"
    )
    kernel.write(BENCHMARK + peers)
    report = tmp_path / "out" / "it.json"
    finished = kernel.run("--baseline", baseline(), "--report", report, "--threshold", "50", *FAST)
    assert finished.returncode == 0, finished.stderr
    assert "without other: it is not installed (No module named" in finished.stdout
    assert "in the same process" in finished.stdout
    data = json.loads(report.read_text())
    assert (data["schema"], data["verdict"], data["complete"]) == (1, "passed", True)
    [workload] = data["workloads"]
    assert (workload["name"], workload["bytes"], workload["flushed"]) == ("Tiny.loop", 8000, False)
    assert {one["kind"]: len(one["rounds"]) for one in workload["series"]} == {
        "kernel": 8, "baseline": 8, "peer": 8, "copy": 8,
    }  # fmt: skip
    assert data["machine"]["cpu"] and data["machine"]["threads"] and data["machine"]["torch"]
    assert workload["missing"]["other"].startswith("it is not installed")
    # The plots are beside the report, and named like it; the kernel's folder stays as it was.
    assert sorted(path.name for path in report.parent.iterdir()) == ["it.json", "it.png", "it.svg"]
    assert sorted(path.name for path in kernel.build.iterdir()) == ["torch-cpu"]
    assert not list(kernel.root.rglob("__pycache__"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (WRONG, "benchmark_tiny.py:11: torch-cpu: loop: self.out differs from verify_loop by up to 1"),
        (METHOD + "raise OSError('a file')\n", "benchmark_tiny.py:7: torch-cpu: a: OSError: a file"),
        # What the author's own code does not take is no refusal of the variant.
        (METHOD + "raise TypeError('mine')\n", "benchmark_tiny.py:7: torch-cpu: a: TypeError: mine"),
        (METHOD + "import os; os.abort()\n", "the benchmarks ended early: killed by signal 6"),
        (METHOD + "import os; os._exit(0)\n", "the benchmarks ended early: exit code 0"),
        (METHOD + "import os; os._exit(3)\n", "the benchmarks ended early: exit code 3"),
        (METHOD + "raise SystemExit(0)\n", "the benchmarks ended early"),
        (HEAD + "import missing_module\n", "benchmark_tiny.py:5: torch-cpu: ModuleNotFoundError: No module"),
        (HEAD + "def f(:\n", "benchmark_tiny.py:5: torch-cpu: SyntaxError"),
        (HEAD, "torch-cpu: has no subclass of kernels.benchmark.Benchmark"),
        (HEAD + "class A(Benchmark): pass\n", "A has no method benchmark_*"),
        (METHOD + "pass\n    def verify_a(self): return 1\n", "benchmark_a leaves no tensor in self.out"),
        (BENCHMARK + "\n    def bytes_moved_loop(self):\n        return 0.5\n", "bytes_moved() is 0.5"),
        (
            METHOD + "self.out = torch.zeros(2)\n    def verify_a(self):\n        return torch.zeros(1)\n",
            "self.out is [2] of torch.float32, verify_a returns [1] of torch.float32",
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_fails_in_one_line(kernel: Kernel, text: str, message: str) -> None:
    kernel.write(text)
    finished = kernel.run(*FAST)
    assert finished.returncode == 1, finished.stderr
    assert message in finished.stderr.splitlines()[-1]
    assert "Traceback" not in finished.stderr.splitlines()[-1]


def test_a_wrong_result_is_found_before_anything_is_timed(kernel: Kernel) -> None:
    kernel.write(BENCHMARK.replace("class Tiny", "class First"), "benchmark_a.py")
    kernel.write(WRONG, "benchmark_b.py")
    assert kernel.run(*FAST).returncode == 1
    report = kernel.read()
    assert (report["verdict"], report["workloads"]) == ("failed", [])
    assert [one["name"] for one in report["failures"]] == ["Tiny.loop"]


def test_what_the_variant_refuses_is_skipped_and_said(kernel: Kernel) -> None:
    code = "def work(x):\n    if x.numel() == 2:\n        raise TypeError('not two')\n    return x + 1\n"
    write_variant(kernel.build, code=code)
    two = "\n    def setup_two(self):\n        self.x = torch.rand(2)\n\n    benchmark_two = benchmark_loop\n"
    kernel.write(BENCHMARK + two)
    finished = kernel.run(*FAST)
    assert finished.returncode == 0, finished.stderr
    assert "skipped: two: the variant refuses it: TypeError: not two" in finished.stdout
    assert [one["name"] for one in kernel.read()["workloads"]] == ["Tiny.loop"]
    finished = kernel.run(*FAST, "--only", "two")
    assert finished.returncode == 1
    assert (
        "nothing measured, 1 workload skipped; two: the variant refuses it"
        in finished.stderr.splitlines()[-1]
    )


def test_nothing_to_run(kernel: Kernel) -> None:
    finished = kernel.run("--only", "other*")
    assert finished.returncode == 2
    assert "no workload is selected by other*" in finished.stderr
    (kernel.root / "benchmarks" / "benchmark_tiny.py").unlink()
    finished = kernel.run()
    assert finished.returncode == 1
    assert "has no benchmarks (add benchmarks/benchmark_tiny.py" in finished.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--threshold", "five"], "--threshold is 'five', which is no percentage"),
        (["--threshold", "0"], "--threshold is '0', which is no percentage"),
        (["--threshold", "nan"], "--threshold is 'nan', which is no percentage"),
        (["--rounds", "3"], "--rounds is 3, which is not from 8 to 400"),
        (["--rounds", "20", "--max-rounds", "10"], "--max-rounds is 10, and --rounds 20: that is more"),
        (["--time-limit", "0"], "--time-limit is 0"),
        (["--variant", "torch-cuda"], "has no variant 'torch-cuda' (it has torch-cpu)"),
        (["--baseline", "./nowhere"], "nowhere: there is no such folder"),
        (["--baseline", "{root}"], "benchmarks: has no built variant torch-cpu"),
        (["--baseline", "v1", "--repo-id", "a b"], "a b"),
        (["--hub", "ftp://x", "--baseline", "v1"], "'ftp://x' is not the address of a Hub"),
    ],
)
def test_wrong_input(kernel: Kernel, arguments: list[str], message: str) -> None:
    finished = kernel.run(*(one.format(root=kernel.root / "benchmarks") for one in arguments))
    assert finished.returncode == 2, finished.stderr
    assert message in finished.stderr.splitlines()[-1]


def test_a_device_that_is_not_there(kernel: Kernel) -> None:
    finished = kernel.run("--device", "cuda", CUDA_VISIBLE_DEVICES="")
    assert finished.returncode == 3
    assert "torch-cpu needs a GPU and Torch sees none" in finished.stderr.splitlines()[-1]


def test_benchmarks_see_no_secret_and_give_no_commands(kernel: Kernel) -> None:
    kernel.write(
        "import os\nassert not [name for name in os.environ if 'TOKEN' in name]\n"
        "assert os.environ['MALLOC_MMAP_MAX_'] == '0'\n"
        "print('::error::forged')\n" + BENCHMARK
    )
    finished = kernel.run(*FAST, "--format", "github", HF_TOKEN="hf_x", KA_TOKEN="x", GITHUB_ACTIONS="true")
    assert finished.returncode == 0, finished.stderr
    lines = finished.stderr.splitlines()
    stop = next(index for index, line in enumerate(lines) if line.startswith("::stop-commands::"))
    resume = lines.index(f"::{lines[stop].removeprefix('::stop-commands::')}::")
    assert all(stop < index < resume for index, line in enumerate(lines) if "forged" in line)


def test_outputs_and_summary_of_a_job(kernel: Kernel, tmp_path: Path) -> None:
    output, summary = tmp_path / "output", tmp_path / "summary"
    finished = kernel.run(
        *FAST, "--format", "github",
        GITHUB_ACTIONS="true", GITHUB_OUTPUT=str(output), GITHUB_STEP_SUMMARY=str(summary),
    )  # fmt: skip
    assert finished.returncode == 0, finished.stderr
    assert "\npassed\n" in output.read_text() and "torch-cpu.benchmark.svg\n" in output.read_text()
    assert "### ✅ Benchmarks of torch-cpu: 1 workload measured" in summary.read_text()


@pytest.mark.slow
def test_when_time_runs_out_what_was_measured_is_kept(kernel: Kernel, tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    slow = (
        "\n    def setup_slow(self):\n        import os, pathlib, subprocess, time\n"
        "        if self.seed == 1:\n"
        "            child = subprocess.Popen(['sleep', '600'])\n"
        f"            pathlib.Path({str(mark)!r}).write_text(f'{{os.getpid()}} {{child.pid}}')\n"
        "            time.sleep(600)\n"
        "        Tiny.seed = 1\n        self.setup()\n"
        "\n    benchmark_slow = benchmark_loop\n"
    )
    kernel.write(BENCHMARK + slow)
    finished = kernel.run(*FAST, "--time-limit", "30")
    assert finished.returncode == 3, finished.stderr
    assert "took longer than 30 s; measured: 1 workload (" in finished.stderr.splitlines()[-1]
    assert kernel.read()["complete"] is False
    numbers = mark.read_text().split()
    assert len(numbers) == 2 and not [number for number in numbers if _is_running(number)]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_the_benchmarks_too(kernel: Kernel, tmp_path: Path, number: int) -> None:
    mark = tmp_path / "pid"
    kernel.write(
        METHOD + f"import os, pathlib, time; pathlib.Path({str(mark)!r}).write_text(str(os.getpid())); "
        "time.sleep(600)\n"
    )
    process = subprocess.Popen(
        [ROOT / "scripts" / "kernel-actions", "benchmark", kernel.root],
        env=environment(), text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while not mark.exists() or not mark.read_text():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(number)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 128 + number
    assert errors.splitlines()[-1] == f"kernel-actions: interrupted by {signal.Signals(number).name}"
    assert not _is_running(mark.read_text())


@pytest.mark.parametrize(
    "answer",
    [
        {"complete": True, "workloads": [{"name": 1}], "skipped": [], "failures": []},
        {"complete": True, "workloads": 1, "skipped": [], "failures": []},
        {"complete": True},
        {"error": ["a"], "file": 3},
        [],
        "x" * 100,
    ],
)
def test_an_answer_that_the_benchmarks_forged_is_no_traceback(kernel: Kernel, answer: object) -> None:
    kernel.write(
        METHOD + "import json, os, sys; "
        "name = json.load(open(sys.argv[1]))['answer']; "
        f"open(name, 'w').write({json.dumps(answer)!r}); os._exit(0)\n"
    )
    finished = kernel.run(*FAST)
    assert finished.returncode == 1, finished.stderr
    assert finished.stderr.splitlines()[-1].startswith("kernel-actions: torch-cpu: ")


def _is_running(number: str) -> bool:
    """Whether the process runs; one that has ended may wait for whoever adopted it."""
    try:
        return Path("/proc", number, "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_variants_of_one_name_run_apart(kernel: Kernel, baseline: Callable[..., Path]) -> None:
    """Both have the id of the kernel's operators: the second would fail in the process of the first."""
    folder = baseline(2 * LOOPS, id="_tiny_cpu_1")
    finished = kernel.run("--baseline", folder / "torch-cpu", *FAST)
    assert finished.returncode == 0, finished.stderr
    assert "in a process of its own" in finished.stdout
    report = kernel.read()
    assert report["baseline"]["apart"] is True
    [comparison] = report["workloads"][0]["against_baseline"]
    assert comparison["verdict"] == "faster"
    assert 0.4 < comparison["ratio"] < 0.6


@pytest.mark.parametrize(
    ("code", "apart", "note"),
    [
        ("def work(x):\n    raise TypeError('no')\n", False, "the baseline does not do it: TypeError: no"),
        pytest.param(
            "def work(x):\n    raise TypeError('no')\n", True, "the baseline does not do it: TypeError: no",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "def work(x):\n    return x + 2\n", False, "self.out differs from verify_loop by up to 1",
            marks=pytest.mark.slow,
        ),
        ("def work(x):\n    return x + 2\n", True, "self.out differs from verify_loop by up to 1"),
    ],
)  # fmt: skip
def test_a_baseline_that_cannot_do_it(
    kernel: Kernel, baseline: Callable[..., Path], code: str, apart: bool, note: str
) -> None:
    folder = baseline(code=code, id="_tiny_cpu_1" if apart else "_tiny_cpu_0")
    finished = kernel.run("--baseline", folder, *FAST)
    assert finished.returncode == 0, finished.stderr
    assert "not compared: loop: " in finished.stdout and note in finished.stdout


@pytest.mark.parametrize("apart", [False, True])
def test_a_baseline_that_does_not_load(kernel: Kernel, baseline: Callable[..., Path], apart: bool) -> None:
    folder = baseline(code="import missing_module\n", id="_tiny_cpu_1" if apart else "_tiny_cpu_0")
    finished = kernel.run("--baseline", folder, *FAST)
    assert finished.returncode == 1
    last = finished.stderr.splitlines()[-1]
    assert "the baseline does not load" in last and "No module named 'missing_module'" in last


def test_a_published_baseline(kernel: Kernel, baseline: Callable[..., Path], tmp_path: Path) -> None:
    """From a Hub on loopback, by a branch, as somebody without a token sees it."""
    server = Server(tmp_path / "hub")
    try:
        api = HfApi(endpoint=server.url, token="unused")
        api.create_repo("test/tiny", repo_type="kernel")
        api.create_branch("test/tiny", branch="v1", repo_type="kernel")
        api.upload_folder(
            repo_id="test/tiny", repo_type="kernel", revision="v1",
            folder_path=baseline(2 * LOOPS), path_in_repo="build",
        )  # fmt: skip
        commit = api.repo_info("test/tiny", revision="v1", repo_type="kernel").sha
        hub = ("--hub", server.url)
        finished = kernel.run("--baseline", "v1", *hub, *FAST)
        assert finished.returncode == 0, finished.stderr
        report = kernel.read()
        assert report["baseline"]["source"] == "test/tiny@v1"
        assert report["baseline"]["commit"] == commit
        assert report["workloads"][0]["against_baseline"][0]["verdict"] == "faster"
        for arguments, message in (
            (("--baseline", "v9"), "v9"),
            (("--baseline", "v1", "--repo-id", "test/none"), "test/none"),
        ):
            finished = kernel.run(*arguments, *hub, *FAST)
            assert finished.returncode == 2, finished.stderr
            assert message in finished.stderr.splitlines()[-1]
        (kernel.build / "torch-cpu").rename(kernel.build / "torch213-cxx11-cpu-x86_64-linux")
        finished = kernel.run("--baseline", "v1", *hub, *FAST)
        assert finished.returncode == 2
        assert "has no variant torch213-cxx11-cpu-x86_64-linux: it has torch-cpu" in finished.stderr
    finally:
        server.end()


def test_the_same_file_serves_the_command_of_kernels(kernel: Kernel, tmp_path: Path) -> None:
    """Its own code, but for the printing of its table, which takes a package that is not needed here."""
    kernel.write(BENCHMARK + "\n    def peer_torch(self):\n        return lambda: self.x + 1\n")
    program = (
        "import sys, kernels.cli.benchmark as benchmark\n"
        "benchmark.MISSING_DEPS.clear()\n"
        "benchmark.tabulate = lambda rows, **how: str(rows)\n"
        "benchmark.run_benchmark(sys.argv[1], None, None, iterations=3, warmup=1, output=sys.argv[2])\n"
    )
    finished = subprocess.run(
        [sys.executable, "-IB", "-c", program, kernel.root, tmp_path / "theirs.json"],
        env=environment(), text=True, capture_output=True, check=False, timeout=300,
    )  # fmt: skip
    assert finished.returncode == 0, finished.stderr
    [theirs] = json.loads((tmp_path / "theirs.json").read_text())["results"]
    assert (theirs["workload"], theirs["verified"]) == ("Tiny.loop", True)
    assert kernel.run(*FAST).returncode == 0
    assert [one["name"] for one in kernel.read()["workloads"]] == [theirs["workload"]]
