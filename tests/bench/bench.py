"""Times whole processes of the planner. Run it by ``make bench``.

Times are of this machine and this moment; what counts are ratios between commands that are measured in
the same run, in turns: to a bare start of Python, and to Nix, where it is installed.

With BUILDER (a checkout of the builder) and NIXPKGS_LIB (the folder lib of nixpkgs) the peer is the
builder's own flake, locked and fetched, with a stub in place of nixpkgs: ``nix eval`` of the names of one
kernel on one system. A real nixpkgs takes seconds more, and a plan has three systems, and bundles.
"""

from __future__ import annotations

import os
import re
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
REVISION = "8ac69fc542a4306eade0759ef7c45b4f2ae57df0"
KERNEL = """\
{ inputs.kernel-builder.url = "path:BUILDER";
  outputs = { self, kernel-builder }: kernel-builder.lib.genKernelFlakeOutputs { inherit self; path = ./.; };
}
"""
# As little as the builder's flake needs of its inputs to name its variants.
STUBS = {
    "nixpkgs/flake.nix": """\
{ outputs = { self }:
  let
    lib = import ./lib;
    call = scope: file: arguments:
      let function = if builtins.isFunction file then file else import file;
      in function (builtins.intersectAttrs (builtins.functionArgs function) scope // arguments);
    packages = system:
      let scope = {
        inherit lib system;
        callPackage = call scope;
        pkgs = scope;
        writeScriptBin = name: text: { };
        runCommand = name: variables: text: { };
      };
      in scope;
  in {
    inherit lib;
    legacyPackages = lib.genAttrs [ "x86_64-linux" "aarch64-linux" "aarch64-darwin" ] packages;
  };
}
""",
    "nixpkgs/default.nix": "arguments: { lib = import ./lib; }\n",
    "utils/flake.nix": """\
{ outputs = { self }: { lib = {
    system = builtins.listToAttrs (map (name: { inherit name; value = name; })
      [ "x86_64-linux" "aarch64-linux" "aarch64-darwin" ]);
    eachSystem = systems: outputs: builtins.foldl' (all: system:
      builtins.foldl' (found: key: found // {
        ${key} = (found.${key} or { }) // { ${system} = (outputs system).${key}; };
      }) all (builtins.attrNames (outputs system))) { } systems;
  }; };
}
""",
    "empty/flake.nix": "{ outputs = { self, ... }: { }; }\n",
}
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
                # The same Python for all, and not a program that looks for one.
                environment = {**os.environ, "HOME": scratch, "NIX_PATH": "", "KA_PYTHON": sys.executable}
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
    builder, lib = os.environ.get("BUILDER"), os.environ.get("NIXPKGS_LIB")
    if shutil.which("nix") is None or not builder or not lib:
        print("without Nix, BUILDER and NIXPKGS_LIB there is no peer to compare with", file=sys.stderr)
        return commands
    kernel = _peer(folder, Path(builder), Path(lib))
    names = f"{kernel}#packages.x86_64-linux.variants"
    evaluate = ["nix", "--extra-experimental-features", "nix-command flakes", "eval", "--json"]
    commands["nix eval, 1 kernel, 1 system"] = [*evaluate, "--no-eval-cache", names]
    commands["nix eval, again, from its cache"] = [*evaluate, names]
    return commands


def _peer(folder: Path, builder: Path, lib: Path) -> Path:
    """The example kernel as a flake that is built by the builder's own flake, with stubs for its inputs."""
    nixpkgs = folder / "nixpkgs"
    shutil.copytree(lib, nixpkgs / "lib")
    for name, text in STUBS.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    archive = [
        "git",
        "-C",
        str(builder),
        "archive",
        REVISION,
        "flake.nix",
        "nix-builder",
        "kernel-builder/src",
    ]
    (folder / "builder").mkdir()
    packed = subprocess.run(archive, check=True, capture_output=True).stdout
    subprocess.run(["tar", "-x", "-C", str(folder / "builder")], input=packed, check=True)
    flake = folder / "builder" / "flake.nix"
    text = re.sub(r'"github:NixOS/nixpkgs/[0-9a-f]+"', f'"path:{nixpkgs}"', flake.read_text())
    text = text.replace("github:numtide/flake-utils", f"path:{folder}/utils")
    text = re.sub(r"github:(edolstra/flake-compat|oxalica/rust-overlay)", f"path:{folder}/empty", text)
    flake.write_text(text.replace('inputs.nixpkgs.follows = "nixpkgs";', ""))
    kernel = folder / "kernel"
    kernel.mkdir()
    shutil.copy(ROOT / "build.toml", kernel)
    (kernel / "flake.nix").write_text(KERNEL.replace("BUILDER", str(folder / "builder")))
    git = ["git", "-C", str(kernel), "-c", "user.name=bench", "-c", "user.email=bench@localhost"]
    subprocess.run([*git, "init", "--quiet"], check=True)
    subprocess.run([*git, "add", "."], check=True)
    nix = ["nix", "--extra-experimental-features", "nix-command flakes"]
    environment = {**os.environ, "HOME": str(folder), "NIX_PATH": ""}
    subprocess.run([*nix, "flake", "lock", str(kernel)], check=True, capture_output=True, env=environment)
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "--quiet", "--message=kernel"], check=True)
    return kernel


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
