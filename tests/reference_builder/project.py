"""What ``kernel-builder create-pyproject`` writes, rendered from its own templates.

The Rust code was read at ae36559c, b79face3, 81580bb9, e9152aa2, dbc322a3 and 8ac69fc5, between which its
files changed, of the revisions that public kernels lock: kernel-builder/src/pyproject/{mod,common,kernel,
deps}.rs, torch/{mod,noarch}.rs and kernels-data/src/metadata.rs. ``REVIEWED`` has their fingerprints: a
revision with another text is refused until somebody has read it.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import minijinja

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

TEMPLATES = "kernel-builder/src/pyproject/templates/"
METADATA = "kernels-data/src/metadata.rs"
RUST = "kernel-builder/src/pyproject/"
_READ = ("mod.rs", "common.rs", "kernel.rs", "deps.rs", "torch/mod.rs", "torch/noarch.rs")
REVIEWED = Path(__file__).parent / "reviewed.txt"
BACKENDS = ("cpu", "cuda", "metal", "neuron", "rocm", "tpu", "xpu")
# Files of CMakeLists.txt that are written as they are, and where from (torch/mod.rs, write_cmake_helpers).
_HELPERS = {
    "utils.cmake": "utils.cmake",
    "kernel.cmake": "kernel.cmake",
    "build-variants.cmake": "torch/build-variants.cmake",
    "add_build_metadata.py": "torch/add_build_metadata.py",
    "hipify.py": "torch/cuda/hipify.py",
    "compile-metal.cmake": "torch/metal/compile-metal.cmake",
    "metallib_to_header.py": "torch/metal/metallib_to_header.py",
    "get_gpu_lang.cmake": "torch/get_gpu_lang.cmake",
    "get_gpu_lang.py": "torch/get_gpu_lang.py",
    "_ops.py.in": "torch/_ops.py.in",
}
_STRUCT = r"pub struct {name} \{{\n(?P<body>.*?)\n\}}"
_FIELD = re.compile(r"(?P<attributes>(?:^ *#\[.*\]\n)*)^ *pub (?P<name>\w+): ", re.MULTILINE)
_RENAME = re.compile(r'rename = "(\w+)"')


@dataclass(frozen=True)
class Builder:
    """The builder at a commit of ``repository``, a checkout or a bare git directory."""

    repository: Path
    commit: str

    @classmethod
    def find(cls, repository: Path, revision: str) -> Builder:
        """The builder at ``revision``, whose Rust code has to be one that was read."""
        finished = _git(repository, "rev-parse", "--verify", f"{revision}^{{commit}}")
        found = cls(repository, finished.strip())
        known = set(REVIEWED.read_text(encoding="ascii").split())
        for name in (*(RUST + name for name in _READ), METADATA):
            if (print_of_text := fingerprint(found.text(name) or "")) not in known:
                raise SystemExit(
                    f"nobody has read {name} at {revision} ({print_of_text}): see whether it puts into the "
                    f"templates what {__name__} does, then add it to {REVIEWED.name}"
                )
        return found

    def text(self, path: str) -> str | None:
        """The text of a file; ``None`` where there is none."""
        return _text(self.repository, self.commit, path)

    def needed(self, path: str) -> str:
        """The text of a file that has to be there."""
        text = self.text(path)
        assert text is not None, f"{path} is not at {self.commit}"
        return text


def fingerprint(text: str) -> str:
    """What a text is recognised by."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@cache
def _text(repository: Path, commit: str, path: str) -> str | None:
    command = ["git", "-C", str(repository), "show", f"{commit}:{path}"]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    return finished.stdout if finished.returncode == 0 else None


def _git(repository: Path, *arguments: str) -> str:
    command = ["git", "-C", str(repository), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@dataclass(frozen=True)
class Kernel:
    """A kernel as the templates see it. ``revision`` goes into names: seven digits of ``commit``."""

    values: Mapping[str, Any]
    commit: str

    @classmethod
    def read(cls, folder: Path, commit: str) -> Kernel:
        """The kernel in ``folder``."""
        return cls(tomllib.loads((folder / "build.toml").read_text(encoding="utf-8")), commit)

    @property
    def revision(self) -> str:
        """``shortRev`` of the flake, which ``kernel-builder create-pyproject`` gets as ``--unique-id``."""
        return self.commit[:7]

    @property
    def general(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.values["general"]
        return found

    @property
    def name(self) -> str:
        return str(self.general["name"])

    @property
    def python_name(self) -> str:
        return self.name.replace("-", "_")

    @property
    def is_noarch(self) -> bool:
        """``Build::is_noarch``: by the section, whatever is compiled."""
        return "torch-noarch" in self.values

    @property
    def section(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.values["torch-noarch" if self.is_noarch else "torch"]
        return found

    @property
    def data_extensions(self) -> list[str] | None:
        """``data_extensions`` of kernels-data/src/config/mod.rs."""
        listed = [extension for extension in self.section.get("pyext", ()) if extension not in ("py", "pyi")]
        return listed or None


def files(builder: Builder, kernel: Kernel) -> dict[str, str]:
    """The project's files by their relative path."""
    environment = minijinja.Environment(
        loader=lambda name: builder.text(TEMPLATES + name), trim_blocks=True
    )  # mod.rs, create_pyproject_file_set
    render = _Renderer(builder, kernel, environment)
    found = dict(render.noarch() if kernel.is_noarch else render.compiled())
    for backend in BACKENDS:
        found[f"metadata-{backend}.json"] = json.dumps(
            metadata(builder, kernel, backend), indent=2, ensure_ascii=False
        )
    compat = builder.text(f"{TEMPLATES}compat.py")
    if compat is not None:
        found["compat.py"] = compat
    return found


@dataclass(frozen=True)
class _Renderer:
    builder: Builder
    kernel: Kernel
    environment: minijinja.Environment

    def _render(self, template: str, **values: Any) -> str:
        return self.environment.render_template(template, **values)

    @property
    def _identity(self) -> dict[str, str]:
        kernel = self.kernel
        return {
            "kernel_name": kernel.python_name,
            "kernel_unique_id": kernel.revision,
            "python_name": kernel.python_name,
        }

    @property
    def _data_globs(self) -> str | None:
        extensions = self.kernel.data_extensions
        return ", ".join(f'"**/*.{extension}"' for extension in extensions) if extensions else None

    @property
    def _dependencies(self) -> dict[str, Any]:
        table = json.loads(self.builder.needed("kernels-data/src/python_dependencies.json"))
        general = self.kernel.general

        def packages(names: list[str], known: Mapping[str, Any]) -> str:
            return ", ".join(f'"{package["pkg"]}"' for name in names for package in known[name]["python"])

        listed = {
            backend: packages(general.get(backend, {}).get("python-depends", []), known)
            for backend, known in table["backends"].items()
        }
        return {
            "python_dependencies": packages(general.get("python-depends", []), table["general"]),
            "backend_dependencies": [[name, packages] for name, packages in listed.items() if packages],
        }

    def noarch(self) -> Iterator[tuple[str, str]]:
        """torch/noarch.rs, write_torch_ext_noarch."""
        package = f"torch-ext/{self.kernel.python_name}"
        yield f"{package}/_ops.py", self._render("torch/noarch/_ops.py", **self._identity)
        yield (
            "pyproject.toml",
            self._render(
                "torch/noarch/pyproject.toml",
                data_globs=self._data_globs,
                name=self.kernel.name,
                python_name=self.kernel.python_name,
                **self._dependencies,
            ),
        )
        yield "setup.py", self.builder.needed(f"{TEMPLATES}torch/noarch/setup.py")

    def compiled(self) -> Iterator[tuple[str, str]]:
        """torch/mod.rs, write_torch_ext."""
        for name, source in _HELPERS.items():
            yield f"cmake/{name}", self.builder.needed(TEMPLATES + source)
        parts = [self._preamble(), *self._parts()]
        yield "CMakeLists.txt", "".join(f"{part}\n" for part in parts)
        yield (
            "setup.py",
            self._render("torch/setup.py", data_globs=self._data_globs, version="0.1.0", **self._identity),
        )
        yield (
            "pyproject.toml",
            self._render("torch/pyproject.toml", python_name=self.kernel.python_name, **self._dependencies),
        )
        yield "torch-ext/registration.h", self.builder.needed(f"{TEMPLATES}torch/registration.h")

    def _preamble(self) -> str:
        section, general = self.kernel.section, self.kernel.general
        stable: Any = section.get("stable-abi")
        # A list of backends since 8c4761cf, one version before.
        if "in stable_abi" in self.builder.needed(f"{TEMPLATES}torch/preamble.cmake"):
            by_backend = stable if isinstance(stable, dict) else dict.fromkeys(general["backends"], stable)
            stable = [
                {"backend": backend, "version": by_backend[backend]}
                for backend in general["backends"]
                if by_backend.get(backend)
            ]
        return self._render(
            "torch/preamble.cmake",
            cuda_minver=general.get("cuda", {}).get("minver"),
            cuda_maxver=general.get("cuda", {}).get("maxver"),
            torch_minver=section.get("minver"),
            torch_maxver=section.get("maxver"),
            stable_abi=stable,
            **self._identity,
        )

    def _parts(self) -> Iterator[str]:
        section = self.kernel.section
        yield self._render(
            "torch/torch-binding.cmake",
            includes=_includes(section),
            name=self.kernel.name,
            src=section["src"],
            cxx_flags=_joined(section, "cxx-flags"),
        )
        for name, component in sorted(self.kernel.values.get("kernel", {}).items()):
            depends = set(component.get("depends", ())) - {"torch"}
            assert not depends, f"{sorted(depends)}: their templates are not rendered here"
            language = {"rocm": "hip"}.get(component["backend"], component["backend"])
            yield self._render(
                f"kernel-component/{language}.cmake",
                kernel_name=name,
                name=name,
                sources="\n".join(f'"{source}"' for source in component["src"]),
                includes=_includes(component),
                cxx_flags=_joined(component, "cxx-flags"),
                cuda_flags=_joined(component, "cuda-flags"),
                cuda_capabilities=component.get("cuda-capabilities"),
                cuda_minver=component.get("cuda-minver"),
                hip_flags=_joined(component, "hip-flags"),
                rocm_archs=component.get("rocm-archs"),
                sycl_flags=_joined(component, "sycl-flags"),
            )
        yield self._render(
            "torch/torch-extension.cmake",
            python_name=self.kernel.python_name,
            data_extensions=self.kernel.data_extensions,
        )


def _includes(section: Mapping[str, Any]) -> str | None:
    """common.rs, prefix_and_join_includes."""
    if "include" not in section:
        return None
    return ";".join(f"${{CMAKE_SOURCE_DIR}}/{name}" for name in section["include"])


def _joined(section: Mapping[str, Any], key: str) -> str | None:
    return ";".join(section[key]) if key in section else None


def metadata(builder: Builder, kernel: Kernel, backend: str) -> dict[str, Any]:
    """``Metadata::for_backend`` and ``write_metadata``, by the fields of the struct at this revision.

    ``kernel`` is clean, and so is the builder: what Nix builds of commits.
    """
    general = kernel.general
    structs = builder.needed(METADATA) + (builder.text("kernels-data/src/git.rs") or "")
    cargo = tomllib.loads(builder.needed("kernel-builder/Cargo.toml"))
    # The field of a commit: `sha` of GitHash until dbc322a3, `commit` of GitStatus since.
    key = next((name for name in fields(structs, "Git(?:Hash|Status)") if name != "dirty"), "")
    archs = {"cuda": "cuda-capabilities", "rocm": "rocm-archs"}.get(backend, "")
    dependencies = [*general.get("kernel-depends", ()), *general.get(backend, {}).get("kernel-depends", ())]
    values: dict[str, Any] = {
        "id": f"_{kernel.python_name}_{backend}_{kernel.revision}",
        "name": kernel.name,
        "version": general["version"],
        "license": general["license"],
        "upstream": general.get("upstream"),
        "source": general.get("source"),
        "python-depends": [
            *general.get("python-depends", ()),
            *general.get(backend, {}).get("python-depends", ()),
        ],
        "kernel-depends": dependencies,
        "backend": {"type": backend, "archs": kernel.section.get(archs) if kernel.is_noarch else None},
        "digest": None,
        "provenance": {
            "kernel-builder": {
                "version": cargo["package"]["version"],
                key: builder.commit,
                "dirty": False,
            },
            "kernel": {key: kernel.commit, "dirty": False},
        },
    }
    values["backend"] = _serialized(structs, "BackendInfo", values["backend"])
    return _serialized(structs, "Metadata", values)


def _serialized(structs: str, name: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """``values`` in the order of the struct's fields, without those that serde skips."""
    listed = fields(structs, name)
    return {
        field: values[field]
        for field, attributes in listed.items()
        if values[field] is not None or "skip_serializing_if" not in attributes
    }


def fields(structs: str, name: str) -> dict[str, str]:
    """The fields of a struct as serde names them, and their attributes."""
    struct = re.search(_STRUCT.format(name=name), structs, re.DOTALL)
    if struct is None:
        return {}
    found = {}
    for field in _FIELD.finditer(struct["body"] + "\n"):
        renamed = _RENAME.search(field["attributes"])
        found[renamed[1] if renamed else field["name"].replace("_", "-")] = field["attributes"]
    return found
