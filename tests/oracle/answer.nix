# The builder's own answer for one kernel: evaluates the builder's Nix code, without building anything.
#
# `builder` is a checkout of the builder (of 2026, with nix-builder/lib/variants), `lib` the folder lib/ of
# nixpkgs, and `kernel` a kernel's folder, whose flake.nix is asked for torchVersions.
{
  builder,
  lib,
  kernel,
}:
let
  lib' = import lib;
  code = builder + "/nix-builder/lib";
  inherit (import (code + "/torch-version-utils.nix") { lib = lib'; }) backend flattenSystems;

  captured =
    if builtins.pathExists (kernel + "/flake.nix") then
      let
        flake = import (kernel + "/flake.nix");
        stub.lib = rec {
          genKernelFlakeOutputs = arguments: { inherit arguments; };
          genFlakeOutputs = genKernelFlakeOutputs;
        };
        inputs = builtins.mapAttrs (_: _: stub) (builtins.functionArgs flake.outputs);
      in
      (flake.outputs (inputs // { self = { }; })).arguments
    else
      { };
  defaults = import (builder + "/nix-builder/versions.nix");
  versions = (captured.torchVersions or (all: all)) defaults;

  configs = map (version: version // { backend = backend version; }) (flattenSystems versions);
  sets = map (buildConfig: {
    inherit buildConfig;
    pkgs = { };
    torch.version = buildConfig.torchVersion;
  }) configs;
  build = import (code + "/build.nix") {
    lib = lib';
    pkgs = { };
  };
  config = (import (code + "/kernel-config.nix") { lib = lib'; }) kernel;
  applicable =
    system:
    build.filterApplicableBuildSets config (builtins.filter (set: set.buildConfig.system == system) sets);
  framework = if config.isTvmFfi or false then "tvm-ffi" else "torch";
  names =
    set:
    import (code + "/variants/${framework}.nix") {
      lib = lib';
      inherit (set) buildConfig;
    };
  name = set: (names set).kernelVariant config;
  bundled = builtins.filter (set: set.buildConfig.bundleBuild or false);

  # As gen-flake-outputs.nix sorts for backendCi.
  version = set: set.buildConfig.cudaVersion or (set.buildConfig.rocmVersion or (set.buildConfig.xpuVersion or "0.0"));
  before =
    a: b:
    let
      torch = builtins.compareVersions a.buildConfig.torchVersion b.buildConfig.torchVersion;
      isBundled = set: set.buildConfig.bundleBuild or false;
    in
    if isBundled a != isBundled b then
      isBundled a
    else if torch != 0 then
      torch > 0
    else
      builtins.compareVersions (version a) (version b) < 0;
  chosen = system: lib'.mapAttrs (_: group: name (lib'.head (lib'.sort before group))) (
    lib'.groupBy (set: set.buildConfig.backend) (applicable system)
  );
in
lib'.genAttrs [ "x86_64-linux" "aarch64-linux" "aarch64-darwin" ] (system: {
  redistributable = lib'.unique (map name (applicable system));
  bundle = lib'.unique (map name (bundled (applicable system)));
  arch = lib'.unique (map (set: (names set).arch) (applicable system));
  ci = chosen system;
})
