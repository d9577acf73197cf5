"""Which kernels of a repository a change concerns: which of them a build or a test can see it in."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath

from kernel_actions import console, git, globs, manifest, reads, settings, submodules, toml_file, variants
from kernel_actions.errors import KernelActionsError, WrongInput
from kernel_actions.matrix.monorepo import Concerned, Unchanged
from kernel_actions.reads import Reads
from kernel_actions.settings import Settings

_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
# More than a file of settings has.
_LARGEST = 1_000_000
# What `compliance --base` looks at beside a kernel's folder. It is about all kernels, and told once.
SHARED = (".github/", submodules.FILE_NAME)


def concerned(kernels: Sequence[Path], reference: str) -> Concerned:
    """Those of ``kernels`` that the changes since ``reference`` concern, and the others.

    A commit that is not here, as GitHub names one for a branch's first push and for a forced one, leaves
    nothing to compare with: all kernels are concerned.
    Raises ``WrongInput`` and ``WrongSurroundings`` as ``git.changed_since`` does.
    """
    state = git.state(kernels[0])
    if state is not None and _is_gone(kernels[0], reference):
        why = f"there is no commit {reference} here"
        console.say(f"kernel-actions: warning: {why}: all kernels are planned")
        return Concerned(dict.fromkeys(kernels, why), tuple(kernels), ())
    changed = [PurePosixPath(name) for name in git.changed_since(kernels[0], reference)]
    assert state is not None  # Or the comparison would have failed.
    root = state.root.resolve()
    folders = {kernel: _folder(kernel, root) for kernel in kernels}
    base = git.common_ancestor(kernels[0], reference) or reference
    owners = _owners(changed, folders.values())
    planned: dict[Path, str] = {}
    for kernel in kernels:
        if why := _Kernel(kernel, root, base).why(changed):
            planned[kernel] = why
    touched = {folder for folder in owners.values() if folder is not None}
    checked = {kernel for kernel, folder in folders.items() if kernel in planned or folder in touched}
    if any(str(path).startswith(SHARED) for path in changed):
        checked.add(teller(folders, changed))
    return Concerned(
        planned,
        tuple(kernel for kernel in kernels if kernel in checked),
        tuple(
            Unchanged(kernel, _why_not(reference, folder in touched))
            for kernel, folder in folders.items()
            if kernel not in planned
        ),
    )


def teller(folders: Mapping[Path, PurePosixPath], changed: Iterable[PurePosixPath]) -> Path:
    """The kernel with which compliance tells what the ``changed`` files of all kernels are about: the first,
    by its path, that has one in its folder, else the first."""
    touched = set(_owners(changed, folders.values()).values())
    ordered = sorted(folders, key=lambda kernel: folders[kernel])
    return next((kernel for kernel in ordered if folders[kernel] in touched), ordered[0])


def _owners(
    changed: Iterable[PurePosixPath], folders: Iterable[PurePosixPath]
) -> dict[PurePosixPath, PurePosixPath | None]:
    """The folder of the kernel that each changed file is in, if it is in one: the innermost."""
    known = set(folders)
    return {path: next((part for part in path.parents if part in known), None) for path in changed}


def _folder(kernel: Path, root: Path) -> PurePosixPath:
    try:
        return PurePosixPath(kernel.resolve().relative_to(root).as_posix())
    except ValueError as error:
        raise WrongInput(f"{kernel} is not in the repository {root}", repair="plan it by itself") from error


def _why_not(reference: str, is_touched: bool) -> str:
    if is_touched:
        return f"no file that its builds or tests read has changed since {reference}"
    return f"unchanged since {reference}"


def _is_gone(directory: Path, reference: str) -> bool:
    """Whether it names a commit in full that the whole history does not have."""
    if not _COMMIT.fullmatch(reference):
        return False
    is_none = not reference.strip("0")
    return is_none or not (git.has_commit(directory, reference) or git.is_shallow(directory))


class _Kernel:
    """A kernel, with what it takes to say why a changed file concerns it."""

    def __init__(self, directory: Path, root: Path, base: str) -> None:
        self._directory = directory
        self._root = root
        self._base = base
        self._settings: Settings | None
        try:
            self._settings = settings.load(directory)
        except KernelActionsError:
            self._settings = None  # Planning says what is wrong with it.
        self._reads: Reads | None = None

    @property
    def reads(self) -> Reads:
        """What its builds and tests can read."""
        if self._reads is None:
            self._reads = reads.of_kernel(self._directory.resolve(), self._root)
        return self._reads

    def why(self, changed: Iterable[PurePosixPath]) -> str:
        """Why the ``changed`` files concern it; empty where none does."""
        own = self._settings or Settings()
        is_settings_changed = False
        for path in changed:
            if _is_matched(path, own.changes_plan, self._root):
                return f"{path} has changed, which changes.plan names"
            if path.name == settings.FILE_NAME and self._may_say(path):
                is_settings_changed = True
            elif not _is_matched(path, own.changes_ignore, self._root):
                if path == PurePosixPath(submodules.FILE_NAME):
                    if any(self.reads.uses_submodule(one) for one in submodules.listed(self._root)):
                        return f"{path} has changed, and the kernel has a submodule"
                elif (why := self.reads.why(path)) and not self._is_of_others(path):
                    return why
        return self._settings_changed() if is_settings_changed else ""

    def _is_of_others(self, path: PurePosixPath) -> bool:
        """Whether it is a file around the kernel in which pytest has no part, and other programs have."""
        if path.name not in reads.SHARED_CONFIGURATION or path.is_relative_to(self.reads.folder):
            return False
        texts = (git.file_at(self._root, revision, str(path)) for revision in (self._base, "HEAD"))
        now = self._root / path
        here = toml_file.read_bytes(now, _LARGEST).decode(errors="replace") if now.is_file() else ""
        return not any("pytest" in text for text in (here, *texts) if text)

    def _may_say(self, path: PurePosixPath) -> bool:
        """Whether the kernel-actions.toml at ``path`` can be about this kernel."""
        folder = self.reads.folder
        shared = path.parent.parent if path.parent.name == ".github" else None
        return path.parent == folder or (shared is not None and folder.is_relative_to(shared))

    def _settings_changed(self) -> str:
        """Why what kernel-actions.toml says differs for the kernel's jobs and tests; empty where it does
        not."""
        try:
            if self._settings is not None and _effective(self._directory, self._settings) == _effective(
                self._directory, self._settings_before()
            ):
                return ""
        except KernelActionsError:
            pass  # It could not be read: then it said something else.
        return f"what {settings.FILE_NAME} says of its jobs or tests has changed"

    def _settings_before(self) -> Settings:
        folder = self.reads.folder
        names = [folder / settings.FILE_NAME]
        names += [one / ".github" / settings.FILE_NAME for one in (folder, *folder.parents)]
        with tempfile.TemporaryDirectory(prefix="kernel-actions-") as name:
            # As far up as the settings are looked for.
            root = Path(name).resolve()
            (root / ".git").mkdir()
            (root / folder).mkdir(parents=True, exist_ok=True)
            for path in dict.fromkeys(names):
                text = git.file_at(self._root, self._base, str(path))
                if text is not None:
                    (root / path).parent.mkdir(parents=True, exist_ok=True)
                    (root / path).write_text(text, encoding="utf-8")
            return settings.load(root / folder)


def _effective(kernel_dir: Path, own: Settings) -> object:
    """What the settings come to for the kernel's jobs and tests, whether or not it was written down."""
    try:
        kernel = manifest.load(kernel_dir)
        backends = kernel.backends or tuple(one.backend for one in kernel.components)
    except KernelActionsError:
        backends = manifest.BACKENDS
    jobs = {
        (system, backend): (
            own.build_runner(system, backend), own.test_runner(system, backend), own.limit(backend)
        )
        for system in variants.SYSTEMS
        for backend in backends
    }  # fmt: skip
    selectors = {name: selector.values for name, selector in own.selectors.items()}
    return jobs, selectors, dict(own.allow_untested), own.test_requirements, own.test_variables


def _is_matched(path: PurePosixPath, patterns: Iterable[settings.PathGlob], root: Path) -> bool:
    return any(
        globs.matches(path, globs.joined(_from_root(one.folder, root), one.pattern)) for one in patterns
    )


def _from_root(folder: Path, root: Path) -> PurePosixPath:
    return PurePosixPath(os.path.relpath(os.path.realpath(folder), root))
