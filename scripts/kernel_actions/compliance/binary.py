"""Rules about the extensions of a built variant: KA7xx."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property, lru_cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernel_actions import nix_version, toml_file
from kernel_actions.compliance import elf, files
from kernel_actions.compliance.engine import DATA, Family, Problem
from kernel_actions.compliance.variant import Variant, VariantName
from kernel_actions.errors import Place, WrongInput, WrongSurroundings

if TYPE_CHECKING:
    from kernel_actions.manifest import Component
    from kernel_actions.test.fatbin import Code

# What kernel-builder's check-abi checks against.
MANYLINUX = "manylinux_2_28"
PYTHON_ABI = "3.9"
# What the builder compiles for (kernel-builder/src/pyproject/templates/torch/preamble.cmake). Its check-abi
# takes the first for all, which no variant for Metal can keep.
MACOS, MACOS_OF_METAL = "15.0", "26.0"
# The first bytes of a library: of 64 bits, low byte first, as on every system that the builder builds for.
FORMATS = {b"\x7fELF": "ELF", b"\xcf\xfa\xed\xfe": "Mach-O"}
# The newest versions of symbols that manylinux_2_28 allows, for libraries whose symbol table the ABI checker
# cannot read. Source: auditwheel's policy.
_NEWEST = {"GLIBC": (2, 28), "GLIBCXX": (3, 4, 24), "CXXABI": (1, 3, 11), "GCC": (7, 0, 0)}
_VERSION = re.compile(r"([A-Z]+)_(\d+(?:\.\d+)*)")
# A mangled symbol of Torch's C++ namespaces, but for those of which all is in headers: a function, a table of
# virtual functions, information on a type.
_UNSTABLE = re.compile(
    r"_Z(?:T[VIST])?(?:N[VKRO]*)?(?:2at\d|3c10\d|6caffe2\d|5torch(?!6stable|10headeronly)\d)"
)
# The oldest Torch that a variant for the stable ABI is for.
_STABLE_ABI = re.compile(r"-stable-abi(\d)(\d+)-")
# Where texts are that sources and compilers put into a library.
_TEXTS = (
    ".rodata",
    ".rodata.str1.1",
    ".rodata.str1.8",
    ".data.rel.ro",
    ".comment",
    ".debug_str",
    ".debug_line_str",
)
# Folders of people and of machines. The builder's own (/build, /nix/store) are the same for everyone.
_PRIVATE = re.compile(rb"/(?:home|Users)/[\w.-]+/[\w./+-]*|/(?:root|tmp|var/tmp|runner|github|__w)/[\w./+-]+")
_START = re.compile(rb"/(?:home|Users|root|tmp|runner|github|__w)/")
_MOST_PATHS = 10_000
# The version of CUDA in the name of a variant.
_CUDA = re.compile(r"-cu(\d+)(\d)-")
# In bytes: larger ELF files are checked by their symbols alone, and larger ones for macOS are not read.
LARGEST_WHOLE, LARGEST_MACH_O = 2_000_000, 500_000_000
_PIECE = 1 << 20
_OVERLAP = 512
# What the ABI checker says before what is wrong: which file it was about.
_CHECKER = re.compile(r"^Cannot [^`]*`[^`]*`: ")


@dataclass(frozen=True)
class Binary:
    """An extension: ``object`` is the ABI checker's view of it, ``None`` where that cannot read it, which
    ``unread`` says why. ``format`` is ``ELF`` or ``Mach-O``, and empty then. ``symbols`` is its view of the
    dynamic symbols, where there is no other table. ``variant`` is what it is in, if that is known."""

    path: Path
    name: VariantName | None
    object: Any
    format: str
    header: elf.Header | None
    unread: str
    symbols: Any = None
    variant: Variant | None = None

    @property
    def where(self) -> Place:
        """The place of what is about it."""
        return Place(self.path)

    @property
    def is_main(self) -> bool:
        """Whether it is the module that the package imports: it lies there, named like its id."""
        if self.variant is None or self.path.parent != self.variant.path:
            return False
        return self.variant.id in ("", self.path.name.partition(".")[0])

    @cached_property
    def codes(self) -> tuple[Code, ...]:
        """The code for GPUs of NVIDIA inside."""
        from kernel_actions.compliance import cuda_code

        return cuda_code.read(self.header) if self.header is not None else ()


RULES: Family[Binary] = Family()


@RULES.rule
def binary_readable(binary: Binary) -> Iterator[Problem]:
    if binary.unread:
        yield Problem(binary.unread, binary.where)


@RULES.rule
def binary_system(binary: Binary) -> Iterator[Problem]:
    if binary.object is None or binary.name is None or not binary.name.is_compiled:
        return
    expected = "Mach-O" if binary.name.os == "darwin" else "ELF"
    if binary.format != expected:
        message = f"is of the format {binary.format}, and {binary.name.os} loads {expected}"
        yield Problem(message, binary.where)
    elif binary.header is not None and binary.header.machine != binary.name.machine:
        yield Problem(f"is for {binary.header.machine}, not for {binary.name.machine}", binary.where)


@RULES.rule
def binary_symbols(binary: Binary) -> Iterator[Problem]:
    if binary.header is not None and not binary.header.has_symbols:
        yield Problem("has no symbol table: its dynamic symbols were checked in its place", binary.where)


@RULES.rule
def binary_python_abi(binary: Binary) -> Iterator[Problem]:
    if binary.object is None:
        return
    for violation in (binary.symbols or binary.object).check_python_abi(PYTHON_ABI):
        added = getattr(violation, "version_added", None)
        why = f"which Python has since {added}" if added else "which is not in the stable ABI"
        yield Problem(f"uses {violation.name}, {why}", binary.where)


@RULES.rule
def binary_manylinux(binary: Binary) -> Iterator[Problem]:
    if binary.format != "ELF":
        return
    for violation in binary.object.check_manylinux(MANYLINUX):
        yield Problem(f"uses {violation.name} of {violation.dep} {violation.version}", binary.where)
    if binary.header is None or binary.header.has_symbols:
        return
    for symbol in binary.header.symbols:
        found = _VERSION.fullmatch(symbol.version)
        newest = _NEWEST.get(found[1]) if found else None
        if found and newest and tuple(map(int, found[2].split("."))) > newest:
            yield Problem(f"uses {symbol.name} of {found[1]} {found[2]}", binary.where)


@RULES.rule
def binary_macos(binary: Binary) -> Iterator[Problem]:
    if binary.format != "Mach-O":
        return
    newest = MACOS_OF_METAL if binary.name is not None and binary.name.backend == "metal" else MACOS
    for violation in binary.object.check_macos(newest):
        version = getattr(violation, "version", None)
        message = f"needs macOS {version}" if version else "does not say which macOS it needs"
        repair = f"set the deployment target: `MACOSX_DEPLOYMENT_TARGET={newest}`"
        yield Problem(message, binary.where, repair)


@RULES.rule
def binary_rpath(binary: Binary) -> Iterator[Problem]:
    for path in binary.header.search if binary.header else ():
        yield Problem(f"looks for libraries in {path}", binary.where)


@RULES.rule
def binary_needed(binary: Binary) -> Iterator[Problem]:
    if binary.header is None or binary.name is None:
        return
    allowed = _libraries().get("all", []) + _libraries().get(binary.name.backend, [])
    for name in binary.header.needed:
        if not any(fnmatchcase(name, pattern) for pattern in allowed):
            yield Problem(f"needs {name}", binary.where)


@RULES.rule
def binary_stack(binary: Binary) -> Iterator[Problem]:
    if binary.header is not None and binary.header.has_executable_stack is not False:
        what = "asks for" if binary.header.has_executable_stack else "does not refuse"
        yield Problem(f"{what} an executable stack", binary.where)


@RULES.rule
def binary_paths(binary: Binary) -> Iterator[Problem]:
    if binary.header is not None:
        # Whoever writes a library can fill it with paths.
        for path in dict.fromkeys(islice(_private_paths(binary.header), _MOST_PATHS)):
            yield Problem(f"holds the path {path}", binary.where)


@RULES.rule
def binary_stable_abi(binary: Binary) -> Iterator[Problem]:
    found = _STABLE_ABI.search(binary.variant.path.name) if binary.variant is not None else None
    if found is None or binary.header is None:
        return
    oldest = f"{found[1]}.{found[2]}"
    for symbol in binary.header.symbols:
        if symbol.is_defined:
            continue
        since = _stable_functions().get(symbol.name, oldest)
        if nix_version.compare(since, oldest) > 0:
            yield Problem(f"uses {symbol.name}, which is there since Torch {since}", binary.where)
        elif _UNSTABLE.match(symbol.name):
            yield Problem(f"uses {symbol.name}, which is not in Torch's stable ABI", binary.where)


@RULES.rule
def binary_init(binary: Binary) -> Iterator[Problem]:
    if not binary.is_main or binary.header is None or binary.name is None or not binary.name.is_compiled:
        return
    if binary.variant is None or not binary.variant.path.name.startswith("torch"):
        return  # tvm-ffi loads a library without Python's import.
    expected = f"PyInit_{binary.path.name.partition('.')[0]}"
    names = {one.name for one in binary.header.symbols if one.is_defined and one.is_visible}
    if expected not in names:
        others = sorted(name for name in names if name.startswith("PyInit_"))
        has = f", but {', '.join(others)}" if others else ""
        yield Problem(f"does not export {expected}{has}", binary.where)


@RULES.rule
def binary_cuda_archs(binary: Binary) -> Iterator[Problem]:
    declared = _declared(binary)
    if declared is None or binary.variant is None:
        return
    expected = {code for one in declared for code in _expected(one)}
    found = {str(code) for code in binary.codes}
    excused = _without_code(binary)
    for name in sorted(expected - found):
        if excused is not None and name not in excused:
            yield Problem(f"holds no {name}, which metadata.json declares", binary.where)
    # The driver compiles PTX of any version: that there is more of it harms nobody.
    for name in sorted(one for one in found - expected if one.startswith("sm_")):
        yield Problem(f"holds {name}, which metadata.json does not declare", binary.where)


@RULES.rule
def binary_cuda_required(binary: Binary) -> Iterator[Problem]:
    if not binary.is_main or not binary.codes:
        return
    for capability in _required(binary):
        number = int(capability.rstrip("af").replace(".", ""))
        if not any(code.runs_on(number) for code in binary.codes):
            yield Problem(f"runs on no GPU of compute capability {capability.rstrip('af')}", binary.where)


def binaries(variant: Variant) -> Iterator[Binary]:
    """The extensions in a variant, wherever they are.

    Raises ``WrongSurroundings`` without kernel-abi-check.
    """
    for entry in variant.listing.entries:
        # Those that are too large were not read, and there is a rule against them.
        if entry.is_file and entry.name.endswith((".so", ".dylib")) and entry.size <= files.LARGEST_FILE:
            yield read(entry.path, variant.name, variant)


def check_checker() -> None:
    """Raises ``WrongSurroundings`` when the ABI checker is not installed."""
    _checker()


def _checker() -> Any:
    try:
        from kernel_abi_check import ObjectFile
    except ModuleNotFoundError as error:
        raise WrongSurroundings(
            "the Python package kernel-abi-check is not installed",
            repair="python -m pip install kernel-abi-check",
        ) from error
    return ObjectFile


def read(path: Path, name: VariantName | None, variant: Variant | None = None) -> Binary:
    """Read the extension ``path`` of a variant of that name."""
    ObjectFile = _checker()

    def checked(data: bytes) -> Any:
        """The checker's view of what is no file."""
        with tempfile.NamedTemporaryFile(suffix=".so") as file:
            file.write(data)
            file.flush()
            return ObjectFile(Path(file.name))

    def unreadable(why: str) -> Binary:
        return Binary(path, name, None, "", None, why)

    symbols = None
    try:
        with path.open("rb") as file:
            form = FORMATS.get(file.read(4), "")
        if not form:
            return unreadable("is no library of Linux or macOS")
        header = elf.read_header(path) if form == "ELF" else None
        size = path.stat().st_size
        if header is None and size > LARGEST_MACH_O:
            return unreadable(f"is larger than {LARGEST_MACH_O} bytes, and not read")
        if header is not None and size > LARGEST_WHOLE:
            # The checker reads a file as a whole.
            if header.is_cut:
                return unreadable("is cut off")
            found = checked(elf.symbols_alone(header, elf.SYMBOL_TABLE))
        else:
            found = ObjectFile(path)
        # All symbols are read here once, so that what is wrong further back in the file shows.
        found.check_python_abi(PYTHON_ABI)
        if form == "ELF":
            found.check_manylinux(MANYLINUX)
        if header is not None and not header.has_symbols:
            symbols = checked(elf.symbols_alone(header))
            symbols.check_python_abi(PYTHON_ABI)
    except OSError as error:
        return unreadable(f"cannot be read: {error.strerror or error}")
    except ValueError as error:
        return unreadable(f"cannot be read: {_CHECKER.sub('', str(error))}")
    except WrongInput as error:
        return unreadable(error.what)
    return Binary(path, name, found, form, header, "", symbols, variant)


@lru_cache(maxsize=1)
def _libraries() -> Mapping[str, list[str]]:
    return toml_file.read(DATA.with_name("libraries.toml")).values


@lru_cache(maxsize=1)
def _stable_functions() -> Mapping[str, str]:
    """The functions of Torch's stable ABI that not every Torch with it has, and since when they are there."""
    values = toml_file.read(DATA.with_name("stable_abi.toml")).values
    return {name: since for since, names in values.items() for name in names}


def _private_paths(header: elf.Header) -> Iterator[str]:
    """The paths of people's and machines' folders in the texts of a library, read piece by piece."""
    with header.path.open("rb") as file:
        whole = os.fstat(file.fileno()).st_size
        for section in header.sections:
            if section.name not in _TEXTS or section.kind == elf.NO_BITS:
                continue
            at, end = section.offset, min(section.offset + section.size, whole)
            while at < end:
                data = elf.part(file, at, min(_PIECE + _OVERLAP, end - at))
                # Looking for the beginnings first is many times as fast as the pattern.
                if _START.search(data):
                    for one in _PRIVATE.finditer(data):
                        # One that begins in what the pieces have in common is of the next of them.
                        if one.start() < _PIECE:
                            yield one.group().decode(errors="replace")[:200]
                at += _PIECE


def _declared(binary: Binary) -> list[str] | None:
    """The compute capabilities that metadata.json names, of a compiled variant for CUDA."""
    if not binary.is_main or binary.header is None or binary.variant is None or binary.name is None:
        return None
    if binary.name.backend != "cuda" or not binary.name.is_compiled:
        return None
    archs = binary.variant.metadata.get("backend", {}).get("archs")
    return [str(one) for one in archs] if isinstance(archs, list) else None


def _expected(capability: str) -> Iterator[str]:
    """What a declared capability puts into the library: ``9.0+PTX`` machine code and PTX."""
    number = capability.removesuffix("+PTX").replace(".", "")
    yield f"sm_{number}"
    if capability.endswith("+PTX"):
        yield f"compute_{number}"


def _without_code(binary: Binary) -> frozenset[str] | None:
    """The code that metadata.json declares and no library has to hold: that for the capabilities of sections
    without a source for nvcc. ``None`` excuses all of it, where there may be no other section.

    The builder collects the capabilities of each section, whether or not there is a ``.cu`` in it
    (templates/kernel.cmake at 8ac69fc5: accumulate_gpu_archs in line 46 asks for no source).
    """
    kernel = binary.variant.kernel if binary.variant is not None else None
    if kernel is None:
        return frozenset() if binary.codes else None
    sections = [one for one in kernel.components if one.backend == "cuda"]
    if not any(_has_device_code(one) for one in sections):
        return None
    others = [one for one in sections if not _has_device_code(one)]
    return frozenset(code for capability in _compiled_for(binary, others) for code in _expected(capability))


def _has_device_code(section: Component) -> bool:
    """Whether a section has a source that nvcc compiles."""
    return any(name.endswith(".cu") for name in section.src)


def _required(binary: Binary) -> tuple[str, ...]:
    """The compute capabilities that the builder compiles this kernel for, with the CUDA of the variant."""
    kernel = binary.variant.kernel if binary.variant is not None else None
    sections = [one for one in kernel.components if one.backend == "cuda"] if kernel is not None else []
    found = _compiled_for(binary, [one for one in sections if _has_device_code(one)])
    return tuple(one.removesuffix("+PTX") for one in found)


def _compiled_for(binary: Binary, sections: Sequence[Component]) -> tuple[str, ...]:
    """The compute capabilities that the builder has sections of build.toml for, with the CUDA of the
    variant."""
    from kernel_actions.local_builder import cuda, toolchain

    version = _CUDA.search(binary.variant.path.name) if binary.variant is not None else None
    if version is None:
        return ()
    nvcc = toolchain.Nvcc(Path("nvcc"), f"{version[1]}.{version[2]}", ())
    found: dict[str, None] = {}
    for section in sections:
        found |= dict.fromkeys(cuda.capabilities(section.cuda_capabilities, (), nvcc))
    return tuple(found)
