"""File identity: recognizing a file after it was renamed, replaced, cut or copied.

A path is a name that rotation gives to other files, and an inode is a number that a file system
gives to the next file once the old one is removed. So a file is identified by its inode, by the
time of its birth if the file system keeps one, and by checksums of its first bytes and of the last
bytes before the offset up to which it is read: these never change while it only grows. Works
without keeping the file open, so also after a restart.
"""

from __future__ import annotations

import os
import zlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bicycle_runtime.base.files import birth_time_ns
from bicycle_runtime.connectors.files.listing import is_text

HEAD_BYTE_COUNT_MAX = 256
TAIL_BYTE_COUNT_MAX = 4_096


@dataclass(frozen=True, slots=True)
class FileIdentity:
    """The facts by which a file is known.

    The head may be shorter than the maximum while the file is young. The tail is the bytes before
    ``tail_end``. Positions of earlier versions have neither a tail nor a birth.
    """

    inode: int
    head_byte_count: int
    head_crc32: int
    birth_ns: int | None = None
    tail_end: int = 0
    tail_byte_count: int = 0
    tail_crc32: int = 0

    def to_json(self) -> list[int | None]:
        """Return the form that states and slices carry."""
        return [
            self.inode, self.head_byte_count, self.head_crc32, self.birth_ns,
            self.tail_end, self.tail_byte_count, self.tail_crc32,
        ]  # fmt: skip

    @classmethod
    def from_json(cls, data: list[Any]) -> FileIdentity:
        """Return an identity from ``to_json`` of this or an earlier version."""
        return cls(*data)

    def is_inode_of(self, other: FileIdentity) -> bool:
        """Return whether both identities may belong to the same inode, by birth time.

        Args:
            other: Identity of a file with the content of this one.
        """
        births = {self.birth_ns, other.birth_ns} - {None}
        return self.inode == other.inode and len(births) < 2


def identify(descriptor: int) -> FileIdentity:
    """Return the identity of an open file; OSError when it cannot be read."""
    head = os.pread(descriptor, HEAD_BYTE_COUNT_MAX, 0)
    inode, birth_ns = os.fstat(descriptor).st_ino, birth_time_ns(descriptor)
    return FileIdentity(inode, len(head), zlib.crc32(head), birth_ns)


def with_tail(path: str, identity: FileIdentity, end: int) -> FileIdentity:
    """Return the identity with the bytes before ``end``, unchanged for a missing file."""
    if end <= 0 or end == identity.tail_end:
        return identity
    try:
        with Path(path).open("rb", buffering=0) as stream:
            now = identity_of_open(stream.fileno(), identity, end)
            if now is None or not now.is_inode_of(identity):
                return identity
            tail = _bytes_before(stream.fileno(), end, min(end, TAIL_BYTE_COUNT_MAX))
    except OSError:
        return identity  # The next listing of the directory shows its fate.
    return replace(identity, tail_end=end, tail_byte_count=len(tail), tail_crc32=zlib.crc32(tail))


def find_file(
    path: str, identity: FileIdentity, *, size_min: int = 0
) -> tuple[str, FileIdentity] | None:
    """Return where a known file is now, and its identity there, or None.

    1. At its path, with its inode.
    2. Beside it under another name (rotation), with its inode.
    3. At its path with another inode: rewritten with more lines at its end, or another host's copy.

    Args:
        path: Where it was last.
        identity: The file's identity.
        size_min: A shorter file is another one: the known one was read up to there.
    """
    here = identity_at(path, identity, size_min=size_min)
    if here is not None and here.is_inode_of(identity):
        return path, here
    for other in _paths_of_inode(Path(path).parent, identity.inode):
        found = identity_at(other, identity, size_min=size_min)
        if found is not None and found.is_inode_of(identity):
            return other, found
    return None if here is None else (path, here)


def identity_at(path: str, identity: FileIdentity, *, size_min: int) -> FileIdentity | None:
    """Return the identity of a known file with the inode of the file at a path.

    None where that file has other content, is shorter than ``size_min``, or is gone.
    """
    try:
        with Path(path).open("rb", buffering=0) as stream:
            return identity_of_open(stream.fileno(), identity, size_min)
    except FileNotFoundError:
        return None


def identity_of_open(descriptor: int, identity: FileIdentity, size_min: int) -> FileIdentity | None:
    """Return the identity with an open file's inode, or None for other content."""
    status = os.fstat(descriptor)
    if status.st_size < max(size_min, identity.tail_end, identity.head_byte_count):
        return None
    head = _bytes_before(descriptor, identity.head_byte_count, identity.head_byte_count)
    if zlib.crc32(head) != identity.head_crc32:
        return None
    tail = _bytes_before(descriptor, identity.tail_end, identity.tail_byte_count)
    if identity.tail_end and zlib.crc32(tail) != identity.tail_crc32:
        return None
    return replace(identity, inode=status.st_ino, birth_ns=birth_time_ns(descriptor))


def _bytes_before(descriptor: int, end: int, byte_count: int) -> bytes:
    return os.pread(descriptor, byte_count, end - byte_count)


def _paths_of_inode(folder: Path, inode: int) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            found = [entry.path for entry in entries if entry.inode() == inode and entry.is_file()]
    except OSError:
        return []
    return sorted(filter(is_text, found))
