"""build.toml files for tests."""

CUDA = """\
[general]
name = "edge"
version = 1
license = "Apache-2.0"
edition = 5
backends = ["cuda"]

[general.hub]
repo-id = "kernels-test/edge"

[torch]
src = ["torch-ext/torch_binding.cpp"]

[kernel.k]
backend = "cuda"
depends = ["torch"]
src = ["k/k.cu"]
"""
EDITION_3 = """\
[general]
name = "edge"
universal = false

[torch]
src = ["torch-ext/torch_binding.cpp"]

[kernel.k]
backend = "cuda"
src = ["k/k.cu"]
"""
