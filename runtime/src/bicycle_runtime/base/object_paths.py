"""Object paths: the check whether a path may be used below the root of a storage.

Paths of objects come from files that other writers may have made: manifests, descriptions of
savepoints, indexes of bases, memos of sinks. Every storage calls this module before it touches
anything, so that no path leads out of its root, by its words or by links in it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable

from bicycle_runtime.base.errors import UnsafePathError

_NO_PARTS = frozenset(("", ".", ".."))


def checked_path(path: str) -> str:
    """Return the path of an object, or of a folder with or without a slash at its end.

    Raises:
        UnsafePathError: it is absolute, has `.`, `..` or nothing between two slashes, or a NUL.
    """
    if not path:
        return path
    if path[0] == "/":
        raise UnsafePathError(path=path, problem="it is absolute")
    if "\0" in path:
        raise UnsafePathError(path=path, problem="it contains a NUL character")
    if not _NO_PARTS.isdisjoint(path.removesuffix("/").split("/")):
        raise UnsafePathError(path=path, problem="it contains an empty part, `.` or `..`")
    return path


def checked_name(name: str) -> str:
    """Return the name of a file.

    Raises:
        UnsafePathError: it is no name, or a name in another folder.
    """
    if not name or "/" in name:
        raise UnsafePathError(path=name, problem="it is not the name of a file")
    return checked_path(name)


def require_below(paths: Iterable[str], *folders: str) -> None:
    """Ensure that all paths in a file are below the folders that such files use.

    Raises:
        UnsafePathError: one does not.
    """
    starts = tuple(f"{folder}/" for folder in folders)
    for path in paths:
        if not checked_path(path).startswith(starts):
            where = " or ".join(f"`{start}`" for start in starts)
            raise UnsafePathError(path=path, problem=f"it is not below {where}")


def refuse_links(root: str, path: str, *, is_last_fine: bool = False) -> None:
    """Ensure that no part of a path is a link, and the object no device or pipe.

    Args:
        root: A local directory; it may be a link itself.
        path: A checked path below it.
        is_last_fine: The object itself may be anything: it is removed, not followed.

    Raises:
        UnsafePathError: something is.
    """
    part_path = root
    parts = path.removesuffix("/").split("/") if path else []
    for part in parts[:-1] if is_last_fine else parts:
        part_path = f"{part_path}/{part}"
        try:
            mode = os.lstat(part_path).st_mode
        except OSError:
            return  # A missing attribute has no path; its user gets the error.
        if stat.S_ISLNK(mode):
            raise UnsafePathError(path=path, problem=f"{part_path} is a link")
        if not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
            raise UnsafePathError(path=path, problem=f"{part_path} is not a file")
