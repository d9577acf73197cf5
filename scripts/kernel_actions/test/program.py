"""Runs pytest and tells, event by event, what becomes of the tests. A program of its own.

It is run in a fresh process of the environment that the tests are for, and imports nothing of the
suite: what the tests see is what they would see elsewhere. Its argument is a JSON file:

``variant``     the folder of the staged variant
``name``        the name that the kernel is imported by
``repository``  the folder that the loader takes for its repository
``importable``  the folder with a package of that name, for Python processes that tests start
``repo_id``     the kernel's repository, and ``version``, its major version
``marker``      the marker that has to be known
``events``      the number of the open file that events are written to, a JSON object a line
``stacks``      the number of the open file for the stacks of a crash
``arguments``   pytest's own arguments
``samples``     the file with the inputs of operators (``null``: operators are not checked)

Events are told as they happen, so that a test that crashes the process, or never ends, is known.
"""

from __future__ import annotations

import faulthandler
import importlib.machinery
import importlib.util
import json
import os
import platform
import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

import pytest

# A reason is shown on one line, and what a test printed is for the JUnit report.
_LONGEST_REASON = 2_000
_LONGEST_TEXT = 20_000
_DRIVERS = {"cuda": "libcuda.so", "rocm": "libhsa-runtime64.so", "xpu": "libze_loader.so"}
# Of so many failures the text is told: they are told of in any case.
_MOST_TEXTS = 1_000
# The most places of a stack that are told: the innermost ones.
_PLACES = 60


class Teller:
    """A plug-in that tells what happens, and keeps tests from running on a broken GPU."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._variant = Path(settings["variant"]).resolve()
        self._marker = settings["marker"]
        self._events: int = settings["events"]
        # A process that a test forked must not tell anything.
        self._process = os.getpid()
        self._stacks: int = settings["stacks"]
        self._deselected = 0
        self._failed = 0
        self._root = Path.cwd()
        # What the fixtures of the test that runs have taken, in seconds.
        self._around = 0.0

    def tell(self, event: str, **facts: Any) -> None:
        """Write an event. Nothing is told once nobody listens."""
        if os.getpid() != self._process:
            return
        data = json.dumps({"event": event, **facts}, default=str).encode() + b"\n"
        try:
            while data:
                data = data[os.write(self._events, data) :]
        except OSError:
            self._process = -1

    @pytest.hookimpl(tryfirst=True)
    def pytest_cmdline_main(self, config: pytest.Config) -> None:
        """Have pytest-xdist, where it is, run the tests here: its processes would tell nothing."""
        if getattr(config.option, "dist", "no") != "no":
            config.option.dist, config.option.tx = "no", []

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        """Make the marker known, so that pytest does not take it for a misspelling, and have crashes told
        here and not by pytest."""
        faulthandler.enable(self._stacks, all_threads=True)
        # Names of tests are relative to it: a repository with many kernels has its configuration above them.
        self._root = config.rootpath
        config.addinivalue_line("markers", f"{self._marker}: a test of the kernel, run against every variant")
        self.tell(
            "start-session",
            pid=os.getpid(),
            python=platform.python_version(),
            pytest=pytest.__version__,
        )

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        """Count what the marker and other arguments leave out."""
        self._deselected += len(items)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Tell how many tests there are."""
        self.tell("collected", tests=len(session.items), deselected=self._deselected)

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(
        self, collector: pytest.Collector
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        """Tell of a file that cannot be imported, or that skips itself."""
        report = yield
        call = getattr(report, "call", None)
        info = call.excinfo if call is not None else None
        if report.skipped:
            self.tell("skip", test=collector.nodeid, reason=_skip_reason(report.longrepr))
        elif report.failed:
            error = info.value if info is not None else None
            # pytest's own exception about it holds the text of the one that matters.
            error = getattr(error, "__cause__", None) or error
            self.tell(
                "collection-error", test=collector.nodeid, path=str(collector.path),
                **_described(error, str(report.longrepr)),
            )  # fmt: skip
        return report

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self, nodeid: str, location: tuple[str, int | None, str]) -> None:
        """Tell which test runs from now on."""
        path = os.path.join(self._root, location[0])
        self.tell("start", test=nodeid, path=path, line=(location[1] or 0) + 1)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        """Wait for the GPU, so that an error of a kernel is one of the test that started it."""
        result = yield
        _synchronize()
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Tell what became of a phase of a test."""
        report = yield
        facts: dict[str, Any] = {}
        error = call.excinfo.value if call.excinfo is not None else None
        is_expected = hasattr(report, "wasxfail")
        if report.passed and error is not None:
            report.outcome = "failed"
            report.longrepr = f"{_said(error)} (a plug-in has made a success of it)"
        if report.skipped:
            facts["reason"] = f"xfail: {report.wasxfail}" if is_expected else _skip_reason(report.longrepr)
        elif report.failed:
            self._failed += 1
            facts |= _described(error, report.longreprtext)
            if self._failed > _MOST_TEXTS:
                facts["text"] = ""
            else:
                output = "\n".join(f"{title}\n{text}" for title, text in report.sections)
                facts["output"] = output[-_LONGEST_TEXT:]
            if broken := _broken():
                facts["broken"] = broken
                item.session.shouldstop = "the GPU cannot be used after this error"
        if report.passed and report.when != "call":
            # Nothing to tell, for most tests: with thousands of them each event counts.
            self._around += call.duration
            return report
        self.tell(
            "phase",
            test=item.nodeid,
            when=report.when,
            outcome=report.outcome,
            seconds=call.duration,
            **facts,
        )
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Tell of a failure that a plug-in would hide by running the test again."""
        if report.outcome not in ("passed", "failed", "skipped"):
            self.tell("again", test=report.nodeid, reason=_first_line(report.longreprtext))

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """Tell that a test has ended."""
        self.tell("finish", test=nodeid, seconds=self._around)
        self._around = 0.0

    def pytest_internalerror(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Tell of trouble of pytest's own, or of a plug-in's."""
        self.tell("internal-error", **_described(excinfo.value, ""))

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """Tell whether the variant is among the loaded modules, other kernels that are, and versions."""
        files = [Path(file) for module in list(sys.modules.values()) if (file := _file(module))]
        loaded = [file for file in files if file.name == "__init__.py" and file.parent.parent.name == "build"]
        others = sorted({str(file.parent) for file in loaded if file.parent.resolve() != self._variant})
        is_loaded = any(file.resolve().is_relative_to(self._variant) for file in files)
        self.tell(
            "end", status=int(exitstatus), is_loaded=is_loaded, others=others[:10],
            kernels=_version("kernels"), **_torch_facts(),
        )  # fmt: skip


class Samples:
    """A plug-in that adds a check of every operator of the kernel, with inputs from the author.

    The inputs are those of ``samples(op, device)`` of a file of the author's: see docs/testing.md.
    """

    def __init__(self, settings: dict[str, Any]) -> None:
        self._variant = Path(settings["variant"]).resolve()
        self._repo_id = settings["repo_id"]
        self._version = settings["version"]
        self._file = Path(settings["samples"])

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, session: pytest.Session, items: list[pytest.Item]) -> None:
        """Add the checks after the kernel's own tests, whatever selects those."""
        for name, check in self._checks():
            items.append(
                Check.from_parent(session, name=name, nodeid=f"opcheck::{name}", check=check, file=self._file)
            )

    def _checks(self) -> Iterator[tuple[str, Callable[[], None]]]:
        try:
            operators = list(self._operators())
            samples = _import(self._file).samples
        except Exception as error:
            yield "samples", _raising(error)
            return
        if not operators:
            yield "operators", _raising(LookupError("the loaded kernel has registered no operator"))
        for overload, devices in operators:
            short = overload._schema.name.partition("::")[2]
            for device in devices:
                where = f"{short}[{overload._overloadname}-{device}"
                try:
                    listed = list(samples(short, device))
                    if not listed:
                        raise LookupError(f"{self._file.name}: samples({short!r}, {device!r}) gives none")
                    pairs = [_arguments(sample) for sample in listed]
                except (Exception, pytest.skip.Exception) as error:
                    yield f"{where}]", _raising(error)
                    continue
                for number, (given, named) in enumerate(pairs):
                    yield f"{where}-{number}]::opcheck", _opcheck(overload, given, named)
                    yield f"{where}-{number}]::compile", _compiles(overload, given, named)

    def _operators(self) -> Iterator[tuple[Any, list[str]]]:
        """The kernel's operators, and the devices that each has code for."""
        import kernels
        import torch

        kernels.get_kernel(self._repo_id, version=self._version, trust_remote_code=True)
        prefixes = {
            str(module.add_op_namespace_prefix(""))
            for module in list(sys.modules.values())
            if (file := _file(module)) and Path(file).resolve().is_relative_to(self._variant)
            if callable(getattr(module, "add_op_namespace_prefix", None))
        }
        for name in sorted(torch._C._dispatch_get_all_op_names()):
            if not name.startswith(tuple(prefixes) or ("?",)):
                continue
            space, _, rest = name.partition("::")
            short, _, overload = rest.partition(".")
            found = getattr(getattr(getattr(torch.ops, space), short), overload or "default")
            keys = {"cpu": "CPU", "cuda": "CUDA", "xpu": "XPU"}
            devices = [
                device
                for device, key in keys.items()
                if torch._C._dispatch_has_kernel_for_dispatch_key(name, key) and _is_there(device)
            ]
            # An operator in Python is registered for all devices at once.
            yield found, devices or [next((one for one in ("cuda", "xpu") if _is_there(one)), "cpu")]


class Check(pytest.Item):
    """A check of an operator."""

    def __init__(self, *, check: Callable[[], None], file: Path, **keywords: Any) -> None:
        super().__init__(**keywords)
        self._check = check
        self._file = file

    def runtest(self) -> None:
        """Run the check."""
        self._check()

    def reportinfo(self) -> tuple[Path, int, str]:
        """Where the inputs come from."""
        return self._file, 0, self.name


def _arguments(sample: object) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a sample: a tuple of them, or of such a tuple and the keyword arguments."""
    if not isinstance(sample, tuple):
        raise TypeError(f"a sample is a tuple of arguments, not {type(sample).__name__}")
    if len(sample) == 2 and isinstance(sample[0], tuple) and isinstance(sample[1], dict):
        return sample[0], sample[1]
    return sample, {}


def _opcheck(overload: Any, given: tuple[Any, ...], named: dict[str, Any]) -> Callable[[], None]:
    def check() -> None:
        import torch

        torch.library.opcheck(overload, given, named)

    return check


def _compiles(overload: Any, given: tuple[Any, ...], named: dict[str, Any]) -> Callable[[], None]:
    """That ``torch.compile`` makes one graph of the operator, once."""

    def check() -> None:
        import torch

        for dynamic in (False, True):
            graphs: list[object] = []

            def count(graph: Any, _inputs: object, graphs: list[object] = graphs) -> Any:
                graphs.append(graph)
                return graph.forward

            torch.compiler.reset()
            # A break of the graph is an error by `fullgraph`.
            compiled = torch.compile(_call(overload), fullgraph=True, dynamic=dynamic, backend=count)
            for _ in range(2):
                with torch.no_grad():
                    compiled(*_copied(given), **_copied(named))
            if len(graphs) != 1:
                raise AssertionError(
                    f"torch.compile(dynamic={dynamic}) compiled the same call {len(graphs)} times"
                )

    return check


def _call(overload: Any) -> Callable[..., Any]:
    def call(*given: Any, **named: Any) -> Any:
        return overload(*given, **named)

    return call


def _copied(value: Any) -> Any:
    """``value`` with tensors of its own, as an operator may write into its arguments."""
    import torch

    if isinstance(value, torch.Tensor):
        # Keeps the strides, which `clone` does not for every layout.
        copied = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)
        return copied.copy_(value.detach()) if 0 not in value.stride() else value.detach()
    if isinstance(value, tuple | list):
        return type(value)(_copied(one) for one in value)
    if isinstance(value, dict):
        return {name: _copied(one) for name, one in value.items()}
    return value


def _raising(error: BaseException) -> Callable[[], None]:
    def check() -> None:
        raise error

    return check


def _import(file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("kernel_samples", file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if not callable(getattr(module, "samples", None)):
        raise AttributeError(f"{file.name} has no function samples(op, device)")
    return module


def _is_there(device: str) -> bool:
    import torch

    return device == "cpu" or bool(getattr(torch, device).is_available())


def _described(error: BaseException | None, text: str) -> dict[str, Any]:
    """The reason that an error gives in one line, the places that led to it, and the whole text."""
    if error is None:
        return {"reason": _first_line(text), "places": [], "text": text[-_LONGEST_TEXT:]}
    reason = _said(error)
    root = error
    while root.__cause__ is not None:
        root = root.__cause__
    if root is not error:
        # The first exception is what went wrong; those that it caused say what was being done.
        reason = f"{reason}: {_said(root)}"
    places = _places(error.__traceback__)
    if isinstance(error, SyntaxError) and error.filename:
        places.append((error.filename, error.lineno or 1))
    return {"reason": reason[:_LONGEST_REASON], "places": places[-_PLACES:], "text": text[-_LONGEST_TEXT:]}


def _said(error: BaseException) -> str:
    """What an error says, in one line, with its type unless it is a failed assertion."""
    if isinstance(error, SyntaxError):
        return f"{type(error).__name__}: {error.msg}"
    if isinstance(error, pytest.FixtureLookupError) and error.argname:
        return f"fixture {error.argname!r} not found"
    return _first_line(pytest.ExceptionInfo.from_exception(error).exconly(tryshort=True))


def _places(traceback: TracebackType | None) -> list[tuple[str, int]]:
    places = []
    while traceback is not None:
        places.append((traceback.tb_frame.f_code.co_filename, traceback.tb_lineno))
        traceback = traceback.tb_next
    return places


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")[:_LONGEST_REASON]


def _skip_reason(longrepr: object) -> str:
    """What a skipped test says: pytest gives it with its file and line."""
    said = longrepr[2] if isinstance(longrepr, tuple) and len(longrepr) == 3 else longrepr
    return _first_line(str(said)).removeprefix("Skipped: ")


def _synchronize() -> None:
    """Wait for what runs on the GPU. Raises what went wrong there. Starts no GPU."""
    torch = sys.modules.get("torch")
    for kind in ("cuda", "xpu"):
        device = getattr(torch, kind, None)
        if device is not None and getattr(device, "is_initialized", lambda: False)():
            device.synchronize()


def _broken() -> str:
    """Why the GPU cannot be used any more; empty when it can. An illegal access breaks it for good."""
    try:
        _synchronize()
    except Exception as error:
        return _first_line(str(error))
    return ""


def _torch_facts() -> dict[str, Any]:
    """What is known of Torch, if the tests have imported it: importing it takes seconds."""
    torch = sys.modules.get("torch")
    if torch is None:
        # Others use a GPU too, and nobody without its driver's library.
        return {f"uses_{kind}": False for kind, name in _DRIVERS.items() if _is_mapped(name) is False}
    facts: dict[str, Any] = {"torch": getattr(torch, "__version__", None)}
    version = getattr(torch, "version", None)
    facts |= {"cuda": getattr(version, "cuda", None), "rocm": getattr(version, "hip", None)}
    for kind in ("cuda", "xpu"):
        device: Any = getattr(torch, kind, None)
        try:
            facts[f"uses_{kind}"] = bool(device.is_initialized())
            facts[f"sees_{kind}"] = bool(facts[f"uses_{kind}"] or device.is_available())
        except Exception as error:
            facts[f"sees_{kind}_error"] = _first_line(str(error))
    if facts["rocm"]:
        # Torch for ROCm calls it so.
        facts |= {f"{what}_rocm": facts.get(f"{what}_cuda") for what in ("uses", "sees")}
    return facts


def _is_mapped(library: str) -> bool | None:
    """Whether this process has loaded a library; ``None`` where that cannot be known."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
            return any(library in line for line in maps)
    except OSError:
        return None


def _version(package: str) -> str | None:
    from importlib import metadata

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _file(module: object) -> str | None:
    file = getattr(module, "__file__", None)
    return file if isinstance(file, str) else None


def keep_bytecode(kernel_dir: Path) -> None:
    """Have imports keep bytecode as they do elsewhere, but none in the kernel's folder.

    Without any, Torch would be compiled anew by every run, which takes ten seconds.
    """
    loader = importlib.machinery.SourceFileLoader
    compiled = loader.get_code
    folder = f"{kernel_dir}{os.sep}"

    def get_code(self: importlib.machinery.SourceFileLoader, fullname: str) -> Any:
        before = sys.dont_write_bytecode
        sys.dont_write_bytecode = self.path.startswith(folder)
        try:
            return compiled(self, fullname)
        finally:
            sys.dont_write_bytecode = before

    # pytest itself goes by the flag, and compiles tests alone.
    sys.dont_write_bytecode = True
    setattr(loader, "get_code", get_code)  # noqa: B010


def make_importable(settings: dict[str, Any]) -> None:
    """Have the tests, and Python processes that they fork or spawn, import the kernel by its name."""
    file = Path(__file__).with_name("kernel_import.py")
    spec = importlib.util.spec_from_file_location("kernel_actions_import", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.install(*(settings[name] for name in ("name", "variant", "repository", "importable")))
    # A process that multiprocessing spawns gets this path, and no finder.
    sys.path.insert(0, settings["importable"])


def main() -> int:
    """Run pytest as the settings say."""
    settings = json.loads(Path(sys.argv[1]).read_text())
    keep_bytecode(Path.cwd())
    make_importable(settings)
    # Programs that tests start must not hold these open.
    for number in (settings["events"], settings["stacks"]):
        os.set_inheritable(number, False)
    faulthandler.enable(settings["stacks"], all_threads=True)
    plugins: list[object] = [Teller(settings)]
    if settings["samples"] is not None:
        plugins.append(Samples(settings))
    code = int(pytest.main(settings["arguments"], plugins=plugins))
    # pytest has turned it off, or back to where it was before.
    faulthandler.enable(settings["stacks"], all_threads=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
