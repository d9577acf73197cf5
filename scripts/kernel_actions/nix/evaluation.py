"""Asking Nix for values: evaluates without building."""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kernel_actions import toml_file
from kernel_actions.errors import Place, WrongInput, WrongSurroundings
from kernel_actions.nix import cli, diagnostics

# Evaluating a flake.nix takes a second, unless nixpkgs has to be fetched for its `lib`. Its author may have
# written one that takes for ever.
_TIME_LIMIT = 60.0
# Of the names of its outputs, whose inputs may have to be fetched, in seconds.
_TIME_LIMIT_OF_ALL = 15 * 60.0
_CONFINED = (
    # Nothing may be built while a plan is made.
    *("--option", "allow-import-from-derivation", "false"),
    *cli.NO_SETTINGS_OF_FLAKES,
)
# Where the evaluation of a hostile flake.nix ends, in bytes.
_LARGEST_HEAP = 1 << 30
# The builtins that compute and nothing else. All others read files, fetch or build.
_PURE = (
    "abort add addErrorContext all any attrNames attrValues bitAnd bitOr bitXor catAttrs ceil "
    "compareVersions concatLists concatMap concatStringsSep deepSeq div elem elemAt false filter floor "
    "foldl' fromJSON fromTOML functionArgs genList genericClosure getAttr groupBy hasAttr hashString "
    "head intersectAttrs isAttrs isBool isFloat isFunction isInt isList isNull isPath isString "
    "langVersion length lessThan listToAttrs map mapAttrs match mul nixVersion null parseDrvName "
    "partition removeAttrs replaceStrings seq sort split splitVersion stringLength sub substring tail "
    "throw toJSON toString true tryEval typeOf zipAttrsWith"
)
_NOT_AT_HAND = "is not at hand while a plan is made"
# Builds nothing of the kernel: the builder is replaced by what hands back the arguments it is given. The
# flake is evaluated in a scope that has nothing but what computes, as it may come from a fork: with more it
# could read what is on this machine, and send it elsewhere.
_OVERRIDE = """
let
  text = builtins.fromJSON %s;
  pure = builtins.listToAttrs (map (name: { inherit name; value = true; }) text.pure);
  refuse = name: throw "builtins.${name} is not at hand while a plan is made";
  special = { builtins = own; trace = message: value: value; };
  only = name: value: if pure ? ${name} then value else special.${name} or (refuse name);
  own = builtins.mapAttrs only builtins;
  global = name: { name = "__" + name; value = own.${name}; };
  globals = builtins.listToAttrs (map global (builtins.attrNames own));
  names = [
    "derivation" "derivationStrict" "fetchGit" "fetchMercurial" "fetchTarball" "fetchTree" "import"
    "placeholder" "scopedImport"
  ];
  scope = globals // builtins.listToAttrs (map (name: { inherit name; value = refuse name; }) names) // {
    builtins = own;
    __nixPath = [ ];
    __findFile = path: name: refuse "findFile";
  };
  flake = builtins.scopedImport scope <kernelActionsFlake/flake.nix>;
  capture = arguments:
    let
      found = { kernelActionsCaptured = arguments; };
      systems = { x86_64-linux = found; aarch64-linux = found; aarch64-darwin = found; };
    in found // { packages = systems // found; devShells = systems // found; checks = systems // found; };
  stub = { lib = { genKernelFlakeOutputs = capture; genFlakeOutputs = capture; }; };
  input = name: locked:
    if name == text.builder then
      stub
    else if text.nixpkgs ? ${name} then
      { lib = import (builtins.fetchTree locked + "/lib"); }
    else
      throw "the input ${name} is not at hand while a plan is made";
  self = { rev = "0000000000000000000000000000000000000000"; shortRev = "0000000"; };
  outputs = flake.outputs (builtins.mapAttrs input text.inputs // { inherit self; });
  packages = outputs.packages or { };
  ofSystem = packages.x86_64-linux.kernelActionsCaptured
    or (throw "its packages are not those of genKernelFlakeOutputs");
  given = outputs.kernelActionsCaptured or (packages.kernelActionsCaptured or ofSystem);
  versions = given.torchVersions or null;
in
if versions == null then
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


_LARGEST_FLAKE = 1_000_000
_NIXPKGS_URIS = (
    "github:NixOS/nixpkgs https://github.com/NixOS/nixpkgs https://api.github.com/repos/NixOS/nixpkgs "
    "https://codeload.github.com/NixOS/nixpkgs"
)


def is_installed() -> bool:
    """Whether there is a ``nix`` command."""
    return shutil.which("nix") is not None


def torch_versions(
    flake: Path, defaults: Sequence[Mapping[str, Any]], inputs: Mapping[str, Mapping[str, Any]], builder: str
) -> list[dict[str, Any]] | None:
    """What ``torchVersions`` of a flake.nix makes of the list ``defaults``; ``None`` without it.

    ``inputs`` are its locked inputs by name, of which ``builder`` is the builder: it is replaced. Of the
    others, only the ``lib`` of nixpkgs is at hand, which is fetched if the function uses it.

    Raises ``WrongInput`` when Nix finds an error in it, ``WrongSurroundings`` without Nix or network.
    """
    nixpkgs = {name: True for name, node in inputs.items() if _is_nixpkgs(node)}
    arguments = {
        "defaults": list(defaults),
        "inputs": dict(inputs),
        "nixpkgs": nixpkgs,
        "builder": builder,
        "pure": _PURE.split(),
    }
    with tempfile.TemporaryDirectory(prefix="kernel-actions-") as folder:
        # Of all files this one alone may be read.
        Path(folder, "flake.nix").write_bytes(toml_file.read_bytes(flake, _LARGEST_FLAKE))
        restricted = (
            *("--impure", "--option", "restrict-eval", "true", "--option", "allowed-uris", _NIXPKGS_URIS),
            *("-I", f"kernelActionsFlake={folder}"),
        )
        expression = _OVERRIDE % _string(arguments)
        values: list[dict[str, Any]] | None = _evaluate(expression, Path(folder), Place(flake), restricted)
    return values


def read_files(locked: Mapping[str, Any], paths: Sequence[str]) -> dict[str, str | None]:
    """The texts of files of a locked input, by their paths; ``None`` for those that are not there.

    Raises ``WrongSurroundings`` without Nix, or when it cannot fetch the input.
    """
    if locked.get("type") in ("path", "indirect", "file"):
        # Nix believes the lock about the revision of a folder.
        raise WrongSurroundings("the input is a folder")
    node = {name: value for name, value in locked.items() if name != "dir"}
    expression = _FILES % {"arguments": _string({"locked": node, "paths": list(paths)})}
    try:
        values = _evaluate(expression, Path("/"), None)
    except WrongInput as error:
        raise WrongSurroundings(f"Nix cannot read it: {error.what}") from error
    if not isinstance(values, dict):
        raise WrongSurroundings("Nix gave no files")
    return values


def _is_nixpkgs(node: Mapping[str, Any]) -> bool:
    """Whether an input is locked to nixpkgs itself, by its content."""
    name = f"{node.get('owner')}/{node.get('repo')}".lower()
    return node.get("type") == "github" and name == "nixos/nixpkgs" and bool(node.get("narHash"))


def _string(value: Any) -> str:
    """``value`` as JSON inside a string of the Nix language."""
    text = json.dumps(value).replace("\\", "\\\\").replace('"', '\\"').replace("${", "\\${")
    return f'"{text}"'


def attribute_names(kernel_dir: Path, reference: str, attribute: str) -> list[str]:
    """The names in an attribute set of the flake ``reference``, which is the kernel's, evaluated as a build
    will: with all that its inputs are. Raises ``WrongInput`` when it has none."""
    finished = cli.run(
        "eval", "--json", "--no-update-lock-file", "--no-write-lock-file", *cli.NO_SETTINGS_OF_FLAKES,
        f"{reference}#{attribute}", "--apply", "builtins.attrNames",
        directory=kernel_dir, time_limit=_TIME_LIMIT_OF_ALL,
    )  # fmt: skip
    lines = [line for line in finished.output.splitlines() if line.startswith("[")]
    with contextlib.suppress(ValueError):
        if finished.returncode == 0 and lines:
            return [str(name) for name in json.loads(lines[-1])]
    raise WrongInput(
        f"Nix cannot tell the variants: {cli.reason(finished.output)}",
        where=Place(kernel_dir / "flake.nix"),
    )


def _evaluate(expression: str, directory: Path, where: Place | None, options: Sequence[str] = ()) -> Any:
    """The value of an expression, evaluated purely unless ``options`` say otherwise: it reads no files but
    those of locked inputs."""
    if not is_installed():
        raise WrongSurroundings("Nix is not installed")
    finished = cli.run(
        "eval", "--json", *_CONFINED, *options, "--expr", expression,
        directory=directory, changes={"GC_MAXIMUM_HEAP_SIZE": str(_LARGEST_HEAP)}, time_limit=_TIME_LIMIT,
    )  # fmt: skip
    if finished.returncode != 0:
        reason = cli.reason(finished.output)
        if diagnostics.is_fetch(finished.output):
            raise WrongSurroundings(f"Nix cannot fetch what is needed: {reason}", where=where)
        if _NOT_AT_HAND in finished.output or "forbidden in restricted mode" in finished.output:
            raise WrongSurroundings(
                f"it asks for more than is at hand while a plan is made: {reason}",
                where=where,
                repair="let torchVersions depend on nothing but the list that it is given",
            )
        raise WrongInput(f"Nix cannot evaluate it: {reason}", where=where)
    lines = [line for line in finished.output.splitlines() if line.strip()]
    try:
        return json.loads(lines[-1] if lines else "")
    except ValueError as error:
        raise WrongSurroundings("nix eval gave no JSON") from error
