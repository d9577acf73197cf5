"""Stand-ins for extensions that cannot be compiled here: they export the module's name and do nothing."""

from __future__ import annotations

import struct
import subprocess
from pathlib import Path

from kernel_actions.errors import WrongSurroundings

MARK = "a stand-in of kernel-actions: nothing of the kernel was compiled"
# e_machine of ELF headers, at byte 18: the only field in which these libraries differ between processors.
_MACHINES = {"x86_64": 62, "aarch64": 183}


def make(path: Path, ops_name: str, system: str, backend: str) -> Path:
    """Write an extension that Python would import as ``ops_name`` on ``system`` (as in ``aarch64-linux``).

    Raises ``WrongSurroundings`` without a C compiler.
    """
    machine, _, kind = system.partition("-")
    if kind == "darwin":
        path.write_bytes(_mach_o(f"_PyInit_{ops_name}", 26 if backend == "metal" else 15))
        return path
    source = f'const char stand_in[] = "{MARK}";\nvoid *PyInit_{ops_name}(void) {{ return (void *)0; }}\n'
    command = ["cc", "-shared", "-fPIC", "-nostdlib", "-Wl,-z,noexecstack", "-x", "c", "-", "-o", str(path)]
    try:
        subprocess.run(command, input=source, text=True, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise WrongSurroundings("the C compiler does not work", repair="install one, as cc") from error
    data = bytearray(path.read_bytes())
    data[18:20] = struct.pack("<H", _MACHINES[machine])
    path.write_bytes(data)
    return path


def _mach_o(symbol: str, macos: int) -> bytes:
    """A bundle for arm64 and this major version of macOS, with one exported symbol.

    Layout: mach-o/loader.h (mach_header_64, build_version_command, symtab_command) and nlist.h (nlist_64).
    """
    names = b"\0" + symbol.encode() + b"\0"
    names += MARK.encode() + b"\0"
    header_size, version_size, table_size, entry_size = 32, 24, 24, 16
    symbols_at = header_size + version_size + table_size
    header = struct.pack("<8I", 0xFEEDFACF, 0x0100000C, 0, 8, 2, version_size + table_size, 0, 0)
    version = struct.pack("<6I", 0x32, version_size, 1, macos << 16, macos << 16, 0)
    table = struct.pack("<6I", 0x2, table_size, symbols_at, 1, symbols_at + entry_size, len(names))
    # N_SECT | N_EXT, as a defined and exported symbol is.
    entry = struct.pack("<IBBHQ", 1, 0x0E | 0x01, 1, 0, 0)
    return header + version + table + entry + names
