"""The folder of a variant as the builder lays it out, from the builder's own templates at a revision.

Nothing is compiled: the caller gives the extension, or a stand-in for it. The rules were read in
huggingface/kernels at 81580bb9. The files have the same paths at every revision that a lock of
huggingface/kernels-community pins at 40d4194f.

- the source set: ``nix-builder/lib/source-set.nix``;
- copied files of a noarch variant: ``templates/torch/noarch/setup.py``, ``build_backend``;
- copied files of a compiled one: ``templates/torch/build-variants.cmake``, ``add_kernels_install_target``;
- ``_ops.py``: ``templates/torch/noarch/_ops.py`` by ``noarch.rs``, ``templates/torch/_ops.py.in`` by
  ``preamble.cmake``;
- metadata.json: ``kernels-data/src/metadata.rs``, in the order of its fields;
- the digest: ``nix-builder/pkgs/hash-kernel-hook``;
- the revision in names: ``gen-flake-outputs.nix``, the first seven digits of the commit.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernel_actions import manifest
from kernel_actions.errors import WrongInput
from kernel_actions.manifest import KernelDependency, Manifest
from kernel_actions.variants import Variant

_TEMPLATES = "kernel-builder/src/pyproject/templates/"
_METADATA = "kernels-data/src/metadata.rs"
_FIELD = re.compile(r"^    pub (\w+): ", re.MULTILINE)
_VERSION = re.compile(r'^version = "(.+)"$', re.MULTILINE)


@dataclass(frozen=True)
class Templates:
    """What a revision of the builder puts into variants.

    ``metadata`` are the keys of metadata.json, in their order. ``commit_key`` is what ``provenance`` calls a
    commit. ``version`` is kernel-builder's own. ``ops_compiled``, ``ops_noarch`` and ``compat`` are the
    texts of files; ``compat`` is empty since e9152aa2, which makes no ``<variant>/<name>/__init__.py``.
    """

    commit: str
    version: str
    metadata: tuple[str, ...]
    commit_key: str
    ops_compiled: str
    ops_noarch: str
    compat: str

    @classmethod
    def read(cls, repository: Path, commit: str) -> Templates:
        """The templates at ``commit`` of ``repository``, a checkout or a bare git directory.

        Raises ``WrongInput`` where one of the files is missing.
        """

        def text(path: str) -> str:
            found = _read(repository, commit, path)
            if found is None:
                raise WrongInput(
                    f"{repository} has no {path} at {commit[:12]}",
                    repair="give a checkout of huggingface/kernels with its whole history",
                )
            return found

        described = text(_METADATA)
        struct = described.partition("pub struct Metadata {")[2].partition("\n}")[0]
        version = _VERSION.search(text("kernel-builder/Cargo.toml"))
        return cls(
            commit=commit,
            version=version[1] if version else "",
            metadata=tuple(name.replace("_", "-") for name in _FIELD.findall(struct)),
            # Until dbc322a3 struct GitHash was in this file, with its field `sha`.
            commit_key="sha" if "pub sha: String" in described else "commit",
            ops_compiled=text(f"{_TEMPLATES}torch/_ops.py.in"),
            ops_noarch=text(f"{_TEMPLATES}torch/noarch/_ops.py"),
            compat=_read(repository, commit, f"{_TEMPLATES}compat.py") or "",
        )


def _read(repository: Path, commit: str, path: str) -> str | None:
    command = ["git", "-C", str(repository), "show", f"{commit}:{path}"]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    return finished.stdout if finished.returncode == 0 else None


@dataclass(frozen=True)
class Source:
    """A kernel at a commit, as Nix sees it. ``files``: those that git tracks, relative to its folder."""

    kernel: Manifest
    commit: str
    files: tuple[str, ...]

    @classmethod
    def read(cls, kernel_dir: Path, commit: str) -> Source:
        """The kernel in ``kernel_dir``, of which ``commit`` is checked out. Raises ``WrongInput``."""
        command = ["git", "-C", str(kernel_dir), "ls-files", "."]
        listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        return cls(manifest.load(kernel_dir), commit, tuple(listed.splitlines()))

    @property
    def revision(self) -> str:
        """The part of names that says which commit."""
        return self.commit[:7]

    @property
    def extensions(self) -> tuple[str, ...]:
        """``pyext``: the endings of files of the Python package."""
        values = self.kernel.file.values
        section = values.get("torch") or values.get("torch-noarch") or values.get("tvm-ffi") or {}
        return tuple(section.get("pyext") or ("py", "pyi"))

    @property
    def package(self) -> dict[str, Path]:
        """The files of the Python package in the source set, by their path in the package."""
        root = f"torch-ext/{self.kernel.python_name}/"
        listed = self.kernel.file.values.get("torch", {}).get("src", [])
        for component in self.kernel.components:
            listed = [*listed, *component.src]
        names = [
            name
            for name in self.files
            if name.startswith(root)
            and (name in listed or any(name.endswith(f".{one}") for one in self.extensions))
        ]
        return {name.removeprefix(root): self.kernel.directory / name for name in names}


def write(
    folder: Path, source: Source, variant: Variant, templates: Templates, extension: Path | None
) -> dict[str, Any]:
    """Write ``folder`` anew as the builder would make the variant, and return its metadata.

    ``extension`` is the compiled library, ``None`` for a noarch variant.
    """
    kernel = source.kernel
    ops_name = f"_{kernel.python_name}_{variant.backend}_{source.revision}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    copied = source.package
    if extension is not None:
        kinds = {"py", *(one for one in source.extensions if one != "pyi")}
        copied = {name: path for name, path in copied.items() if name.rpartition(".")[2] in kinds}
    for name, path in copied.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, folder / name)
    (folder / "_ops.py").write_text(
        _ops(templates, source, ops_name, extension is not None), encoding="utf-8"
    )
    if templates.compat:
        (folder / kernel.python_name).mkdir(exist_ok=True)
        (folder / kernel.python_name / "__init__.py").write_text(templates.compat, encoding="utf-8")
    if extension is not None:
        shutil.copyfile(extension, folder / f"{ops_name}.abi3.so")
        (folder / f"{ops_name}.abi3.so").chmod(0o755)
    metadata = _metadata(templates, source, variant, ops_name, extension is not None)
    if "digest" in metadata:
        from kernels_data import Digest, DigestAlgorithm

        hashed = Digest.hash_variant(DigestAlgorithm.SHA256, folder)
        metadata["digest"] = {"algorithm": "sha256", "files": dict(sorted(hashed.files.items()))}
    text = json.dumps(metadata, indent=2, ensure_ascii=False)
    (folder / "metadata.json").write_text(text, encoding="utf-8")
    return metadata


def _ops(templates: Templates, source: Source, ops_name: str, is_compiled: bool) -> str:
    if is_compiled:
        return templates.ops_compiled.replace("@OPS_NAME@", ops_name)
    text = templates.ops_noarch
    values = {"kernel_name": source.kernel.python_name, "kernel_unique_id": source.revision}
    for name, value in values.items():
        text = text.replace("{{ %s }}" % name, value)  # noqa: UP031
    if "{{" in text or "{%" in text:
        raise WrongInput(
            f"the template of _ops.py at {templates.commit[:12]} says more than this command fills in"
        )
    return text


def _metadata(
    templates: Templates, source: Source, variant: Variant, ops_name: str, is_compiled: bool
) -> dict[str, Any]:
    kernel, backend = source.kernel, variant.backend
    described: dict[str, Any] = {"type": backend}
    noarch: Mapping[str, Any] = kernel.file.values.get("torch-noarch", {})
    archs = noarch.get({"cuda": "cuda-capabilities", "rocm": "rocm-archs"}.get(backend, ""))
    if archs and not is_compiled:
        described["archs"] = list(archs)
    values: dict[str, Any] = {
        "name": kernel.name,
        "id": ops_name,
        "version": kernel.version,
        "license": kernel.license,
        "upstream": kernel.upstream,
        "source": kernel.source,
        "python-depends": list(kernel.all_python_depends(backend)),
        "kernel-depends": [_dependency(one) for one in kernel.all_kernel_depends(backend)],
        "backend": described,
        "digest": {},
        "provenance": {
            "kernel-builder": {
                "version": templates.version, templates.commit_key: templates.commit, "dirty": False,
            },
            "kernel": {templates.commit_key: source.commit, "dirty": False},
        },
    }  # fmt: skip
    unknown = [key for key in templates.metadata if key not in values]
    if unknown:
        raise WrongInput(f"metadata.json at {templates.commit[:12]} has keys that are not known: {unknown}")
    return {key: values[key] for key in templates.metadata if values[key] is not None}


def _dependency(one: KernelDependency) -> dict[str, Any]:
    if one.version is not None:
        return {"repo-id": one.repo_id, "version": one.version}
    return {"repo-id": one.repo_id, "revision": one.revision}
