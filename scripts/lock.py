"""Resolves requirements/*.in into requirements/*.txt with hashes, and locks uv. `make lock` runs it."""

from __future__ import annotations

import hashlib
import io
import json
import re
import subprocess
import sys
import sysconfig
import urllib.request
import zipfile
from pathlib import Path

REQUIREMENTS = Path(__file__).resolve().parents[1] / "requirements"
PURPOSES = ("hub", "loader", "serve", "check", "kernel", "dev")
# What tests take by name: locked without what it requires, which follows the Torch of a variant.
CONSTRAINTS = "tests"
# The part of a wheel's name that tells its platform, by the name of ours for that. Others have pip.
PLATFORMS = {
    "linux-x86_64-gnu": "manylinux_2_17_x86_64",
    "linux-x86_64-musl": "musllinux_1_1_x86_64",
    "linux-aarch64-gnu": "manylinux_2_28_aarch64",
    "linux-aarch64-musl": "musllinux_1_1_aarch64",
    "darwin-x86_64": "macosx_10_12_x86_64",
    "darwin-aarch64": "macosx_11_0_arm64",
}


def main() -> int:
    """Lock each purpose for every platform and every Python that the suite supports."""
    uv = Path(sysconfig.get_path("scripts")) / "uv"
    for purpose in (*PURPOSES, CONSTRAINTS):
        more = ["--no-deps"] if purpose == CONSTRAINTS else []
        subprocess.run(
            [
                uv, "pip", "compile", "--quiet", "--universal", "--python-version", "3.10",
                "--generate-hashes", "--no-annotate", "--custom-compile-command", "make lock",
                f"{purpose}.in", "--output-file", f"{purpose}.txt", *more, *sys.argv[1:],
            ],
            cwd=REQUIREMENTS,
            check=True,
        )  # fmt: skip
        print(f"wrote requirements/{purpose}.txt")
    lock_uv()
    return 0


def lock_uv() -> None:
    """Lock the wheels of the uv of dev.txt, and the program in each, unless that is done."""
    found = re.search(r"^uv==(\S+)", (REQUIREMENTS / "dev.txt").read_text(), re.MULTILINE)
    assert found is not None
    path = REQUIREMENTS / "uv.json"
    if path.exists() and json.loads(path.read_bytes())["version"] == found[1]:
        return
    request = urllib.request.Request("https://pypi.org/simple/uv/")
    request.add_header("Accept", "application/vnd.pypi.simple.v1+json")
    with urllib.request.urlopen(request) as answer:
        files = json.load(answer)["files"]
    builds = {}
    for system, platform in PLATFORMS.items():
        wheel_name = re.compile(rf"uv-{re.escape(found[1])}-py3-none-(?:.*\.)?{platform}(?:\..*)?\.whl")
        file = next(one for one in files if wheel_name.fullmatch(one["filename"]))
        with urllib.request.urlopen(file["url"]) as answer:
            wheel = answer.read()
        digest = hashlib.sha256(wheel).hexdigest()
        assert digest == file["hashes"]["sha256"], file["filename"]
        member = f"uv-{found[1]}.data/scripts/uv"
        program = zipfile.ZipFile(io.BytesIO(wheel)).read(member)
        builds[system] = {
            "file": file["filename"],
            "url": file["url"],
            "size": len(wheel),
            "sha256": digest,
            "member": member,
            "program_sha256": hashlib.sha256(program).hexdigest(),
        }
    path.write_text(json.dumps({"version": found[1], "builds": builds}, indent=2) + "\n")
    print("wrote requirements/uv.json")


if __name__ == "__main__":
    sys.exit(main())
