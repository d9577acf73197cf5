"""A small, exact and lazy evaluator of the Nix language, for what kernels write in their flakes.

It knows expressions, most of ``builtins`` and a part of nixpkgs' ``lib``; it reads no file and builds
nothing. What it does not know is an ``Unsupported`` error, never another value than Nix gives (version 2.8
is what it is compared with).
The text may be hostile: the evaluation ends within about a second, with a value or a ``LanguageError``.

``evaluate`` gives the value of a text. ``Evaluation`` is for those who call functions in it.
"""

from kernel_actions.nix_language.evaluator import Evaluation, evaluate
from kernel_actions.nix_language.problems import (
    LanguageError,
    NixError,
    NixSyntaxError,
    Thrown,
    TooMuch,
    Unsupported,
)

__all__ = [
    "Evaluation",
    "LanguageError",
    "NixError",
    "NixSyntaxError",
    "Thrown",
    "TooMuch",
    "Unsupported",
    "evaluate",
]
