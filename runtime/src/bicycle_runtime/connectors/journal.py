"""The journal of a source: each received line is stored before it is read.

It is for input that is gone once it is read, and one endless sequence of bytes, cut into segment
files that are named by the position of their first byte. On a local disk a segment grows by flushed
appends; other storage gets one object per append. A half line at the end (the machine died while it
was written) was never available and is cut off.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from bicycle_runtime.base.files import sync_folder
from bicycle_runtime.base.storage import LocalStorage, Storage, storage_error
from bicycle_runtime.connectors.errors import JOURNAL_DAMAGED

BLOCK_BYTES = 1 << 17
_TAIL_BYTES = 1 << 12
_SUFFIX = ".lines"


@dataclass(frozen=True, slots=True)
class JournalSegments:
    """Reads ranges of a journal; a picklable value for driver and workers.

    Args:
        storage: The location of the segments.
        prefix: Their folder.
    """

    storage: Storage
    prefix: str

    def path(self, start: int) -> str:
        """Return the path of the segment that begins at ``start``."""
        return f"{self.prefix}/{start:020d}{_SUFFIX}"

    def starts(self) -> list[int]:
        """Return the first positions of all segments, in order."""
        names = [path.rpartition("/")[2] for path in self.storage.list(self.prefix)]
        return sorted(int(n.removesuffix(_SUFFIX)) for n in names if n.endswith(_SUFFIX))

    def blocks(self, starts: list[int], start: int, end: int) -> Iterator[bytes]:
        """Yield the bytes of ``[start, end)``.

        Args:
            starts: The segments that hold them.
            start: First position.
            end: Position behind the last.

        Raises:
            ObjectMissingError: a segment is gone.
            JOURNAL_DAMAGED: a segment is too short.
        """
        position = start
        while position < end:
            index = bisect_right(starts, position) - 1
            segment = starts[max(index, 0)]
            stop = min(end, starts[index + 1]) if index + 1 < len(starts) else end
            with self.storage.open_read(self.path(segment)) as stream:
                stream.seek(max(position - segment, 0))
                while position < stop and segment <= position:
                    data = stream.read(min(BLOCK_BYTES, stop - position))
                    if not data:
                        break
                    position += len(data)
                    yield data
            if position < stop:
                problem = f"bytes {position} to {stop} are missing"
                raise JOURNAL_DAMAGED(path=self.path(segment), problem=problem)


class Journal:
    """An appendable journal, which drops published input; one thread per method.

    Used by one thread at a time per method.

    Args:
        segments: The location of the journal.
        segment_bytes: Size at which a new segment begins.
        position: The position from which to read; the journal's end when there are no segments.
        is_synced: Whether lines survive a crash of the machine, not only of the process.

    Raises:
        JOURNAL_DAMAGED: bytes behind ``position`` are missing.
    """

    def __init__(
        self, segments: JournalSegments, segment_bytes: int, position: int, *,
        is_synced: bool = True,
    ) -> None:  # fmt: skip
        self._segments = segments
        self._is_synced = is_synced
        self._segment_bytes = segment_bytes
        self._stream: BinaryIO | None = None
        self._starts = segments.starts()
        self.end = self._find_end(position)

    def append(self, data: bytes) -> None:
        """Write whole lines durably, and move ``end`` after them.

        Raises:
            StorageError: they cannot be written, as when the disk is full.
        """
        if not data:
            return
        storage = self._segments.storage
        if isinstance(storage, LocalStorage):
            path = self._segments.path(self.end if self._stream is None else self._starts[-1])
            try:
                self._append_local(storage, path, data)
            except OSError as error:
                raise storage_error(error, url=storage.url, action="write", path=path) from error
        else:
            storage.write(self._segments.path(self.end), data)
            self._starts.append(self.end)
        self.end += len(data)
        if self._stream is not None and self.end - self._starts[-1] >= self._segment_bytes:
            self.close()

    def _append_local(self, storage: LocalStorage, path: str, data: bytes) -> None:
        if self._stream is None:
            local = storage.path_to_write(path)
            self._stream = local.open("ab")
            if self._is_synced:
                sync_folder(local.parent)
            self._starts.append(self.end)
        self._stream.write(data)
        self._stream.flush()
        if self._is_synced:
            os.fsync(self._stream.fileno())

    def covering(self, start: int, end: int) -> list[int]:
        """Return the starts of the segments that hold ``[start, end)``."""
        starts = list(self._starts)
        first = max(bisect_right(starts, start) - 1, 0)
        return [each for each in starts[first:] if each < end]

    def last_line(self, start: int, end: int) -> bytes:
        """Return the last line of ``[start, end)`` without its end, or an empty text."""
        size = _TAIL_BYTES
        while end > start:
            begin = max(start, end - size)
            data = b"".join(self._segments.blocks(self.covering(begin, end), begin, end))
            cut = data.rfind(b"\n", 0, -1)
            if cut >= 0 or begin == start:
                return data[cut + 1 :].removesuffix(b"\n")
            size *= 16
        return b""

    def drop_before(self, position: int) -> None:
        """Delete the segments that end at or before ``position``, except the last."""
        starts = self._starts
        while len(starts) > 1 and starts[1] <= position:
            self._segments.storage.delete(self._segments.path(starts[0]))
            del starts[0]

    def close(self) -> None:
        """Close the segment; the next append begins a new one."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def _find_end(self, position: int) -> int:
        if not self._starts:
            return position
        path = self._segments.path(self._starts[-1])
        end = self._starts[-1] + self._segments.storage.size(path)
        if isinstance(self._segments.storage, LocalStorage):
            end = self._cut_half_line(end)
        if position < self._starts[0]:
            problem = f"it begins at byte {self._starts[0]}, but {position} was not read yet"
            raise JOURNAL_DAMAGED(path=path, problem=problem)
        if end == self._starts[-1]:
            self._starts.pop()  # It is empty; the next append makes a segment of the same name.
        return max(end, position)

    def _cut_half_line(self, end: int) -> int:
        storage, start = self._segments.storage, self._starts[-1]
        whole, position = start, start
        for data in self._segments.blocks([start], start, end):
            newline_end = data.rfind(b"\n") + 1
            whole = position + newline_end if newline_end else whole
            position += len(data)
        if whole < end and isinstance(storage, LocalStorage):
            os.truncate(storage.local_path(self._segments.path(start)), whole - start)
        return whole
