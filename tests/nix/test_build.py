"""``build`` by Nix: what it makes, and what of it can be used."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest
from kernel_actions import built, upload
from kernel_actions.errors import KernelFailed

from tests.integration.conftest import ROOT, git
from tests.nix.conftest import (
    BUILDER,
    CPU,
    CPU_NEW,
    CUDA,
    Machine,
    change,
    commit,
    last_line,
    make_kernel,
    report,
    write_lock,
)
from tests.tools import leave_out, needs, program


def test_two_variants_are_built_described_and_packed(machine: Machine, kernel: Path, tmp_path: Path) -> None:
    finished = machine.build(kernel, CPU, CUDA, options=["--archive", tmp_path / "archives"])
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.count("built") == 3 and CPU in finished.stdout
    for name in (CPU, CUDA):
        variant = built.read(kernel / "build" / name)
        built.check_intact(variant.path)
        assert variant.builder == "nix"
        upload.check_published([variant])
        said = report(kernel, name)
        assert said["sandbox"] is True and said["planned"] is True and said["dirty"] is False
        assert said["commit"] == git(kernel, "rev-parse", "HEAD").strip()
        assert said["origin"] == "built" and said["store_path"].startswith("/nix/store/")
        assert said["derivation"].endswith("-tiny-torch-ext.drv") and said["nix"]
        assert said["bytes"] == sum(path.stat().st_size for path in variant.path.rglob("*") if path.is_file())
        assert said["closure_bytes"] >= said["nar_bytes"] > said["bytes"]
        with tarfile.open(tmp_path / "archives" / f"{name}.tar") as archive:
            modes = {entry.name: entry.mode for entry in archive}
        assert modes[name] == 0o755 and modes[f"{name}/metadata.json"] == 0o644
        assert modes[f"{name}/{said['id']}.abi3.so"] == 0o755
        assert f"{name}.build-report.json" in modes
        # The builder's own file, byte for byte.
        original = machine.real(said["store_path"]) / name / "metadata.json"
        assert (variant.path / "metadata.json").read_bytes() == original.read_bytes()
    # The folder is as git left it.
    assert git(kernel, "status", "--porcelain") == ""
    # Nothing is done twice.
    before = os.stat(kernel / "build" / CPU)
    again = machine.build(kernel, CPU, options=["--format=json"])
    said = json.loads(again.stdout)
    assert (said["origin"], said["reused"], said["built"]) == ("present", True, 0)
    assert os.stat(kernel / "build" / CPU) == before


def test_a_job_has_groups_annotations_a_summary_and_outputs(machine: Machine, tmp_path: Path) -> None:
    kernel = make_kernel(tmp_path / "repo")
    source = (kernel / "csrc" / "luma.cpp").read_text()
    change(kernel, {"csrc/luma.cpp": f"{source}\nstatic int unused;\n"})
    summary, outputs = tmp_path / "summary", tmp_path / "outputs"
    machine.variables = {
        "GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(summary), "GITHUB_OUTPUT": str(outputs),
        "GITHUB_WORKSPACE": str(kernel), "HF_TOKEN": "hf_secret",
    }  # fmt: skip
    finished = machine.build(kernel, CUDA, options=["--format=github", "--archive", tmp_path / "out"])
    assert finished.returncode == 0, finished.stderr
    said = finished.stderr
    assert (
        said.index(f"::group::Nix: {CUDA}")
        < said.index("::stop-commands::")
        < said.index("Building cpp object")
    )
    assert said.index("Building cpp object") < said.index("::endgroup::")
    assert "::warning title=compiler warning,file=csrc/luma.cpp,line=10,col=12::" in said
    text = summary.read_text()
    assert "| scale | sm\\_90 | 168 | 16 B | 16 B | 16 B |" in text
    assert text.index("sm\\_90") < text.index("sm\\_80")
    assert f"| {CUDA.replace('_', chr(92) + '_')} | built | 4 |" in text
    assert f"{tmp_path}/out/{CUDA}.tar" in outputs.read_text()
    assert "hf_secret" not in said + text


@pytest.mark.parametrize("folder", ["", "kernels/tiny"])
def test_a_compile_error_is_at_its_line_of_the_repository(
    machine: Machine, tmp_path: Path, folder: str
) -> None:
    root = tmp_path / "repo"
    kernel = make_kernel(root)
    broken = "".join(f"__global__ void k{number}() {{ missing{number}(); }}\n" for number in range(12))
    change(kernel, {"csrc/scale.cu": f"// Wrong.\n{broken}"})
    if folder:
        (root / folder).parent.mkdir(parents=True)
        (root / "here").mkdir()
        for name in ("build.toml", "flake.nix", "flake.lock", "csrc", "torch-ext", "tests"):
            git(root, "mv", name, f"here/{name}")
        git(root, "mv", "here", folder)
        git(root, "commit", "--quiet", "--message=move")
    summary = tmp_path / "summary"
    machine.variables = {
        "GITHUB_ACTIONS": "true", "GITHUB_WORKSPACE": str(root), "GITHUB_STEP_SUMMARY": str(summary),
    }  # fmt: skip
    finished = machine.build(root / folder, CUDA, CPU, options=["--format=github"])
    assert finished.returncode == 1
    text = summary.read_text()
    # What failed comes first and once; what was built is there, too.
    assert text.startswith("### ❌ Build: ") and text.count("### ") == 1
    assert text.index("missing0") < text.index(CPU.replace("_", "\\_"))
    lines = [line for line in finished.stderr.splitlines() if line.startswith("::error")]
    place = f"{folder}/csrc/scale.cu".lstrip("/")
    assert len(lines) == 10
    assert lines[0].startswith(f"::error title=kernel-actions,file={place},line=2::")
    assert "missing0" in lines[0] and "2 more errors" in lines[-1]
    assert f"The end of the log of tiny-torch-ext ({CUDA}):" in finished.stderr
    assert "Traceback" not in finished.stderr
    # The other variant is none the worse for it.
    assert built.read(root / folder / "build" / CPU).builder == "nix"
    assert not (root / folder / "build" / CUDA).exists()
    assert CPU in finished.stdout


@pytest.mark.slow
@needs("nvcc")
def test_real_nvcc_is_understood(machine: Machine, tmp_path: Path) -> None:
    kernel = make_kernel(tmp_path / "repo")
    nvcc = program("nvcc")
    if not nvcc.startswith("/usr/"):
        leave_out("an nvcc below /usr")
    (machine.signal / "nvcc").write_text(f'exec {nvcc} "$@"\n')
    summary = tmp_path / "summary"
    machine.variables = {
        "GITHUB_ACTIONS": "true", "GITHUB_WORKSPACE": str(kernel), "GITHUB_STEP_SUMMARY": str(summary),
    }  # fmt: skip
    finished = machine.build(kernel, CUDA, options=["--format=github"])
    assert finished.returncode == 0, finished.stderr
    assert "| scale | sm\\_80 | " in summary.read_text()
    source = (kernel / "csrc" / "scale.cu").read_text()
    change(kernel, {"csrc/scale.cu": source.replace("*= 2", "*= missing")})
    finished = machine.build(kernel, CUDA, options=["--format=github"])
    assert finished.returncode == 1
    assert 'file=csrc/scale.cu,line=2::identifier "missing" is undefined' in finished.stderr


def test_a_result_of_500_files_with_links_is_copied_as_files(machine: Machine, kernel: Path) -> None:
    script = """
    folder="$out/$variant/data"
    mkdir -p "$folder/deep/er"
    for number in $(seq 500); do echo "$number" > "$folder/deep/$number.txt"; done
    ln -s ../1.txt "$folder/deep/er/link"
    ln -s "$torch/include/ATen" "$folder/headers"
    echo x > "$folder/ä file with spaces"
    chmod 0500 "$folder/deep/7.txt"
    """
    change(kernel, {"after-install.sh": script})
    finished = machine.build(kernel, CPU)
    assert finished.returncode == 0, finished.stderr
    folder = kernel / "build" / CPU
    assert not any(path.is_symlink() for path in folder.rglob("*"))
    assert all(os.access(path, os.W_OK) and path.stat().st_mode & 0o200 for path in folder.rglob("*"))
    assert (folder / "data" / "headers" / "Parallel.h").is_file()
    assert (folder / "data" / "deep" / "er" / "link").read_text() == "1\n"
    assert (folder / "data" / "deep" / "7.txt").stat().st_mode & 0o777 == 0o755
    assert report(kernel, CPU)["files"] == 4 + 503
    built.check_intact(built.read(folder).path)


def test_a_link_out_of_the_store_is_refused(machine: Machine, kernel: Path) -> None:
    change(kernel, {"after-install.sh": 'ln -s /etc/passwd "$out/$variant/users"'})
    # The file is not there in the sandbox, so the build does not hash it.
    finished = machine.build(kernel, CPU)
    assert finished.returncode == 1
    assert "users of the result is a link to outside of the Nix store" in last_line(finished)
    assert not (kernel / "build" / CPU).exists()


def test_uncommitted_changes_are_built_only_when_told_and_marked(
    machine: Machine, kernel: Path, tmp_path: Path
) -> None:
    (kernel / "csrc" / "luma.h").write_text("")
    odd = machine.build(kernel, CPU, options=["--allow-dirty"])
    assert odd.returncode == 0 or "builds no uncommitted changes in a folder with spaces" in last_line(odd)
    kernel = make_kernel(tmp_path / "tiny")
    (kernel / "csrc" / "luma.h").write_text((kernel / "csrc" / "luma.h").read_text() + "// changed\n")
    refused = machine.build(kernel, CPU)
    assert refused.returncode == 2
    assert "uncommitted changes (csrc/luma.h)" in last_line(refused) and "--allow-dirty" in last_line(refused)
    finished = machine.build(kernel, CPU, options=["--allow-dirty"])
    assert finished.returncode == 0, finished.stderr
    assert report(kernel, CPU)["dirty"] is True


def test_a_variant_that_nothing_makes_is_answered_with_the_nearest(machine: Machine, kernel: Path) -> None:
    finished = machine.build(kernel, "torch213-cxx11-cu13-x86_64-linux")
    assert finished.returncode == 2
    assert "nearest: torch213-cxx11-cu13" in last_line(finished) and CUDA in last_line(finished)
    nothing = machine.build(kernel)
    assert nothing.returncode == 2 and "no variant is named" in last_line(nothing)
    other = machine.build(kernel, "torch213-cxx11-cpu-aarch64-linux")
    assert other.returncode == 3 and "is for aarch64-linux, and this machine builds for" in last_line(other)


def test_auto_says_what_it_takes(machine: Machine, kernel: Path) -> None:
    child = machine.start(kernel, f"--variant={CPU_NEW}")
    _, said = child.communicate(timeout=240)
    assert child.returncode == 0 and "Building with Nix\n" in said
    (kernel / "flake.lock").unlink()
    # The wish for something that is Nix's ends it here.
    child = machine.start(kernel, f"--variant={CPU_NEW}", "--check-reproducible")
    _, said = child.communicate(timeout=240)
    assert child.returncode == 2
    assert "Building with the local builder: the kernel has no flake.lock" in said


def test_without_a_sandbox_nothing_is_built_unless_told_and_that_is_not_published(
    machine: Machine, tmp_path: Path
) -> None:
    # Without a chroot there are only the stores at their own paths.
    kernel = make_kernel(tmp_path / "tiny")
    change(kernel, {"sees-the-machine": ""})
    machine.lines += ["sandbox = false"]
    machine.variables = {
        "NIX_STORE_DIR": f"{machine.folder}/store", "NIX_STATE_DIR": f"{machine.folder}/state",
        "NIX_LOG_DIR": f"{machine.folder}/log", "NIX_REMOTE": "",
    }  # fmt: skip
    machine.nix("store", "add-path", "--name", "source", BUILDER)
    refused = machine.build(kernel, CPU)
    assert refused.returncode == 3 and "without a sandbox (sandbox = false)" in last_line(refused)
    unknown = machine.build(kernel, f"{CPU}x")
    assert unknown.returncode == 2 and f"nearest: {CPU}" in last_line(unknown)
    pushed = machine.build(kernel, CPU, options=["--allow-unsandboxed", "--push-to=file:///nowhere"])
    assert pushed.returncode == 2 and "is not pushed" in last_line(pushed)
    finished = machine.build(kernel, CPU, options=["--allow-unsandboxed"])
    assert finished.returncode == 0, finished.stderr
    assert report(kernel, CPU)["sandbox"] is False
    with pytest.raises(KernelFailed, match="only builds of Nix are published"):
        upload.check_published([built.read(kernel / "build" / CPU)])


def test_what_a_killed_build_left_is_cleaned_up(machine: Machine, tmp_path: Path) -> None:
    kernel = make_kernel(tmp_path / "tiny")
    work = kernel / "build" / ".local"
    # It was ended between moving the variant away and moving the new one in.
    for name in (f"{CPU}.new", f"{CPU}.new.old"):
        (work / name).mkdir(parents=True)
        (work / name / "half").write_text("")
    finished = machine.build(kernel, CPU)
    assert finished.returncode == 0, finished.stderr
    assert not list(work.glob("*.new*")) and not (kernel / "build" / CPU / "half").exists()


def test_a_builder_that_no_plan_knows_is_asked_by_nix(machine: Machine, tmp_path: Path) -> None:
    kernel = make_kernel(tmp_path / "tiny")
    shutil.copytree(BUILDER, tmp_path / "builder")
    text = (
        (kernel / "flake.nix").read_text().replace("github:huggingface/kernels", f"path:{tmp_path}/builder")
    )
    (kernel / "flake.nix").write_text(text)
    (kernel / "flake.lock").unlink()
    machine.nix("flake", "lock", kernel)
    commit(kernel)
    finished = machine.build(kernel, CPU)
    assert finished.returncode == 0, finished.stderr
    assert report(kernel, CPU)["planned"] is None
    wrong = machine.build(kernel, "torch213-cxx11-cpu")
    assert wrong.returncode == 2 and f"nearest: {CPU_NEW}" in last_line(wrong)


def test_a_build_that_differs_the_second_time_is_told_with_its_files(machine: Machine, kernel: Path) -> None:
    passed = machine.build(kernel, CPU, options=["--check-reproducible"])
    assert passed.returncode == 0, passed.stderr
    assert report(kernel, CPU)["reproducible"] is True
    change(kernel, {"before-build.sh": "date +%s%N > torch-ext/tiny/stamp.py\n"})
    failed = machine.build(kernel, CPU, options=["--check-reproducible"])
    assert failed.returncode == 1
    assert f"{CPU} differs when it is built again:\n  metadata.json\n  stamp.py\n" in failed.stderr
    assert "is not reproducible: built again, metadata.json, stamp.py differ" in last_line(failed)
    assert report(kernel, CPU)["reproducible"] is False


@needs("zstd")
def test_tests_travel_to_another_machine(machine: Machine, kernel: Path, tmp_path: Path) -> None:
    file = tmp_path / "tests.nar.zst"
    finished = machine.build(kernel, CPU, options=["--export-tests", file])
    assert finished.returncode == 0, finished.stderr
    assert f"Exported the tests of {CPU}: {file}, " in finished.stderr
    other = Machine(tmp_path / "other")
    child = other.start(tmp_path, "--import-tests", file)
    out, said = child.communicate(timeout=120)
    assert child.returncode == 0, said
    program = Path(out.strip()) / "bin" / "ci-test"
    # As the builder's: nothing selected is no failure to it.
    assert "|| test $? -eq 5" in program.read_text()
    # With what they test: the extension before it is stripped, which is not the one that is published.
    (extension,) = other.real("/nix/store").glob("*-tiny-torch-ext")
    assert extension.is_dir() and extension != other.real(report(kernel, CPU)["store_path"])
    # What is no export, is cut off, or is an export of nothing.
    zeros = subprocess.run(
        ["zstd", "--quiet", "--stdout"], input=bytes(10**7), capture_output=True, check=True
    )
    for data in (b"nothing", file.read_bytes()[:1000], zeros.stdout):
        (tmp_path / "none").write_bytes(data)
        child = other.start(tmp_path, "--import-tests", tmp_path / "none")
        said = child.communicate(timeout=60)[1]
        assert said.startswith("kernel-actions: cannot import ") and "get it again" in said, said
        assert child.returncode == 3


def test_development_shells_have_what_the_documentation_says(machine: Machine, tmp_path: Path) -> None:
    # Nix 2.8 itself opens none in a folder whose name has a space.
    kernel = make_kernel(tmp_path / "tiny")

    def in_shell(name: str, script: str, *arguments: str | Path) -> str:
        finished = subprocess.run(
            ["nix", "develop", f".#{name}.{CPU}", "--command", "/bin/sh", "-c", script, "sh", *arguments],
            cwd=kernel, env=machine.environment, text=True, capture_output=True, timeout=120, check=False,
        )  # fmt: skip
        assert finished.returncode == 0, finished.stderr
        return finished.stdout.strip()

    # Torch of the variant, to compile by hand what is being changed.
    (kernel / "csrc" / "luma.h").write_text((kernel / "csrc" / "luma.h").read_text() + "// changed\n")
    compile_one = 'g++ -std=c++17 -fPIC -I"$1$torch/include" -c csrc/luma.cpp -o "$2" && echo "$variant"'
    assert in_shell("devShells", compile_one, machine.store, tmp_path / "luma.o") == CPU
    assert (tmp_path / "luma.o").stat().st_size > 0
    # The built kernel, for tests.
    folder = machine.real(in_shell("testShells", 'echo "$extension/$variant"'))
    assert (folder / "metadata.json").is_file()


@pytest.mark.slow
def test_the_example_itself_is_built(machine: Machine, tmp_path: Path) -> None:
    """Its sources for the CPU, with the Torch of this environment in the place of the builder's."""
    import torch

    kernel = tmp_path / "grayscale"
    kernel.mkdir()
    for name in ("csrc", "torch-ext"):
        shutil.copytree(ROOT / name, kernel / name)
    for name in ("build.toml", "flake.nix"):
        shutil.copy(ROOT / name, kernel / name)
    write_lock(kernel)
    git(kernel, "init", "--quiet", "--initial-branch=main")
    commit(kernel)
    machine.lines += [f"extra-sandbox-paths = /torch={Path(torch.__file__).parent}"]
    finished = machine.build(kernel, CPU, CPU_NEW, options=["--archive", tmp_path / "archives"])
    assert finished.returncode == 0, finished.stderr
    for name in (CPU, CPU_NEW):
        variant = built.read(kernel / "build" / name)
        (extension,) = variant.path.glob("*.abi3.so")
        assert b"grayscale" in extension.read_bytes()
        assert report(kernel, name)["sources"]
    assert report(kernel, CPU)["peak_memory"] > 50_000_000
