"""Several files, all of them or none."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from kernel_actions.errors import Place, WrongInput, WrongSurroundings
from kernel_actions.init import plan
from kernel_actions.init.plan import File


def write(root: Path, files: Sequence[File]) -> None:
    """Write ``files`` below ``root``: all of them, or, whatever ends it, none.

    Everything is written beside its place first, and then renamed, which takes no time and no space.
    Raises ``WrongInput`` when one is no longer what was compared, and ``WrongSurroundings`` when it cannot be
    written.
    """
    attempt = _Attempt(root)
    try:
        moves = [attempt.prepare(file) for file in files]
        for new, target, old in moves:
            attempt.move(new, target, old)
    except BaseException as error:
        attempt.undo()
        if isinstance(error, OSError):
            raise WrongSurroundings(
                f"cannot be written, and so nothing was: {error.strerror}",
                where=Place(Path(error.filename or root)),  # A full disk does not say of which file.
                repair="mend that, then run again",
            ) from error
        raise
    attempt.clean()


class _Attempt:
    """What was done so far, to undo it: folders and files made, and files replaced."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._folders: list[Path] = []
        self._temporary: list[Path] = []
        self._done: list[tuple[Path, Path | None]] = []

    def prepare(self, file: File) -> tuple[Path, Path, Path | None]:
        """The new file beside its place, the place, and a copy of what is there (``None``: nothing)."""
        target = self._root / file.path
        if plan.read(self._root, file.path) != file.before:
            raise WrongInput("was changed meanwhile", where=Place(target), repair="run again")
        self._make_folders(target.parent)
        old = self._beside(target, target.read_bytes()) if file.before is not None else None
        return self._beside(target, file.after.encode()), target, old

    def move(self, new: Path, target: Path, old: Path | None) -> None:
        """Have the new file take its place."""
        self._done.append((target, old))
        os.replace(new, target)

    def undo(self) -> None:
        """Put back what was there."""
        for target, old in reversed(self._done):
            with contextlib.suppress(OSError):
                if old is None:
                    target.unlink(missing_ok=True)
                else:
                    os.replace(old, target)
        self.clean()
        for folder in reversed(self._folders):
            with contextlib.suppress(OSError):
                folder.rmdir()

    def clean(self) -> None:
        """Remove what was only needed on the way."""
        for path in self._temporary:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)

    def _make_folders(self, folder: Path) -> None:
        missing = []
        while folder != self._root and not folder.is_dir():
            missing.append(folder)
            folder = folder.parent
        for one in reversed(missing):
            one.mkdir()
            self._folders.append(one)

    def _beside(self, target: Path, data: bytes) -> Path:
        """A file with ``data`` in the folder of ``target``, with its mode."""
        descriptor, name = tempfile.mkstemp(prefix=f".{target.name}-", dir=target.parent)
        self._temporary.append(Path(name))
        with open(descriptor, "wb") as file:
            file.write(data)
        os.chmod(name, target.stat().st_mode & 0o777 if target.exists() else 0o644)
        return Path(name)
