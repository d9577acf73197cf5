"""What is looked at before tests on a GPU, with a driver that the tests make up."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from kernel_actions.built import BuiltVariant
from kernel_actions.test import fatbin, gpu, sanitizer
from kernel_actions.test.fatbin import Code

from tests.test_command.helpers import PASSING, make_kernel, run

# The driver's libraries, as far as they are asked, with what the environment says.
DRIVER = r"""
#include <stdlib.h>
#include <string.h>
static int number(const char *name, int otherwise) {
  const char *v = getenv(name);
  return v ? atoi(v) : otherwise;
}
int cuDriverGetVersion(int *v) { *v = number("CUDA_FAKE_VERSION", 13000); return 0; }
int cuInit(unsigned f) { return number("CUDA_FAKE_ERROR", 0); }
int cuDeviceGetCount(int *n) {
  const char *v = getenv("CUDA_VISIBLE_DEVICES");
  *n = v && !*v ? 0 : 1;
  return *n ? 0 : 100;
}
int cuDeviceGet(int *d, int i) { *d = i; return 0; }
int cuDeviceGetName(char *s, int n, int d) { strncpy(s, "Fake H200", n); return 0; }
int cuDeviceGetAttribute(int *v, int a, int d) {
  int c = number("CUDA_FAKE_CAPABILITY", 90); *v = a == 75 ? c / 10 : c % 10; return 0; }
int cuDeviceTotalMem_v2(size_t *m, int d) { *m = 100ull << 30; return 0; }
int cuDeviceGetUuid(unsigned char *u, int d) { for (int i = 0; i < 16; ++i) u[i] = i; return 0; }
"""
NVML = r"""
#include <stdlib.h>
#include <string.h>
typedef struct { unsigned long long total, free, used; } memory;
typedef struct { unsigned pid; unsigned long long used; unsigned gi, ci; } process;
static int number(const char *name, int otherwise) {
  const char *v = getenv(name);
  return v ? atoi(v) : otherwise;
}
int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlSystemGetDriverVersion(char *s, unsigned n) { strncpy(s, "580.1", n); return 0; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = 1; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **d) { *d = (void *)1; return 0; }
int nvmlDeviceGetUUID(void *d, char *s, unsigned n) {
  strncpy(s, "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f", n);
  return 0;
}
int nvmlDeviceGetMemoryInfo(void *d, memory *m) {
  m->free = (unsigned long long)number("CUDA_FAKE_FREE_MIB", 90000) << 20;
  return 0;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void *d, unsigned *n, process *p) {
  int pid = number("CUDA_FAKE_HOLDER", 0); *n = pid != 0; p[0].pid = pid; p[0].used = 5ull << 30; return 0; }
int nvmlSystemGetProcessName(unsigned pid, char *s, unsigned n) { strncpy(s, "training", n); return 0; }
"""


ROCM = """\
import types
__version__, used = "2.13.0+rocm6.4", []
version = types.SimpleNamespace(cuda=None, hip="6.4")
cuda = types.SimpleNamespace(
    is_initialized=lambda: bool(used), is_available=lambda: True, synchronize=lambda: None,
    device_count=lambda: 1, get_device_name=lambda at: "MI300X",
)
xpu = types.SimpleNamespace(is_initialized=lambda: False, is_available=lambda: False)
"""


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the libraries of a driver for one GPU."""
    folder = tmp_path_factory.mktemp("driver")
    for name, text in (("libcuda.so.1", DRIVER), ("libnvidia-ml.so.1", NVML)):
        (folder / "source.c").write_text(text)
        subprocess.run(["cc", "-shared", "-fPIC", "-o", folder / name, folder / "source.c"], check=True)
    return folder


def variant(folder: Path, name: str = "torch213-cxx11-cu130-x86_64-linux") -> BuiltVariant:
    (folder / name).mkdir(exist_ok=True)
    return BuiltVariant(folder / name, "cuda", 1, None, "local", "")


def look(driver: Path, tmp_path: Path, **variables: str) -> gpu.Before:
    environment = {"LD_LIBRARY_PATH": str(driver), "PATH": os.environ["PATH"], **variables}
    return gpu.look(variant(tmp_path), Path(sys.executable), environment)


def test_what_is_known_of_a_gpu(driver: Path, tmp_path: Path) -> None:
    before = look(driver, tmp_path)
    assert before.reason is None and before.notes == ()
    (one,) = before.gpus
    assert (one.name, one.driver, one.cuda, one.capability) == ("Fake H200", "580.1", "13.0", "9.0")
    assert (one.memory, one.free_before, one.holders) == (100 << 30, 90000 << 20, ())
    environment = {"LD_LIBRARY_PATH": str(driver), "PATH": os.environ["PATH"], "CUDA_FAKE_FREE_MIB": "10"}
    monkey = pytest.MonkeyPatch()
    monkey.setattr(gpu, "_SETTLING", 0.0)
    after, notes = gpu.after(before.gpus, environment | {"CUDA_FAKE_HOLDER": "4194300"})
    monkey.undo()
    assert after[0].free_after == 10 << 20
    assert notes == (
        "Fake H200 has 94.4 GB less of free memory than before; new: training (process 4194300, 5.4 GB)",
    )
    assert gpu.after(before.gpus, {**environment, "CUDA_FAKE_FREE_MIB": "90000"})[1] == ()


@pytest.mark.parametrize(
    ("variables", "kind", "text"),
    [
        ({"CUDA_VISIBLE_DEVICES": ""}, "no-gpu", "none (CUDA_VISIBLE_DEVICES='' hides them)"),
        ({"CUDA_FAKE_ERROR": "802"}, "no-gpu", "the driver offers none (the driver gives error 802)"),
        ({"CUDA_FAKE_VERSION": "12080"}, "old-driver", "for CUDA 13, and this one (580.1) is for 12.8"),
        (
            {"CUDA_FAKE_FREE_MIB": "100", "CUDA_FAKE_HOLDER": "4194300"},
            "gpu-held", "has 104.9 MB of free memory; it is held by training (process 4194300, 5.4 GB)",
        ),
    ],
)  # fmt: skip
def test_what_keeps_from_testing(
    driver: Path, tmp_path: Path, variables: dict[str, str], kind: str, text: str
) -> None:
    reason = look(driver, tmp_path, **variables).reason
    assert reason is not None and reason.kind == kind
    assert text in reason.text


def test_who_holds_the_gpu_is_named(driver: Path, tmp_path: Path) -> None:
    before = look(driver, tmp_path, CUDA_FAKE_HOLDER=str(os.getpid()))
    assert before.reason is None
    assert (
        before.notes[0].startswith("Fake H200 is used by ") and f"(process {os.getpid()}" in before.notes[0]
    )


def test_a_driver_of_an_older_minor_version_is_told(driver: Path, tmp_path: Path) -> None:
    environment = {"LD_LIBRARY_PATH": str(driver), "PATH": os.environ["PATH"], "CUDA_FAKE_VERSION": "12060"}
    before = gpu.look(
        variant(tmp_path, "torch213-cxx11-cu128-x86_64-linux"), Path(sys.executable), environment
    )
    assert before.reason is None and "the driver is for CUDA 12.6 and the variant for 12.8" in before.notes[0]


def test_the_whole_command_without_a_gpu_and_with_one_that_torch_does_not_see(
    driver: Path, tmp_path: Path, native: Path
) -> None:
    kernel = make_kernel(tmp_path / "kernel", native, backend="cuda")
    finished = run(kernel, PASSING)
    assert (finished.returncode, finished.kind) == (3, "no-gpu")
    assert "needs a GPU and there is no GPU" in finished.last
    finished = run(kernel, PASSING, "--require-gpu", "never")
    assert finished.returncode == 0
    assert (
        "note: no GPU was asked for (--require-gpu never): a release takes the variant for" in finished.output
    )
    unused = PASSING + (
        "import types\nversion = types.SimpleNamespace(cuda='13.0', hip=None)\n"
        "cuda = types.SimpleNamespace(is_initialized=lambda: False, is_available=lambda: SEES)\n"
        "sys.modules['torch'] = types.SimpleNamespace(__version__='2.13.0', version=version, cuda=cuda)\n"
    )
    variables = {"LD_LIBRARY_PATH": str(driver)}
    # Without Torch, the driver's library says whether a GPU was used.
    assert run(kernel, PASSING, **variables).kind == "gpu-not-used"
    loaded = PASSING + "import ctypes\nctypes.CDLL('libcuda.so.1')\n"
    assert run(kernel, loaded, **variables).returncode == 0
    finished = run(kernel, unused.replace("SEES", "True"), **variables)
    assert (finished.returncode, finished.kind) == (1, "gpu-not-used"), finished.errors
    finished = run(kernel, unused.replace("SEES", "False"), **variables)
    assert (finished.returncode, finished.kind) == (3, "no-gpu")
    assert finished.report is not None and finished.report["gpu"] == "Fake H200"


@pytest.mark.slow
def test_a_gpu_of_another_maker_that_was_not_used(tmp_path: Path, native: Path) -> None:
    # A Torch for ROCm that is asked for GPUs before the tests, and that they use, or do not.
    kernel = make_kernel(tmp_path / "kernel", native, backend="rocm")
    environment = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    (site,) = environment.glob("lib/python*/site-packages")
    (site / "suite.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    (site / "torch.py").write_text(ROCM)
    python = environment / "bin" / "python"
    for tests, kind in ((PASSING, "gpu-not-used"), (PASSING + "import torch\ntorch.used.append(1)\n", None)):
        finished = run(kernel, "import torch\n" + tests, python=python)
        assert finished.kind == kind, finished.errors
        assert finished.report is not None and finished.report["gpu"] == "MI300X"


def _fat(*entries: tuple[int, int, int]) -> bytes:
    body = b"".join(
        struct.pack("<HHIQ12xI8xQ16x", kind, 0x101, 64, 8, capability, flags | 0x11) + b"payload!"
        for kind, capability, flags in entries
    )
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def _elf(section: bytes) -> bytes:
    names = b"\0.nv_fatbin\0.shstrtab\0"
    sections = [(0, 0, 0), (1, 64, len(section)), (12, 64 + len(section), len(names))]
    table = b"".join(
        struct.pack("<IIQQQQIIQQ", name, 1, 0, 0, at, size, 0, 0, 1, 0) for name, at, size in sections
    )
    header = struct.pack(
        "<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01", 3, 62, 1, 0, 0, 64 + len(section) + len(names),
        0, 64, 0, 0, 64, 3, 2,
    )  # fmt: skip
    return header + section + names + table


def test_the_gpu_that_is_not_in_the_binary(driver: Path, tmp_path: Path) -> None:
    folder = variant(tmp_path).path
    (folder / "ops.so").write_bytes(
        _elf(_fat((2, 80, 0), (2, 100, 1 << 21)) + bytes(24) + _fat((2, 90, 1 << 20)))
    )
    assert list(map(str, fatbin.codes(folder))) == ["sm_80", "sm_90a", "sm_100f"]
    assert look(driver, tmp_path).reason is None
    reason = look(driver, tmp_path, CUDA_FAKE_CAPABILITY="120").reason
    assert reason is not None and reason.kind == "no-code-for-gpu"
    assert "which has compute capability 12.0: it holds sm_80, sm_90a, sm_100f" in reason.text
    (folder / "more.so").write_bytes(_elf(_fat((1, 75, 0))))
    assert look(driver, tmp_path, CUDA_FAKE_CAPABILITY="120").reason is None
    for damaged in (b"", b"\x7fELF", _elf(_fat((2, 80, 0)))[:100], _elf(b"\x50\xed\x55\xba" + b"\xff" * 60)):
        (folder / "more.so").write_bytes(damaged)
        fatbin.codes(folder)


@pytest.mark.parametrize(
    ("code", "runs_on", "not_on"),
    [
        (Code(80, "", False), (80, 86, 89), (75, 90)),
        (Code(90, "a", False), (90,), (91, 100)),
        (Code(100, "f", False), (100, 103), (90, 120)),
        (Code(75, "", True), (75, 90, 120), (70,)),
        (Code(90, "a", True), (90,), (100,)),
    ],
)
def test_which_code_runs_where(code: Code, runs_on: tuple[int, ...], not_on: tuple[int, ...]) -> None:
    assert all(map(code.runs_on, runs_on)) and not any(map(code.runs_on, not_on))


def test_the_drivers_libraries_are_linked_for_nix_programs_and_unlinked(tmp_path: Path) -> None:
    real, target = tmp_path / "real", tmp_path / "run" / "opengl-driver" / "lib"
    real.mkdir()
    for name in ("libcuda.so.1", "libcuda.so.580.1", "libnvidia-ptxjitcompiler.so.1", "libc.so.6"):
        (real / name).touch()
    target.parent.parent.mkdir()
    with gpu.driver_links(target, real / "libcuda.so.1") as notes:
        assert notes == ()
        assert {path.name for path in target.iterdir() if path.is_symlink()} == {
            "libcuda.so.1", "libcuda.so.580.1", "libnvidia-ptxjitcompiler.so.1",
        }  # fmt: skip
        # The last of two that run at once unlinks.
        with gpu.driver_links(target, real / "libcuda.so.1"):
            pass
        assert (target / "libcuda.so.1").exists()
    assert not target.exists()
    # What the system has put there stays.
    target.mkdir(parents=True)
    (target / "libcuda.so.1").touch()
    with gpu.driver_links(target, real / "libcuda.so.1"):
        assert [path.name for path in target.iterdir()] == ["libcuda.so.1"]
    assert (target / "libcuda.so.1").exists()
    blocked = tmp_path / "file"
    blocked.touch()
    with gpu.driver_links(blocked / "lib", real / "libcuda.so.1") as notes:
        assert "cannot be linked" in notes[0]


LOG = """\
========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 4 bytes
=========     at fill_kernel(float *, int)+0x130 in fill.cu:3
=========     by thread (1,0,0) in block (0,0,0)
=========     Access at 0x7f3 is out of bounds
=========         Host Frame: fill() in binding.cpp:12
=========
========= Invalid __global__ write of size 4 bytes
=========     at fill_kernel(float *, int)+0x130 in fill.cu:3
=========     by thread (2,0,0) in block (0,0,0)
=========
========= Program hit cudaErrorLaunchFailure (error 719) due to "unspecified launch failure" on CUDA API call.
=========     Saved host backtrace
=========
========= Error: Race reported between Write access at swap(int *)+0x90 in /build/source/csrc/swap.cu:7
=========     and Read access at swap(int *)+0x50 in /build/source/csrc/swap.cu:6 [4 hazards]
=========
========= Error: process didn't terminate successfully
========= ERROR SUMMARY: 3 errors
"""


CLEAN = "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n"
RACES = "RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)"
HARMLESS = """\
========= COMPUTE-SANITIZER
========= Program hit CUDA_ERROR_INVALID_VALUE (error 1) due to "invalid argument" on CUDA API call to cuGetProcAddress_v2.
=========     Saved host backtrace up to driver entry point at error
=========
========= ERROR SUMMARY: 1 error
"""  # noqa: E501


def test_findings_of_the_sanitizer_name_lines(tmp_path: Path) -> None:
    (tmp_path / "csrc").mkdir()
    for name in ("fill.cu", "swap.cu"):
        (tmp_path / "csrc" / name).touch()
    found = sanitizer.parse(LOG, tmp_path)
    assert [(one.what[:20], one.path, one.line, one.count) for one in found] == [
        ("Invalid __global__ w", "csrc/fill.cu", 3, 2),
        ("Error: Race reported", "csrc/swap.cu", 7, 1),
    ]
    assert found[0].function == "fill_kernel(float *, int)"
    assert sanitizer.parse("", tmp_path) == () and sanitizer.parse(CLEAN, tmp_path) == ()


@pytest.mark.parametrize(
    ("what", "block"),
    [
        ("Error: Race reported between Write access at", "swap(int *)+0x90 in swap.cu:7"),
        ("Warning: Race reported between Write access at", "swap(int *)+0x90 in swap.cu:7"),
        ("Uninitialized __global__ memory read of size 4 bytes", "swap(int *)+0x90 in swap.cu:7"),
        ("Barrier error detected. Divergent thread(s) in warp.", "swap(int *)+0x90 in swap.cu:7"),
    ],
)
def test_what_each_tool_finds(tmp_path: Path, what: str, block: str) -> None:
    (tmp_path / "swap.cu").touch()
    between = " " if what.endswith("at") else "\n=========     at "
    found = sanitizer.parse(f"========= COMPUTE-SANITIZER\n========= {what}{between}{block}\n", tmp_path)
    assert [(one.function, one.path, one.line) for one in found] == [("swap(int *)", "swap.cu", 7)]
    assert found[0].what.startswith(what)


@pytest.mark.parametrize(
    ("log", "code", "said"),
    [
        (CLEAN, 0, ""),
        (CLEAN.replace("ERROR SUMMARY: 0 errors", RACES), 0, ""),
        (HARMLESS, 86, ""),
        ("", 0, "compute-sanitizer has not watched the tests to their end: its log is empty"),
        (
            "========= COMPUTE-SANITIZER\n========= Error: Device not supported\n", 0,
            "compute-sanitizer has not watched the tests to their end: Error: Device not supported",
        ),
        (CLEAN, 86, "compute-sanitizer counts errors, of which its log says: nothing"),
        (
            "========= COMPUTE-SANITIZER\n========= A new kind\n========= ERROR SUMMARY: 1 error\n", 0,
            "compute-sanitizer counts errors, of which its log says: A new kind",
        ),
        (
            CLEAN.replace("ERROR SUMMARY: 0 errors", RACES.replace("0 haz", "3 haz")), 0,
            "compute-sanitizer counts errors, of which its log says: nothing",
        ),
    ],
)  # fmt: skip
def test_a_log_without_findings_may_say_nothing(tmp_path: Path, log: str, code: int, said: str) -> None:
    assert sanitizer.parse(log, tmp_path) == ()
    assert sanitizer.trouble(log, code) == said


FAKE_TOOL = """\
#!/bin/sh
while [ "$1" != python ]; do
  case $1 in
    --log-file) log=$2; shift ;;
    --*) shift ;;
    /*) break ;;
  esac
  shift
done
"$@"
code=$?
printf '%s' "$FAKE_LOG" > "$log"
case $FAKE_LOG in *Invalid*) exit 86 ;; esac
exit $code
"""


def test_the_sanitizer_around_the_tests(driver: Path, tmp_path: Path, native: Path) -> None:
    kernel = make_kernel(tmp_path / "kernel", native, backend="cuda")
    (kernel / "csrc").mkdir()
    (kernel / "csrc" / "fill.cu").write_text("\n\n// here\n")
    (kernel / "kernel-actions.toml").write_text('[test]\nenvironment-variables = ["FAKE_LOG"]\n')
    bin_dir = tmp_path / "bin"
    bin_dir.mkdir()
    (bin_dir / "compute-sanitizer").write_text(FAKE_TOOL)
    (bin_dir / "compute-sanitizer").chmod(0o755)
    never = ("--require-gpu", "never", "--sanitize", "memcheck", "--format", "github")
    variables = {"PATH": f"{bin_dir}:{os.environ['PATH']}"}
    finished = run(kernel, PASSING, *never, FAKE_LOG=CLEAN, **variables)
    assert finished.returncode == 0, finished.errors
    assert "1 passed in" in finished.output and finished.output.endswith(" s (memcheck)\n")
    assert (kernel / "build" / "torch-cpu.sanitizer.log").read_text() == CLEAN
    finished = run(kernel, PASSING, *never, FAKE_LOG="", **variables)
    assert (finished.returncode, finished.kind) == (3, "not-sanitized"), finished.errors
    finished = run(kernel, PASSING, *never, FAKE_LOG=LOG, GITHUB_ACTIONS="true", **variables)
    assert (finished.returncode, finished.kind) == (1, "sanitizer"), finished.errors
    assert "csrc/fill.cu:3: torch-cpu: memcheck found 2: Invalid __global__ write" in finished.last
    assert "csrc/fill.cu,line=3::Invalid __global__ write of size 4 bytes" in finished.errors
    assert finished.report is not None and finished.report["findings"][0]["count"] == 2
    (bin_dir / "compute-sanitizer").unlink()
    finished = run(kernel, PASSING, *never, CUDA_HOME="/nonexistent", PATH="/usr/bin:/bin")
    assert finished.returncode == 3 and "compute-sanitizer is not installed" in finished.last
    assert (
        json.loads((kernel / "build" / "torch-cpu" / "metadata.json").read_text())["backend"]["type"]
        == "cuda"
    )
