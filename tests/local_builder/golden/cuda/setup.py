"""Compiles the kernel's extension with CMake, for `pip install`.

Written by kernel-actions from build.toml; the next build overwrites what is changed here.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
from importlib.util import find_spec
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

PROJECT = Path(__file__).resolve().parent


def program(name):
    """The program of the Python package `name`, else the one on the PATH."""
    spec = find_spec(name)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        packaged = Path(folder, "data", "bin", name)
        if packaged.is_file():
            return str(packaged)
    found = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    if found is None:
        sys.exit(f"{name} is not installed: python -m pip install {name}")
    return found


class CMakeBuild(build_ext):
    def build_extension(self, extension):
        torch = find_spec("torch")
        if torch is None:
            sys.exit("Torch is not installed: install it, then use pip with --no-build-isolation")
        # Not the tree of kernel-actions: pip's CMake and Ninja may be gone when that is built again.
        tree = PROJECT / ".cmake-pip"
        subprocess.run(
            [
                program("cmake"), "-S", str(PROJECT), "-B", str(tree), "-G", "Ninja",
                f"-DCMAKE_MAKE_PROGRAM={program('ninja')}",
                f"-DTORCH_DIR={torch.submodule_search_locations[0]}",
                f"-DPYTHON_INCLUDE_DIR={sysconfig.get_paths()['include']}",
                '-DCMAKE_CXX_COMPILER=/usr/bin/c++',
                '-DCMAKE_CUDA_COMPILER=/cuda/bin/nvcc',
                '-DCMAKE_CUDA_HOST_COMPILER=/usr/bin/c++',
            ],
            check=True,
        )
        jobs = os.environ.get("MAX_JOBS")
        subprocess.run([program("cmake"), "--build", str(tree), *(["-j", jobs] if jobs else [])], check=True)
        target = Path(self.get_ext_fullpath(extension.name))
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(tree / "_tiny_scale_cuda_0123abc.abi3.so", target)


setup(
    ext_modules=[Extension("tiny_scale._tiny_scale_cuda_0123abc", sources=[], py_limited_api=True)],
    cmdclass={"build_ext": CMakeBuild},
    # Names that no package has: a kernel may be called `build`.
    options={"bdist_wheel": {"py_limited_api": "cp39"}, "build": {"build_base": ".pip"}},
    zip_safe=False,
)
