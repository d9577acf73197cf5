"""The builder's own templates and rules, run without Nix: what our local builder is held to.

From a git repository of huggingface/kernels (``KA_BUILDER_REPOSITORY``, or the first argument) this package
renders the templates of kernel-builder at a revision as its Rust code does (``project``), makes the source
set, runs the builder's own setup.py for noarch kernels and its own CMake code for the CPU, and lays the
result out as nix-builder/lib/extension does (``variant``). ``answers/`` keeps what came out, for tests that
need no checkout: names, metadata.json and flags, none of the builder's text.

    python -m tests.reference_builder build REPOSITORY REVISION KERNEL OUT    one variant
    python -m tests.reference_builder answers REPOSITORY                      writes answers/ anew

What nobody has seen here, for lack of nixpkgs:

- the compilers, and what their wrappers add: the builder takes the gcc, glibc and libstdc++ of its
  manylinux_2_28 packages (nix-builder/lib/extension/default.nix), and nixpkgs' wrappers pass hardening flags;
- what ``patchelf --set-rpath ""`` makes of an extension (arch.nix, postInstall); here CMake leaves the run
  path out, as CMAKE_SKIP_RPATH tells it to there;
- the checks that follow the build: check-abi, check-builds, torch-ops-check, get-kernel-check;
- CUDA, ROCm, XPU and Metal variants, and the bytes of any extension;
- the Rust code: what it puts into templates and metadata.json is read in it (``project``), not run;
- ``ciTests`` and shells.
"""
