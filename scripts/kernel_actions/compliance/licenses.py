"""The identifiers of licenses: those of SPDX, expressions of them, and those of the Hub.

The grammar: https://spdx.github.io/spdx-spec/v3.0.1/annexes/spdx-license-expressions/
"""

from __future__ import annotations

import re
from functools import lru_cache

from kernel_actions import toml_file
from kernel_actions.compliance.engine import DATA

_LONGEST = 1000
_TOKEN = re.compile(r"[()]|[^\s()]+")
# What is said about a license that stands in no list, but in the project itself.
_OWN = re.compile(r"(DocumentRef-[A-Za-z0-9.-]+:)?LicenseRef-[A-Za-z0-9.-]+")
_OPERATORS = frozenset({"AND", "OR", "WITH", "and", "or", "with"})
# Words that people write around an identifier.
_AROUND = re.compile(r"\b(the|license|licence|version)\b|v(?=\d)", re.IGNORECASE)


def is_known(text: str) -> bool:
    """Whether ``text`` is an identifier of the Hub, or an expression of those of SPDX."""
    return len(text) <= _LONGEST and (text.lower() in _known()["hub"] or _is_expression(text))


def nearest(text: str) -> str:
    """The identifier that may be meant by ``text``; empty if there is none like it."""
    import difflib  # Not at the top: it is needed by few.

    bare = "-".join(_AROUND.sub(" ", text[:100]).split()).lower()
    known = {**_known()["hub"], **_known()["licenses"]}
    found = difflib.get_close_matches(bare, known, n=1, cutoff=0.7)
    return known[found[0]] if found else ""


def _is_expression(text: str) -> bool:
    depth, before = 0, ""
    for token in _TOKEN.findall(text):
        is_operand = before == "" or before == "(" or before in _OPERATORS
        if token in _OPERATORS or token == ")":
            if is_operand:
                return False
            depth -= token == ")"
        elif token == "(":
            if not is_operand or before.lower() == "with":
                return False
            depth += 1
        elif not is_operand or not _is_identifier(
            token, "exceptions" if before.lower() == "with" else "licenses"
        ):
            return False
        if depth < 0:
            return False
        before = token
    return depth == 0 and before not in ("", *_OPERATORS)


def _is_identifier(token: str, of: str) -> bool:
    if of == "licenses" and _OWN.fullmatch(token):
        return True
    known = _known()[of]
    return token.lower() in known or (of == "licenses" and token.lower().removesuffix("+") in known)


@lru_cache(maxsize=1)
def _known() -> dict[str, dict[str, str]]:
    """The lists of the data file: identifiers in lower case, and as they are written."""
    values = toml_file.read(DATA.with_name("licenses.toml")).values
    return {name: {one.lower(): one for one in listed} for name, listed in values.items()}
