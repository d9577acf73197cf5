"""``wheel``: names, tags and METADATA of every form of variant, and wheels that install and import."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import os
import re
import stat
import subprocess
import zipfile
from pathlib import Path

import pytest
from huggingface_hub import HfApi
from kernel_actions.errors import KernelFailed, WrongInput
from kernel_actions.wheel import metadata, tags

from tests.compliance.helpers import mach_o
from tests.consumers.helpers import (
    CPU,
    CUDA,
    program,
    publish,
    run,
    user_environment,
    variant_files,
    write_variant,
)
from tests.golden import check_golden
from tests.integration.conftest import ROOT, git
from tests.tools import ask

GOLDEN = Path(__file__).parent / "golden"
VARIANTS = (
    "torch-cpu", "torch-cuda", "torch-metal", "torch-rocm", "torch-tpu", "torch-universal", "torch-xpu",
    "torch-stable-abi211-cpu-x86_64-linux", "torch-stable-abi29-cu130-aarch64-linux",
    "torch-stable-abi210-rocm72-x86_64-linux",
    "torch210-cxx11-cpu-x86_64-linux", "torch210-metal-aarch64-darwin", "torch213-cpu-aarch64-darwin",
    "torch213-cu130-x86_64-windows", "torch213-cxx11-cpu-aarch64-linux", "torch213-cxx11-cu126-x86_64-linux",
    "torch213-cxx11-cu130-aarch64-linux", "torch213-cxx11-cu130-x86_64-linux",
    "torch213-cxx11-rocm72-x86_64-linux", "torch213-cxx11-xpu20260-x86_64-linux",
    "torch26-cxx98-cu118-x86_64-linux", "torch29-cxx11-cu128-x86_64-linux", "torch213-cann82-aarch64-linux",
    "tvm-ffi01-cpu-x86_64-linux", "tvm-ffi01-cu132-aarch64-linux", "tvm-ffi110-metal-aarch64-darwin",
)  # fmt: skip
VALUES = {
    "name": "layer-norm",
    "license": "apache-2.0",
    "python-depends": ["einops"],
    "backend": {"type": "cuda"},
    "source": "https://github.com/acme/layer-norm",
    "upstream": "https://example.org/\nRequires-Dist: evil",
}


def test_every_form_of_variant_has_its_name_and_metadata() -> None:
    kernel = metadata.read(VALUES, Path("metadata.json"), "acme/layer-norm")
    lines = []
    for variant in VARIANTS:
        identity = tags.identify(variant)
        # A kernel of tvm-ffi is a library that Python does not load itself.
        tag = identity.tag(uses_python=not variant.startswith("tvm"))
        full = metadata.full_version("1.2.0", identity)
        text = metadata.core_metadata(kernel, identity, full, ["LICENSE"])
        header = text.partition("\n\n")[0]
        lines.append(f"== {variant}\n{metadata.stem(kernel, full)}-{tag}.whl\n{header}\n")
        lines.append(metadata.wheel_file(identity, tag).replace("\nGenerator: kernel-actions 0.1.0", ""))
    check_golden(GOLDEN / "wheels.txt", "\n".join(lines))


def test_the_names_are_those_that_installers_read() -> None:
    from packaging.metadata import Metadata
    from packaging.utils import canonicalize_name, parse_wheel_filename

    kernel = metadata.read(VALUES, Path("metadata.json"))
    seen = set()
    for variant in VARIANTS:
        identity = tags.identify(variant)
        full = metadata.full_version("1.2.0rc1", identity)
        name = f"{metadata.stem(kernel, full)}-{identity.tag(uses_python=True)}.whl"
        project, version, _, _ = parse_wheel_filename(name)
        parsed = Metadata.from_email(metadata.core_metadata(kernel, identity, full, []).encode())
        assert (canonicalize_name(parsed.name), parsed.version) == (project, version)
        # A name of a wheel is as Python normalizes it: nothing that pip would have to rewrite.
        assert str(version) == full and name not in seen
        seen.add(name)


@pytest.mark.parametrize(
    ("digits", "requirement", "taken", "refused"),
    [
        ("210", "torch~=2.10.0", ("2.10.0", "2.10.1+cu130"), ("2.1.0", "2.11.0", "21.0.0")),
        ("213", "torch~=2.13.0", ("2.13.0+cpu",), ("2.12.1", "2.14.0", "21.3")),
        ("29", "torch~=2.9.0", ("2.9.1",), ("2.10.0", "29.0")),
    ],
)
def test_torch_is_required_in_the_very_minor_version(
    digits: str, requirement: str, taken: tuple[str, ...], refused: tuple[str, ...]
) -> None:
    from packaging.requirements import Requirement

    (found,) = tags.identify(f"torch{digits}-cxx11-cu130-x86_64-linux").requires
    assert found == requirement
    specifier = Requirement(found).specifier
    assert all(specifier.contains(one) for one in taken)
    assert not any(specifier.contains(one) for one in refused)


@pytest.mark.parametrize(
    "name",
    [
        "torch",
        "torch-cpu-x86_64-linux-x",
        "../torch-cpu",
        "torch2-cpu-x86_64-linux",
        "",
        "torch213-cxx11-cu130-x86_64-linux\n",
    ],
)
def test_what_is_no_variant_makes_no_wheel(name: str) -> None:
    with pytest.raises(WrongInput, match="is not the name of a variant"):
        tags.identify(name)


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("1.2.0", "1.2.0"),
        ("2.0.0-rc.1", "2.0.0rc1"),
        ("2.0.0-alpha1", "2.0.0a1"),
        ("1.0.0.dev3", "1.0.0.dev3"),
    ],
)
def test_versions_are_written_as_python_does(text: str, version: str) -> None:
    assert metadata.version(text) == version


@pytest.mark.parametrize("text", ["1", "1.2", "1.2.0+cu130", "v1.2.0", "1.2.0\n", "../1", "01.2.0", ""])
def test_other_versions_are_wrong_input(text: str) -> None:
    with pytest.raises(WrongInput):
        metadata.version(text)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"name": "a\nRequires-Dist: evil"}, "is not that of a kernel"),
        ({"name": "../x"}, "is not that of a kernel"),
        ({"name": None}, "is not that of a kernel"),
        ({"kernel-depends": [{"repo-id": "a/b", "version": 1}]}, "needs other kernels"),
        ({"python-depends": ["evil @ https://example.org"]}, "which no loader knows"),
    ],
)
def test_hostile_metadata_makes_no_wheel(changed: dict[str, object], message: str) -> None:
    with pytest.raises(KernelFailed, match=message):
        metadata.read(VALUES | changed, Path("metadata.json"))


def test_a_license_that_is_none_of_spdx_stays_on_its_line() -> None:
    kernel = metadata.read(VALUES | {"license": "Mine\nRequires-Dist: evil"}, Path("metadata.json"))
    text = metadata.core_metadata(kernel, tags.identify("torch-cpu"), "1.0.0+torchcpu", [])
    assert "\nLicense: Mine Requires-Dist: evil\n" in text and "\nRequires-Dist: evil" not in text


def kernel_folder(folder: Path, *variants: str, name: str = "gray", **changed: object) -> Path:
    """A kernel's folder with built variants."""
    for variant in variants or (CPU,):
        write_variant(folder / "build", variant, variant_files(name, variant=variant, **changed))
    (folder / "LICENSE").write_text("Do what you want.\n")
    return folder


def test_a_wheel_holds_the_variant_byte_for_byte(tmp_path: Path) -> None:
    folder = kernel_folder(tmp_path / "kernel")
    assert run("wheel", folder, "--output", tmp_path / "dist", "--wheel-version", "1.2.0") == 0
    (path,) = (tmp_path / "dist").iterdir()
    assert path.name == "gray-1.2.0+torchcpu-py3-none-any.whl"
    with zipfile.ZipFile(path) as wheel:
        names = wheel.namelist()
        info = "gray-1.2.0+torchcpu.dist-info"
        assert names == [
            "gray/__init__.py", "gray/metadata.json", f"{info}/METADATA", f"{info}/WHEEL",
            f"{info}/licenses/LICENSE", f"{info}/provenance.json", f"{info}/RECORD",
        ]  # fmt: skip
        for name in names[:2]:
            assert wheel.read(name) == (folder / "build" / CPU / name.removeprefix("gray/")).read_bytes()
        rows = list(csv.reader(io.StringIO(wheel.read(f"{info}/RECORD").decode())))
        assert [row[0] for row in rows] == names and rows[-1][1:] == ["", ""]
        for name, digest, size in rows[:-1]:
            data = wheel.read(name)
            encoded = hashlib.sha256(data).digest()
            assert (digest, int(size)) == (
                f"sha256={base64.urlsafe_b64encode(encoded).decode().rstrip('=')}",
                len(data),
            )
        for entry in wheel.infolist():
            assert stat.S_IMODE(entry.external_attr >> 16) == 0o644 and entry.date_time[:3] == (1980, 1, 1)
        provenance = json.loads(wheel.read(f"{info}/provenance.json"))
        assert (provenance["variant"], provenance["release"], provenance["hub"]) == (CPU, "1.2.0", None)


def test_the_same_variant_gives_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheels = []
    for name, mask, moment in (("a", 0o022, 10**9), ("b", 0o077, 1_500_000_000)):
        before = os.umask(mask)
        try:
            folder = kernel_folder(tmp_path / name)
            for path in folder.rglob("*"):
                os.utime(path, (moment, moment))
            assert run("wheel", folder, "--output", tmp_path / f"{name}-dist") == 0
        finally:
            os.umask(before)
        (path,) = (tmp_path / f"{name}-dist").iterdir()
        assert stat.S_IMODE(path.stat().st_mode) == 0o644
        wheels.append((path.name, path.read_bytes()))
    assert wheels[0] == wheels[1]
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    assert run("wheel", tmp_path / "a", "--output", tmp_path / "c-dist") == 0
    with zipfile.ZipFile(tmp_path / "c-dist" / wheels[0][0]) as wheel:
        assert {entry.date_time for entry in wheel.infolist()} == {(2023, 11, 14, 22, 13, 20)}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("libcudart.so.13", "comes with Torch or its backend"),
        ("libtorch_cpu.so", "comes with Torch or its backend"),
        ("nested/libcublas.so.12", "comes with Torch or its backend"),
        ("libamdhip64.so", "comes with Torch or its backend"),
        ("libother.so", "is no library of Linux or macOS, which the tag of the wheel would not say"),
    ],
)
def test_no_runtime_is_bundled(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, message: str
) -> None:
    files = variant_files("gray", variant=CUDA, digest=None)
    write_variant(
        tmp_path / "build", CUDA, {k: v for k, v in files.items() if not k.endswith(".so")} | {name: b"x"}
    )
    assert run("wheel", tmp_path, "--output", tmp_path / "dist") == 1
    assert message in capsys.readouterr().err
    assert not (tmp_path / "dist").exists()


def library(compiler: str, folder: Path, *needed: str) -> bytes:
    """A library, by a C compiler, that needs others."""
    (folder / "a.c").write_text("int answer(void) { return 42; }\n")
    for name in needed:
        command = [compiler, "-shared", "-fPIC", f"-Wl,-soname,{name}", "-o", folder / name, folder / "a.c"]
        subprocess.run(command, check=True)
    rest = ["-Wl,--no-as-needed", *(folder / name for name in needed), "-o", folder / "a.so"]
    subprocess.run([compiler, "-shared", "-fPIC", folder / "a.c", *rest], check=True)
    return (folder / "a.so").read_bytes()


AARCH64 = "torch213-cxx11-cpu-aarch64-linux"


@pytest.mark.parametrize(
    ("variant", "kind", "expected"),
    [
        (AARCH64, "aarch64", "gray-1.2.0+torch213cpucxx11-cp39-abi3-manylinux_2_28_aarch64.whl"),
        (CUDA, "aarch64", "is for aarch64, not for x86_64"),
        (CUDA, "needy", "needs libother.so.1"),
        (CUDA, "macos15", "is of the format Mach-O, and linux loads ELF"),
        ("torch213-cpu-aarch64-darwin", "macos15", "gray-1.2.0+torch213cpu-cp39-abi3-macosx_15_0_arm64.whl"),
        ("torch213-cpu-aarch64-darwin", "macos26", "needs macOS 26"),
        (
            "torch213-metal-aarch64-darwin",
            "macos26",
            "gray-1.2.0+torch213metal-cp39-abi3-macosx_26_0_arm64.whl",
        ),
    ],
)
def test_the_tag_is_what_the_library_keeps(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], variant: str, kind: str, expected: str
) -> None:
    if kind == "aarch64":
        ask("aarch64-linux-gnu-gcc")
        data = library("aarch64-linux-gnu-gcc", tmp_path)
    elif kind == "needy":
        data = library("gcc", tmp_path, "libother.so.1")
    else:
        data = mach_o({"macos15": 15, "macos26": 26}[kind] << 16)
    files = variant_files("gray", variant=variant, digest=None) | {"_gray.abi3.so": data}
    write_variant(tmp_path / "build", variant, files)
    made = run("wheel", tmp_path, "--output", tmp_path / "dist", "--wheel-version", "1.2.0") == 0
    said = capsys.readouterr().err
    if not expected.endswith(".whl"):
        assert not made and f"{expected}, which the tag of the wheel would not say" in said
        return
    assert made, said
    assert [one.name for one in (tmp_path / "dist").iterdir()] == [expected]
    if kind == "aarch64":
        wheel = tmp_path / "dist" / expected
        for check in (["twine", "check", "--strict"], ["check-wheel-contents"], ["auditwheel", "show"]):
            command = [program(check[0]), *check[1:], wheel]
            finished = subprocess.run(command, text=True, capture_output=True, check=False)
            assert finished.returncode == 0, finished.stdout + finished.stderr
        assert "aarch64" in finished.stdout


def test_git_takes_no_wheel_for_a_change(tmp_path: Path) -> None:
    folder = kernel_folder(tmp_path / "kernel")
    git(folder, "init", "--quiet")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message=x")
    assert run("wheel", folder, "--output", folder / "dist", "--index") == 0
    assert git(folder, "status", "--porcelain") == ""
    assert len(list((folder / "dist").glob("*.whl"))) == 1
    # A folder that was there is its author's.
    (folder / "mine").mkdir()
    assert run("wheel", folder, "--output", folder / "mine") == 0
    assert not (folder / "mine" / ".gitignore").exists()


def test_what_is_not_intact_makes_no_wheel(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = kernel_folder(tmp_path)
    variant = folder / "build" / CPU
    (variant / "__init__.py").write_text("evil = True\n")
    assert run("wheel", folder, "--output", tmp_path / "dist") == 1
    assert "__init__.py is not the file that was built" in capsys.readouterr().err
    (variant / "__init__.py").unlink()
    (variant / "__init__.py").symlink_to("/etc/passwd")
    assert run("wheel", folder, "--output", tmp_path / "dist") == 2
    assert "is a link out of its variant" in capsys.readouterr().err
    (variant / "metadata.json").write_text("[" * 100_000)
    assert run("wheel", folder, "--output", tmp_path / "dist") == 1
    assert "Traceback" not in capsys.readouterr().err
    assert not (tmp_path / "dist").exists()


def test_nothing_to_make_a_wheel_of_is_wrong_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def said(*arguments: object) -> str:
        assert run("wheel", *arguments) == 2
        return capsys.readouterr().err

    assert "build.toml: there is no such file" in said(tmp_path)
    folder = kernel_folder(tmp_path)
    assert "has no built variant of that name (it has torch" in said(folder, "--only", "*-cu999-*")
    assert "no revision" in said("--repo-id", "acme/gray")
    (tmp_path / "file").touch()
    assert "which is not a folder" in said(folder, "--output", tmp_path / "file")


def test_published_variants_become_wheels_of_their_release(
    api: HfApi, hub: str, repo: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    commit = publish(api, repo, [CPU, "torch-cuda"], release="1.4.0")
    api.upload_file(path_or_fileobj=b"Mine.\n", path_in_repo="LICENSE.md", repo_id=repo, repo_type="kernel")
    asked = ("wheel", "--repo-id", repo, "--hub", hub, "--revision", "v1", "--index")
    assert run(*asked, "--output", tmp_path / "dist") == 0
    package = repo.partition("/")[2].replace("-", "_")
    path = tmp_path / "dist" / f"{package}-1.4.0+torchcpu-py3-none-any.whl"
    with zipfile.ZipFile(path) as wheel:
        info = f"{package}-1.4.0+torchcpu.dist-info"
        assert wheel.read(f"{info}/licenses/LICENSE.md") == b"Mine.\n"
        assert json.loads(wheel.read(f"{info}/provenance.json"))["hub"] == {"repo_id": repo, "commit": commit}
    # One that records no release has no version of its own.
    publish(api, repo, [CPU], version=2)
    capsys.readouterr()
    assert run("wheel", "--repo-id", repo, "--hub", hub, "--revision", "v2", "--output", tmp_path / "d") == 2
    assert "give one by --wheel-version" in capsys.readouterr().err
    assert run("wheel", "--repo-id", repo, "--hub", hub, "--revision", "v9", "--output", tmp_path / "d") == 2
    assert "no branch, tag or commit 'v9' on " in (said := capsys.readouterr().err)
    assert "(it has branches v2, v1, main)" in said
    assert (
        run("wheel", "--repo-id", f"{repo}-x", "--hub", hub, "--revision", "v1", "--output", tmp_path / "d")
        == 2
    )


def test_the_index_serves_pip_and_uv(tmp_path: Path) -> None:
    folder = kernel_folder(tmp_path / "kernel", CPU, "torch-cuda")
    dist = tmp_path / "dist"
    asked = ("wheel", folder, "--output", dist, "--wheel-version", "1.2.0")
    assert run(*asked, "--index") == 0
    page = (dist / "simple" / "gray" / "index.html").read_text()
    listing = json.loads((dist / "simple" / "gray" / "index.json").read_text())
    assert [one["filename"] for one in listing["files"]] == [
        "gray-1.2.0+torchcpu-py3-none-any.whl", "gray-1.2.0+torchcuda-py3-none-any.whl",
    ]  # fmt: skip
    for one in listing["files"]:
        data = (dist / one["filename"]).read_bytes()
        digest = hashlib.sha256(data).hexdigest()
        assert one["hashes"] == {"sha256": digest} and one["size"] == len(data)
        assert f"{one['url']}#sha256={digest}" in page and "%2B" in one["url"]
        assert (dist / "simple" / "gray" / one["url"].replace("%2B", "+")).resolve() == dist / one["filename"]
        beside = (dist / f"{one['filename']}.metadata").read_bytes()
        assert hashlib.sha256(beside).hexdigest() == one["core-metadata"]["sha256"]
    address = f"file://{dist}/simple"
    wanted = "gray==1.2.0+torchcuda"
    pip = [program("python"), "-m", "pip", "--isolated", "install", "--index-url", address]
    uv = [program("uv"), "pip", "install", "--no-config", "--no-cache", "--default-index", address]
    uv += ["--python", program("python")]
    for number, installer in enumerate(([*pip, "--no-deps"], [*uv, "--no-deps"])):
        target = tmp_path / f"target{number}"
        finished = subprocess.run(
            [*installer, "--target", target, wanted],
            env=user_environment(),
            text=True,
            capture_output=True,
            check=False,
        )
        assert finished.returncode == 0, finished.stderr
        assert (target / "gray" / "__init__.py").is_file()
        assert (target / "gray-1.2.0+torchcuda.dist-info" / "provenance.json").is_file()
    # Where the wheels are elsewhere, the index says so; other files are no wheels.
    assert run(*asked, "--index-address", "https://example.org/wheels/") == 0
    page = (dist / "simple" / "gray" / "index.html").read_text()
    assert 'href="https://example.org/wheels/gray-1.2.0%2Btorchcpu-py3-none-any.whl#sha256=' in page
    assert run(*asked, "--index-address", "javascript:x") == 2


def test_an_index_is_made_of_wheels_that_are_there(tmp_path: Path) -> None:
    dist = tmp_path / "dist"
    for name in ("gray", "layer-norm"):
        folder = kernel_folder(tmp_path / name, name=name)
        assert run("wheel", folder, "--output", dist, "--wheel-version", "1.2.0") == 0
    # None of the packages that a wheel is made with is needed.
    variables = user_environment(XDG_CACHE_HOME=str(tmp_path / "no-environment"))
    finished = subprocess.run(
        [ROOT / "scripts" / "kernel-actions", "wheel", "index", "--output", dist],
        env={name: value for name, value in variables.items() if name != "KA_PYTHON"},
        text=True,
        capture_output=True,
        check=False,
    )
    assert (finished.returncode, finished.stdout) == (0, f"Index: {dist}/simple/index.html\n"), (
        finished.stderr
    )
    assert not (tmp_path / "no-environment").exists()
    assert [one.name for one in sorted((dist / "simple").iterdir())] == [
        "gray", "index.html", "index.json", "layer-norm",
    ]  # fmt: skip
    # What is gone leaves the index, and what others put there stays.
    next(dist.glob("gray-*.whl")).unlink()
    (dist / "simple" / "mine").mkdir()
    assert run("wheel", "index", "--output", dist) == 0
    assert sorted(one.name for one in (dist / "simple").iterdir() if one.is_dir()) == ["layer-norm", "mine"]
    assert [one.name for one in dist.glob("*.metadata")] == [
        "layer_norm-1.2.0+torchcpu-py3-none-any.whl.metadata"
    ]


def installed(target: Path, code: str) -> str:
    """What Python code prints, with only ``target`` beside the packages of the tests."""
    finished = subprocess.run(
        [program("python"), "-c", code],
        env=user_environment(PYTHONPATH=str(target)),
        cwd=target,
        text=True,
        capture_output=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout.strip()


@pytest.mark.slow
def test_the_wheel_of_the_example_passes_all_checks_and_runs(
    pipeline_copy: tuple[Path, str], tmp_path: Path
) -> None:
    root, _ = pipeline_copy
    digests = []
    for name in ("one", "two"):
        dist = tmp_path / name
        assert run("wheel", root, "--output", dist, "--wheel-version", "1.2.0") == 0
        (wheel,) = dist.iterdir()
        digests.append(hashlib.sha256(wheel.read_bytes()).hexdigest())
    assert digests[0] == digests[1]
    assert wheel.name == "grayscale-1.2.0+torch213cpucxx11-cp39-abi3-manylinux_2_28_x86_64.whl"
    for check in (["twine", "check", "--strict"], ["check-wheel-contents"], ["auditwheel", "show"]):
        finished = subprocess.run(
            [program(check[0]), *check[1:], wheel], text=True, capture_output=True, check=False
        )
        assert finished.returncode == 0, finished.stdout + finished.stderr
    # The symbols that it uses of the system are within what the tag promises.
    bound = re.search(r'constrains the platform tag to\s+"manylinux_2_(\d+)_x86_64"', finished.stdout)
    assert bound is not None and int(bound[1]) <= 28, finished.stdout
    for number, installer in enumerate(([program("python"), "-m", "pip"], [program("uv"), "pip"])):
        target = tmp_path / f"target{number}"
        python = ["--python", program("python")] if number else []
        subprocess.run(
            [*installer, "install", "--quiet", "--no-deps", *python, "--target", target, wheel],
            env=user_environment(), check=True, capture_output=True,
        )  # fmt: skip
        code = (
            "import torch, grayscale\n"
            "image = torch.full((3, 2, 2), 100, dtype=torch.uint8)\n"
            "print(grayscale.rgb_to_grayscale(image).tolist())"
        )
        assert installed(target, code) == "[[[100, 100], [100, 100]]]"
        # What is installed is what was built: kernels' own code says so.
        code = (
            "from pathlib import Path\nfrom kernels_data import Digest, Metadata\n"
            "folder = Path('grayscale')\n"
            "expected = Metadata.read_from_file(folder / 'metadata.json').digest\n"
            "expected.validate(Digest.hash_variant(expected.algorithm, folder))\nprint('intact')"
        )
        assert installed(target, code) == "intact"
