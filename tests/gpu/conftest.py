"""Tests that need a GPU: left out unless `make gpu-test` asks for them, and then nothing is skipped."""

import os

collect_ignore_glob = ["faulty/*"] if os.environ.get("KA_GPU_OUT") else ["*"]
