"""The environment that is made for the tests of a variant: what goes into it, and that it is kept."""

from __future__ import annotations

import base64
import hashlib
import os
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from kernel_actions import manifest
from kernel_actions.built import BuiltVariant
from kernel_actions.errors import WrongInput
from kernel_actions.test import pip_environment
from kernel_actions.test.pip_environment import Wanted

from tests.test_command.helpers import BUILD, INIT, make_kernel, run
from tests.tools import leave_out


def plan(tmp_path: Path, name: str, backend: str, further: Sequence[str] = ()) -> Wanted:
    (tmp_path / "build.toml").write_text(BUILD)
    variant = BuiltVariant(tmp_path / name, backend, 1, None, "", "")
    return pip_environment.plan(variant, manifest.load(tmp_path), further)


@pytest.mark.parametrize(
    ("name", "backend", "torch", "index"),
    [
        ("torch213-cxx11-cu130-x86_64-linux", "cuda", "torch==2.13.*", "/whl/cu130"),
        ("torch29-cxx11-cu126-aarch64-linux", "cuda", "torch==2.9.*", "/whl/cu126"),
        ("torch210-cxx11-cpu-x86_64-linux", "cpu", "torch==2.10.*", "/whl/cpu"),
        ("torch212-cxx11-rocm64-x86_64-linux", "rocm", "torch==2.12.*", "/whl/rocm6.4"),
        ("torch213-cxx11-xpu20252-x86_64-linux", "xpu", "torch==2.13.*", "/whl/xpu"),
        ("torch-stable-abi29-cpu-x86_64-linux", "cpu", "torch==2.9.*", "/whl/cpu"),
        ("torch-cpu", "cpu", "torch", "/whl/cpu"),
    ],
)
def test_the_torch_of_a_variant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, backend: str, torch: str, index: str
) -> None:
    monkeypatch.delenv("KA_TORCH_INDEX", raising=False)
    wanted = plan(tmp_path, name, backend)
    assert wanted.torch_requirement == torch and wanted.index.endswith(index)
    monkeypatch.setenv("KA_TORCH_INDEX", "https://mirror/simple")
    assert plan(tmp_path, name, backend).index == "https://mirror/simple"


def test_what_the_tests_take(tmp_path: Path) -> None:
    wanted = plan(tmp_path, "torch-cpu", "cpu", ["einops>=0.8, <1", "my_package[extra]==1.0"])
    assert {"einops>=0.8, <1", "my_package[extra]==1.0", "numpy"} <= set(wanted.requirements)
    assert any(one.startswith("kernels==") for one in wanted.requirements)
    for hostile in (
        "-r file",
        "--index-url=x",
        "x @ https://host/x.whl",
        "./folder",
        "git+https://h/x",
        "a\nb",
        "",
    ):
        with pytest.raises(WrongInput, match="is not the name of a package"):
            plan(tmp_path, "torch-cpu", "cpu", [hostile])


def wheel(folder: Path, name: str, version: str, files: dict[str, str]) -> None:
    """A wheel of a package in Python."""
    info = f"{name}-{version}.dist-info"
    entries = files | {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = ""
    for path, text in entries.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        record += f"{path},sha256={digest},{len(text.encode())}\n"
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as file:
        for path, text in (entries | {f"{info}/RECORD": record}).items():
            file.writestr(path, text)


TORCH = """\
import types
__version__ = {version!r}
version = types.SimpleNamespace(cuda={cuda!r}, hip=None)
cuda = types.SimpleNamespace(is_initialized=lambda: False, is_available=lambda: False)
"""
LOADS = """\
import pytest
pytestmark = pytest.mark.kernels_ci
import kernels, torch, extra
tiny = kernels.get_kernel("test/tiny", version=1, trust_remote_code=True)
def test_it(): assert (tiny.ANSWER, torch.__version__, extra.ANSWER) == (42, "2.13.0+cpu", 7)
"""
# The loader, as far as these tests use it.
KERNELS = """\
import importlib.util, os, sys
def get_kernel(repo_id, version, trust_remote_code):
    folder = dict([os.environ["LOCAL_KERNELS"].split("=")])[repo_id]
    spec = importlib.util.spec_from_file_location("tiny", folder + "/build/VARIANT/__init__.py")
    module = sys.modules["tiny"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
"""
VARIANT = "torch213-cxx11-cpu-x86_64-linux"


@pytest.fixture
def index(tmp_path: Path) -> dict[str, str]:
    """Variables by which pip finds a small Torch, and pytest as it is installed here."""
    folder = tmp_path / "index"
    folder.mkdir()
    pins = {line.partition("==")[0]: line.partition("==")[2] for line in pip_environment._common()}
    wheel(folder, "torch", "2.13.0+cpu", {"torch.py": TORCH.format(version="2.13.0+cpu", cuda=None)})
    wheel(folder, "torch", "2.12.0+cu130", {"torch.py": TORCH.format(version="2.12.0+cu130", cuda="13.0")})
    wheel(folder, "kernels", pins["kernels"], {"kernels.py": KERNELS.replace("VARIANT", VARIANT)})
    wheel(folder, "numpy", "2.0", {"numpy.py": ""})
    wheel(folder, "extra", "1.0", {"extra.py": "ANSWER = 7\n"})
    import pluggy

    site = Path(pluggy.__file__).parents[1]
    # pytest itself needs no compiler and no network: by a path file.
    wheel(folder, "pytest", pins["pytest"], {"pytest_of_the_suite.pth": f"{site}\n"})
    return {
        "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(folder), "PIP_CONFIG_FILE": os.devnull,
        "XDG_CACHE_HOME": str(tmp_path / "cache"), "KA_TORCH_INDEX": "https://localhost:1/simple",
    }  # fmt: skip


def test_an_environment_is_made_once_and_kept(tmp_path: Path, native: Path, index: dict[str, str]) -> None:
    kernel = make_kernel(tmp_path / "kernel", native)
    (kernel / "build" / "torch-cpu").rename(kernel / "build" / VARIANT)
    (kernel / "build" / VARIANT / "__init__.py").write_text(INIT)
    (kernel / "kernel-actions.toml").write_text('[test]\nrequirements = ["extra>=1"]\n')
    first = run(kernel, LOADS, "--environment", "pip", **index)
    assert first.returncode == 0, first.errors
    assert "Making an environment for the tests: torch==2.13.* for cpu" in first.errors
    second = run(kernel, LOADS, "--environment", "pip", **index)
    assert second.returncode == 0 and "Making an environment" not in second.errors
    made = list((tmp_path / "cache" / "kernel-actions" / "environments").glob("tests-*.d"))
    assert len(made) == 1


@pytest.mark.slow
def test_an_index_with_another_torch_is_told(tmp_path: Path, native: Path, index: dict[str, str]) -> None:
    kernel = make_kernel(tmp_path / "kernel", native)
    for name, said in (
        (
            "torch212-cxx11-cpu-x86_64-linux",
            "2.12.0+cu130 for cu130, and the variant is for 2.12, cpu",
        ),
        ("torch211-cxx11-cpu-x86_64-linux", "No matching distribution found for torch==2.11"),
    ):
        folder = next(path for path in (kernel / "build").iterdir() if path.is_dir())
        folder.rename(kernel / "build" / name)
        finished = run(kernel, LOADS, "--environment", "pip", **index)
        assert finished.returncode == 3, finished.errors
        assert said in finished.last
    assert not list((tmp_path / "cache" / "kernel-actions" / "environments").glob("tests-*.d"))


@pytest.mark.slow
@pytest.mark.integration
def test_a_real_torch(tmp_path: Path, native: Path) -> None:
    """With the package index that is configured here, if that has the CPU build."""
    probe = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--no-deps",
        "-d",
        tmp_path / "wheel",
        "torch==2.13.0+cpu",
    ]
    if subprocess.run(probe, capture_output=True, check=False).returncode != 0:
        leave_out("a package index with the CPU build of Torch 2.13")
    kernel = make_kernel(tmp_path / "kernel", native)
    (kernel / "build" / "torch-cpu").rename(kernel / "build" / VARIANT)
    tests = LOADS.replace("torch, extra", "torch").replace(", extra.ANSWER", "").replace(", 7)", ")")
    finished = run(kernel, tests, "--environment", "pip", XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert finished.returncode == 0, finished.errors
