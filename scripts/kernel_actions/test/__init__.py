"""``test``: the kernel's own tests against a built variant, loaded as its users load it.

Green means tested: no test selected, all skipped, an error on the way to the tests, and a GPU
variant without a GPU are failures. ``docs/testing.md`` is the guide.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kernel_actions import built, github
from kernel_actions.built import BuiltVariant
from kernel_actions.errors import EXIT_DONE
from kernel_actions.test import merging, running, show
from kernel_actions.test.confined import Limits
from kernel_actions.test.model import TestReport
from kernel_actions.test.running import MARKER, Request, report_path

if TYPE_CHECKING:
    from kernel_actions.cli import Options

__all__ = ["MARKER", "Request", "TestReport", "check", "report_path", "run", "run_tests"]


def check_options(options: Options) -> BuiltVariant:
    """The variant to test. Raises ``WrongInput`` where there is none, or what is asked cannot be meant."""
    running.arguments_of(options.pytest_args)
    return built.choose(options.kernel_dir, options.build_dir, options.variant)


def run(options: Options) -> int:
    """The command ``test``."""
    if options.merge:
        return merging.merge(Path(options.merge), options.expect, options.format)
    kernel_dir = options.kernel_dir
    variant = check_options(options)
    request = Request(
        require_gpu=options.require_gpu,
        environment=options.environment,
        marker=options.marker,
        paths=tuple(options.tests),
        arguments=running.arguments_of(options.pytest_args),
        limits=Limits(options.test_time_limit, options.time_limit),
        junit=Path(options.junit) if options.junit else None,
        opcheck=options.opcheck,
        sanitizer=None if options.sanitize == "none" else options.sanitize,
        nix_tests=options.nix_tests,
    )
    with github.group(f"Tests of {variant.name}"), github.untrusted_output():
        report = running.run(kernel_dir, variant, request)
    show.show(options.format, report, kernel_dir, report_path(variant))
    check(report, kernel_dir)
    return EXIT_DONE


def run_tests(kernel_dir: Path, variant: BuiltVariant) -> TestReport:
    """Test ``variant`` as the command does by default, and write the report beside it."""
    with github.untrusted_output():
        return running.run(kernel_dir, variant, Request())


def check(report: TestReport, kernel_dir: Path) -> None:
    """Raise ``KernelFailed`` or ``WrongSurroundings`` unless the tests passed, with the reason."""
    show.raised(report, kernel_dir)
