"""Fills a card in. A program of its own: what it gets is a template that anybody may have written.

It imports nothing of the suite, has no secret, and is ended when it needs more time or memory than a card
could. minijinja ends the whole process where it gets no memory, and the values of a template are written into
it as literals: a template can call every method of a Python object that it is given.
"""

from __future__ import annotations

import argparse
import json
import resource
from contextlib import suppress
from pathlib import Path
from typing import Any

# What the largest public card needs is a thousandth of each: steps of the template engine, bytes of memory,
# seconds of a processor, and bytes of the result.
FUEL = 2_000_000
MEMORY = 1 << 30
SECONDS = 20
LARGEST = 4_000_000
# Filters of the Python package that the builder's engine lacks: it has minijinja's default features
# (Cargo.toml of kernel-builder, 8ac69fc5), and these need `json` and `urlencode`.
_UNKNOWN_FILTERS = ("tojson", "urlencode")


def render(template: str, values: dict[str, Any]) -> str:
    """``template`` with ``values``, as ``render_card`` of kernel-builder/src/card.rs (8ac69fc5) does it.
    Blocks take the end of their line with them, and what is not defined is empty.

    Raises ``minijinja.TemplateError``.
    """
    from minijinja import Environment

    # Nothing of it ends a line, and it is no block: the template's own first line stays as it is.
    literals = (
        "".join(f"{{% set {name} = {_literal(value)} %}}" for name, value in values.items()) + "{{ '' }}"
    )
    environment = Environment(
        templates={"card": literals + template}, trim_blocks=True, pycompat=False, fuel=FUEL, debug=False
    )
    for name in _UNKNOWN_FILTERS:
        environment.remove_filter(name)
    return environment.render_template("card")


def _literal(value: Any) -> str:
    return "none" if value is None else json.dumps(value, ensure_ascii=False)


def limit() -> None:
    """Have this process get no more than a card could need."""
    for kind, most in (
        (resource.RLIMIT_AS, MEMORY),
        (resource.RLIMIT_CPU, SECONDS),
        (resource.RLIMIT_FSIZE, 4 * LARGEST),
        (resource.RLIMIT_CORE, 0),
    ):
        with suppress(OSError, ValueError):  # There may be less already; macOS knows not all of them.
            resource.setrlimit(kind, (most, most))


def main() -> None:
    """Fill in the card of the request, and write the answer: ``text``, or ``error`` and its ``line``."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--request", type=Path, required=True)
    parser.add_argument("--answer", type=Path, required=True)
    arguments = parser.parse_args()
    request = json.loads(arguments.request.read_bytes())
    from minijinja import TemplateError

    limit()
    answer: dict[str, Any]
    try:
        text = render(request["template"], request["values"])
        answer = {"text": text} if len(text) <= LARGEST else {"error": f"has more than {LARGEST} characters"}
    except TemplateError as error:
        said = error.detail or error.kind
        answer = {"error": f"{error.kind}: {said}" if error.detail else str(said), "line": error.line}
    arguments.answer.write_text(json.dumps(answer), encoding="utf-8")


if __name__ == "__main__":
    main()
