"""Loads a kernel from the Hub of HF_ENDPOINT, or from a folder, and says what it got. A program of
its own.

It is run in a fresh process, and imports nothing of the suite: what happens here is what happens
to a user. With ``--demo``, the file's ``main(kernel, output)`` gets the loaded kernel and returns
the path of what it made.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import time
from pathlib import Path
from types import ModuleType
from typing import Any


def load(arguments: argparse.Namespace) -> tuple[ModuleType | None, dict[str, Any]]:
    """The kernel's module, and a description: its variant, its public names and its file.

    Of a revision and of a folder, ``expected`` is the variant that is the best for this machine; where
    there is none, nothing is loaded, and of a folder ``rejected`` says why.
    """
    from kernels import get_kernel, get_local_kernel

    answer: dict[str, Any] = {}
    if arguments.revision is not None:
        answer["expected"] = best_variant(arguments.repo_id, arguments.revision)
        if not answer["expected"]:
            return None, {**answer, "variant": "", "names": [], "file": ""}
    if arguments.folder is not None:
        answer["expected"], answer["rejected"] = best_local_variant(arguments.folder / "build")
        if not answer["expected"]:
            return None, {**answer, "variant": "", "names": [], "file": ""}
        kernel = get_local_kernel(arguments.folder)
    else:
        # The repository is the author's own, or one that they chose to check.
        kernel = get_kernel(
            arguments.repo_id,
            version=arguments.version,
            revision=arguments.revision,
            trust_remote_code=True,
        )
    file = kernel.__file__
    if file is None:
        raise RuntimeError("the loaded kernel is not a file")
    names = [one for one in public_names(kernel) if not isinstance(getattr(kernel, one, None), ModuleType)]
    return kernel, {**answer, "variant": Path(file).parent.name, "names": names, "file": file}


def public_names(kernel: ModuleType) -> list[str]:
    """The names that ``__all__`` lists, else those without an underscore.

    Some kernels list functions in place of their names. ``from kernel import *`` would refuse that, but
    ``get_kernel`` gives the module, and does not look at it.
    """
    listed = [
        one if isinstance(one, str) else str(getattr(one, "__name__", ""))
        for one in getattr(kernel, "__all__", ())
    ]
    return [one for one in listed if one] or [one for one in dir(kernel) if not one.startswith("_")]


def best_variant(repo_id: str, revision: str) -> str:
    """The variant of a revision that the loader prefers on this machine; empty when none is for it."""
    from kernels import VariantAccepted, get_kernel_variants

    decisions = get_kernel_variants(repo_id, revision=revision)
    return next((one.variant.variant_str for one in decisions if isinstance(one, VariantAccepted)), "")


def best_local_variant(folder: Path) -> tuple[str, str]:
    """The variant in a folder that the loader prefers on this machine; where none is, empty, and why."""
    from kernels import VariantAccepted
    from kernels.variants import get_variants_local, resolve_variants

    variants, decisions = resolve_variants(get_variants_local(folder))
    reasons = [
        f"{one.variant.variant_str}: {one.reason}"
        for one in decisions
        if not isinstance(one, VariantAccepted)
    ]
    return (variants[0].variant_str, "") if variants else ("", "; ".join(reasons))


def described(error: BaseException) -> str:
    """``error`` and what caused it, on one line."""
    text = f"{type(error).__name__}: {error}"
    return text if error.__cause__ is None else f"{text}: {described(error.__cause__)}"


def demonstrate(kernel: ModuleType, demo: Path, output: Path) -> str:
    """Call ``main(kernel, output)`` of the file ``demo``, and return the path of what it made."""
    spec = importlib.util.spec_from_file_location("demo", demo)
    if spec is None or spec.loader is None or not demo.is_file():
        raise FileNotFoundError(f"{demo}, the demo of kernel-actions.toml, is not a Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return str(module.main(kernel, output))


def main() -> None:
    """Load as the arguments say, and write the answer, with the seconds taken, or the error."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--repo-id")
    parser.add_argument("--version", type=int)
    parser.add_argument("--revision")
    parser.add_argument("--answer", type=Path, required=True)
    parser.add_argument("--demo", type=Path)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    started = time.monotonic()
    try:
        kernel, answer = load(arguments)
    except Exception as error:  # Whatever the kernel's code raises is the answer.
        answer = {"error": described(error)}
    else:
        loaded = time.monotonic()
        answer["load_seconds"] = loaded - started
        if kernel is not None and arguments.demo is not None:
            try:
                answer["made"] = demonstrate(kernel, arguments.demo, arguments.output)
            except Exception as error:
                answer["demo_error"] = described(error)
            answer["demo_seconds"] = time.monotonic() - loaded
    arguments.answer.write_text(json.dumps(answer))


if __name__ == "__main__":
    main()
