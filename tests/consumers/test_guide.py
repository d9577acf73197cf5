"""What docs/applications.md says to do is done, word for word, and without a network where it says so."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.consumers.helpers import commits, program, publish, user_environment
from tests.hub.helpers import Server
from tests.integration.conftest import ROOT

GUIDE = (ROOT / "docs" / "applications.md").read_text()
REPO = "kernels-community/relu"
CODE = "def relu(values):\n    return [max(value, 0) for value in values]\n"


@pytest.fixture(scope="module")
def application(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The application of the guide, of the files that stand there, and its reader's programs."""
    root = tmp_path_factory.mktemp("application")
    files = re.findall(r"<!-- file: (\S+) -->\n```\w+\n(.*?)```", GUIDE, re.DOTALL)
    assert [name for name, _ in files] == ["pyproject.toml", "app.py"]
    for name, content in files:
        (root / name).write_text(content)
    (root / "bin").mkdir()
    for name, target in (
        ("kernel-actions", str(ROOT / "scripts" / "kernel-actions")),
        ("python", program("python")),
        ("pip", f"{program('python')} -m pip --isolated"),
    ):
        # Not links: a link to the interpreter of a virtual environment is that of the system.
        target_line = target if " -m " in target else f'"{target}"'
        path = root / "bin" / name
        path.write_text(f'#!/bin/sh\nexec {target_line} "$@"\n')
        path.chmod(0o755)
    return root


def shell(folder: Path, command: str, *prefix: str, **variables: str) -> str:
    """What a command of the guide prints."""
    environment = user_environment(**variables)
    environment["PATH"] = f"{folder / 'bin'}:{environment['PATH']}"
    finished = subprocess.run(
        [*prefix, "bash", "-euc", command],
        cwd=folder,
        env=environment,
        text=True,
        capture_output=True,
        timeout=300,
        check=False,
    )
    assert finished.returncode == 0, f"{command}\n{finished.stdout}{finished.stderr}"
    return finished.stdout


@pytest.fixture(scope="module")
def published(server: Server) -> str:
    """The kernel of the guide on the Hub, with a tag for its release: the commit."""
    commit = publish(server.api(), REPO, text=CODE)
    server.api().create_tag(REPO, tag="v1.2.0", revision=commit, repo_type="kernel")
    return commit


def test_the_steps_of_the_guide_lead_where_it_says(
    application: Path, published: str, hub: str, no_network: list[str], tmp_path: Path
) -> None:
    commands = [
        command
        for block in re.findall(r"```console\n(.*?)```", GUIDE, re.DOTALL)
        for command in re.findall(r"^\$ (.*)$", block, re.MULTILINE)
    ]
    assert len(commands) == 8
    variables = {"HF_ENDPOINT": hub, "HF_HOME": str(tmp_path / "home")}
    for command in commands[:3]:
        shell(application, command, **variables)
    assert commits(application) == {REPO: published}
    assert commands[3].endswith("python app.py")
    assert shell(application, commands[3], *no_network).strip() == "[0, 2]"
    assert in_image(application, tmp_path / "image", no_network).strip() == "[0, 2]"
    shell(application, commands[4], **variables)
    target = application / "target"
    # The reader has an environment of their own to install into; here, a folder is one.
    shell(application, commands[5].replace("pip install", "pip install --target target"), *no_network)
    printed = shell(application, commands[6], *no_network, PYTHONPATH=str(target))
    assert printed.strip() == "[0, 2]"
    shell(application, commands[7], *no_network)
    page = (application / "dist" / "simple" / "relu" / "index.html").read_text()
    assert (
        'href="https://github.com/your-name/your-application/releases/download/v1.0.0/relu-1.2.0%2B' in page
    )


def in_image(application: Path, root: Path, no_network: list[str]) -> str:
    """What the image of the guide prints: its files and variables below ``root``, where nothing can be
    written, with this environment in place of what it installs."""
    (dockerfile,) = re.findall(r"```dockerfile\n(.*?)```", GUIDE, re.DOTALL)
    lines = [line.split(" ", 1) for line in dockerfile.splitlines()]
    assert [name for name, _ in lines] == ["FROM", "RUN", "COPY", "ENV", "COPY", "WORKDIR", "CMD"]
    variables: dict[str, str] = {}
    folder, command = root, [""]
    for name, rest in lines:
        if name == "COPY":
            *sources, target = rest.split()
            for source in sources:
                place = root / target.strip("/") / (source if target.endswith("/") else "")
                place.parent.mkdir(parents=True, exist_ok=True)
                if (application / source).is_dir():
                    shutil.copytree(application / source, place, symlinks=True)
                else:
                    shutil.copyfile(application / source, place)
        elif name == "ENV":
            given = dict(one.split("=") for one in rest.split())
            variables |= {key: f"{root}{one}" if one.startswith("/") else one for key, one in given.items()}
        elif name == "WORKDIR":
            folder = root / rest.strip("/")
        elif name == "CMD":
            command = json.loads(rest)
    script = 'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && cd "$2" && shift 2 && exec "$@"'
    finished = subprocess.run(
        [*no_network, "--mount", "sh", "-c", script, "sh", root, folder, *command],
        env=user_environment(**variables, HOME="/proc", PATH=f"{application / 'bin'}:{os.environ['PATH']}"),
        text=True,
        capture_output=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


@pytest.mark.slow
def test_each_way_to_pin_loads_what_the_guide_says(
    application: Path, published: str, hub: str, tmp_path: Path
) -> None:
    calls = re.findall(r"^\| `(get_kernel\(.*?\))` \|", GUIDE, re.MULTILINE)
    assert len(calls) == 3
    code = "from kernels import get_kernel\n" + "".join(
        f"print({call.replace('<commit>', published)}.relu([-1, 2]))\n" for call in calls
    )
    (tmp_path / "pin.py").write_text(code)
    variables = {"HF_ENDPOINT": hub, "HF_HUB_DISABLE_XET": "1", "HF_HOME": str(tmp_path / "home")}
    assert shell(application, f"python {tmp_path / 'pin.py'}", **variables) == "[0, 2]\n" * 3


def test_the_wheels_of_the_guide_are_those_that_are_made() -> None:
    from kernel_actions.wheel import metadata, tags

    rows = re.findall(r"^\| `([\w-]+)` \| `(relu-\S+\.whl)`, requires `(.*?)` \|$", GUIDE, re.MULTILINE)
    assert len(rows) == 4
    for variant, name, requires in rows:
        identity = tags.identify(variant)
        full = metadata.full_version("1.2.0", identity)
        assert (f"relu-{full}-{identity.tag(uses_python=True)}.whl", identity.requires) == (name, (requires,))
