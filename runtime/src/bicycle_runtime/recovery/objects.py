"""Whether an object that a manifest names lies in the storage as it was written."""

from __future__ import annotations

from typing import Protocol
from zlib import crc32

from bicycle_runtime.base.storage import Storage

__all__ = ["SealedObject", "is_whole"]

_PIECE_BYTES = 1 << 20


class SealedObject(Protocol):
    """What a manifest says of an object."""

    @property
    def path(self) -> str:
        """Where it lies."""

    @property
    def byte_count(self) -> int:
        """Its size."""

    @property
    def crc32(self) -> int:
        """Its checksum."""


def is_whole(storage: Storage, item: SealedObject) -> bool:
    """Tell whether an object has the size and the checksum that were recorded.

    Raises:
        ObjectMissingError: it is not there.
    """
    size, checksum = 0, 0
    with storage.open_read(item.path) as stream:
        while piece := stream.read(_PIECE_BYTES):
            size += len(piece)
            checksum = crc32(piece, checksum)
    return (size, checksum) == (item.byte_count, item.crc32)
