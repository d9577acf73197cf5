"""Asking Nix for values: evaluates without building."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kernel_actions import process
from kernel_actions.errors import Place, WrongInput, WrongSurroundings, printable

# Evaluating a flake.nix takes a second. Its author may have written one that takes for ever.
_TIME_LIMIT = 120.0
_FEATURES = ("--extra-experimental-features", "nix-command flakes")
_CONFINED = (
    # Nothing may be built while a plan is made, and nothing outside of locked sources be read.
    *("--option", "allow-import-from-derivation", "false"),
    *("--option", "accept-flake-config", "false"),
)
# Where the evaluation of a hostile flake.nix ends, in bytes.
_LARGEST_HEAP = 4 << 30
# Builds nothing of the kernel: the builder is replaced by what hands back the arguments it is given.
_OVERRIDE = """
let
  text = builtins.fromJSON %(arguments)s;
  capture = arguments: { kernelActionsCaptured = arguments; };
  stub = { lib = { genKernelFlakeOutputs = capture; genFlakeOutputs = capture; }; };
  source = locked: builtins.fetchTree (removeAttrs locked [ "dir" ]);
  flake = locked:
    let
      tree = source locked;
      found = import (tree + "/flake.nix");
    in
    tree // found // (if found ? outputs then { lib = (found.outputs { self = tree; }).lib; } else { });
  inputs = builtins.mapAttrs (name: locked: if name == text.builder then stub else flake locked) text.inputs;
  self = { outPath = "/kernel"; rev = "0000000000000000000000000000000000000000"; shortRev = "0000000"; };
  outputs = (%(flake)s).outputs (inputs // { inherit self; });
  given = outputs.kernelActionsCaptured;
  versions = given.torchVersions or null;
in
if !(outputs ? kernelActionsCaptured) then
  throw "the outputs are not those of genKernelFlakeOutputs"
else if versions == null then
  null
else if builtins.isList versions then
  versions
else
  versions text.defaults
"""
_FILES = """
let
  text = builtins.fromJSON %(arguments)s;
  tree = builtins.fetchTree text.locked;
  read = path: {
    name = path;
    value = if builtins.pathExists (tree + "/${path}") then builtins.readFile (tree + "/${path}") else null;
  };
in
builtins.listToAttrs (map read text.paths)
"""


def is_installed() -> bool:
    """Whether there is a ``nix`` command."""
    return shutil.which("nix") is not None


def torch_versions(
    flake: Path, defaults: Sequence[Mapping[str, Any]], inputs: Mapping[str, Mapping[str, Any]], builder: str
) -> list[dict[str, Any]] | None:
    """What ``torchVersions`` of a flake.nix makes of the list ``defaults``; ``None`` without it.

    ``inputs`` are its locked inputs by name, of which ``builder`` is the builder: it is replaced, and the
    others are fetched only if the function uses them.

    Raises ``WrongInput`` when Nix finds an error in it, ``WrongSurroundings`` without Nix.
    """
    arguments = {"defaults": list(defaults), "inputs": dict(inputs), "builder": builder}
    expression = _OVERRIDE % {"arguments": _string(arguments), "flake": flake.read_text(encoding="utf-8")}
    values: list[dict[str, Any]] | None = _evaluate(expression, flake.parent, Place(flake))
    return values


def read_files(locked: Mapping[str, Any], paths: Sequence[str]) -> dict[str, str | None]:
    """The texts of files of a locked input, by their paths; ``None`` for those that are not there.

    Raises ``WrongSurroundings`` without Nix, or when it cannot fetch the input.
    """
    node = {name: value for name, value in locked.items() if name != "dir"}
    expression = _FILES % {"arguments": _string({"locked": node, "paths": list(paths)})}
    try:
        values = _evaluate(expression, Path("/"), None)
    except WrongInput as error:
        raise WrongSurroundings(f"Nix cannot read it: {error.what}") from error
    if not isinstance(values, dict):
        raise WrongSurroundings("Nix gave no files")
    return values


def _string(value: Any) -> str:
    """``value`` as JSON inside a string of the Nix language."""
    text = json.dumps(value).replace("\\", "\\\\").replace('"', '\\"').replace("${", "\\${")
    return f'"{text}"'


def _evaluate(expression: str, directory: Path, where: Place | None) -> Any:
    """The value of an expression, evaluated purely: it reads no files but those of locked inputs."""
    if not is_installed():
        raise WrongSurroundings("Nix is not installed")
    finished = process.run(
        ["nix", *_FEATURES, "eval", "--json", *_CONFINED, "--expr", expression],
        directory=directory,
        environment=process.without_secrets(os.environ) | {"GC_MAXIMUM_HEAP_SIZE": str(_LARGEST_HEAP)},
        time_limit=_TIME_LIMIT,
    )
    lines = [line for line in finished.output.splitlines() if line.strip()]
    if finished.returncode != 0:
        reasons = [line.strip().removeprefix("error:").strip() for line in lines if "error:" in line]
        reason = next((reason for reason in reversed(reasons) if reason), "it gave no reason")
        raise WrongInput(f"Nix cannot evaluate it: {printable(reason)[:300]}", where=where)
    try:
        return json.loads(lines[-1] if lines else "")
    except ValueError as error:
        raise WrongSurroundings("nix eval gave no JSON") from error
