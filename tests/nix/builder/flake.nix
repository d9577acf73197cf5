# Stands in for the builder in the tests: the same names of outputs, the same layout of what is built and the
# same ciTests, made by the compiler of this machine in a sandbox that sees /usr, without nixpkgs.
{
  outputs =
    { self }:
    {
      lib.genKernelFlakeOutputs =
        { self, path }:
        let
          system = "x86_64-linux";
          toml = builtins.fromTOML (builtins.readFile (path + "/build.toml"));
          kernelName = toml.general.name;
          rev = builtins.replaceStrings [ "-" ] [ "_" ] (self.shortRev or self.dirtyShortRev or "dirty");
          provenance = {
            commit = self.rev or "0000000000000000000000000000000000000000";
            dirty = !(self ? rev);
          };
          buildSets = builtins.filter (set: builtins.elem set.backend toml.general.backends) [
            { backend = "cpu"; variant = "torch212-cxx11-cpu-${system}"; }
            { backend = "cpu"; variant = "torch213-cxx11-cpu-${system}"; }
            { backend = "cuda"; variant = "torch213-cxx11-cu130-${system}"; }
          ];
          keep = name: !(builtins.elem (baseNameOf name) [ "build" ".git" "flake.lock" ]);
          src = builtins.path {
            inherit path;
            name = "source";
            filter = name: _type: keep name;
          };
          run =
            name: script: attributes:
            derivation (
              {
                inherit name system;
                builder = "/bin/bash";
                args = [ script ];
                outputs = [ "out" ];
                PATH = "/usr/bin:/bin";
              }
              // attributes
            );
          # mkDistTorchExtensions strips search paths, mkCiTests and the shells do not (nix-builder/lib/build.nix).
          extension = extensionOf false;
          published = extensionOf true;
          extensionOf =
            stripRPath: set:
            run "${kernelName}-torch-ext" ./build.sh {
              inherit src rev kernelName stripRPath;
              inherit (set) backend variant;
              kernelVersion = toString toml.general.version;
              provenance = builtins.toJSON provenance;
              describe = ./describe.py;
              nvcc = ./nvcc.py;
              # Something that every variant needs, as Torch is.
              torch = run "torch" ./torch.sh { };
            };
          ciTest =
            set:
            run "ci-test" ./ci-test.sh {
              inherit src;
              inherit (set) variant;
              extension = extension set;
              repoId = toml.general.hub.repo-id or "";
            };
          shell =
            set:
            run "nix-shell" ./build.sh {
              inherit src;
              inherit (set) variant;
              torch = run "torch" ./torch.sh { };
            };
          testShell = set: run "nix-shell" ./build.sh { inherit src; inherit (set) variant; extension = extension set; };
          bundleOf =
            sets:
            run "torch-ext-bundle" ./bundle.sh { contents = map (set: "${published set}") sets; };
          named =
            value:
            builtins.listToAttrs (
              map (set: {
                name = set.variant;
                value = value set;
              }) buildSets
            );
          byBackend =
            value:
            builtins.mapAttrs (_: value) (builtins.groupBy (set: set.backend) buildSets);
          bestVariant = (builtins.head buildSets).variant;
        in
        {
          devShells.${system} = {
            default = (named shell).${bestVariant};
            devShells = named shell;
            testShells = named testShell;
          };
          packages.${system} = rec {
            redistributable = named published;
            ciTests = named ciTest;
            bundle = bundleOf buildSets;
            default = bundle;
            backendBundle = byBackend bundleOf;
            backendCi = byBackend (sets: bundleOf [ (builtins.head sets) ]);
            variants = map (set: set.variant) buildSets;
            archVariants = variants;
          };
        };
    };
}
