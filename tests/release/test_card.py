"""The card of a release: filled in, checked before anything is there, and put on main at the end."""

from __future__ import annotations

from pathlib import Path

import pytest
from huggingface_hub import HfApi
from kernel_actions.errors import KernelFailed, WrongInput

from tests.release.helpers import Kernel, command

# Its header is no YAML, and it ends in no line of `---`, before it is filled in.
TEMPLATE = (
    "---\nlibrary_name: kernels\n{% if license %}license: {{ license }}\n{% endif %}---\n\n"
    "{{ repo_id }} {{ version }}\n{% for name in functions %}\n- {{ name }}\n{% endfor %}\n"
)


def write(kernel: Kernel, text: str) -> None:
    (kernel.root / "CARD.md").write_text(text)
    kernel.commit("Write the card")
    kernel.build()


def published(api: HfApi, repo_id: str) -> str:
    return Path(api.hf_hub_download(repo_id, "README.md", repo_type="kernel")).read_text()


def test_a_release_fills_the_card_in(kernel: Kernel, address: str, api: HfApi, quick: list[str]) -> None:
    write(kernel, TEMPLATE)
    kernel.release(address)
    expected = f"---\nlibrary_name: kernels\nlicense: apache-2.0\n---\n\n{kernel.repo_id} 1\n- relu\n"
    assert published(api, kernel.repo_id) == expected
    assert kernel.release(address).is_unchanged
    kernel.commit(
        "feat!: other names", __init__="__all__ = ['gelu']\n\n\ndef gelu(value):\n    return value\n"
    )
    kernel.write_build_toml(2)
    kernel.commit("Raise the version")
    kernel.build()
    kernel.release(address)
    assert published(api, kernel.repo_id).endswith(f"{kernel.repo_id} 2\n- gelu\n")


def test_stage_and_promote_of_different_jobs_publish_what_was_staged(
    kernel: Kernel, address: str, api: HfApi, quick: list[str]
) -> None:
    """The last job renders nothing: it has the token, and no variants."""
    write(kernel, TEMPLATE)
    kernel.release(address, stages=("stage",))
    (kernel.root / "build" / "CARD.md").write_text("# another\n")
    kernel.release(address, stages=("promote",))
    assert published(api, kernel.repo_id).endswith("- relu\n")


def test_the_card_of_a_bundle_is_released(kernel: Kernel, address: str, api: HfApi, quick: list[str]) -> None:
    write(kernel, TEMPLATE)
    text = "---\nlicense: mit\n---\n# {{ of the bundle }}\n"
    (kernel.root / "build" / "CARD.md").write_text(text)
    kernel.release(address)
    assert published(api, kernel.repo_id) == text


@pytest.mark.parametrize(
    ("text", "line"),
    [("---\nname: a: b\n---\n", 2), ("# {{ repo_id\n", 1), ("a\n{% endfor %}\n", 2)],
)
def test_a_card_that_cannot_be_published_is_told_before_the_hub_hears_of_anything(
    kernel: Kernel, address: str, api: HfApi, text: str, line: int
) -> None:
    write(kernel, text)
    with pytest.raises(WrongInput) as caught:
        kernel.release(address)
    assert caught.value.where == (kernel.root / "CARD.md", line, None)
    assert not api.repo_exists(kernel.repo_id, repo_type="kernel")
    finished = command(kernel.root, "release", "--dry-run", "--hub", address)
    assert (finished.returncode, f"CARD.md:{line}: " in finished.stderr) == (2, True)


def test_a_header_that_the_hub_refuses_is_one_of_what_is_missing(
    kernel: Kernel, address: str, api: HfApi
) -> None:
    write(kernel, "---\nlicense: agpl-3.0-or-later\n---\n")
    with pytest.raises(KernelFailed, match=r'1 thing is missing: .*CARD\.md: "license" must be one of \['):
        kernel.release(address)
    assert not api.repo_exists(kernel.repo_id, repo_type="kernel")
