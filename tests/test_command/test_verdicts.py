"""Real runs: the verdict, the exit code and the report of each way to end."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.test_command.helpers import LOADED, MARKED, PASSING, finish, make_kernel, run, start

HANG = "import time\nwhile True: time.sleep(1)\n"


def test_passing(kernel: Path, tmp_path: Path) -> None:
    before = {path: path.read_bytes() for path in kernel.rglob("*") if path.is_file()}
    finished = run(kernel, PASSING, "--junit", str(tmp_path / "out" / "junit.xml"))
    assert finished.returncode == 0, finished.errors
    assert finished.report is not None and finished.report["verdict"] == "passed"
    assert finished.counts == (1, 0, 0, 0) and finished.kind is None
    assert "torch-cpu: 1 passed in" in finished.output
    root = ElementTree.fromstring((tmp_path / "out" / "junit.xml").read_bytes())
    assert [case.get("name") for case in root.iter("testcase")] == ["test_it"]
    # Nothing but the report was written into the kernel's folder.
    after = {path for path in kernel.rglob("*") if path.is_file()}
    new = kernel / "build" / "torch-cpu.test-report.json"
    assert after - set(before) == {new, kernel / "tests" / "test_tiny.py"}


def test_a_kernel_whose_tests_have_no_marker_is_tested_by_all_of_them(tmp_path: Path, native: Path) -> None:
    """As the template of `kernel-builder init` has it."""
    kernel = make_kernel(tmp_path / "kernel", native)
    text = "import tiny\ndef test_a(): assert tiny.ANSWER == 42\n"
    finished = run(kernel, text)
    assert finished.returncode == 0, finished.errors
    assert finished.report is not None
    (note,) = finished.report["notes"]
    assert note.startswith("no test has the marker kernels_ci, so all of them were run")
    # What was asked for stays what it is.
    assert run(kernel, text, "--marker", "other").returncode == 1


@pytest.mark.parametrize(
    ("tests", "kind", "counts", "message"),
    [
        pytest.param(
            LOADED + "def test_a(): assert 1 == 2\ndef test_b(): pass\n",
            "failed", (1, 1, 0, 0), "test_tiny.py:9: torch-cpu: 1 of 2 tests failed; ", id="failing",
        ),
        pytest.param(
            "# Others of the kernel have the marker kernels_ci.\ndef test_a(): pass\n",
            "none-selected", (0,) * 4, "0 tests ran", id="none selected",
        ),
        pytest.param(
            MARKED + "def test_a(): pytest.skip('no card')\n",
            "all-skipped", (0, 0, 1, 0), "nothing was tested, 1 test skipped (no card)",
            id="all skipped",
        ),
        pytest.param(
            "import pytest\npytest.importorskip('no_such_module')\n",
            "all-skipped", (0, 0, 1, 0), "could not import 'no_such_module'", id="files skipped",
        ),
        pytest.param(
            MARKED + "@pytest.mark.xfail\ndef test_a(): assert 0\n",
            "all-skipped", (0, 0, 1, 0), "nothing was tested, 1 test skipped", id="expected to fail",
        ),
        pytest.param(None, "no-tests", (0, 0, 0, 0), "has no tests", id="no tests"),
        pytest.param(
            MARKED + "import missing_module\n",
            "collection", (0, 1, 0, 0), "test_tiny.py:3: torch-cpu: tests/test_tiny.py: ModuleNotFoundError: "
            "No module named 'missing_module'", id="import error",
        ),
        pytest.param(
            MARKED + "def test_a(: pass\n",
            "collection", (0, 1, 0, 0), "test_tiny.py:3: torch-cpu: tests/test_tiny.py: SyntaxError: invalid",
            id="syntax error",
        ),
        pytest.param(
            LOADED + "def test_a(): pass\ndef test_b():\n    tiny.native().crash()\ndef test_c(): pass\n",
            "crashed", (1, 1, 0, 1), "test_tiny.py:11: torch-cpu: the tests ended early: killed by SIGSEGV "
            "(11) in tests/test_tiny.py::test_b; not run: 1 test", id="segmentation fault",
        ),
        pytest.param(
            LOADED + "def test_a(): tiny.native().give_up()\n",
            "crashed", (0, 1, 0, 0), "killed by SIGABRT (6) in tests/test_tiny.py::test_a", id="abort",
        ),
        pytest.param(
            LOADED + "tiny.native().crash()\n",
            "crashed", (0, 0, 0, 0), "killed by SIGSEGV (11) while the tests were collected",
            id="segmentation fault on import",
        ),
        pytest.param(
            LOADED + "import atexit\natexit.register(tiny.native().crash)\ndef test_a(): pass\n",
            "crashed", (1, 0, 0, 0), "killed by SIGSEGV (11) after the last test", id="crash at the end",
        ),
        pytest.param(
            MARKED + "import os\ndef test_a(): os._exit(0)\n",
            "ended-early", (0, 1, 0, 0), "the tests ended early: exit code 0", id="exit",
        ),
        pytest.param(
            MARKED + "def test_a(): pass\n",
            "not-loaded", (1, 0, 0, 0), "the tests passed without loading the kernel (load it by get_kernel(",
            id="not loaded",
        ),
        pytest.param(
            MARKED + "def test_a(): raise OSError('no network')\n",
            "failed", (0, 1, 0, 0), "OSError: no network (none of them loaded the kernel: load it by "
            'get_kernel("test/tiny", version=1, trust_remote_code=True))', id="failed for another name",
        ),
        pytest.param(
            LOADED + "def test_a(kernal): pass\n",
            "failed", (0, 1, 0, 0), "tests/test_tiny.py::test_a: fixture 'kernal' not found",
            id="no such fixture",
        ),
        pytest.param(
            LOADED + "@pytest.fixture\ndef broken():\n    yield\n    raise OSError('gone')\n"
            "def test_a(broken): pass\n",
            "failed", (0, 1, 0, 0), "OSError: gone", id="error after a test",
        ),
    ],
)  # fmt: skip
def test_whatever_is_not_tested_fails(
    kernel: Path, tests: str | None, kind: str, counts: tuple[int, ...], message: str
) -> None:
    finished = run(kernel, tests)
    assert finished.returncode == 1, finished.errors
    assert (finished.kind, finished.counts) == (kind, counts)
    assert message in finished.last
    assert finished.report is not None and finished.report["verdict"] == "failed"


def test_no_folder_of_tests(kernel: Path) -> None:
    (kernel / "tests").rmdir()
    finished = run(kernel, None)
    assert (finished.returncode, finished.kind) == (1, "no-tests")
    finished = run(kernel, None, "--tests", "more")
    assert finished.returncode == 2 and "more: there are no such tests" in finished.errors


@pytest.mark.parametrize(
    "hang", ["import time\n    while True: time.sleep(1)\n", "tiny.native().spin()\n"], ids=["Python", "C"]
)
def test_a_test_that_never_ends(kernel: Path, hang: str) -> None:
    tests = LOADED + f"def test_a(): pass\ndef test_b():\n    {hang}\ndef test_c(): pass\n"
    finished = run(kernel, tests, "--test-time-limit", "2")
    assert (finished.returncode, finished.kind, finished.counts) == (1, "test-time-limit", (1, 1, 0, 1))
    assert (
        "tests/test_tiny.py::test_b took longer than 2.0 s, and was ended; not run: 1 test (" in finished.last
    )
    # Where it was, also when it holds the interpreter's lock.
    assert "test_tiny.py:12:" in finished.last or "test_tiny.py:11:" in finished.last
    assert finished.report is not None and 2 <= finished.report["seconds"] < 20


def test_the_whole_run_has_a_limit(kernel: Path) -> None:
    tests = (
        LOADED + "import time\n@pytest.mark.parametrize('n', range(100))\ndef test_a(n): time.sleep(0.3)\n"
    )
    finished = run(kernel, tests, "--time-limit", "3")
    assert (finished.returncode, finished.kind) == (3, "run-time-limit")
    assert "the tests took longer than 3.0 s, and were ended in tests/test_tiny.py::test_a[" in finished.last


def test_a_hang_before_any_test(kernel: Path) -> None:
    finished = run(kernel, MARKED + HANG, "--time-limit", "3")
    assert (finished.returncode, finished.kind) == (3, "run-time-limit")
    assert "before any test was started" in finished.last


def test_ten_megabytes_of_output(kernel: Path) -> None:
    tests = PASSING + "def test_much(): os.write(1, b'x' * 10_000_000); print('y\\n' * 100_000)\n"
    finished = run(kernel, tests, "--pytest-args=-s")
    assert finished.returncode == 0, finished.errors[-2000:]
    assert finished.counts == (2, 0, 0, 0)
    assert "The tests have printed more than is shown here" in finished.errors
    assert len(finished.errors) < 6_000_000


def test_output_that_is_no_text(kernel: Path) -> None:
    tests = PASSING + (
        "def test_odd():\n"
        "    os.write(1, bytes(range(256)) + b'\\xff\\xfe\\x1b[2J' * 3)\n"
        "    assert 0, '\\x1b[31m\\udcff'\n"
    )
    finished = run(kernel, tests, "--pytest-args=-s")
    assert (finished.returncode, finished.counts) == (1, (1, 1, 0, 0))
    assert "\x1b" not in finished.errors and "\x1b" not in finished.output


def test_tests_that_change_the_folder_and_delete_files(kernel: Path, tmp_path: Path) -> None:
    tests = PASSING + (
        "import pathlib, shutil\n"
        "def test_chdir(tmp_path): os.chdir(tmp_path)\n"
        "def test_delete():\n"
        "    shutil.rmtree(os.path.dirname(os.path.dirname(folder)))\n"
        f"    os.unlink({str(kernel / 'tests' / 'test_tiny.py')!r})\n"
        "def test_fails(): assert 0\n"
    )
    finished = run(kernel, tests)
    assert (finished.returncode, finished.kind, finished.counts) == (1, "failed", (3, 1, 0, 0))
    assert (kernel / "build" / "torch-cpu" / "__init__.py").exists()


def test_tests_that_change_the_variant(kernel: Path) -> None:
    path = kernel / "build" / "torch-cpu" / "__init__.py"
    finished = run(kernel, PASSING + f"def test_b(): open({str(path)!r}, 'a').write('#')\n")
    assert (finished.returncode, finished.kind) == (1, "changed")
    finished = run(
        kernel, PASSING + f"def test_b():\n    import shutil; shutil.rmtree({str(path.parent.parent)!r})\n"
    )
    assert (finished.returncode, finished.kind) == (1, "changed")


def test_two_runs_at_once(tmp_path: Path, native: Path) -> None:
    kernels = [make_kernel(tmp_path / name, native) for name in ("one", "two")]
    for kernel, tests in zip(kernels, (PASSING, PASSING + "def test_b(): assert 0\n"), strict=True):
        (kernel / "tests" / "test_tiny.py").write_text(tests)
    started = [(start(kernel), kernel) for kernel in [*kernels, kernels[0]]]
    finished = [finish(process, kernel) for process, kernel in started]
    assert [one.returncode for one in finished] == [0, 1, 0], [one.errors for one in finished]
    assert [one.counts for one in finished] == [(1, 0, 0, 0), (1, 1, 0, 0), (1, 0, 0, 0)]


def test_a_failed_assertion_is_not_tried_again(kernel: Path) -> None:
    # What a plug-in that runs tests again tells of the first time.
    (kernel / "tests" / "conftest.py").write_text(
        "import pytest\n"
        "@pytest.hookimpl(wrapper=True)\n"
        "def pytest_runtest_protocol(item, nextitem):\n"
        "    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)\n"
        "    report = pytest.TestReport(item.nodeid, item.location, {}, 'rerun', 'assert 0', 'call')\n"
        "    item.ihook.pytest_runtest_logreport(report=report)\n"
        "    return (yield)\n"
    )
    finished = run(kernel, PASSING)
    assert (finished.returncode, finished.kind, finished.counts) == (1, "failed", (0, 1, 0, 0))
    assert finished.report is not None and finished.report["failures"][0]["kind"] == "rerun"


def test_what_breaks_a_gpu_ends_the_run(kernel: Path) -> None:
    # As Torch behaves once a kernel wrote where it must not: each wait for the GPU is an error.
    tests = LOADED + (
        "import types\n"
        "broken = []\n"
        "def synchronize():\n"
        "    if broken: raise RuntimeError('CUDA error: an illegal memory access was encountered')\n"
        "cuda = types.SimpleNamespace(is_initialized=lambda: True, synchronize=synchronize)\n"
        "sys.modules['torch'] = types.SimpleNamespace(cuda=cuda)\n"
        "def test_a(): pass\n"
        "def test_b(): broken.append(1)\n"
        "def test_c(): pass\n"
    )
    finished = run(kernel, tests)
    assert (finished.returncode, finished.kind, finished.counts) == (1, "crashed", (1, 1, 0, 1))
    assert (
        "test_tiny.py::test_b broke the GPU for the tests after it (not run: 1): CUDA error" in finished.last
    )
    assert "/tests/test_tiny.py:" in finished.last


def test_a_kernel_among_others(kernel: Path) -> None:
    # pytest's names are relative to where it is configured, and the places of failures to the kernel.
    (kernel.parent / "pytest.ini").write_text("[pytest]\n")
    finished = run(kernel, LOADED + "def test_a(): os._exit(3)\n")
    assert finished.report is not None and finished.kind == "ended-early"
    (failure,) = finished.report["failures"]
    assert failure["test"].endswith("kernel/tests/test_tiny.py::test_a")
    assert (failure["path"], failure["line"]) == ("tests/test_tiny.py", 9)
    finished = run(kernel, MARKED + "import missing_module\n")
    assert finished.report is not None and finished.kind == "collection"
    assert finished.report["failures"][0]["path"] == "tests/test_tiny.py"


def test_other_markers_paths_and_arguments(kernel: Path) -> None:
    (kernel / "tests" / "more").mkdir()
    shutil.copy(kernel / "build" / "torch-cpu" / "__init__.py", kernel / "tests" / "unused.py")
    text = LOADED.replace("kernels_ci", "quick") + "def test_xx(): pass\ndef test_zz(): assert 0\n"
    (kernel / "tests" / "more" / "test_more.py").write_text(text)
    finished = run(kernel, PASSING, "--marker", "quick", "--tests", "tests/more", "--pytest-args=-k 'not zz'")
    assert (finished.returncode, finished.counts) == (0, (1, 0, 0, 0)), finished.errors
    assert finished.report is not None
    assert finished.report["selection"] == {
        "marker": "quick",
        "paths": ["tests/more"],
        "arguments": ["-k", "not zz"],
    }
    assert finished.report["deselected"] == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--tests", "../x"], "is no path in the kernel's folder"),
        (["--tests=-p"], "is no path in the kernel's folder"),
        (["--pytest-args=-k 'a"], "quotes do not match"),
        (["--time-limit", "0"], "--time-limit is 0, which is not 1 or more"),
        (["--sanitize", "memcheck"], "is for variants for CUDA, and torch-cpu is for cpu"),
        (["--opcheck"], "there is no samples.py"),
        (["--environment", "nix", "--marker", "x"], "leave out --marker"),
        (["--environment", "pipp"], "did you mean pip?"),
    ],
)
def test_requests_that_cannot_be_meant(kernel: Path, arguments: list[str], message: str) -> None:
    finished = run(kernel, PASSING, *arguments)
    assert finished.returncode == 2, finished.errors
    assert message in finished.last


def test_a_variant_may_go_untested_for_a_reason(kernel: Path, tmp_path: Path) -> None:
    (kernel / "kernel-actions.toml").write_text('[test.allow-untested]\n"torch-*" = "no *such* card <b>"\n')
    summary = tmp_path / "summary.md"
    summary.touch()
    skipped = MARKED + "def test_a(): pytest.skip('no card')\n"
    finished = run(
        kernel, skipped, "--format", "github", GITHUB_STEP_SUMMARY=str(summary), GITHUB_ACTIONS="true"
    )
    assert finished.returncode == 0, finished.errors
    assert finished.report is not None
    assert (finished.report["verdict"], finished.report["allowed"]) == ("untested", "no *such* card <b>")
    assert "Untested, as kernel-actions.toml allows: no \\*such\\* card &lt;b&gt;" in summary.read_text()
    assert "::warning title=untested::torch-cpu is untested: no *such* card <b>" in finished.errors
    # A test that fails is a failure nevertheless.
    finished = run(kernel, LOADED + "def test_a(): assert 0\n")
    assert (finished.returncode, finished.kind) == (1, "failed")
    (kernel / "kernel-actions.toml").write_text('[test.allow-untested]\n"torch-cuda" = "none"\n')
    assert run(kernel, skipped).returncode == 1


def test_the_report_holds_to_its_schema(kernel: Path) -> None:
    import jsonschema

    from tests.integration.conftest import ROOT

    schema = json.loads((ROOT / "docs" / "test-report.schema.json").read_text())
    for tests in (PASSING, LOADED + "def test_a(): assert 0\ndef test_b(): pytest.skip('no')\n", None):
        finished = run(kernel, tests)
        jsonschema.validate(finished.report, schema)
