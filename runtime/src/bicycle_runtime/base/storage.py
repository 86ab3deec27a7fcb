"""Checkpoint storage: named byte objects under one root, and the local one.

The idea a reader needs: nothing is ever modified. Objects are created whole (readers never see a
half written one), *create-if-absent* is atomic, and everything else is built on these two. Paths
are relative, with forward slashes, and lead nowhere else (``object_paths``). Storage behind a URL
is opened by ``storage_urls``. This module knows nothing of epochs, manifests or sinks.
"""

from __future__ import annotations

import contextlib
import errno
import os
import random
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol, runtime_checkable

from bicycle_runtime.base.errors import (
    ATOMIC_CREATE_MISSING,
    STORAGE_FULL,
    ObjectExistsError,
    ObjectMissingError,
    StorageError,
    StorageUnreachableError,
)
from bicycle_runtime.base.files import make_folder, sync_folder
from bicycle_runtime.base.ids import attempt_id
from bicycle_runtime.base.object_paths import checked_path, refuse_links

__all__ = [
    "ATOMIC_CREATE_MISSING",
    "LocalStorage",
    "ObjectExistsError",
    "ObjectMissingError",
    "Storage",
    "StorageError",
    "delete_all",
    "publish_file",
    "require_atomic_create",
    "storage_error",
]

_UNFINISHED = ".tmp-"  # Such a name also ends in .tmp: readers look for `*.parquet`, dots or not.
_FOLDER_ATTEMPTS = 10
_FULL = (errno.ENOSPC, errno.EDQUOT)
_AWAY = (  # The errors of file systems of other machines.
    *(errno.ESTALE, errno.ENOTCONN, errno.ETIMEDOUT, errno.EHOSTDOWN, errno.EHOSTUNREACH),
)
_RACER_COUNT = 4


class Storage(Protocol):
    """The storage of checkpoints, staged output and job files; implementations pickle."""

    @property
    def url(self) -> str:
        """The location, for messages."""

    def read(self, path: str) -> bytes:
        """Return the whole object; raise ObjectMissingError if it is missing."""

    def write(self, path: str, data: bytes) -> None:
        """Create or replace an object in one step: a reader sees old or new bytes."""

    def create(self, path: str, data: bytes) -> None:
        """Create an object as one step; ObjectExistsError when it is there already.

        The bytes of two creators must differ: if an answer can be lost, an object with the very
        same bytes is taken for our own.
        """

    def open_write(self, path: str) -> contextlib.AbstractContextManager[BinaryIO]:
        """Stream a new object, which appears whole at the end, and never after an error."""

    def open_read(self, path: str) -> BinaryIO:
        """Open an object for reading from its start."""

    def exists(self, path: str) -> bool:
        """Return whether the object exists."""

    def size(self, path: str) -> int:
        """Return the size in bytes; raise ObjectMissingError if the object is missing."""

    def list(self, prefix: str) -> list[str]:
        """Return the sorted paths of all objects below the folder ``prefix``."""

    def delete(self, path: str) -> None:
        """Remove an object; missing is fine."""

    def delete_tree(self, prefix: str) -> None:
        """Remove all objects below the folder ``prefix``; missing is fine."""

    def discard_unfinished(self, prefix: str) -> int:
        """Remove unfinished objects of killed writers in the folder ``prefix``.

        No writer may write into the folder during the call.

        Returns:
            The number of removed objects.
        """


@runtime_checkable
class DeletesMany(Protocol):
    """A storage that removes many objects in one request."""

    def delete_all(self, paths: Iterable[str]) -> None:
        """Remove objects in their order; missing is fine."""


@dataclass(frozen=True, slots=True)
class LocalStorage:
    """A directory of this machine (or of a file system that all hosts share).

    Files are flushed to the disk before they get their name, so that they survive a power cut.

    Attributes:
        root: The directory.
        is_synced: Whether files are flushed to the disk.
        required_folder: An absolute path of a folder without which nothing is written, so that no
            new root appears when a disk was unmounted or a directory was moved, or an empty text.
    """

    root: str
    is_synced: bool = True
    required_folder: str = ""

    @property
    def url(self) -> str:
        """The root as a plain path."""
        return self.root

    def local_path(self, path: str) -> Path:
        """Return the path of the object, for tools that need a real file.

        Raises:
            UnsafePathError: the path, or a link on the way, leads out of the root.
        """
        refuse_links(self.root, checked_path(path))
        return Path(self.root, path)

    def read(self, path: str) -> bytes:
        try:
            return self.local_path(path).read_bytes()
        except FileNotFoundError:
            raise ObjectMissingError(url=self.root, path=path) from None
        except OSError as error:
            raise self._error("read", path, error) from error

    def write(self, path: str, data: bytes) -> None:
        with self.open_write(path) as stream:
            stream.write(data)

    def create(self, path: str, data: bytes) -> None:
        target = self.local_path(path)
        temporary = self._temporary(target)
        try:
            with self._open_new(temporary) as stream:
                stream.write(data)
                self._sync(stream)
            os.link(temporary, target)
            self._sync_directory(target.parent)
        except FileExistsError:
            raise ObjectExistsError(url=self.root, path=path) from None
        except OSError as error:
            raise self._error("create", path, error) from error
        finally:
            with contextlib.suppress(OSError):  # It would hide the error that is on its way.
                temporary.unlink(missing_ok=True)

    @contextlib.contextmanager
    def open_write(self, path: str) -> Iterator[BinaryIO]:
        target = self.local_path(path)
        temporary = self._temporary(target)
        try:
            with self._open_new(temporary) as stream:
                yield stream
                self._sync(stream)
            temporary.replace(target)
            self._sync_directory(target.parent)
        except OSError as error:
            raise self._error("write", path, error) from error
        finally:
            with contextlib.suppress(OSError):  # It would hide the error that is on its way.
                temporary.unlink(missing_ok=True)

    def open_read(self, path: str) -> BinaryIO:
        try:
            return self.local_path(path).open("rb")
        except FileNotFoundError:
            raise ObjectMissingError(url=self.root, path=path) from None
        except OSError as error:
            raise self._error("read", path, error) from error

    def exists(self, path: str) -> bool:
        try:
            return stat.S_ISREG(self.local_path(path).stat().st_mode)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:  # A lost mount must not look like a missing object.
            raise self._error("look for", path, error) from error

    def size(self, path: str) -> int:
        try:
            return self.local_path(path).stat().st_size
        except FileNotFoundError:
            raise ObjectMissingError(url=self.root, path=path) from None
        except OSError as error:
            raise self._error("look at", path, error) from error

    def list(self, prefix: str) -> list[str]:
        def refuse(error: OSError) -> None:
            if not isinstance(error, FileNotFoundError | NotADirectoryError):
                raise self._error("list", prefix, error) from error

        found = []
        for folder, _, names in os.walk(self.local_path(prefix), onerror=refuse):
            relative = Path(folder).relative_to(self.root).as_posix()
            found += [f"{relative}/{name}" for name in names if not name.startswith(_UNFINISHED)]
        return sorted(path.removeprefix("./") for path in found)

    def delete(self, path: str) -> None:
        refuse_links(self.root, checked_path(path), is_last_fine=True)
        try:
            Path(self.root, path).unlink(missing_ok=True)
        except OSError as error:
            raise self._error("delete", path, error) from error
        self._remove_empty_folders(path)

    def delete_tree(self, prefix: str) -> None:
        try:
            shutil.rmtree(self.local_path(prefix))
        except FileNotFoundError:
            return
        except OSError as error:
            raise self._error("delete", prefix, error) from error

    def discard_unfinished(self, prefix: str) -> int:
        found = list(self.local_path(prefix).rglob(f"{_UNFINISHED}*"))
        for path in found:
            self.delete(path.relative_to(self.root).as_posix())
        return len(found)

    def path_to_write(self, path: str) -> Path:
        """Return the location of an object for tools that write it; its folder is made.

        Raises:
            OSError: the folder cannot be made, or the required folder is gone.
            UnsafePathError: see ``local_path``.
        """
        target = self.local_path(path)
        self._require_folder()
        target.parent.mkdir(parents=True, exist_ok=True)
        return target

    def make_required_folder(self) -> None:
        """Make the folder without which nothing is written.

        Raises:
            StorageError: it cannot be made.
        """
        try:
            make_folder(Path(self.required_folder or self.root))
        except OSError as error:
            raise self._error("create", self.required_folder, error) from error

    def _require_folder(self) -> None:
        if self.required_folder and not Path(self.required_folder).is_dir():
            reason = f"{self.required_folder} does not exist: unmounted, moved or deleted"
            raise FileNotFoundError(errno.ENOENT, reason)

    def _open_new(self, path: Path) -> BinaryIO:
        """Create a file in a folder that another process may remove because it is empty."""
        self._require_folder()
        for _ in range(_FOLDER_ATTEMPTS):
            with contextlib.suppress(FileNotFoundError, FileExistsError):
                path.parent.mkdir(parents=True, exist_ok=True)
                return path.open("wb")
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path.parent))

    def _remove_empty_folders(self, path: str) -> None:
        """Remove the empty folders above a deleted object, up to the root."""
        folder = Path(self.root, path).parent
        with contextlib.suppress(OSError):  # It is not empty, or another process removed it.
            while folder != Path(self.root):
                folder.rmdir()
                folder = folder.parent

    def _temporary(self, target: Path) -> Path:
        return target.with_name(
            f"{_UNFINISHED}{os.getpid()}-{id(self):x}-{os.urandom(4).hex()}-{target.name}.tmp"
        )

    def _sync(self, stream: BinaryIO) -> None:
        if self.is_synced:
            stream.flush()
            os.fsync(stream.fileno())

    def _sync_directory(self, folder: Path) -> None:
        if self.is_synced:
            sync_folder(folder)

    def _error(self, action: str, path: str, error: OSError) -> StorageError:
        return storage_error(error, url=self.root, action=action, path=path)


def storage_error(error: OSError, *, url: str, action: str, path: str) -> StorageError:
    """Return an operating system error of a local file as a storage error."""
    kind: Callable[..., StorageError] = StorageError
    if error.errno in _FULL:
        kind = STORAGE_FULL
    elif error.errno in _AWAY:
        kind = StorageUnreachableError
    return kind(url=url, action=action, path=path, reason=error.strerror or str(error))


def delete_all(storage: Storage, paths: Iterable[str]) -> None:
    """Remove objects in order, in few requests if possible; missing ones are ignored."""
    if isinstance(storage, DeletesMany):
        storage.delete_all(paths)
        return
    for path in paths:
        storage.delete(path)


def require_atomic_create(storage: Storage, *, source: random.Random) -> None:
    """Make sure that of several creators of an object one wins: try it.

    1. An object that is there cannot be created again.
    2. Of creators at the same time one wins.

    Raises:
        ATOMIC_CREATE_MISSING: it is not so here.
        StorageError: the storage cannot be used at all.
    """
    token = attempt_id(source=source)
    first, second = f"probe/{token}-1", f"probe/{token}-2"
    try:
        # 1. An object that is there cannot be created again.
        if [_creates(storage, first, data) for data in (b"1", b"2")] != [True, False]:
            reason = "it creates an object again that already exists"
            raise ATOMIC_CREATE_MISSING(url=storage.url, reason=reason)
        # 2. Of creators at the same time one wins.
        if isinstance(storage, LocalStorage):
            return
        with ThreadPoolExecutor(_RACER_COUNT) as pool:
            racers = [str(number).encode() for number in range(_RACER_COUNT)]
            wins = list(pool.map(lambda data: _creates(storage, second, data), racers))
        if wins.count(True) != 1:
            reason = (
                f"{wins.count(True)} of {_RACER_COUNT} concurrent creators of one object succeeded"
            )
            raise ATOMIC_CREATE_MISSING(url=storage.url, reason=reason)
    finally:
        with contextlib.suppress(StorageError):  # It would hide the error that is on its way.
            delete_all(storage, (first, second))


def _creates(storage: Storage, path: str, data: bytes) -> bool:
    try:
        storage.create(path, data)
    except ObjectExistsError:
        return False
    return True


def publish_file(storage: Storage, path: str, target: Path) -> None:
    """Move a finished object out of the storage in one step; repeating is harmless.

    A local object is renamed; across file systems or from a URL it is copied beside the target
    first, and removed once neither the copy nor its name can be lost to a power cut.

    Raises:
        ObjectMissingError: neither the object nor the target is there.
        StorageError: the target cannot be written.
    """
    if not storage.exists(path):
        if target.exists():
            return
        raise ObjectMissingError(url=storage.url, path=path)
    try:
        make_folder(target.parent)
        if isinstance(storage, LocalStorage):
            try:
                storage.local_path(path).rename(target)
                return
            except OSError as error:
                if error.errno != errno.EXDEV:
                    raise
        temporary = target.with_name(f".tmp-{target.name}.tmp")
        with storage.open_read(path) as source, temporary.open("wb") as sink:
            shutil.copyfileobj(source, sink, 1 << 20)
            sink.flush()
            os.fsync(sink.fileno())
        temporary.replace(target)
        sync_folder(target.parent)
        storage.delete(path)
    except OSError as error:
        raise storage_error(error, url=str(target), action="write", path=target.name) from error
