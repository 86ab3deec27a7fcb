"""Copies of checkpoint files to another location, checked by size and checksum.

A file that is never changed can be *linked* if both places are on one file system: the same bytes
under a second name, which stay when the first name is removed. If both are in S3 the server copies.
Everything else is streamed, several files at a time, and appears whole or not at all. Bytes that
did not come through here are read back, so that a savepoint is proved, too.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import BinaryIO, TypeVar
from zlib import crc32

from bicycle_runtime.base.files import sync_folder
from bicycle_runtime.base.object_paths import checked_path
from bicycle_runtime.base.s3_storage import S3Storage
from bicycle_runtime.base.storage import LocalStorage, ObjectMissingError, Storage
from bicycle_runtime.base.storage_urls import open_storage
from bicycle_runtime.layouts.savepoint import CopiedFile
from bicycle_runtime.recovery.errors import COPY_REFUSED
from bicycle_sdk.errors import BicycleError

_BLOCK_BYTES = 1 << 20
_THREADS_MAX = 8
S = TypeVar("S")
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileToCopy:
    """A file to copy with its recorded size and checksums, or None for each."""

    path: str
    byte_count: int | None = None
    crc32: int | None = None
    sha256: str = ""


def folder_of(storage: Storage, path: str) -> Storage:
    """Return a folder of a storage as a storage of its own."""
    if isinstance(storage, LocalStorage):
        return replace(storage, root=str(storage.local_path(path)))
    return open_storage(f"{storage.url}/{checked_path(path)}")


def copy_files(
    source: Storage, target: Storage, files: Iterable[FileToCopy], *, is_digested: bool = False
) -> list[CopiedFile]:
    """Copy files to the same paths, in order, with their digests if requested.

    Raises:
        COPY_REFUSED: a file is missing, or differs from its record.
        StorageError: a storage refuses to read or write.
    """
    return _in_threads(partial(_copy, source, target, is_digested=is_digested), files)


def read_back(storage: Storage, files: Iterable[FileToCopy]) -> list[CopiedFile]:
    """Read files completely, and check them against their records.

    Raises:
        COPY_REFUSED: a file is missing, or differs from its record.
    """
    return _in_threads(partial(_read, storage, storage), files)


def settle_links(
    source: Storage, target: Storage, files: Iterable[FileToCopy], *, is_digested: bool = False
) -> list[CopiedFile]:
    """Check linked files, and make their names durable in a power cut.

    Raises:
        COPY_REFUSED: a file is missing, or differs from its record.
    """
    linked = list(files)
    found = _in_threads(partial(_read, target, source, is_digested=is_digested), linked)
    if isinstance(target, LocalStorage) and target.is_synced:
        folders = {target.local_path(file.path).parent for file in linked}
        _in_threads(sync_folder, sorted(folders))
    return found


def link_files(source: Storage, target: Storage, files: Iterable[FileToCopy]) -> list[FileToCopy]:
    """Link immutable files to the same paths, in time independent of their size.

    They count once ``settle_links`` has proved them.

    Returns:
        The files that could not be linked and must be copied.
    """
    if not (isinstance(source, LocalStorage) and isinstance(target, LocalStorage)):
        return list(files)
    left = []
    for wanted in files:
        path = target.path_to_write(wanted.path)
        try:
            path.unlink(missing_ok=True)
            os.link(source.local_path(wanted.path), path)
        except OSError:  # Another file system, or one without links, or a missing file.
            left.append(wanted)
    return left


def _in_threads(act: Callable[[S], T], things: Iterable[S]) -> list[T]:
    wanted = list(things)
    if not wanted:
        return []
    pool = ThreadPoolExecutor(min(_THREADS_MAX, len(wanted)), thread_name_prefix="copy")
    try:
        return list(pool.map(act, wanted))
    finally:
        pool.shutdown(cancel_futures=True)


def _copy(source: Storage, target: Storage, wanted: FileToCopy, *, is_digested: bool) -> CopiedFile:
    if _is_copied_there(source, target, wanted):
        return _read(target, source, wanted, is_digested=is_digested)
    with _open(source, wanted) as stream, target.open_write(wanted.path) as copy:
        return _stream(source, wanted, stream, copy.write, is_digested=is_digested)


def _is_copied_there(source: Storage, target: Storage, wanted: FileToCopy) -> bool:
    """Copy a file on the server between two S3 locations; return whether it did."""
    if not (isinstance(source, S3Storage) and isinstance(target, S3Storage)):
        return False
    try:
        return target.copy_from(source, wanted.path, byte_count=wanted.byte_count)
    except ObjectMissingError:
        raise _refusal(source, wanted, "it is missing") from None


def _read(
    storage: Storage, source: Storage, wanted: FileToCopy, *, is_digested: bool = False
) -> CopiedFile:
    """Read a file completely; errors name its source."""
    with _open(storage, wanted) as stream:
        return _stream(source, wanted, stream, len, is_digested=is_digested)


@contextlib.contextmanager
def _open(storage: Storage, wanted: FileToCopy) -> Iterator[BinaryIO]:
    try:
        stream = storage.open_read(wanted.path)
    except ObjectMissingError:
        raise _refusal(storage, wanted, "it is missing") from None
    with stream:
        yield stream


def _stream(
    storage: Storage, wanted: FileToCopy, stream: BinaryIO, take: Callable[[bytes], object],
    *, is_digested: bool,
) -> CopiedFile:  # fmt: skip
    """Pass a file on block by block; raising here leaves no file at the other end."""
    byte_count, checksum = 0, 0
    digest = hashlib.sha256() if is_digested or wanted.sha256 else None
    while block := stream.read(_BLOCK_BYTES):
        take(block)
        byte_count += len(block)
        checksum = crc32(block, checksum)
        if digest is not None:
            digest.update(block)
    if wanted.byte_count not in (None, byte_count):
        problem = f"it has {byte_count:,} bytes, expected {wanted.byte_count:,}"
        raise _refusal(storage, wanted, problem)
    if wanted.crc32 not in (None, checksum):
        raise _refusal(storage, wanted, "its checksum differs from the recorded checksum")
    found = "" if digest is None else digest.hexdigest()
    if wanted.sha256 not in ("", found):
        raise _refusal(
            storage, wanted, "its digest differs from the recorded digest: the file was changed"
        )
    return CopiedFile(wanted.path, byte_count, checksum, found)


def _refusal(storage: Storage, wanted: FileToCopy, problem: str) -> BicycleError:
    return COPY_REFUSED(path=wanted.path, url=storage.url, problem=problem)


def wanted_copy(file: CopiedFile) -> FileToCopy:
    """Return the expected copy of a copied file."""
    return FileToCopy(
        path=file.path, byte_count=file.byte_count, crc32=file.crc32, sha256=file.sha256
    )
