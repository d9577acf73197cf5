"""Stands in for nvcc, which no sandbox of the tests has: compiles as C++, and talks like nvcc and ptxas."""

import re
import subprocess
import sys

*arguments, source, flag, target = sys.argv[1:]
command = ["g++", "-x", "c++", "-std=c++17", "-D__global__=", "-fPIC", *arguments, "-c", source, flag, target]
finished = subprocess.run(command, text=True, capture_output=True, check=False)
for line in finished.stderr.splitlines():
    print(re.sub(r"^(\S+?):(\d+):\d+: (error|warning): ", r"\1(\2): \3: ", line))
if finished.returncode == 0:
    for architecture, registers, spilled in (("80", 24, 0), ("90", 168, 16)):
        print(
            f"ptxas info    : 0 bytes gmem\n"
            f"ptxas info    : Compiling entry function '_Z5scalePfi' for 'sm_{architecture}'\n"
            f"ptxas info    : Function properties for _Z5scalePfi\n"
            f"    {spilled} bytes stack frame, {spilled} bytes spill stores, {spilled} bytes spill loads\n"
            f"ptxas info    : Used {registers} registers, used 0 barriers, 360 bytes cmem[0]"
        )
sys.exit(finished.returncode)
