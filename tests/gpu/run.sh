#!/usr/bin/env bash
# Tests the tests on this machine's GPU, without network: the example kernel, and one with planted faults.
#
# Takes the Python at hand (KA_PYTHON), which has Torch for CUDA, kernels, pytest, cmake and ninja, and
# compute-sanitizer of the CUDA toolkit. Ends with a table of what was tested and seen; the same as gpu-test.json,
# the example's test report and the sanitizer's logs go into KA_GPU_OUT (build/gpu-test).
set -euo pipefail
cd "$(dirname "$0")/../.."
export KA_PYTHON=${KA_PYTHON:-$(command -v python3)}
export KA_GPU_OUT=${KA_GPU_OUT:-$PWD/build/gpu-test}
mkdir -p "$KA_GPU_OUT"
exec "$KA_PYTHON" -m pytest -p no:cacheprovider -p no:randomly --tb=short tests/gpu "$@"
