"""The place of an error is the kernel's own file, whatever compiler says it."""

from __future__ import annotations

from pathlib import Path

import pytest
from kernel_actions.local_builder import messages
from kernel_actions.local_builder.messages import CompilerError

KERNEL = Path("/kernel")
GENERATED = Path("/kernel/build/.local/torch213-cxx11-cpu-x86_64-linux")

GCC = """\
[1/4] Building CXX object CMakeFiles/kernel.dir/kernel/csrc/a.cpp.o
FAILED: [code=1] CMakeFiles/kernel.dir/kernel/csrc/a.cpp.o
/usr/bin/c++ -O3 -c /kernel/csrc/a.cpp
/kernel/csrc/a.cpp: In function 'void f()':
/kernel/csrc/a.cpp:4:11: error: expected ';' before '}' token
    4 |   return 1
      |           ^
/kernel/csrc/b.cpp:9:1: error: 'x' does not name a type
/kernel/csrc/b.cpp:9:1: error: 'x' does not name a type
/kernel/csrc/b.cpp:8:5: warning: unused
ninja: build stopped: subcommand failed.
"""
FATAL = """\
/kernel/csrc/a.cpp:2:10: fatal error: nothing.h: No such file or directory
compilation terminated.
"""
IN_HEADER = """\
In file included from /site-packages/torch/include/torch/library.h:7,
                 from /kernel/torch-ext/binding.cpp:3:
/site-packages/torch/include/ATen/core/op.h:77:5: error: static assertion failed: no such type
"""
TEMPLATE = """\
/site-packages/torch/include/x.h: In instantiation of 'void f(T) [with T = int]':
/kernel/csrc/a.cpp:12:6:   required from here
/site-packages/torch/include/x.h:2:5: error: no match for 'operator+'
"""
CLANG = "/kernel/csrc/a.cpp:3:5: error: use of undeclared identifier 'y'\n"
NVCC = """\
/kernel/csrc/k.cu(17): error: identifier "blok" is undefined

1 error detected in the compilation of "/kernel/csrc/k.cu".
"""
NVCC_NUMBERED = '/kernel/csrc/k.cu(17): error #20: identifier "blok" is undefined\n'
NVCC_IN_HEADER = """\
/cuda/include/cub/block.cuh(80): error: static assertion failed with "too many"
          detected during:
            instantiation of class "Block<int>" at line 31 of /kernel/csrc/k.cu
"""
PTXAS = "ptxas fatal   : (C7600) Register allocation failed with register count of '24'\n"
LINKER = """\
/usr/bin/ld: cannot find -lnothing: No such file or directory
collect2: error: ld returned 1 exit status
"""
GENERATED_FILE = f"{GENERATED}/torch-ext/registration.h:9:1: error: oh\n"


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (GCC, CompilerError("expected ';' before '}' token", "csrc/a.cpp", 4, 11)),
        (FATAL, CompilerError("nothing.h: No such file or directory", "csrc/a.cpp", 2, 10)),
        (
            IN_HEADER,
            CompilerError("static assertion failed: no such type (in op.h:77)", "torch-ext/binding.cpp", 3),
        ),
        (TEMPLATE, CompilerError("no match for 'operator+' (in x.h:2)", "csrc/a.cpp", 12)),
        (CLANG, CompilerError("use of undeclared identifier 'y'", "csrc/a.cpp", 3, 5)),
        (NVCC, CompilerError('identifier "blok" is undefined', "csrc/k.cu", 17)),
        (NVCC_NUMBERED, CompilerError('identifier "blok" is undefined', "csrc/k.cu", 17)),
        (
            NVCC_IN_HEADER,
            CompilerError('static assertion failed with "too many" (in block.cuh:80)', "csrc/k.cu", 31),
        ),
        (PTXAS, CompilerError(PTXAS.strip())),
        (LINKER, CompilerError("/usr/bin/ld: cannot find -lnothing: No such file or directory")),
        (GENERATED_FILE, CompilerError("oh (in registration.h:9)")),
        ("/kernel/csrc/../csrc/a.h:1:2: error: bad\n", CompilerError("bad", "csrc/a.h", 1, 2)),
    ],
)
def test_the_first_error(output: str, expected: CompilerError) -> None:
    assert messages.errors(output, KERNEL, GENERATED)[0] == expected


def test_each_error_once_and_no_warning() -> None:
    found = messages.errors(GCC, KERNEL, GENERATED)
    assert [(error.path, error.line) for error in found] == [("csrc/a.cpp", 4), ("csrc/b.cpp", 9)]


@pytest.mark.parametrize(
    "output",
    [
        "c++: fatal error: Killed signal terminated program cc1plus",
        "nvcc error   : 'cicc' died due to signal 9 (Kill signal)",
        "clang++: error: unable to execute command: Killed",
        "cc1plus: out of memory allocating 65536 bytes after a total of 41943040 bytes",
        "FAILED: [code=137] CMakeFiles/kernel.dir/a.cpp.o",
        "FAILED: x.o\nKilled\nninja: build stopped",
    ],
)
def test_out_of_memory(output: str) -> None:
    assert messages.is_out_of_memory(output)
    assert not messages.is_out_of_memory(GCC)


def test_out_of_space() -> None:
    assert messages.is_out_of_space("fatal error: error writing to /tmp/x.s: No space left on device")
    assert not messages.is_out_of_space(GCC)
