"""Which files a path means: a file, a directory, or a glob, without hidden and temporary names."""

from __future__ import annotations

import glob
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from bicycle_runtime.connectors.errors import InputUnreadableError

__all__ = ["InputPath"]

_TEMPORARY_SUFFIXES = (".tmp", ".part", "~")


@dataclass(frozen=True, slots=True, kw_only=True)
class InputPath:
    """The ``path`` option of a file source.

    A name that exists is taken as it is, even with ``*`` in it; else ``*``, ``?``, ``[`` and ``**``
    make it a glob. Names with a hidden prefix are no input.
    """

    text: str
    is_recursive: bool
    hidden_prefixes: tuple[str, ...] = (".",)

    @property
    def is_directory(self) -> bool:
        """Whether the path is a directory now."""
        return Path(self.text).is_dir()

    @property
    def is_glob(self) -> bool:
        """Whether the path is a pattern and nothing of that very name exists."""
        return glob.has_magic(self.text) and not Path(self.text).exists()

    def files(self) -> dict[str, os.stat_result]:
        """Return absolute path -> stat of each input file there is now, sorted by path."""
        if self.is_directory:
            candidates = self._in_directory()
        elif self.is_glob:
            # Only what was typed is a pattern: the working directory may have brackets in its name.
            pattern = str(Path(glob.escape(str(Path.cwd()))) / self.text)
            # Path.glob takes no absolute pattern.
            matches = glob.glob(pattern, recursive=True)  # noqa: PTH207 - see above.
            candidates = [_real_path(path) for path in matches if self._is_input(path)]
        else:
            candidates = [str(Path(self.text).absolute())]
        found = {}
        for path in sorted(set(candidates)):
            try:
                status = Path(path).stat()
            except OSError:
                continue  # It vanished between the listing and now; the next listing will tell.
            if stat.S_ISREG(status.st_mode):
                found[path] = status
        return found

    def _in_directory(self) -> list[str]:
        top = Path(self.text).absolute()
        found: list[str] = []
        for folder, folders, names in os.walk(top, onerror=_raise_unless_vanished):
            folders[:] = [name for name in folders if self._is_input(name)] * self.is_recursive
            paths = [str(Path(folder) / name) for name in names if self._is_input(name)]
            found += [_real_path(path) for path in paths]
        return found

    def _is_input(self, path: str) -> bool:
        name = Path(path).name
        return not name.startswith(self.hidden_prefixes) and not name.endswith(_TEMPORARY_SUFFIXES)


def _real_path(path: str) -> str:
    """Return the file behind a symbolic link, so that it is not read beside its target."""
    return str(Path(path).resolve()) if Path(path).is_symlink() else path


def _raise_unless_vanished(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        reason = error.strerror or str(error)
        raise InputUnreadableError(path=str(error.filename), reason=reason) from error
