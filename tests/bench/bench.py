"""Times whole processes of the planner. Run it by ``make bench``.

Times are of this machine and this moment; what counts are ratios between commands that are measured in
the same run, in turns: to a bare start of Python, and to Nix, where it is installed.

Nix is asked in two ways. ``nix eval`` of the names in a list of build sets, without the builder's code
and without nixpkgs, is less than any plan with Nix takes. With BUILDER (a checkout of the builder) and
NIXPKGS_LIB (the folder lib of nixpkgs) it is the builder's own code that answers, for a kernel and output.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROUNDS = 20
LAUNCHER = str(ROOT / "scripts" / "kernel-actions")
TABLE = ROOT / "scripts" / "kernel_actions" / "data" / "builder" / "tables"
OVERRIDE = """\
{ inputs.kernel-builder.url = "github:huggingface/kernels";
  outputs = { self, kernel-builder }: kernel-builder.lib.genKernelFlakeOutputs {
    inherit self; path = ./.;
    torchVersions = all: map (v: v // { systems = builtins.filter (s: s == "x86_64-linux") v.systems; }) all;
  };
}
"""


def main() -> None:
    """Time each command in turns, and print medians and ratios."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for count in (60, 500):
            _kernels(folder / str(count), count)
        commands = _commands(folder)
        seconds: dict[str, list[float]] = {name: [] for name in commands}
        for round_number in range(ROUNDS):
            for name, command in commands.items():
                if "500" in name and round_number % 5:
                    continue
                started = time.perf_counter()
                environment = {**os.environ, "HOME": scratch, "NIX_PATH": ""}
                subprocess.run(command, check=True, capture_output=True, env=environment)
                seconds[name].append(time.perf_counter() - started)
    base = statistics.median(next(iter(seconds.values())))
    width = max(map(len, seconds))
    for name, times in seconds.items():
        median = statistics.median(times)
        print(f"{name:<{width}} {median * 1000:8.1f} ms  {median / base:6.1f} × a bare Python")
    one, sixty, many = (
        statistics.median(seconds[f"kernel-actions matrix, {count}"])
        for count in ("1 kernel", "60 kernels", "500 kernels")
    )
    of_sixty, of_many = (sixty - one) / 59, (many - one) / 499
    print(f"each further kernel: {of_sixty * 1000:.2f} ms of 60, {of_many * 1000:.2f} ms of 500")
    for name in seconds:
        if name.startswith("nix"):
            print(f"{name}: {statistics.median(seconds[name]) / one:.1f} × our one kernel, whole process")


def _commands(folder: Path) -> dict[str, list[str]]:
    commands = {
        "python -I -S -c pass": [sys.executable, "-I", "-S", "-c", "pass"],
        "kernel-actions --version": [LAUNCHER, "--version"],
        "kernel-actions matrix, 1 kernel": [LAUNCHER, "matrix", str(ROOT), "--format", "json"],
        "kernel-actions matrix, flake.nix with torchVersions": [
            LAUNCHER, "matrix", str(folder / "60" / "k0"), "--format", "json",
        ],
        "kernel-actions matrix, 60 kernels": [
            LAUNCHER, "matrix", "--discover", str(folder / "60"), "--format", "json",
        ],
        "kernel-actions matrix, 500 kernels": [
            LAUNCHER, "matrix", "--discover", str(folder / "500"), "--only", "*-cu130-x86*", "--group-by",
            "backend", "--max-jobs", "256", "--format", "json", "--allow-empty", "--only", "torch213-*",
        ],
    }  # fmt: skip
    if shutil.which("nix") is None:
        print("Nix is not installed: nothing to compare with", file=sys.stderr)
        return commands
    path = max(TABLE.glob("*.json"), key=lambda path: path.stat().st_size)
    table = f"builtins.fromJSON (builtins.readFile {path})"
    names = f'map (v: "torch${{v.torchVersion}}-${{v.cudaVersion or "cpu"}}") ({table})'
    commands["nix eval, the names in a list alone"] = [
        "nix", "--extra-experimental-features", "nix-command flakes", "eval", "--impure", "--json",
        "--expr", names,
    ]  # fmt: skip
    builder, lib = os.environ.get("BUILDER"), os.environ.get("NIXPKGS_LIB")
    if builder and lib:
        sys.path.insert(0, str(ROOT / "tests" / "oracle"))
        from compare import _extract  # type: ignore[import-not-found]

        commit = "8ac69fc542a4306eade0759ef7c45b4f2ae57df0"
        checkout = _extract(Path(builder), commit, folder / "builder")
        commands["nix eval, the builder's code with a stub nixpkgs"] = [
            "nix-instantiate", "--eval", "--strict", "--json", str(ROOT / "tests" / "oracle" / "answer.nix"),
            *("--arg", "builder", str(checkout), "--arg", "lib", lib, "--arg", "kernel", str(ROOT)),
        ]  # fmt: skip
    return commands


def _kernels(folder: Path, count: int) -> None:
    """Kernels that differ in their names, every fifth with a flake.nix that changes the build sets."""
    lock = (ROOT / "flake.lock").read_text()
    manifest = (ROOT / "build.toml").read_text()
    for number in range(count):
        kernel = folder / f"k{number}"
        kernel.mkdir(parents=True)
        (kernel / "build.toml").write_text(manifest.replace('"grayscale"', f'"k{number}"'))
        (kernel / "flake.lock").write_text(lock)
        (kernel / "flake.nix").write_text(OVERRIDE if number % 5 == 0 else "{ outputs = _: { }; }\n")


if __name__ == "__main__":
    main()
