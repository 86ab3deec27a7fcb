"""Verification of files before a restart, without loading one into memory.

Damage is best found before anything is built on it. A disk does not prove its content, so all bytes
of a directory are read and compared with their checksums, several files at a time: reading is
waiting, and threads are enough. A server of S3 proves its bytes itself, and all of them would come
here by one process before the workers read them again; so there it only lists them. The code that
loads a file compares its checksum in either case (``EpochLedger.doubt``).
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from zlib import crc32

from bicycle_runtime.base.s3_storage import S3Storage
from bicycle_runtime.base.storage import ObjectMissingError, Storage
from bicycle_runtime.state.sealed.loading import LoadProgress, untold

_READERS = 8
_BLOCK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Checked:
    """The expected size and CRC-32 of a file."""

    byte_count: int
    crc32: int


def first_unfit(
    storage: Storage, files: Mapping[str, Checked], *, progress: LoadProgress = untold
) -> str | None:
    """Return the first path, in order, that prevents a restart, or None.

    Args:
        storage: The location of the files.
        files: The expected size and checksum of each.
        progress: Called after each block that was read; not if sizes are enough.

    Raises:
        StorageError: the storage cannot be read.
    """
    if not isinstance(storage, S3Storage):
        return first_damaged(storage, files, progress=progress)
    sizes: dict[str, int] = {}
    for folder in sorted({path.partition("/")[0] for path in files}):
        sizes |= storage.sizes(folder)
    return next((path for path in sorted(files) if sizes.get(path) != files[path].byte_count), None)


def first_damaged(
    storage: Storage, files: Mapping[str, Checked], *, progress: LoadProgress = untold
) -> str | None:
    """Return the first path, in order, that is missing or damaged, or None.

    Args:
        storage: The location of the files.
        files: The expected size and checksum of each.
        progress: Called after each block that was read.

    Raises:
        StorageError: the storage cannot be read.
    """
    tally = _Tally(sum(file.byte_count for file in files.values()), progress)

    def is_whole(path: str) -> bool:
        return _is_whole(storage, path, files[path], tally)

    paths = sorted(files)
    with ThreadPoolExecutor(_READERS, thread_name_prefix="verify") as pool:
        found = list(pool.map(is_whole, paths))
    return next((path for path, good in zip(paths, found, strict=True) if not good), None)


class _Tally:
    """The sum of bytes read in all threads."""

    def __init__(self, total: int, progress: LoadProgress) -> None:
        self._total = total
        self._progress = progress
        self._done = 0
        self._lock = threading.Lock()

    def add(self, byte_count: int) -> None:
        with self._lock:
            self._done += byte_count
            self._progress(self._done, self._total)


def _is_whole(storage: Storage, path: str, expected: Checked, tally: _Tally) -> bool:
    checksum = size = 0
    try:
        with storage.open_read(path) as stream:
            while data := stream.read(_BLOCK_BYTES):
                checksum = crc32(data, checksum)
                size += len(data)
                tally.add(len(data))
    except ObjectMissingError:
        return False
    return (size, checksum) == (expected.byte_count, expected.crc32)
