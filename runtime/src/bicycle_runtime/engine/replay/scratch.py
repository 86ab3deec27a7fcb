"""A storage that reads what another one has and keeps what is written to it in memory.

A replay runs on it: the checkpoint stays as it is, whatever the tasks write. What is deleted here
is deleted of what was written here; the other storage is only ever read.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from typing import BinaryIO

from bicycle_runtime.base.storage import ObjectExistsError, Storage

__all__ = ["ScratchStorage"]


class ScratchStorage:
    """Writes go to memory, reads find them first. For one process.

    Args:
        below: The storage that is read and never changed.
    """

    def __init__(self, below: Storage) -> None:
        self._below = below
        self._written: dict[str, bytes] = {}

    @property
    def url(self) -> str:
        """Where the storage below lies."""
        return self._below.url

    def read(self, path: str) -> bytes:
        written = self._written.get(path)
        return self._below.read(path) if written is None else written

    def write(self, path: str, data: bytes) -> None:
        self._written[path] = bytes(data)

    def create(self, path: str, data: bytes) -> None:
        if self.exists(path):
            raise ObjectExistsError(url=self.url, path=path)
        self.write(path, data)

    @contextlib.contextmanager
    def open_write(self, path: str) -> Iterator[BinaryIO]:
        stream = io.BytesIO()
        yield stream
        self.write(path, stream.getvalue())

    def open_read(self, path: str) -> BinaryIO:
        written = self._written.get(path)
        return self._below.open_read(path) if written is None else io.BytesIO(written)

    def exists(self, path: str) -> bool:
        return path in self._written or self._below.exists(path)

    def size(self, path: str) -> int:
        written = self._written.get(path)
        return self._below.size(path) if written is None else len(written)

    def list(self, prefix: str) -> list[str]:
        folder = f"{prefix}/" if prefix else ""
        mine = {path for path in self._written if path.startswith(folder)}
        return sorted(mine.union(self._below.list(prefix)))

    def delete(self, path: str) -> None:
        self._written.pop(path, None)

    def delete_tree(self, prefix: str) -> None:
        for path in [path for path in self._written if path.startswith(f"{prefix}/")]:
            self.delete(path)

    def discard_unfinished(self, prefix: str) -> int:  # noqa: ARG002 - contract
        return 0
