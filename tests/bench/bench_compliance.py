"""Times whole processes of ``compliance``. ``make bench`` runs it.

Times are of this machine and this moment; what counts are ratios between commands that are measured in the
same run, in turns: to ``sha256sum`` of the same files, and to a bare start of Python. They are of the seconds
that processors worked, as other programs may run meanwhile.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.compliance import helpers

ROOT = Path(__file__).resolve().parents[2]
VARIANTS, MEGABYTES, FILES, ROUNDS = 30, 20, 100_000, 5
# As code and tables of a kernel: 20 MB that are looked through for paths, and are no text.
SOURCE = f"""\
extern "C" void* PyInit_{helpers.ID}() {{ return 0; }}
__asm__(".section .rodata\\n.globl table\\ntable: .incbin \\"table.bin\\"\\n.text\\n");
"""


def main() -> None:
    """Time each command in turns, and print medians and ratios."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        many = write_variants(folder / "many")
        files = write_files(folder / "files")
        commands = {
            "python -I -S -c pass": [sys.executable, "-I", "-S", "-c", "pass"],
            "compliance --source-only": source_only(ROOT),
            f"sha256sum, {VARIANTS} × {MEGABYTES} MB": sha256sum(many),
            f"compliance, {VARIANTS} × {MEGABYTES} MB": compliance(many),
            f"compliance, {FILES} files": compliance(files),
        }
        seconds = measure(commands, ROUNDS)
    width = max(map(len, seconds))
    for name, median in seconds.items():
        print(f"{name:<{width}} {median * 1000:8.1f} ms")
    _, _, hashed, checked, _ = seconds.values()
    print(f"compliance takes {checked / hashed:.2f} × sha256sum of the same files")


def measure(commands: dict[str, list[str]], rounds: int) -> dict[str, float]:
    """The seconds of processors that each command takes: medians of runs in turns."""
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(rounds):
        for name, command in commands.items():
            before = _worked()
            # Findings are no failure here.
            finished = subprocess.run(command, capture_output=True, check=False, cwd=ROOT)
            if finished.returncode not in (0, 1):
                raise RuntimeError(finished.stderr.decode())
            seconds[name].append(_worked() - before)
    return {name: statistics.median(times) for name, times in seconds.items()}


def write_variants(folder: Path) -> Path:
    """A kernel with variants of 20 MB each."""
    helpers.write_kernel(folder)
    (folder / "table.bin").write_bytes(os.urandom(MEGABYTES * 1_000_000))
    library = folder / "library.so"
    command = ["g++", "-shared", "-fPIC", "-o", str(library), "-x", "c++", "-"]
    subprocess.run(command, cwd=folder, input=SOURCE, text=True, check=True)
    for number in range(VARIANTS):
        helpers.write_variant(folder, library, f"torch{213 + number}-cxx11-cpu-{helpers.MACHINE}-linux")
    return folder


def write_files(folder: Path) -> Path:
    """A kernel with a variant of very many files."""
    helpers.write_kernel(folder)
    fill(helpers.write_variant(folder, None))
    return folder


def fill(folder: Path) -> None:
    """Write very many files into a folder."""
    for number in range(FILES):
        path = folder / f"{number % 100}" / f"{number}.py"
        if number < 100:
            path.parent.mkdir()
        path.touch()


def source_only(kernel: Path) -> list[str]:
    """The command for the sources alone, on a bare Python."""
    return [*_command(["-I", "-S"]), str(kernel), "--source-only"]


def compliance(kernel: Path) -> list[str]:
    """The command for everything."""
    return [*_command([]), str(kernel)]


def sha256sum(kernel: Path) -> list[str]:
    """What hashes all files of the variants."""
    return ["sha256sum", *(str(path) for path in sorted(kernel.glob("build/**/*")) if path.is_file())]


def _command(options: Sequence[str]) -> list[str]:
    return [sys.executable, *options, str(ROOT / "scripts" / "kernel_actions"), "compliance"]


def _worked() -> float:
    """The seconds that processors have worked for processes that this one waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
