"""The workloads of ``benchmarks/benchmark*.py``, by the conventions of ``kernels benchmark``.

A subclass of ``kernels.benchmark.Benchmark`` has a workload for each method ``benchmark_<workload>``, with
``setup_<workload>`` (else ``setup``) before it, and ``verify_<workload>``, which returns what ``self.out``
has to be. Beside these, which ``kernels benchmark`` ignores:

- ``bytes_moved_<workload>``, else ``bytes_moved``: how many bytes the workload has to move;
- ``peer_<name>``: a callable that does the same work by other means, on the inputs of this instance.
  It raises ``ImportError`` where its library is not installed, and ``NotImplementedError`` where the peer
  does not do this workload.

Source of the conventions: ``kernels/cli/benchmark.py`` of kernels 0.17.
"""

from __future__ import annotations

import importlib.util
import random
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

FOLDER = "benchmarks"
PATTERN = "benchmark*.py"
# As `kernels benchmark` compares.
_TOLERANCE = 1e-2


class CaseError(Exception):
    """A benchmark that is not as it has to be: in which file and line, and why."""

    def __init__(self, reason: str, file: str, line: int | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.file = file
        self.line = line


@dataclass(frozen=True)
class Case:
    """One workload: the method ``benchmark_<workload>`` of ``owner``, a class in ``path``."""

    path: Path
    owner: Any
    workload: str

    @property
    def name(self) -> str:
        """The workload's name, as ``kernels benchmark`` has it in its JSON."""
        return f"{self.owner.__name__}.{self.workload}"

    @property
    def file(self) -> str:
        """The file, relative to the kernel's folder."""
        return f"{FOLDER}/{self.path.name}"

    @property
    def line(self) -> int | None:
        """The line of the benchmark's method."""
        code = getattr(getattr(self.owner, f"benchmark_{self.workload}"), "__code__", None)
        return None if code is None else int(code.co_firstlineno)

    @property
    def peers(self) -> tuple[str, ...]:
        """The names of the peers, in the order in which the class defines them."""
        return _methods(self.owner, "peer_")

    def make(self, kernel: ModuleType, device: str, number: int = 0) -> Any:
        """An instance that is set up; each ``number`` has inputs of its own."""
        import torch

        instance = self.owner()
        instance.kernel = kernel
        instance.device = device
        if instance.seed is not None:
            torch.manual_seed(instance.seed + number)
            random.seed(instance.seed + number)
        setup = getattr(instance, f"setup_{self.workload}", None) or instance.setup
        setup()
        return instance

    def call(self, instance: Any) -> Callable[[], object]:
        """What is timed."""
        method: Callable[[], object] = getattr(instance, f"benchmark_{self.workload}")
        return method

    def peer(self, name: str, instance: Any) -> Callable[[], object]:
        """What is timed of a peer. It keeps its result as the kernel's call does in ``self.out``, until the
        next one is there: one that is let go at once leaves its memory, warm, to the call that follows.

        Raises what the author's method does, and ``NotImplementedError`` for what is nothing to call.
        """
        work = getattr(instance, f"peer_{name}")()
        if not callable(work):
            raise NotImplementedError(f"peer_{name} returns nothing to call")
        kept: list[object] = [None]

        def call() -> None:
            kept[0] = work()

        return call

    def bytes_moved(self, instance: Any) -> int | None:
        """The bytes that the author says are moved. Raises ``CaseError`` for what is no number of bytes."""
        state = getattr(instance, f"bytes_moved_{self.workload}", None) or getattr(
            instance, "bytes_moved", None
        )
        if state is None:
            return None
        moved = state()
        if isinstance(moved, bool) or not isinstance(moved, int) or moved <= 0:
            raise CaseError(f"bytes_moved() is {moved!r}, not a number of bytes", self.file, self.line)
        return moved

    def wrong(self, instance: Any) -> str:
        """What is wrong with the instance's output; empty when it is right or nothing checks it."""
        import torch

        verify = getattr(instance, f"verify_{self.workload}", None)
        if verify is None:
            return ""
        expected, out = verify(), instance.out
        if not isinstance(out, torch.Tensor):
            return f"benchmark_{self.workload} leaves no tensor in self.out"
        if not isinstance(expected, torch.Tensor):
            return f"verify_{self.workload} returns no tensor"
        if (out.shape, out.dtype) != (expected.shape, expected.dtype):
            return (
                f"self.out is {list(out.shape)} of {out.dtype}, "
                f"verify_{self.workload} returns {list(expected.shape)} of {expected.dtype}"
            )
        if torch.allclose(out, expected, atol=_TOLERANCE):
            return ""
        distance = (out.double() - expected.double()).abs().max().item()
        return f"self.out differs from verify_{self.workload} by up to {distance:.4g}"


def discover(kernel_dir: Path) -> list[Case]:
    """All workloads of a kernel, in the order of the files and of the methods in them.

    Raises ``CaseError`` for a file that cannot be imported or has no workload.
    """
    cases: list[Case] = []
    for path in sorted((kernel_dir / FOLDER).glob(PATTERN)):
        module = _import(path)
        owners = _classes(module)
        if not owners:
            raise CaseError("has no subclass of kernels.benchmark.Benchmark", f"{FOLDER}/{path.name}")
        for owner in owners:
            workloads = _methods(owner, "benchmark_")
            if not workloads:
                raise CaseError(f"{owner.__name__} has no method benchmark_*", f"{FOLDER}/{path.name}")
            cases += [Case(path, owner, workload) for workload in workloads]
    return cases


def line_of(error: BaseException, path: Path) -> int | None:
    """The last line of ``path`` that was on the way to ``error``."""
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return error.lineno
    lines = [one.lineno for one in traceback.extract_tb(error.__traceback__) if one.filename == str(path)]
    return lines[-1] if lines else None


def came_from(error: BaseException, folder: Path) -> bool:
    """Whether the code of ``folder`` was on the way to ``error``."""
    return any(Path(one.filename).is_relative_to(folder) for one in traceback.extract_tb(error.__traceback__))


def described(error: BaseException) -> str:
    """``error`` on one line."""
    text = " ".join(str(error).split("\n\n")[0].split())
    return f"{type(error).__name__}: {text}"[:400]


def _import(path: Path) -> ModuleType:
    name = f"_kernel_actions_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise CaseError("cannot be imported", f"{FOLDER}/{path.name}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise CaseError(described(error), f"{FOLDER}/{path.name}", line_of(error, path)) from error
    return module


def _classes(module: ModuleType) -> Sequence[Any]:
    from kernels.benchmark import Benchmark

    return [
        one
        for one in vars(module).values()
        if isinstance(one, type)
        and issubclass(one, Benchmark)
        and one is not Benchmark
        and one.__module__ == module.__name__
    ]


def _methods(owner: Any, prefix: str) -> tuple[str, ...]:
    """What follows ``prefix`` in the names of the methods, those of base classes first."""
    names: dict[str, None] = {}
    for parent in reversed(owner.__mro__):
        names.update((name, None) for name in vars(parent) if name.startswith(prefix))
    return tuple(name.removeprefix(prefix) for name in names if callable(getattr(owner, name)))
