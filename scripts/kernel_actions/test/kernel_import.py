"""Lets tests import the kernel by its Python name: ``import relu``, ``from rotary.layers import apply``.

Imports nothing of the suite: it runs in the tests' own process. ``program.py`` loads it there, the builder's
ciTests as a plug-in of pytest, and Python processes that tests start by its path.

The builder puts the variant's folder on PYTHONPATH (``mkCiTests`` in nix-builder/lib/build.nix of
huggingface/kernels; the name is ``general.name`` with underscores for dashes: ``python_name`` in
kernels-data/src/config/name.rs). Until e9152aa2 that folder holds ``<name>/__init__.py``, which executes the
kernel a second time under a name of its own. Here the name stands for the module that ``kernels`` loads, and
each name below it for that module's own submodule, so that operators are registered once however the tests
get at the kernel.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import platform
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType, ModuleType

# Its name as a plug-in of the builder's ciTests, and the variable that tells it, as JSON, the kernel's
# ``name``, the folders ``variant`` and ``repository`` of ``Finder``, and the file to write to, ``told``.
PLUGIN = "kernel_actions_kernel_import"
VARIABLE = "KERNEL_ACTIONS_TEST_KERNEL"
# What stands in the package that Python processes of the tests find the kernel by: they have no finder yet.
SHIM = """\
import importlib.util, sys
spec = importlib.util.spec_from_file_location("kernel_actions_shim", {program!r})
program = importlib.util.module_from_spec(spec)
spec.loader.exec_module(program)
sys.modules[__name__] = program.install({name!r}, {variant!r}, {repository!r}, {folder!r}).kernel()
"""
_IMPORTLIB = (os.sep + "importlib" + os.sep, "<frozen importlib")
# By it pytest imports test files and the packages that they are in.
_PYTEST = os.path.join("_pytest", "pathlib.py")


class Finder(importlib.abc.MetaPathFinder):
    """Finds the kernel by its name, before any folder of that name on ``sys.path``.

    ``variant`` is the folder with the variant's ``metadata.json``, and ``repository`` the folder that holds
    it, for ``kernels.get_local_kernel``. ``importable`` is the folder that ``write_shim`` has filled, empty
    where it has not.
    """

    is_of_kernel_actions = True

    def __init__(self, name: str, variant: Path, repository: Path, importable: str = "") -> None:
        self.name = name
        self.variant = variant.resolve()
        self.repository = repository
        self.importable = importable

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The spec of the kernel or of a module below it; ``None`` for everything else.

        Raises ``ModuleNotFoundError`` when the kernel's own code imports it so, as for users, to whom its
        name is none or another package's.
        """
        top, _, rest = fullname.partition(".")
        if top != self.name:
            return None
        importer = self._importer()
        if importer.endswith(_PYTEST):
            # A package of tests.
            return None
        if not rest and Path(importer).resolve().is_relative_to(self.variant):
            others = [folder for folder in sys.path if folder != self.importable]
            spec = importlib.machinery.PathFinder.find_spec(fullname, others)
            if spec is None:
                raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)
            return spec
        if not rest:
            return importlib.machinery.ModuleSpec(fullname, _Loader(self.kernel), is_package=True)
        above = sys.modules.get(top)
        if above is None or above is not self._loaded():
            # The tests have a package of that name, which pytest has imported.
            return None
        real = f"{above.__name__}.{rest}"
        try:
            found = importlib.util.find_spec(real)
        except ValueError:
            # One that has no spec, as a module that was made by hand.
            found = None
        if found is None and real not in sys.modules:
            return None
        return importlib.machinery.ModuleSpec(fullname, _Loader(lambda: importlib.import_module(real)))

    def kernel(self) -> ModuleType:
        """The kernel's module, which is loaded unless it has been, or is being, loaded.

        Raises ``ImportError`` when the loader refuses the variant.
        """
        loaded = self._loaded()
        if loaded is not None:
            return loaded
        import kernels

        try:
            module: ModuleType = kernels.get_local_kernel(self.repository)
        except (FileNotFoundError, ValueError) as error:
            raise ImportError(f"kernels does not load the variant: {error}", name=self.name) from error
        return module

    def _loaded(self) -> ModuleType | None:
        """The kernel's module as the loader has put it into ``sys.modules``: by the id in metadata.json
        (``_import_from_path`` in importer.py of kernels 0.17.2), or, before that had one, by a hash."""
        main = self.variant / "__init__.py"
        ending = os.path.join(self.variant.name, "__init__.py")
        for module in list(sys.modules.values()):
            file = getattr(module, "__file__", None)
            if isinstance(file, str) and file.endswith(ending) and Path(file).resolve() == main:
                return module
        return None

    def _importer(self) -> str:
        """The file whose code imports."""
        frame: FrameType | None = sys._getframe(2)
        while frame is not None:
            file = frame.f_code.co_filename
            if frame.f_globals is not globals() and not any(part in file for part in _IMPORTLIB):
                return file
            frame = frame.f_back
        return ""


class _Loader(importlib.abc.Loader):
    """Gives a module that is loaded under another name, and leaves it as it is."""

    def __init__(self, load: Callable[[], ModuleType]) -> None:
        self._load = load
        self._kept: importlib.machinery.ModuleSpec | None = None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        """The module."""
        module = self._load()
        self._kept = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Give the module its own spec back: the import system has put the alias's in its place."""
        module.__spec__ = self._kept


def install(name: str, variant: str, repository: str, importable: str = "") -> Finder:
    """Have this process import the kernel by ``name``; the finder of that is the first, and the only one."""
    finder = Finder(name, Path(variant), Path(repository), importable)
    others = [one for one in sys.meta_path if not getattr(one, "is_of_kernel_actions", False)]
    sys.meta_path[:] = [finder, *others]
    return finder


def write_shim(folder: Path, name: str, variant: Path, repository: Path) -> Path:
    """Make a package of the kernel's name in ``folder``, for Python processes that tests start.

    Return the folder, which belongs on their PYTHONPATH.
    """
    package = folder / name
    package.mkdir(parents=True, exist_ok=True)
    text = SHIM.format(
        program=str(Path(__file__).resolve()),
        name=name,
        variant=str(variant),
        repository=str(repository),
        folder=str(folder),
    )
    (package / "__init__.py").write_text(text, encoding="utf-8")
    return folder


def pytest_sessionfinish() -> None:
    """As a plug-in of the builder's ciTests: write down whether the tests have loaded the variant, and which
    versions they saw."""
    kernel = json.loads(os.environ[VARIABLE])
    variant = Path(kernel["variant"]).resolve()
    files = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
    told: dict[str, object] = {
        "is_loaded": any(
            Path(file).resolve().is_relative_to(variant) for file in files if isinstance(file, str)
        ),
        "python": platform.python_version(),
    }
    for name in ("pytest", "torch", "kernels"):
        version = getattr(sys.modules.get(name), "__version__", None)
        told |= {name: version} if isinstance(version, str) else {}
    Path(kernel["told"]).write_text(json.dumps(told), encoding="utf-8")


def _start_plugin() -> None:
    """Have the builder's ciTests find the kernel by its name, where the builder does not see to it.

    Not in ``pytest_configure``, which is called after the first conftest.py has been imported.
    """
    kernel = json.loads(os.environ[VARIABLE])
    if not (Path(kernel["variant"]) / kernel["name"] / "__init__.py").is_file():
        install(kernel["name"], kernel["variant"], kernel["repository"])


if __name__ == PLUGIN:
    _start_plugin()
