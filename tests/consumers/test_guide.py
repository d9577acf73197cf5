"""What docs/applications.md says to do is done, word for word, and without a network where it says so."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from huggingface_hub import HfApi

from tests.consumers.helpers import commits, program, publish, user_environment
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


def test_the_steps_of_the_guide_lead_where_it_says(
    application: Path, api: HfApi, hub: str, no_network: list[str], tmp_path: Path
) -> None:
    commit = publish(api, REPO, text=CODE)
    commands = [
        command
        for block in re.findall(r"```console\n(.*?)```", GUIDE, re.DOTALL)
        for command in re.findall(r"^\$ (.*)$", block, re.MULTILINE)
    ]
    assert len(commands) == 7
    variables = {"HF_ENDPOINT": hub, "HF_HOME": str(tmp_path / "home")}
    for command in commands[:3]:
        shell(application, command, **variables)
    assert commits(application) == {REPO: commit}
    assert commands[3].endswith("python app.py")
    assert shell(application, commands[3], *no_network).strip() == "[0, 2]"
    shell(application, commands[4], **variables)
    target = application / "target"
    # The reader has an environment of their own to install into; here, a folder is one.
    shell(application, commands[5].replace("pip install", "pip install --target target"), *no_network)
    printed = shell(application, commands[6], *no_network, PYTHONPATH=str(target))
    assert printed.strip() == "[0, 2]"


def test_the_wheels_of_the_guide_are_those_that_are_made() -> None:
    from kernel_actions.wheel import metadata, tags

    rows = re.findall(r"^\| `([\w-]+)` \| `(relu-\S+\.whl)`, requires `(.*?)` \|$", GUIDE, re.MULTILINE)
    assert len(rows) == 4
    for variant, name, requires in rows:
        identity = tags.identify(variant)
        full = metadata.full_version("1.2.0", identity)
        assert (f"relu-{full}-{identity.tag(uses_python=True)}.whl", identity.requires) == (name, (requires,))
