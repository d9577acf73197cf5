"""The local builder: one variant with the compiler and Torch of this machine, without Nix.

In the order of a build:

``toolchain``  what this machine has: Torch, compilers, GPUs
``target``     which variants it can build with that
``sources``    what the kernel consists of, and its hash
``cuda``       which compute capabilities to compile for
``project``    the CMake and Python project that build.toml comes to (``templates/``)
``compilation`` running CMake and Ninja; ``messages`` reads what the compiler says, ``headers`` what it read
``layout``     the folder of the variant, as kernel-builder lays it out
"""
