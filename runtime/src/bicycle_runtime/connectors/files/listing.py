"""The files of a path: a file, a directory, or a glob, without hidden files."""

from __future__ import annotations

import errno
import glob
import logging
import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from bicycle_runtime.connectors.errors import INPUT_UNREADABLE
from bicycle_sdk.logging import log_event

_logger = logging.getLogger(__name__)
_TEMPORARY_SUFFIXES = (".tmp", ".part", "~")


@dataclass(frozen=True, slots=True, kw_only=True)
class InputPath:
    """The ``path`` option of a file source.

    A name that exists is taken as it is, even with ``*`` in it; else ``*``, ``?``, ``[`` and ``**``
    make it a glob. Names with a hidden prefix are no input. Unreadable entries, a link that leads
    to itself or a name that is not UTF-8, are logged once and skipped.
    """

    text: str
    is_recursive: bool
    hidden_prefixes: tuple[str, ...] = (".",)
    _skipped: set[str] = field(default_factory=set, init=False, repr=False, compare=False)

    @property
    def is_directory(self) -> bool:
        """Return whether the path is a directory now."""
        return Path(self.text).is_dir()

    @property
    def is_glob(self) -> bool:
        """Return whether the path is a pattern, without a file of that exact name."""
        return glob.has_magic(self.text) and not Path(self.text).exists()

    def files(self) -> dict[str, os.stat_result]:
        """Return absolute path -> stat of each input file there is now, sorted by path."""
        if self.is_directory:
            candidates = self._in_directory()
        elif self.is_glob:
            # Only the typed text is a pattern: the working directory may have brackets in its name.
            pattern = str(Path(glob.escape(str(Path.cwd()))) / self.text)
            # Path.glob takes no absolute pattern.
            matches = glob.glob(pattern, recursive=True)  # noqa: PTH207 - see above.
            candidates = _once([_real_path(path) for path in matches if self._is_input(path)])
        else:
            candidates = [str(Path(self.text).absolute())]
        found = {}
        for path in sorted(set(candidates)):
            if not is_text(path):
                self._skip(path, "its name is not UTF-8")
                continue
            try:
                status = Path(path).stat()
            except OSError as error:
                if error.errno in (errno.ELOOP, errno.ENAMETOOLONG):
                    self._skip(path, error.strerror or str(error))
                continue  # Else it vanished between the listing and now; the next listing shows it.
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

    def _skip(self, path: str, reason: str) -> None:
        if path not in self._skipped:
            self._skipped.add(path)
            shown = os.fsencode(path).decode("utf-8", "backslashreplace")
            log_event(
                _logger, "input_file_skipped", level=logging.WARNING, path=shown, reason=reason
            )

    def _is_input(self, path: str) -> bool:
        name = Path(path).name
        return not name.startswith(self.hidden_prefixes) and not name.endswith(_TEMPORARY_SUFFIXES)


def is_text(path: str) -> bool:
    """Return whether a path can be written down: the names of files may be any bytes."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def _real_path(path: str) -> str:
    """Return the target of a symbolic link, so that a file is not read twice."""
    return os.path.realpath(path) if Path(path).is_symlink() else path


def _once(paths: Iterable[str]) -> list[str]:
    """Return each file once, at its shortest path, since patterns follow links.

    A link that leads upwards would list every file below again and again.
    """
    folder_of = cache(os.path.realpath)
    found: dict[tuple[str, str], str] = {}
    for path in sorted(paths, key=lambda path: (path.count(os.sep), path)):
        folder, name = os.path.split(path)
        found.setdefault((folder_of(folder), name), path)
    return list(found.values())


def _raise_unless_vanished(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        reason = error.strerror or str(error)
        raise INPUT_UNREADABLE(path=str(error.filename), reason=reason) from error
