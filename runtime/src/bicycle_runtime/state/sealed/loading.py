"""The progress of loading, reported while state is loaded or files are fetched.

A worker process has one meter: it runs one task at a time. Stores set the range that they load
again, and the code that reads files, or fetches them, adds the number of bytes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final, Protocol


class LoadProgress(Protocol):
    """A callback that receives progress."""

    def __call__(self, done: int, total: int, /) -> None:
        """Take note that ``done`` of ``total`` bytes are there.

        Called often, from any thread, also with the same numbers again; it must be quick and raise
        nothing.
        """


def untold(done: int, total: int) -> None:
    """Ignore progress."""


class LoadMeter:
    """A meter of loaded bytes while a watcher is active.

    ``ranges`` has, by operator, the size of the range that was loaded again; a range that was there
    already, or only had to catch up, is not in it.
    """

    def __init__(self) -> None:
        self.ranges: dict[str, int] = {}
        self._done = self._total = 0
        self._tell: LoadProgress = untold

    @contextlib.contextmanager
    def watching(self, total: int, tell: LoadProgress) -> Iterator[None]:
        """Count from zero while inside.

        Args:
            total: Number of bytes to load if no file is local.
            tell: Called after each file.
        """
        self.ranges = {}
        self._done, self._total, self._tell = 0, total, tell
        try:
            yield
        finally:
            self._tell = untold

    def begin_range(self, operator: str, byte_count: int) -> None:
        """Take note that the range of an operator is loaded again."""
        self.ranges[operator] = byte_count

    def add(self, byte_count: int) -> None:
        """Take note of bytes that were read or fetched."""
        self._done += byte_count
        self._tell(self._done, self._total)


LOADING: Final = LoadMeter()
