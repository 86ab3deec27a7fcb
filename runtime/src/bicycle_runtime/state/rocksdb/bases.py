"""Bases that RocksDB made: the files of a local database, in the job's storage.

A checkpoint links the files of the database at a checkpoint id, in a moment; a thread then writes
files that the storage has not got. A file is named by its content and by the base that first had
it. Only files that the sealed state names are used again: so a file that is being collected is
never counted on, nor is a removed file ever written again. Small files with the list of a
database's files are in the index of the base.

Reading is the reverse: the files are brought into a folder, which opens as a database. They are
copied, not linked, into folders that are written to: a cache that shares its files with the sealed
state could damage it.
"""

from __future__ import annotations

import hashlib
import logging
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING
from zlib import crc32

from bicycle_runtime.base.reading_ahead import parts_ahead
from bicycle_runtime.base.s3_storage import S3Storage
from bicycle_runtime.base.storage import LocalStorage, ObjectMissingError
from bicycle_runtime.layouts.state import (
    EVERYWHERE,
    BaseIndex,
    ChangeSet,
    RangeState,
    SstRef,
    StateRef,
)
from bicycle_runtime.state.errors import StateFileError
from bicycle_runtime.state.rocksdb.space import LAYOUT, READ_LAYOUTS, RocksSpace, SpaceError
from bicycle_runtime.state.sealed.bases import BaseFolder, Make, decode_index
from bicycle_runtime.state.sealed.loading import LOADING
from bicycle_runtime.state.settings import StateSettings
from bicycle_sdk.logging import log_event

if TYPE_CHECKING:
    from bicycle_runtime.state.sealed.sealed_files import SealedFiles

Progress = Callable[[int], None]  # Called with the number of new bytes; from any thread.

_LOGGER = logging.getLogger(__name__)
_SST = "*.sst"
_CURRENT = "CURRENT"
_SMALL_FILES = (_CURRENT, "MANIFEST-*")
_DIGEST_BYTES = 20
_PIECE_BYTES = 1 << 20
_THREADS = 4
_TELL_SECONDS = 5.0


# --- writing ---------------------------------------------------------------------------------


def upload(state: RangeState, path: Path, known: dict[str, SstRef]) -> Make:
    """Return a function that uploads a checkpoint of a database and removes it here.

    Args:
        state: The sealed state that the checkpoint holds.
        path: Folder of the checkpoint.
        known: The known files of the database by their names; gets the written files.
    """
    sealed = {sst.path: sst for ref in state.files for sst in ref.ssts}
    return partial(_upload, path, known, sealed)


def _upload(
    path: Path, known: dict[str, SstRef], sealed: Mapping[str, SstRef], folder: BaseFolder
) -> None:
    try:
        by_digest = {sst.digest: sst for sst in sealed.values()}
        ssts = []
        for file in sorted(path.glob(_SST)):
            sst = known.get(file.name)
            if sst is None or sst.path not in sealed:
                sst = _write(file, by_digest, folder)
            ssts.append(sst)
        files = {file.name: file.read_bytes() for name in _SMALL_FILES for file in path.glob(name)}
        groups = (folder.groups.start, folder.groups.stop)
        folder.finish(
            BaseIndex(
                epoch=folder.epoch, groups=groups, layout=LAYOUT, ssts=tuple(ssts), files=files
            )
        )
        known.clear()
        known.update({sst.name: sst for sst in ssts})
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _write(file: Path, by_digest: Mapping[str, SstRef], folder: BaseFolder) -> SstRef:
    """Write a file into the storage, unless the sealed state has one of its content."""
    digest, checksum, size = hashlib.blake2b(digest_size=_DIGEST_BYTES), 0, 0
    with file.open("rb") as stream:
        while piece := stream.read(_PIECE_BYTES):
            digest.update(piece)
            checksum = crc32(piece, checksum)
            size += len(piece)
            folder.pause()
    name = f"{digest.hexdigest()}.sst"
    found = by_digest.get(name)
    if found is not None:
        return SstRef(name=file.name, path=found.path, byte_count=size, crc32=checksum)
    path = f"{folder.path}/{name}"
    with file.open("rb") as stream, folder.files.storage.open_write(path) as target:
        while piece := stream.read(_PIECE_BYTES):
            target.write(piece)
            folder.pause()
    folder.note_file()
    return SstRef(name=file.name, path=path, byte_count=size, crc32=checksum)


# --- reading ---------------------------------------------------------------------------------


def index_of(files: SealedFiles, ref: StateRef) -> BaseIndex:
    """Return the index of a base.

    Raises:
        StateFileError: it is missing or damaged, or its entries have another layout.
    """
    index = decode_index(files.data_of(ref), path=ref.path, operator=files.operator)
    if index.layout not in READ_LAYOUTS:
        known = ", ".join(READ_LAYOUTS)
        reason = f"its entries have the layout {index.layout}, but this runtime supports {known}"
        raise files.damaged(ref.path, reason)
    return index


def bring(
    files: SealedFiles, index: BaseIndex, target: Path, *, progress: Progress, is_linked: bool
) -> None:
    """Bring the files of a base into a new folder, several at a time.

    The file that makes a database of it comes last: an unfinished folder is no database.

    Args:
        files: The operator's.
        index: Of the base.
        target: The folder.
        progress: Gets the number of new bytes.
        is_linked: Only read files of this machine in place. Then the database itself finds damage.

    Raises:
        StateFileError: a file is missing or damaged.
    """
    target.mkdir(parents=True, exist_ok=True)
    if isinstance(files.storage, S3Storage):
        _download(files, target, progress, index.ssts)
    else:
        one = partial(_link if is_linked else _copy, files, target, progress)
        with ThreadPoolExecutor(_THREADS, thread_name_prefix="bicycle-bring") as threads:
            for _ in threads.map(one, index.ssts):
                pass
    for name in sorted(index.files, key=lambda name: (name == _CURRENT, name)):
        (target / name).write_bytes(index.files[name])


def _download(files: SealedFiles, target: Path, come: Progress, ssts: Sequence[SstRef]) -> None:
    """Write files in order, while parts of this and the next file are fetched."""
    checksum, size = 0, 0
    try:
        coming = parts_ahead(files.storage, [(sst.path, sst.byte_count) for sst in ssts])
        for index, data, is_last in coming:
            with (target / ssts[index].name).open("ab") as copy:
                copy.write(data)
            checksum, size = crc32(data, checksum), size + len(data)
            come(len(data))
            if is_last:
                _require_whole(files, ssts[index], size, checksum)
                checksum, size = 0, 0
    except ObjectMissingError as error:
        raise files.damaged(str(error.facts["path"]), "it is missing") from None


def _copy(files: SealedFiles, target: Path, come: Progress, sst: SstRef) -> None:
    checksum, size = 0, 0
    try:
        with files.storage.open_read(sst.path) as stream, (target / sst.name).open("wb") as copy:
            while piece := stream.read(_PIECE_BYTES):
                copy.write(piece)
                checksum = crc32(piece, checksum)
                size += len(piece)
                come(len(piece))
    except ObjectMissingError:
        raise files.damaged(sst.path, "it is missing") from None
    _require_whole(files, sst, size, checksum)


def _require_whole(files: SealedFiles, sst: SstRef, size: int, checksum: int) -> None:
    if (size, checksum) != (sst.byte_count, sst.crc32):
        reason = f"it has {size} bytes with checksum {checksum:08x}, " + (
            f"expected {sst.byte_count} with {sst.crc32:08x}"
        )
        raise files.damaged(sst.path, reason)


def _link(files: SealedFiles, target: Path, come: Progress, sst: SstRef) -> None:
    storage = files.storage
    if not isinstance(storage, LocalStorage):
        _copy(files, target, come, sst)
        return
    try:
        size = storage.size(sst.path)
    except ObjectMissingError:
        raise files.damaged(sst.path, "it is missing") from None
    if size != sst.byte_count:
        raise files.damaged(sst.path, f"{size} bytes instead of {sst.byte_count}")
    (target / sst.name).symlink_to(storage.local_path(sst.path).absolute())
    come(size)


@contextmanager
def mount(
    files: SealedFiles, ref: StateRef, index: BaseIndex, *, progress: Progress | None = None
) -> Iterator[RocksSpace]:
    """Open a base for reading, in a folder that is gone afterwards.

    Args:
        files: The operator's.
        ref: The base.
        index: Of the base.
        progress: Gets the number of new bytes.

    Raises:
        StateFileError: a file is missing or damaged.
    """
    with tempfile.TemporaryDirectory(prefix="bicycle-base-", ignore_cleanup_errors=True) as name:
        path = Path(name)
        bring(files, index, path, progress=progress or _nobody, is_linked=True)
        try:
            space = RocksSpace.open_for_reading(path, StateSettings())
        except SpaceError as error:
            raise damage_of(files, ref, error) from error
        try:
            yield space
        finally:
            space.close()


def damage_of(files: SealedFiles, ref: StateRef, error: SpaceError) -> StateFileError:
    """Return the error of a base that RocksDB cannot read. It names the first damaged file.

    RocksDB names a file of a temporary folder, so the files are compared with their sizes and
    checksums. If all of them are intact, the error names the index.
    """
    for sst in index_of(files, ref).ssts:
        checksum = size = 0
        try:
            with files.storage.open_read(sst.path) as stream:
                while piece := stream.read(_PIECE_BYTES):
                    checksum, size = crc32(piece, checksum), size + len(piece)
            _require_whole(files, sst, size, checksum)
        except ObjectMissingError:
            return files.damaged(sst.path, "it is missing")
        except StateFileError as found:
            return found
    return files.damaged(ref.path, str(error))


def change_sets_of(
    files: SealedFiles, ref: StateRef, groups: range
) -> Iterator[Sequence[ChangeSet]]:
    """Yield a base's change sets for some key groups and common state, by group.

    Raises:
        StateFileError: a file is missing or damaged.
    """
    with mount(files, ref, index_of(files, ref)) as space:
        for group in (EVERYWHERE, *groups):
            try:
                change_sets = [space.change_set(group, name) for name in space.names(group)]
            except SpaceError as error:
                raise damage_of(files, ref, error) from error
            yield change_sets


@contextmanager
def watch(operator: str, total: int) -> Iterator[Progress]:
    """Yield a progress meter that logs the loading of bases at intervals.

    Args:
        operator: Whose.
        total: Bytes of all files.
    """
    began = told = time.monotonic()
    done, lock = 0, Lock()

    def come(byte_count: int) -> None:
        nonlocal told, done
        with lock:
            done += byte_count
            LOADING.add(byte_count)
            now = time.monotonic()
            if now - told < _TELL_SECONDS:
                return
            told = now
        left_s = max(0, total - done) * (now - began) / max(1, done)
        log_event(
            _LOGGER, "state_restoring", operator=operator, byte_count=done,
            total_bytes=total, left_s=round(left_s),
        )  # fmt: skip

    yield come
    duration_ms = round((time.monotonic() - began) * 1000)
    log_event(
        _LOGGER, "state_restored", operator=operator, byte_count=done, duration_ms=duration_ms
    )


def _nobody(byte_count: int) -> None:
    """Ignore progress."""
