"""The header of a card as the Hub takes it: YAML between two lines of ``---``.

Of the Hub's own check, which is not public, this much was seen. It asks for the block by the expression that
huggingface_hub has too ("exact same regex as in the Hub server", repocard.py, 2.4.0). ``/api/validate-yaml``
answers 400 with ``{"errors": [{"message": …}]}`` for what it refuses, and ``warnings`` of the same form
(hf_api.py, ``_validate_yaml``, 2.4.0); a commit that holds such a README.md is refused by 400 as well
(huggingface_hub#1927). A license has to be of its list, or a list of such (huggingface_hub#4218), and a card
without a header gets a warning (tests/test_hf_api.py at ee0a4510, ``test_commit_modelcard_empty_metadata``).

Nobody saw: which other fields it checks in repositories of kernels, its words for a header that is no YAML or
no mapping, and how its parser differs from PyYAML. A key that is there twice, which YAML forbids, is refused
here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from kernel_actions import toml_file

_DATA = Path(__file__).resolve().parents[1] / "data" / "card_licenses.toml"
_BLOCK = re.compile(r"\s*---(?:\r\n|\r|\n)([\S\s]*?)(?:\r\n|\r|\n)---[ \t]*(?:\r\n|\n|$)")
# Headers have some hundred bytes. Aliases in a longer one could stand for any number of values.
_LARGEST = 65_536
_MISSING = "empty or missing yaml metadata in repo card"


@dataclass(frozen=True)
class Problem:
    """What is wrong with a header, in which ``line`` of the card, from 1 on. A ``license`` that is not on the
    Hub's list is of a kind of its own. A ``warning`` keeps nobody from publishing."""

    kind: Literal["syntax", "license", "warning"]
    message: str
    line: int


def problems(text: str) -> tuple[Problem, ...]:
    """What the Hub would say about the header of the card ``text``."""
    return tuple(_problems(text))


def _problems(text: str) -> Iterator[Problem]:
    import yaml

    block = _BLOCK.match(text)
    if block is None or not block[1].strip():
        yield Problem("warning", _MISSING, 1)
        return
    first = text.count("\n", 0, block.start(1)) + 1
    if len(block[1]) > _LARGEST:
        yield Problem("syntax", f"the header has more than {_LARGEST} characters", first)
        return
    try:
        node = yaml.compose(block[1], Loader=yaml.SafeLoader)
        values = yaml.safe_load(block[1])
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        said = " ".join(str(part) for part in (error.context, error.problem) if part)
        yield Problem("syntax", f"the header is not YAML: {said}", first + (mark.line if mark else 0))
        return
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        said = str(error).splitlines()[0] if str(error) else type(error).__name__
        yield Problem("syntax", f"the header is not YAML: {said}", first)
        return
    if not isinstance(node, yaml.MappingNode) or not isinstance(values, dict):
        yield Problem("syntax", "the header is not a mapping of names to values", first)
        return
    lines: dict[str, int] = {}
    for key, _ in node.value:
        line = first + key.start_mark.line
        if str(key.value) in lines:
            yield Problem("syntax", f"the header has {key.value!r} twice", line)
        lines[str(key.value)] = line
    if "license" in values and not _is_license(values["license"]):
        listed = ", ".join((*identifiers(), "array"))
        yield Problem("license", f'"license" must be one of [{listed}]', lines.get("license", first))


def _is_license(value: Any) -> bool:
    listed = value if isinstance(value, list) else [value]
    return all(isinstance(one, str) and one in identifiers() for one in listed)


@lru_cache(maxsize=1)
def identifiers() -> tuple[str, ...]:
    """What ``license`` may be."""
    return tuple(toml_file.read(_DATA).values["identifiers"])
