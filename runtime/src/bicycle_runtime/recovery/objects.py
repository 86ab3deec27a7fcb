"""Whether the objects that a manifest names lie in the storage as they were written."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Protocol
from zlib import crc32

from bicycle_runtime.base.storage import ObjectMissingError, Storage

__all__ = ["SealedObject", "damaged_paths", "is_whole"]

_PIECE_BYTES = 1 << 20
_THREADS = 4


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


def damaged_paths(storage: Storage, items: Iterable[SealedObject]) -> list[str]:
    """Return the paths of objects that are missing or changed; several are read at a time."""
    by_path = {item.path: item for item in items}
    ordered = [item for _, item in sorted(by_path.items())]
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="bicycle-check") as threads:
        found = list(threads.map(partial(_is_there, storage), ordered))
    return [item.path for item, is_good in zip(ordered, found, strict=True) if not is_good]


def _is_there(storage: Storage, item: SealedObject) -> bool:
    try:
        return is_whole(storage, item)
    except ObjectMissingError:
        return False
