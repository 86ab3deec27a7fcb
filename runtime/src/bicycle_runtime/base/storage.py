"""Checkpoint storage: named byte objects under one root, on a local disk or behind any fsspec URL.

The idea a reader needs: nothing is ever modified. Objects are created whole (readers never see a
half written one), *create-if-absent* is atomic, and everything else is built on these two. Paths
are relative, with forward slashes. This module knows nothing of epochs, manifests or sinks.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol
from urllib.parse import urlsplit

from bicycle_sdk.errors import BicycleError

__all__ = [
    "FsspecStorage",
    "LocalStorage",
    "ObjectExistsError",
    "ObjectMissingError",
    "Storage",
    "StorageError",
    "open_storage",
    "publish_file",
]

_UNFINISHED = ".tmp-"
_FOLDER_ATTEMPTS = 10


class StorageError(BicycleError):
    """The storage refused an operation (permission, disk full, network)."""

    code = "BIC-1130"
    message = "storage {url}: can not {action} {path!r}: {reason}"
    fix = "check that the location exists, is writable and has space; nothing was changed"


class ObjectExistsError(BicycleError):
    """An object that may be created only once is already there."""

    code = "BIC-1131"
    message = "storage {url}: {path!r} exists already; somebody else created it first"
    fix = "make sure that only one driver runs this job on this checkpoint directory"


class ObjectMissingError(BicycleError):
    """An object that must be there is not."""

    code = "BIC-1132"
    message = "storage {url}: {path!r} does not exist"
    fix = "check the checkpoint directory; files of a running job must not be removed by hand"


class Storage(Protocol):
    """What checkpoints, staged output and job files are kept in; implementations are picklable."""

    @property
    def url(self) -> str:
        """The location, for messages."""

    def read(self, path: str) -> bytes:
        """Return the whole object; ObjectMissingError when there is none."""

    def write(self, path: str, data: bytes) -> None:
        """Create or replace an object as one step: a reader sees old or new bytes, never a part."""

    def create(self, path: str, data: bytes) -> None:
        """Create an object as one step; ObjectExistsError when it is there already."""

    def open_write(self, path: str) -> contextlib.AbstractContextManager[BinaryIO]:
        """Stream a new object; it appears whole when the context ends, and never when it raises."""

    def open_read(self, path: str) -> BinaryIO:
        """Open an object for reading from its start."""

    def exists(self, path: str) -> bool:
        """Tell whether the object is there."""

    def size(self, path: str) -> int:
        """Return the size in bytes; ObjectMissingError when there is none."""

    def list(self, prefix: str) -> list[str]:
        """Return the sorted paths of all objects below the folder ``prefix``."""

    def delete(self, path: str) -> None:
        """Remove an object; missing is fine."""

    def delete_tree(self, prefix: str) -> None:
        """Remove all objects below the folder ``prefix``; missing is fine."""

    def discard_unfinished(self, prefix: str) -> int:
        """Remove what writers that were killed left behind below the folder ``prefix``.

        No writer may be at work there.

        Returns:
            How many half-written objects there were.
        """


@dataclass(frozen=True, slots=True)
class LocalStorage:
    """A directory of this machine (or of a file system that all hosts share).

    Files are flushed to the disk before they get their name, so that they survive a power cut.
    """

    root: str
    is_synced: bool = True

    @property
    def url(self) -> str:
        """The root as a plain path."""
        return self.root

    def local_path(self, path: str) -> Path:
        """Return where the object lies, for tools that need a real file."""
        return Path(self.root) / path

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
        return self.local_path(path).is_file()

    def size(self, path: str) -> int:
        try:
            return self.local_path(path).stat().st_size
        except FileNotFoundError:
            raise ObjectMissingError(url=self.root, path=path) from None

    def list(self, prefix: str) -> list[str]:
        top = self.local_path(prefix)
        found = []
        for folder, _, names in os.walk(top):
            relative = Path(folder).relative_to(self.root).as_posix()
            found += [f"{relative}/{name}" for name in names if not name.startswith(_UNFINISHED)]
        return sorted(path.removeprefix("./") for path in found)

    def delete(self, path: str) -> None:
        try:
            self.local_path(path).unlink(missing_ok=True)
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

    def _open_new(self, path: Path) -> BinaryIO:
        """Create a file in a folder that another process may be removing because it is empty."""
        for _ in range(_FOLDER_ATTEMPTS):
            with contextlib.suppress(FileNotFoundError, FileExistsError):
                path.parent.mkdir(parents=True, exist_ok=True)
                return path.open("wb")
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path.parent))

    def _remove_empty_folders(self, path: str) -> None:
        """Remove the folders above a deleted object that nothing is in any more, up to the root."""
        folder = self.local_path(path).parent
        with contextlib.suppress(OSError):  # It is not empty, or somebody else removed it.
            while folder != Path(self.root):
                folder.rmdir()
                folder = folder.parent

    def _temporary(self, target: Path) -> Path:
        return target.with_name(
            f"{_UNFINISHED}{os.getpid()}-{id(self):x}-{os.urandom(4).hex()}-{target.name}"
        )

    def _sync(self, stream: BinaryIO) -> None:
        if self.is_synced:
            stream.flush()
            os.fsync(stream.fileno())

    def _sync_directory(self, folder: Path) -> None:
        if not self.is_synced:
            return
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _error(self, action: str, path: str, error: OSError) -> StorageError:
        reason = error.strerror or str(error)
        return StorageError(url=self.root, action=action, path=path, reason=reason)


@dataclass(frozen=True, slots=True)
class FsspecStorage:
    """Any file system that fsspec knows and that has an exclusive create, as S3 and GCS do."""

    url: str

    def _fs(self) -> Any:
        import fsspec  # slow to import, and needed only for URLs

        return fsspec.core.url_to_fs(self.url)

    def read(self, path: str) -> bytes:
        fs, root = self._fs()
        try:
            data: bytes = fs.cat_file(f"{root}/{path}")
        except FileNotFoundError:
            raise ObjectMissingError(url=self.url, path=path) from None
        return data

    def write(self, path: str, data: bytes) -> None:
        fs, root = self._fs()
        try:
            fs.pipe_file(f"{root}/{path}", data)
        except OSError as error:
            raise StorageError(
                url=self.url, action="write", path=path, reason=str(error)
            ) from error

    def create(self, path: str, data: bytes) -> None:
        fs, root = self._fs()
        try:
            fs.pipe_file(f"{root}/{path}", data, mode="create")
        except FileExistsError:
            raise ObjectExistsError(url=self.url, path=path) from None
        except OSError as error:
            raise StorageError(
                url=self.url, action="create", path=path, reason=str(error)
            ) from error

    @contextlib.contextmanager
    def open_write(self, path: str) -> Iterator[BinaryIO]:
        fs, root = self._fs()
        with fs.transaction, fs.open(f"{root}/{path}", "wb") as stream:
            yield stream

    def open_read(self, path: str) -> BinaryIO:
        fs, root = self._fs()
        try:
            stream: BinaryIO = fs.open(f"{root}/{path}", "rb")
        except FileNotFoundError:
            raise ObjectMissingError(url=self.url, path=path) from None
        return stream

    def exists(self, path: str) -> bool:
        fs, root = self._fs()
        return bool(fs.isfile(f"{root}/{path}"))

    def size(self, path: str) -> int:
        fs, root = self._fs()
        try:
            return int(fs.size(f"{root}/{path}"))
        except FileNotFoundError:
            raise ObjectMissingError(url=self.url, path=path) from None

    def list(self, prefix: str) -> list[str]:
        fs, root = self._fs()
        found = fs.find(f"{root}/{prefix}".rstrip("/"))
        base = str(root).rstrip("/") + "/"
        return sorted(str(path).removeprefix(base) for path in found)

    def delete(self, path: str) -> None:
        fs, root = self._fs()
        with contextlib.suppress(FileNotFoundError):
            fs.rm_file(f"{root}/{path}")

    def delete_tree(self, prefix: str) -> None:
        fs, root = self._fs()
        with contextlib.suppress(FileNotFoundError):
            fs.rm(f"{root}/{prefix}", recursive=True)

    def discard_unfinished(self, prefix: str) -> int:  # noqa: ARG002 - contract
        return 0  # An upload that was not completed is no object.


def open_storage(location: str) -> Storage:
    """Return the storage at a path or URL; ``file://`` and plain paths are local.

    Args:
        location: A directory path, or a URL whose scheme fsspec knows.
    """
    parts = urlsplit(location)
    if parts.scheme in ("", "file"):
        return LocalStorage(str(Path(parts.path if parts.scheme else location).absolute()))
    return FsspecStorage(location.rstrip("/"))


def publish_file(storage: Storage, path: str, target: Path) -> None:
    """Give a finished object its place outside the storage, as one step; again is harmless.

    A local object is renamed; across file systems or from a URL it is copied beside the target
    first.

    Raises:
        ObjectMissingError: neither the object nor the target is there.
        StorageError: the target can not be written.
    """
    if not storage.exists(path):
        if target.exists():
            return
        raise ObjectMissingError(url=storage.url, path=path)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(storage, LocalStorage):
            try:
                storage.local_path(path).rename(target)
                return
            except OSError as error:
                if error.errno != errno.EXDEV:
                    raise
        temporary = target.with_name(f".tmp-{target.name}")
        with storage.open_read(path) as source, temporary.open("wb") as sink:
            shutil.copyfileobj(source, sink, 1 << 20)
            sink.flush()
            os.fsync(sink.fileno())
        temporary.replace(target)
        storage.delete(path)
    except OSError as error:
        reason = error.strerror or str(error)
        raise StorageError(
            url=str(target), action="write", path=target.name, reason=reason
        ) from error
