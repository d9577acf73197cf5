"""What people read: a number and what it counts are said by one function."""

from __future__ import annotations

import ast
import re
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "scripts" / "kernel_actions"
# How a number of things is asked for, in an expression: by counting them, or by a name that says so.
COUNTS = re.compile(r"(?:len|sum)\(.*\)|[\w.]*\b(?:not_run|skipped|failed|count|changed|files)")
SEVERAL = re.compile(r" (?:more )?[a-z]+s\b(?! \()")
# Where it is of several in any case, or an error of the suite's own.
OF_SEVERAL = {
    "benchmark/decide.py",
    "init/__init__.py",
    "matrix/jobs.py",
    "named_tuple.py",
    "test/program.py",
}


def test_a_number_and_what_it_counts_are_said_by_one_function() -> None:
    found = []
    for path in sorted(set(PACKAGE.rglob("*.py")) - {PACKAGE / name for name in OF_SEVERAL}):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.JoinedStr):
                continue
            for value, text in zip(node.values, node.values[1:], strict=False):
                if isinstance(value, ast.FormattedValue) and isinstance(text, ast.Constant):
                    counted = COUNTS.fullmatch(ast.unparse(value.value))
                    if counted and SEVERAL.match(str(text.value)):
                        found.append(f"{path.relative_to(PACKAGE)}: {ast.unparse(node)}")
    assert found == []
