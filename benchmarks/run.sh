#!/usr/bin/env bash
# Builds, tests and measures the kernel of this repository on this machine: run.sh cpu|gpu [options of benchmark].
#
# BENCH_OUT gets cpu.json or gpu.json, the plots beside it, and the table as text. For the CPU, OpenCV is installed
# beside the suite's own environment; for the GPU, the Python at hand is used as it is, and no network is needed.
set -euo pipefail
cd "$(dirname "$0")/.."
kind=$1
shift
out=${BENCH_OUT:-build/bench}
work=build/bench-build
mkdir -p "$out" "$work"

if [ "$kind" = gpu ]; then
  export KA_PYTHON=${KA_PYTHON:-$(command -v python3)}
  gpu=always
else
  python=$(scripts/kernel-actions environment --for kernel)
  "$python" -m venv "$work/environment"
  "$python" -c 'import site; print(site.getsitepackages()[0])' >"$work/suite.pth"
  cp "$work/suite.pth" "$("$work/environment/bin/python" -c 'import site; print(site.getsitepackages()[0])')"
  "$work/environment/bin/python" -m pip install --quiet --no-deps --disable-pip-version-check -r benchmarks/peers.txt ||
    echo "run.sh: OpenCV cannot be installed; it is left out" >&2
  KA_PYTHON=$PWD/$work/environment/bin/python
  export KA_PYTHON
  gpu=never
fi

built=$(scripts/kernel-actions build --output "$work" --format json)
variant=$("$KA_PYTHON" -c 'import json, sys; print(json.loads(sys.argv[1])["variant"])' "$built")
scripts/kernel-actions test --build-dir "$work" --variant "$variant" --require-gpu "$gpu"
scripts/kernel-actions benchmark --build-dir "$work" --variant "$variant" \
  --report "$out/$kind.json" --plot "$out" "$@" | tee "$out/$kind.txt"
