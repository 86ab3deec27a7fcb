"""Which file is which: recognising a file after it was renamed, replaced, cut or copied.

A path is a name that rotation gives to other files. A file is told by its inode and by a checksum
of its first bytes, which never change while it only grows. Works without keeping the file open, so
also after a restart.
"""

from __future__ import annotations

import os
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["FileIdentity", "find_file", "identify", "is_same_head"]

HEAD_BYTE_COUNT_MAX = 256


@dataclass(frozen=True, slots=True)
class FileIdentity:
    """What a file is known by. The head may be shorter than the maximum while the file is young."""

    inode: int
    head_byte_count: int
    head_crc32: int

    def to_json(self) -> list[int]:
        """Return the form that memos and slices carry."""
        return [self.inode, self.head_byte_count, self.head_crc32]

    @classmethod
    def from_json(cls, data: list[Any]) -> FileIdentity:
        """Return what ``to_json`` wrote."""
        return cls(*data)


def identify(path: str) -> FileIdentity:
    """Return the identity of the file at ``path``; OSError when it can not be read."""
    with Path(path).open("rb") as stream:
        inode = os.fstat(stream.fileno()).st_ino
        head = stream.read(HEAD_BYTE_COUNT_MAX)
    return FileIdentity(inode, len(head), zlib.crc32(head))


def is_same_head(path: str, identity: FileIdentity) -> bool:
    """Tell whether the file at ``path`` begins like the known one; a missing file does not."""
    try:
        with Path(path).open("rb") as stream:
            head = stream.read(identity.head_byte_count)
    except FileNotFoundError:
        return False
    return len(head) == identity.head_byte_count and zlib.crc32(head) == identity.head_crc32


def find_file(path: str, identity: FileIdentity) -> str | None:
    """Return where a known file is now, or None.

    1. At its path, with its inode.
    2. Beside it under another name (rotation), with its inode.
    3. At its path with another inode: rewritten with more lines at its end, or another host's copy.
    """
    if _inode(path) == identity.inode and is_same_head(path, identity):
        return path
    for other in _paths_of_inode(Path(path).parent, identity.inode):
        if is_same_head(other, identity):
            return other
    return path if is_same_head(path, identity) else None


def _inode(path: str) -> int | None:
    try:
        return Path(path).stat().st_ino
    except OSError:
        return None


def _paths_of_inode(folder: Path, inode: int) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            found = [entry.path for entry in entries if entry.inode() == inode and entry.is_file()]
    except OSError:
        return []
    return sorted(found)
