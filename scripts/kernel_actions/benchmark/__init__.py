"""``benchmark``: the kernel's own benchmarks, by a fixed protocol, against a baseline.

==========  ==========================================================================
module      what it does
==========  ==========================================================================
command     the command: what is measured, and what follows from it
baseline    the built variant to compare with: a folder, or a revision on the Hub
worker      the program that measures, in a process of its own
cases       the workloads of ``benchmarks/benchmark*.py``, as ``kernels benchmark`` reads them
clocks      one sample: caches flushed, clocks, the copy rate
machine     what the measurement was made on
decide      slower or not, from paired rounds
model       the report and its JSON
show        tables, the job's summary, Markdown
plot        the plot, as SVG and PNG
document    the tables of a page, from reports
==========  ==========================================================================

``worker``, ``cases``, ``clocks`` and ``machine`` run beside the kernel; they, ``decide`` and ``model``
import the standard library and what a benchmark needs alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kernel_actions.cli import Options


def run(options: Options) -> int:
    """The command ``benchmark``."""
    # Here, as the program that measures imports this package as well, and little of the suite.
    from kernel_actions.benchmark.command import run as run_command

    return run_command(options)


def check_options(options: Options) -> None:
    """Raises ``WrongInput`` where there is nothing to measure, or what is asked cannot be meant."""
    from kernel_actions import built
    from kernel_actions.benchmark.command import read_settings

    read_settings(options)
    built.choose(options.kernel_dir, options.build_dir, options.variant)
