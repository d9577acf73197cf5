"""A kernel's card: filled in as the builder does it, by a template that anybody may have written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx2
import pytest
from huggingface_hub import HfApi
from kernel_actions import card, manifest, upload
from kernel_actions.card import Card
from kernel_actions.errors import WrongInput, WrongSurroundings
from kernel_actions.hub import client

from tests.hub.helpers import Server, upload_options, write_kernel
from tests.hub.test_upload import commit_file, names

# As the template of `kernel-builder init` (kernel-builder/src/init/templates/CARD.md at 8ac69fc5) has its
# blocks.
TEMPLATE = """\
---
library_name: kernels
{% if license %}license: {{ license }}
{% endif %}---

Card of {{ repo_id }}.
{% if functions %}

```python
get_kernel("{{ repo_id }}", version={{ version }}).{{ functions[0] }}(...)
```
{% else %}

No example.
{% endif %}

## Functions
{% for func in functions %}
- `{{ func }}`
{% endfor %}
{% if upstream %}
From {{ upstream }}.
{% endif %}
"""
FILLED_IN = """\
---
library_name: kernels
license: apache-2.0
---

Card of {repo_id}.

```python
get_kernel("{repo_id}", version=1).relu(...)
```

## Functions
- `relu`
"""
INVALID = "---\nlicense: mit\nname: a: b\n---\n# relu\n"


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    folder = write_kernel(tmp_path / "kernel")
    package = folder / "torch-ext" / "relu"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text('__all__ = ["relu"]\n')
    return folder


def find(kernel: Path, template: str | None = None) -> Card | None:
    if template is not None:
        (kernel / "CARD.md").write_text(template)
    return card.find(manifest.load(kernel), kernel / "build", "acme/relu")


def text(kernel: Path, template: str) -> str:
    found = find(kernel, template)
    assert found is not None
    return found.text


def test_a_card_is_filled_in(kernel: Path) -> None:
    assert text(kernel, TEMPLATE) == FILLED_IN.format(repo_id="acme/relu")


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("# plain\n", "# plain"),
        ("# plain\r\n", "# plain"),
        ("\n{{ version }}\n", "\n1"),
        # As minijinja of Rust shows its values.
        ("{{ functions }} {{ layers }} {{ has_benchmark }}", '["relu"] none false'),
        ("{{ unknown }}|{{ layers[0] }}|{{ upstream }}", "||none"),
        ("{%- if functions is defined -%} x {% endif %}", "x "),
        ("{% macro m() %}{{ repo_id }}{% endmacro %}{{ m() }}", "acme/relu"),
        ("{% raw %}{{ x }}{% endraw %}", "{{ x }}"),
        # No object of Python is there to be called.
        ("{{ functions.append }}{{ functions.__class__ }}{{ repo_id.__class__ }}", ""),
    ],
)
def test_the_engine_is_the_builders(kernel: Path, template: str, expected: str) -> None:
    assert text(kernel, template) == expected


def test_names_are_texts(kernel: Path) -> None:
    """A public name can hold anything; it is none of the template."""
    name = "%}{{ 7 * 7 }}{# \"\\n' \u2028"
    (kernel / "torch-ext" / "relu" / "__init__.py").write_text(f"__all__ = [{name!r}]\n")
    assert text(kernel, "{{ functions[0] }}") == name


@pytest.mark.parametrize(
    ("template", "line", "message"),
    [
        ("a\n\n{% if %}\n", 3, "SyntaxError: unexpected end of block"),
        ("a\n{% for x in functions %}\nb\n", 3, "SyntaxError: unexpected end of input"),
        ("a\n{{ unknown.x }}\n", 2, "UndefinedError"),
        ("a\n\n\n{{ repo_id|nofilter }}\n", 4, "UnknownFilter: filter nofilter is unknown"),
        # It has what the builder's engine has: no more filters, no methods of Python.
        ("{{ functions|tojson }}", 1, "UnknownFilter"),
        ("{{ repo_id.upper() }}", 1, "UnknownMethod"),
        ('{% include "/etc/passwd" %}', 1, "TemplateNotFound"),
        ('{% include "CARD.md" %}', 1, "TemplateNotFound"),
        ('{% import "os" as os %}', 1, "TemplateNotFound"),
        ("{% for a in range(9999) %}{% for b in range(9999) %}x{% endfor %}{% endfor %}", 1, "OutOfFuel"),
        ("{% for a in range(1000000000) %}x{% endfor %}", 1, "InvalidOperation"),
        ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", 1, "InvalidOperation"),
        ('{{ "x" * 3000000000 }}', None, "it needs more time or memory"),
        (
            '{% set n = namespace(x="aaaa") %}'
            "{% for i in range(60) %}{% set n.x = n.x ~ n.x %}{% endfor %}{{ n.x }}",
            None,
            "it needs more time or memory",
        ),
        ('{{ "x" * 5000000 }}', None, "has more than 4000000 characters"),
        (f"{{{{ {'(' * 50_000} }}}}", 1, "SyntaxError"),
    ],
)  # fmt: skip
def test_a_template_that_cannot_be_filled_in(
    kernel: Path, template: str, line: int | None, message: str
) -> None:
    with pytest.raises(WrongInput) as caught:
        find(kernel, template)
    assert caught.value.what.startswith(f"cannot be filled in: {message}")
    assert caught.value.where == (kernel / "CARD.md", line, None)


def test_a_header_that_is_no_yaml_is_named_with_its_line(kernel: Path) -> None:
    with pytest.raises(WrongInput, match="the header is not YAML: mapping values") as caught:
        find(kernel, INVALID)
    assert caught.value.where == (kernel / "CARD.md", 3, None)
    with pytest.raises(WrongInput, match=r"\(line 3 once it is filled in\)") as caught:
        find(kernel, INVALID.replace("mit", "{{ license }}"))
    assert caught.value.where == (kernel / "CARD.md", None, None)


def test_cards_that_are_no_text(kernel: Path, tmp_path: Path) -> None:
    (kernel / "CARD.md").write_bytes(b"# \xff\n")
    with pytest.raises(WrongInput, match="is not text in UTF-8"):
        find(kernel)
    (tmp_path / "secret").write_text("secret")
    (kernel / "CARD.md").unlink()
    (kernel / "CARD.md").symlink_to(tmp_path / "secret")
    with pytest.raises(WrongInput, match="is a link out of its folder"):
        find(kernel)
    (kernel / "CARD.md").unlink()
    assert find(kernel) is None


def test_the_card_of_a_bundle_is_published_as_it_is(kernel: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As the builder's `upload` does, which looks for no other; that the sources give another one is said."""
    (kernel / "build" / "CARD.md").write_text("# of the bundle {{ version }}\n")
    found = find(kernel, "# of the sources\n")
    assert found is not None
    assert (found.text, found.source) == ("# of the bundle {{ version }}\n", kernel / "build" / "CARD.md")
    assert "gives another one now" in capsys.readouterr().err
    (kernel / "build" / "CARD.md").write_text(FILLED_IN.format(repo_id="acme/relu"))
    found = find(kernel, TEMPLATE)
    assert found is not None and found.text == FILLED_IN.format(repo_id="acme/relu")
    assert capsys.readouterr().err == ""
    (kernel / "build" / "CARD.md").write_text(INVALID)
    with pytest.raises(WrongInput) as caught:
        find(kernel)
    assert caught.value.where == (kernel / "build" / "CARD.md", 3, None)


def test_upload_publishes_the_card_filled_in(shared: Server, api: HfApi, kernel: Path) -> None:
    repo_id = "acme/filled-in"
    (kernel / "CARD.md").write_text(TEMPLATE)
    assert upload.run(upload_options(kernel, shared.url, repo_id=repo_id)) == 0
    path = api.hf_hub_download(repo_id, "README.md", repo_type="kernel")
    assert Path(path).read_text() == FILLED_IN.format(repo_id=repo_id)


@pytest.mark.parametrize("header", ["name: a: b", "license: asdf"])
def test_a_card_that_the_hub_would_refuse_keeps_everything_from_it(
    shared: Server, api: HfApi, kernel: Path, header: str
) -> None:
    repo_id = f"acme/refused-{len(header)}"
    (kernel / "CARD.md").write_text(f"---\n{header}\n---\n")
    with pytest.raises(WrongInput) as caught:
        upload.run(upload_options(kernel, shared.url, repo_id=repo_id))
    assert caught.value.where is not None and caught.value.where.path == kernel / "CARD.md"
    assert not api.repo_exists(repo_id, repo_type="kernel")


def test_the_embedded_hub_refuses_what_the_real_one_does(api: HfApi, repo: str, shared: Server) -> None:
    with pytest.raises(ValueError, match=r"Invalid metadata in README\.md\.\n- the header is not YAML"):
        commit_file(api, repo, "main", "README.md", INVALID.encode())
    with pytest.raises(ValueError, match='- "license" must be one of'):
        commit_file(api, repo, "main", "README.md", b"---\nlicense: asdf\n---\n")
    with pytest.warns(UserWarning, match="empty or missing yaml metadata"):
        commit_file(api, repo, "main", "README.md", b"# no header\n")
    # Not asked first, as by a client of another kind.
    lines = [
        {"key": "header", "value": {"summary": "x"}},
        {"key": "file", "value": {"path": "README.md", "content": INVALID, "encoding": "utf-8"}},
    ]
    answer = httpx2.post(
        f"{shared.url}/api/kernels/{repo}/commit/main",
        content="\n".join(json.dumps(line) for line in lines),
        headers={"Content-Type": "application/x-ndjson"},
    )
    assert answer.status_code == 400 and "Invalid metadata in README.md" in answer.json()["error"]
    # A file of that name elsewhere is no card.
    commit_file(api, repo, "main", "docs/README.md", INVALID.encode())
    assert names(api, repo, "main") == [".gitattributes", "README.md", "docs/README.md"]


def test_a_hub_that_checks_no_cards(foreign: Any) -> None:
    """What it answers is no verdict about the card."""
    hub = client.connect(foreign.url)
    foreign.status = 400
    assert client.card_errors(hub, "# x") == (f"{foreign.url} refuses the card's header",)
    foreign.status = 403
    with pytest.raises(WrongSurroundings, match="cannot have the card checked"):
        client.card_errors(hub, "# x")


def test_the_card_leaves_the_benchmarks_of_main_alone(shared: Server, api: HfApi, kernel: Path) -> None:
    repo_id = "acme/main-benchmarks"
    api.create_repo(repo_id, repo_type="kernel")
    commit_file(api, repo_id, "main", "benchmarks/benchmark_a.py", b"x = 1\n")
    (kernel / "CARD.md").write_text("# relu\n")
    upload.run(upload_options(kernel, shared.url, repo_id=repo_id))
    assert names(api, repo_id, "main") == [".gitattributes", "README.md", "benchmarks/benchmark_a.py"]


def test_a_kernel_without_benchmarks_leaves_those_on_the_hub_alone(
    shared: Server, api: HfApi, kernel: Path
) -> None:
    """As the builder's `upload`: it says nothing about them, where it has no folder of them."""
    repo_id = "acme/kept-benchmarks"
    upload.run(upload_options(kernel, shared.url, repo_id=repo_id))
    commit_file(api, repo_id, "v1", "benchmarks/benchmark_a.py", b"x = 1\n")
    upload.run(upload_options(kernel, shared.url, repo_id=repo_id))
    assert "benchmarks/benchmark_a.py" in names(api, repo_id)
    (kernel / "benchmarks").mkdir()
    upload.run(upload_options(kernel, shared.url, repo_id=repo_id))
    assert "benchmarks/benchmark_a.py" not in names(api, repo_id)
