"""The command, with the real compiler and Torch: what it builds is what users load."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from kernel_actions import build, planning
from kernel_actions.errors import Interrupted, KernelFailed, WrongInput, WrongSurroundings
from kernel_actions.local_builder import compilation, toolchain

from tests.local_builder.helpers import BUILD_TOML, commit, edited, write_kernel
from tests.local_builder.helpers import toolchain as machine
from tests.tools import needs

LAUNCHER = Path(__file__).resolve().parents[2] / "scripts" / "kernel-actions"
pytestmark = [
    pytest.mark.integration,
    needs("Torch"),
]


@dataclass(frozen=True)
class Ended:
    """How the command ended."""

    code: int
    out: str
    err: str

    @property
    def report(self) -> dict[str, Any]:
        assert self.code == 0, self.err
        found: dict[str, Any] = json.loads(self.out)
        return found

    @property
    def compiled(self) -> list[str]:
        """What was compiled, in the order of its end."""
        return [line.split("] ")[1] for line in self.err.splitlines() if line.startswith("  [")]


def start(kernel_dir: Path, *options: str, **variables: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "KA_PYTHON": sys.executable, **variables}
    command = [str(LAUNCHER), "build", str(kernel_dir), *(options or ("--format", "json"))]
    return subprocess.Popen(
        command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def run(kernel_dir: Path, *options: str, **variables: str) -> Ended:
    process = start(kernel_dir, *options, **variables)
    out, err = process.communicate(timeout=300)
    assert "Traceback" not in err
    return Ended(process.returncode, out, err)


def in_python(code: str, python: str = sys.executable, **variables: str) -> str:
    """What ``code`` prints in another process."""
    ended = subprocess.run(
        [python, "-c", code], env={**os.environ, **variables}, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.strip()


def load_and_run(build_dir: Path) -> str:
    return in_python(
        "from pathlib import Path; import torch; from kernels import get_local_kernel\n"
        f"kernel = get_local_kernel(Path({str(build_dir)!r}), backend='cpu')\n"
        "print(kernel.twice(torch.ones(3)).tolist(), kernel.NOTE)"
    )


@pytest.fixture(scope="session")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A kernel at a commit, built once for all tests that only look."""
    folder = write_kernel(tmp_path_factory.mktemp("kernels") / "looked at")
    (folder / ".gitignore").write_text("/build/\n")
    commit(folder)
    ended = run(folder)
    assert ended.report["reused"] is False
    assert ended.compiled[-1].endswith(".abi3.so")
    yield folder


@pytest.fixture(scope="session")
def variant(kernel: Path) -> Path:
    return Path(run(kernel).report["path"])


def head(folder: Path) -> str:
    return subprocess.run(
        ["git", "-C", str(folder), "rev-parse", "HEAD"], capture_output=True, text=True, check=True
    ).stdout.strip()


def test_the_loader_loads_it(kernel: Path) -> None:
    assert load_and_run(kernel / "build") == "[2.0, 2.0, 2.0] a note"


@pytest.mark.slow
def test_old_loaders_load_what_an_old_builder_makes(tmp_path: Path) -> None:
    folder = write_kernel(tmp_path / "kernel")
    revision = "81580bb92577f2f7228661ca2a221fc052375709"
    variant = Path(run(folder, KA_BUILDER_REV=revision).report["path"])
    code = (
        f"import importlib.util, torch; path = {str(variant / 'tiny_scale' / '__init__.py')!r}\n"
        "spec = importlib.util.spec_from_file_location('old', path)\n"
        "module = importlib.util.module_from_spec(spec); spec.loader.exec_module(module)\n"
        "print(module.twice(torch.ones(1)).tolist(), module.__all__)"
    )
    assert in_python(code) == "[2.0] ['twice']"


@pytest.mark.slow
def test_a_module_of_the_kernels_own_name_is_not_hidden(tmp_path: Path) -> None:
    folder = write_kernel(tmp_path / "kernel")
    package = folder / "torch-ext" / "tiny_scale"
    (package / "__init__.py").rename(package / "tiny_scale.py")
    moved = (package / "tiny_scale.py").read_text()
    (package / "__init__.py").write_text("from .tiny_scale import NOTE, twice\n\n__all__ = ['twice']\n")
    assert "from ._ops import" in moved
    shutil.copyfile(Path(__file__).resolve().parents[2] / "flake.lock", folder / "flake.lock")
    report = run(folder).report
    assert not (Path(report["path"]) / "tiny_scale").exists()
    assert load_and_run(folder / "build") == "[2.0, 2.0, 2.0] a note"


def test_a_header_that_build_toml_does_not_list_is_an_error(kernel: Path, tmp_path: Path) -> None:
    folder = write_kernel(tmp_path / "kernel", edited(BUILD_TOML, ('  "csrc/scale.h",\n', "")))
    ended = run(folder)
    assert ended.code == 2
    assert "csrc/scale.cpp:1: includes csrc/scale.h, which is in no src of build.toml" in ended.err
    assert not list((folder / "build").glob("torch*"))
    # Once more: nothing is compiled, and it is still an error.
    again = run(folder)
    assert again.code == 2 and again.compiled == []
    (folder / "build.toml").write_text(BUILD_TOML)
    assert run(folder).report["reused"] is False


def test_it_is_portable(variant: Path) -> None:
    from kernel_abi_check import ObjectFile

    (extension,) = variant.glob("*.abi3.so")
    assert ObjectFile(extension).check_manylinux("manylinux_2_28") == []
    assert ObjectFile(extension).check_python_abi("3.9") == []


def test_its_metadata_is_read_and_its_digest_holds(kernel: Path, variant: Path) -> None:
    from kernels._rust import Digest, DigestAlgorithm, Metadata

    metadata = Metadata.read_from_file(variant / "metadata.json")
    assert metadata.id == f"_tiny_scale_cpu_{head(kernel)[:7]}"
    assert metadata.version == 3
    assert metadata.provenance.kernel.commit == head(kernel)
    assert not metadata.provenance.dirty
    metadata.digest.validate(Digest.hash_variant(DigestAlgorithm.SHA256, variant))


def test_no_path_of_this_machine_is_in_it(kernel: Path, variant: Path) -> None:
    (extension,) = variant.glob("*.abi3.so")
    data = extension.read_bytes()
    assert str(kernel).encode() not in data
    assert b"site-packages" not in data


def test_the_report_says_how_it_came_to_be(kernel: Path, variant: Path) -> None:
    report = json.loads((kernel / "build" / f"{variant.name}.build-report.json").read_text())
    assert {name: report[name] for name in ("builder", "sandbox", "planned", "dirty", "nvcc")} == {
        "builder": "local", "sandbox": False, "planned": None, "dirty": False, "nvcc": None
    }  # fmt: skip
    assert report["commit"] == head(kernel)
    assert report["files"] == len([path for path in variant.rglob("*") if path.is_file()])


def test_nothing_is_done_twice(kernel: Path) -> None:
    started = time.monotonic()
    ended = run(kernel)
    assert ended.report["reused"] is True
    assert ended.err == ""
    assert time.monotonic() - started < 5


def test_outputs_and_summary(kernel: Path, variant: Path, tmp_path: Path) -> None:
    files = {"GITHUB_OUTPUT": str(tmp_path / "out"), "GITHUB_STEP_SUMMARY": str(tmp_path / "summary")}
    assert run(kernel, "--format", "github", **files).code == 0
    assert f"\n{variant.name}\n" in (tmp_path / "out").read_text()
    assert f"\n{variant}\n" in (tmp_path / "out").read_text()
    assert "up to date" in (tmp_path / "summary").read_text()


def test_a_damaged_variant_is_laid_out_again(kernel: Path, variant: Path) -> None:
    (variant / "_ops.py").write_text("")
    ended = run(kernel)
    assert ended.report["reused"] is False
    assert not [name for name in ended.compiled if name.endswith(".cpp")]
    assert load_and_run(kernel / "build").startswith("[2.0")


@pytest.fixture(scope="session")
def changing(kernel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A kernel for tests that change it, one after the other."""
    folder = write_kernel(tmp_path_factory.mktemp("kernels") / "changing")
    (folder / ".gitignore").write_text("/build/\n")
    commit(folder)
    assert run(folder).code == 0
    return folder


@pytest.mark.slow
def test_a_state_has_a_name_of_its_own(changing: Path) -> None:
    source = changing / "csrc" / "scale.cpp"
    clean = source.read_text()
    source.write_text(edited(clean, ("make_shared<int>(2)", "make_shared<int>(3)")))
    ended = run(changing)
    short = head(changing)[:7]
    assert ended.report["dirty"] is True
    assert ended.report["id"].startswith(f"_tiny_scale_cpu_{short}_dirty_")
    assert load_and_run(changing / "build").startswith("[3.0")
    assert len(list(Path(ended.report["path"]).glob("*.so"))) == 1

    commit(changing, "three")
    ended = run(changing)
    assert ended.report["id"] == f"_tiny_scale_cpu_{head(changing)[:7]}"
    # A mere commit changes the name, which only the binding knows.
    assert [name for name in ended.compiled if name.endswith(".cpp")] == ["torch-ext/torch_binding.cpp"]


def test_a_file_that_git_does_not_track_is_not_passed_off_as_the_commit(changing: Path) -> None:
    extra = changing / "torch-ext" / "tiny_scale" / "extra.py"
    extra.write_text("X = 1\n")
    report = run(changing).report
    assert report["dirty"] is True
    assert (Path(report["path"]) / "extra.py").is_file()
    extra.unlink()


def test_a_compile_error_is_placed_in_the_authors_file(changing: Path) -> None:
    source = changing / "csrc" / "scale.cpp"
    clean = source.read_text()
    variant_dir = next((changing / "build").glob("torch*linux"))
    before = (variant_dir / "metadata.json").read_bytes()
    source.write_text(clean + "\nint wrong = nothing;\nint also = missing;\n")
    line = len(clean.splitlines()) + 2
    ended = run(changing, "--format", "github", GITHUB_ACTIONS="true")
    source.write_text(clean)
    assert ended.code == 1
    assert f"{source}:{line}:13: 'nothing' was not declared in this scope" in ended.err.splitlines()[-1]
    assert f"::error title=kernel-actions,file={source},line={line},col=13::" in ended.err
    assert f"::error title=compile error,file={source},line={line + 1},col=12::" in ended.err
    log = next((changing / "build" / ".local").glob("*/build.log"))
    assert str(log) in ended.err
    assert "nothing" in log.read_text()
    # The variant that was there is still there, as it was.
    assert (variant_dir / "metadata.json").read_bytes() == before


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("c++: fatal error: Killed signal terminated program cc1plus", "set MAX_JOBS to fewer"),
        ("/tmp/x.s: Assembler messages: error: can't write: No space left on device", "the disk is full"),
    ],
)
def test_a_machine_that_does_not_suffice_is_not_the_kernels_fault(
    kernel_dir: Path, tmp_path: Path, said: str, expected: str
) -> None:
    compiler = tmp_path / "c++"
    compiler.write_text(
        f'#!/bin/sh\ncase $* in *-c*scale.cpp) echo "{said}" >&2; exit 1;; esac\nexec c++ "$@"\n'
    )
    compiler.chmod(0o755)
    ended = run(kernel_dir, CXX=str(compiler))
    assert ended.code == 3
    assert expected in ended.err.splitlines()[-1]


def test_a_missing_source_is_an_error_of_build_toml(kernel_dir: Path) -> None:
    (kernel_dir / "csrc" / "scale.h").unlink()
    ended = run(kernel_dir)
    assert ended.code == 2
    assert ended.err.startswith(f"kernel-actions: {kernel_dir}/build.toml:16:3: csrc/scale.h of")
    assert len(ended.err.splitlines()) == 1


@pytest.mark.parametrize(
    "output", ["", ".", "..", "csrc", "torch-ext/tiny_scale", "tests/build", ".git", "src", "src/cpu/build"]
)
def test_nothing_is_built_into_the_sources(kernel_dir: Path, output: str) -> None:
    (kernel_dir / "src" / "cpu").mkdir(parents=True)
    (kernel_dir / "csrc" / "scale.cpp").rename(kernel_dir / "src" / "cpu" / "scale.cpp")
    (kernel_dir / "build.toml").write_text(edited(BUILD_TOML, ("csrc/scale.cpp", "src/cpu/scale.cpp")))
    before = sorted(kernel_dir.parent.rglob("*"))
    with pytest.raises(WrongInput, match=r"--output is .*choose a folder for what is built"):
        build.build(kernel_dir, output=Path(output), tools=machine())
    assert sorted(kernel_dir.parent.rglob("*")) == before


def test_an_output_that_is_a_file_or_has_no_name_is_refused(kernel_dir: Path) -> None:
    with pytest.raises(WrongInput, match="--output is not UTF-8"):
        build.build(kernel_dir, output=Path(os.fsdecode(b"\xff")), tools=machine())
    (kernel_dir / "build").write_text("")
    with pytest.raises(WrongInput, match="which is not a folder"):
        build.build(kernel_dir, tools=machine())


@pytest.mark.parametrize("character", [";", '"', "\\", "|", "$", "\n", "[", "`"])
def test_a_path_that_cmake_cannot_take_is_refused(tmp_path: Path, character: str) -> None:
    folder = write_kernel(tmp_path / f"a{character}<b")
    with pytest.raises(WrongInput) as caught:
        build.build(folder, tools=machine())
    assert f"the path of the kernel's folder has the character {character!r}"[:-1] in caught.value.what
    output = tmp_path / f"out{character}"
    with pytest.raises(WrongInput, match="the path of the output folder has the character"):
        build.build(write_kernel(tmp_path / "kernel"), output=output, tools=machine())
    assert not output.exists()


def test_a_kernel_may_be_named_like_what_is_generated_and_lie_anywhere(tmp_path: Path) -> None:
    folder = write_kernel(tmp_path / "#a (b) 'c' %d&e<f>*?", edited(BUILD_TOML, ('"tiny-scale"', '"cmake"')))
    (folder / "torch-ext" / "tiny_scale").rename(folder / "torch-ext" / "cmake")
    # Torch's headers would take the compiler seconds.
    (folder / "torch-ext" / "torch_binding.cpp").write_text('#include "registration.h"\n')
    first = build.build(folder, is_loaded=False)
    # Once more, with what the first build left behind.
    (folder / "torch-ext" / "cmake" / "more.py").write_text("")
    second = build.build(folder, is_loaded=False)
    assert not second.reused and second.path == first.path
    assert (second.path / "more.py").is_file() and next(second.path.glob("_cmake_cpu_*.so")).is_file()


@pytest.mark.parametrize(
    ("said", "wrong", "message"),
    [
        ("at CMakeLists.txt:20 (add_library):\n  No such source", WrongInput, "build.toml: CMake cannot"),
        ("in CMakeLists.txt:\n  No such property", WrongInput, "build.toml: CMake cannot"),
        ("at CMakeLists.txt:3 (project):\n  No compiler", WrongSurroundings, "build.log: CMake cannot"),
        (
            "at /cmake/Test.cmake:9 (try):\n  Broken\nCMake Error at CMakeLists.txt:9 (set):\n  No",
            WrongSurroundings,
            "build.log: CMake",
        ),
        ("at /cmake/Modules/Test.cmake:9 (message):\n  Broken", WrongSurroundings, "build.log: CMake"),
    ],
)
def test_what_build_toml_lists_is_not_the_machines_fault(
    kernel_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, wrong: type, message: str
) -> None:
    cmake = tmp_path / "cmake"
    cmake.write_text(f"#!/bin/sh\necho 'CMake Error {said}'\nexit 1\n")
    cmake.chmod(0o755)
    monkeypatch.setattr(compilation, "tool", lambda _name: cmake)
    with pytest.raises(wrong, match=message):
        build.build(kernel_dir)


def test_an_interrupt_is_not_taken_for_an_unknown_plan(
    kernel_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_kernel_dir: Path) -> None:
        raise Interrupted(signal.SIGTERM)

    monkeypatch.setattr(planning, "planned_variants", interrupted)
    with pytest.raises(Interrupted):
        build.build(kernel_dir, tools=machine())


def test_an_unknown_variant_is_an_error(kernel_dir: Path) -> None:
    ended = run(kernel_dir, "--variant", "torch-nothing")
    assert ended.code == 2
    assert "it can build torch" in ended.err


def test_a_build_that_is_cut_off_leaves_nothing_and_the_next_one_works(
    kernel_dir: Path, tmp_path: Path
) -> None:
    compiler, started = tmp_path / "c++", tmp_path / "started"
    compiler.write_text(
        f'#!/bin/sh\ncase $* in *-c*scale.cpp) [ -z "$SLOW" ] || {{ touch {started}; sleep 60; }}; esac\n'
        'exec c++ "$@"\n'
    )
    compiler.chmod(0o755)
    for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGINT):
        process = start(kernel_dir, CXX=str(compiler), SLOW="1")
        wait_until(started.exists)
        process.send_signal(number)
        process.communicate(timeout=30)
        expected = -signal.SIGKILL if number == signal.SIGKILL else 128 + number
        assert process.returncode == expected
        wait_until(lambda: not compilers(kernel_dir))
        assert not list((kernel_dir / "build").glob("torch*"))
        started.unlink()
    assert run(kernel_dir, CXX=str(compiler)).report["reused"] is False
    assert load_and_run(kernel_dir / "build").startswith("[2.0")


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def compilers(kernel_dir: Path) -> list[str]:
    """Processes that work on the kernel."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(kernel_dir) in command and int(path.parent.name) != os.getpid():
            found.append(command)
    return found


def test_of_two_builds_at_once_one_builds_and_the_same_source_gives_the_same_file(
    tmp_path: Path, kernel_dir: Path
) -> None:
    pair = [start(kernel_dir), start(kernel_dir)]
    ended = [(process, *process.communicate(timeout=300)) for process in pair]
    assert [process.returncode for process, _, _ in ended] == [0, 0]
    assert sorted(json.loads(out)["reused"] for _, out, _ in ended) == [False, True]
    assert any("waiting for it" in err for _, _, err in ended)

    # In another folder, with another number of compilers.
    elsewhere = write_kernel(tmp_path / "some" / "where else")
    report = run(elsewhere, MAX_JOBS="1").report
    first, second = (
        hashlib.sha256(next(folder.glob("build/torch*linux/*.so")).read_bytes()).hexdigest()
        for folder in (kernel_dir, elsewhere)
    )
    assert first == second
    assert "_local_" in report["id"]


@pytest.mark.slow
def test_pip_installs_the_project_and_sees_edits(changing: Path, tmp_path: Path) -> None:
    report = run(changing).report
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True)
    (site,) = (tmp_path / "venv" / "lib").glob("python*/site-packages")
    packages = Path(importlib.util.find_spec("torch").submodule_search_locations[0]).parent  # type: ignore[union-attr,index]
    (site / "this-environment.pth").write_text(f"{packages}\n")
    project = changing / "build" / ".local" / report["variant"]
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "-q", "--no-build-isolation"]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    subprocess.run([*pip, "--no-deps", "-e", str(project)], check=True, env={**os.environ, "PATH": path})
    code = "import tiny_scale, torch; tiny_scale.twice(torch.ones(1)); print(tiny_scale.NOTE)"
    assert in_python(code, str(python)) == "a note"
    module = changing / "torch-ext" / "tiny_scale" / "__init__.py"
    module.write_text(module.read_text() + "\nNOTE = 'edited'\n")
    assert in_python(code, str(python)) == "edited"
    # A build that fails leaves what is installed as it was; one that succeeds is seen.
    source = changing / "csrc" / "scale.cpp"
    text = source.read_text()
    source.write_text(text + "int broken = nothing;\n")
    assert run(changing).code == 1
    assert in_python(code, str(python)) == "edited"
    source.write_text(text + "int fine = 1;\n")
    assert run(changing).code == 0
    assert in_python(code, str(python)) == "edited"


def test_what_compiles_and_does_not_load_is_not_built(changing: Path) -> None:
    before = run(changing).report
    source = changing / "csrc" / "scale.cpp"
    source.write_text(source.read_text() + "void missing();\nvoid call() { missing(); }\n")
    ended = run(changing)
    assert ended.code == 1
    assert "was built, but does not load: " in ended.err.splitlines()[-1]
    assert "undefined symbol" in ended.err.splitlines()[-1]
    assert "(see that each function is defined as it is declared" in ended.err.splitlines()[-1]
    assert load_and_run(changing / "build") and (changing / "build" / before["variant"]).is_dir()


def test_a_kernel_of_python_alone_needs_no_compiler(tmp_path: Path) -> None:
    text = BUILD_TOML.partition("[torch]")[0] + "[torch-noarch]\n"
    folder = write_kernel(tmp_path, text)
    (folder / "torch-ext" / "tiny_scale" / "__init__.py").write_text(
        "from ._ops import add_op_namespace_prefix\n\nname = add_op_namespace_prefix('x')\n"
    )
    report = run(folder, PATH=f"{Path(sys.executable).parent}:/nowhere", CXX="").report
    assert report["variant"] == "torch-cpu"
    assert report["compiler"] is None
    code = (
        "from pathlib import Path; from kernels import get_local_kernel\n"
        f"print(get_local_kernel(Path({str(folder / 'build')!r}), backend='cpu').name)"
    )
    assert in_python(code) == f"{report['id']}::x"


@needs("nvcc")
def test_a_cuda_variant_compiles_without_a_gpu(tmp_path: Path) -> None:
    tools = toolchain.detect()
    assert tools.nvcc is not None and tools.torch is not None
    text = edited(
        BUILD_TOML,
        ('backends = ["cpu"]', 'backends = ["cuda"]'),
        ('backend = "cpu"', 'backend = "cuda"\ncuda-capabilities = ["9.0a", "8.0"]'),
        ('"csrc/scale.cpp",', '"csrc/scale.cpp", "csrc/device.cu"'),
    )
    folder = write_kernel(tmp_path, text)
    (folder / "csrc" / "device.cu").write_text(
        "#if !defined(CUDA_KERNEL) || USE_CUDA != 1 || defined(CPU_KERNEL)\n#error macros\n#endif\n"
        "__global__ void fill(float* x) { x[threadIdx.x] = 1; }\n"
        "void launch(float* x) { fill<<<1, 32>>>(x); }\n"
    )
    # The binding needs no header of Torch for CUDA, so that Torch for CPUs will do.
    major, _, _ = tools.nvcc.version.partition(".")
    tools = replace(tools, torch=replace(tools.torch, cuda=f"{major}.0"))
    report = build.build(folder, tools=tools, is_loaded=False)  # There is no GPU, nor a Torch for one.
    assert f"-cu{major}0-" in report.variant
    metadata = json.loads((report.path / "metadata.json").read_text())
    assert metadata["backend"] == {"type": "cuda", "archs": ["8.0", "9.0a"]}
    (extension,) = report.path.glob("*.so")
    assert str(folder).encode() not in extension.read_bytes()
    (folder / "csrc" / "device.cu").write_text("__global__ void fill(float* x) { x[blok] = 1; }\n")
    with pytest.raises(KernelFailed, match='identifier "blok" is undefined') as caught:
        build.build(folder, tools=tools)
    assert str(caught.value.where) == f"{folder}/csrc/device.cu:1"


def noarch(folder: Path, backend: str, package: str) -> Path:
    """The tiny kernel of Python alone, for one backend, with this ``__init__.py``."""
    text = BUILD_TOML.partition("[torch]")[0] + "[torch-noarch]\n"
    text = re.sub(r"backends = \[.*\]", f'backends = ["{backend}"]', text)
    write_kernel(folder, text)
    (folder / "torch-ext" / "tiny_scale" / "__init__.py").write_text(package)
    return folder


def test_python_for_another_backend_is_built_and_not_loaded_here(tmp_path: Path) -> None:
    kernel = noarch(tmp_path, "rocm", "raise RuntimeError('not on this machine')\n")
    ended = run(kernel, "--variant", "torch-rocm")
    assert ended.code == 0, ended.err
    assert "Not loaded here: torch-rocm: backend (rocm) does not match" in ended.err
    assert (kernel / "build" / "torch-rocm" / "metadata.json").is_file()


def test_a_package_that_the_builders_torch_brings_is_missing_in_the_surroundings(tmp_path: Path) -> None:
    kernel = noarch(tmp_path, "cpu", "raise ModuleNotFoundError(\"No module named 'triton'\")\n")
    ended = run(kernel)
    assert ended.code == 3, ended.err
    assert "install triton" in ended.err.splitlines()[-1]


def test_a_package_that_nothing_brings_is_the_kernels_fault(tmp_path: Path) -> None:
    ended = run(noarch(tmp_path, "cpu", "import not_a_package\n"))
    assert ended.code == 1 and "does not load: ModuleNotFoundError" in ended.err.splitlines()[-1]
