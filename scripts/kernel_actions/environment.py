"""``environment``: make the environment that commands run in, and print its interpreter."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_actions.app import venv
from kernel_actions.errors import EXIT_DONE

if TYPE_CHECKING:
    from kernel_actions.cli import Options


def run(options: Options) -> int:
    """The command ``environment``."""
    print(venv.make(venv.plan(getattr(options, "for"))))
    return EXIT_DONE
