"""Random access to a file of streams: a message or a beacon at any byte.

It is the slow and exact way, for looking around: the end of a file, a place to seek, damage. The
fast way through many messages is ``reading``. A view holds two blocks of the file in memory.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Self

from bicycle_streams.addresses import StreamKey
from bicycle_streams.file.errors import (
    FILE_CUT_OFF,
    FILE_MISSING,
    FILE_UNREADABLE,
    NOT_A_STREAM_FILE,
    VERSION_UNKNOWN,
    FileFormatError,
)
from bicycle_streams.file.format import (
    FIXED,
    HEADER_SIZE,
    MARK,
    TAIL,
    Beacon,
    FileHeader,
    checksum,
    parse_beacon,
    stream_of,
)

_BLOCK_SIZE = 1 << 14
_SCAN_SIZE = 1 << 20
_BEACON_SIZE_USUAL = 1 << 10
_BEACON_SIZE_MAX = 7 + 255 * (1 + 255 + 26)


class CutOffError(Exception):
    """A read beyond the end of the file, internal to this package."""


class Head(NamedTuple):
    """A message without its payload, and its location."""

    key: StreamKey
    shard_id: int
    sequence: int
    timestamp_ms: int
    size: int
    payload_at: int
    offset: int


class FileView:
    """A file of streams, read at any place.

    Args:
        path: For messages of errors.
        descriptor: The open file; closed by ``close`` only if the view opened it.
    """

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self.descriptor = descriptor
        self.header = read_header(path, descriptor)
        self.interval = self.header.beacon_interval
        self.size = 0
        self._blocks: dict[int, bytes] = {}
        self.refresh()

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open a file to read it; the caller closes the view."""
        descriptor = open_to_read(path)
        try:
            return cls(path, descriptor)
        except BaseException:
            os.close(descriptor)
            raise

    def close(self) -> None:
        """Close the file."""
        os.close(self.descriptor)

    def refresh(self) -> None:
        """Look at the file as it is now."""
        self.size = os.fstat(self.descriptor).st_size
        self._blocks.clear()

    @property
    def beacon_count(self) -> int:
        """The maximum number of beacons; the last one may be truncated."""
        return max(0, self.size - 1) // self.interval

    def read(self, offset: int, size: int) -> bytes:
        """Return raw bytes of the file; raise CutOffError if it is too short."""
        if offset + size > self.size:
            raise CutOffError
        first, last = offset // _BLOCK_SIZE, (offset + size - 1) // _BLOCK_SIZE
        if last - first > 1:
            return os.pread(self.descriptor, size, offset)
        data = b"".join(self._block(number) for number in range(first, last + 1))
        start = offset - first * _BLOCK_SIZE
        return data[start : start + size]

    def beacon(self, number: int) -> Beacon:
        """Return the beacon at ``number`` times the interval.

        Raises:
            CutOffError: the file ends in it.
            FileFormatError: there is no beacon.
        """
        offset = number * self.interval
        room = max(0, self.size - offset)
        try:
            beacon = parse_beacon(self.read(offset, min(_BEACON_SIZE_USUAL, room)))
            if beacon is None:
                beacon = parse_beacon(self.read(offset, min(_BEACON_SIZE_MAX, room)))
        except ValueError as error:
            raise self.damage(offset, str(error)) from None
        if beacon is None:
            raise CutOffError
        if beacon.size >= self.interval:
            raise self.damage(offset, "a beacon fills its whole interval")
        return beacon

    def start_behind(self, number: int) -> int:
        """Return the offset of the first message that begins after a beacon (0: header)."""
        if number == 0:
            return HEADER_SIZE
        beacon = self.beacon(number)
        offset = number * self.interval + beacon.size
        return self.skip(offset, beacon.remaining)

    def skip(self, offset: int, size: int) -> int:
        """Return where ``size`` bytes of messages end that begin at an offset."""
        while size:
            offset, room = self._room(offset)
            step = min(size, room)
            offset += step
            size -= step
        return offset

    def gather(self, offset: int, size: int) -> tuple[bytes, int]:
        """Return ``size`` bytes of messages without beacons, and their end offset."""
        parts = []
        while size:
            offset, room = self._room(offset)
            step = min(size, room)
            parts.append(self.read(offset, step))
            offset += step
            size -= step
        return b"".join(parts), offset

    def head(self, offset: int) -> Head:
        """Return the message that begins at an offset, without looking at its payload.

        Raises:
            CutOffError: the file ends in the head.
            FileFormatError: no message begins there.
        """
        length, position = self.gather(offset, 1)
        rest, position = self.gather(position, length[0] + 8 + FIXED.size)
        prefix = length + rest[: length[0] + 8]
        try:
            key, shard_id = stream_of(prefix)
        except ValueError as error:
            raise self.damage(offset, str(error)) from None
        sequence, timestamp_ms, size = FIXED.unpack_from(rest, length[0] + 8)
        return Head(key, shard_id, sequence, timestamp_ms, size, position, offset)

    def end_of(self, head: Head) -> int:
        """Return where a message ends; CutOffError when the file ends before."""
        end = self.skip(head.payload_at, head.size + TAIL.size)
        if end > self.size:
            raise CutOffError
        return end

    def payload(self, head: Head) -> tuple[bytes, int]:
        """Return the payload of a message, checked, and where the message ends."""
        if head.size > self.size - head.payload_at:
            raise CutOffError
        data, end = self.gather(head.payload_at, head.size + TAIL.size)
        payload = data[: head.size]
        found, mark = TAIL.unpack_from(data, head.size)
        if found != checksum(payload) or mark != MARK:
            raise self.damage(
                head.offset,
                f"message {head.sequence} of stream {head.key!r} has a wrong checksum",
            )
        return payload, end

    def heads(self, offset: int) -> Iterator[Head]:
        """Iterate over the messages from an offset to the last one that is whole."""
        streams: dict[bytes, tuple[StreamKey, int]] = {}
        while True:
            for head in self._heads_of_block(offset, streams):
                yield head
                offset = head.payload_at + head.size + TAIL.size
            try:  # One that a beacon or the end of the block cuts, or the end of the file.
                head = self.head(offset)
                end = self.end_of(head)
            except CutOffError:
                return
            yield head
            offset = end

    def _heads_of_block(
        self, offset: int, streams: dict[bytes, tuple[StreamKey, int]]
    ) -> Iterator[Head]:
        """Iterate over whole messages before the next beacon."""
        # hot path: a seek reads half of the 8,000 messages between two beacons within 10 ms.
        within = offset % self.interval
        if within == 0:
            return
        data = os.pread(
            self.descriptor,
            min(self.interval - within, _SCAN_SIZE, max(0, self.size - offset)),
            offset,
        )
        at, end_of_data, unpack = 0, len(data), FIXED.unpack_from
        while at < end_of_data:
            fixed = at + data[at] + 9
            start = fixed + 20
            if start > end_of_data:
                return
            sequence, timestamp_ms, size = unpack(data, fixed)
            end = start + size + 3
            if end > end_of_data:
                return
            prefix = data[at:fixed]
            if (stream := streams.get(prefix)) is None:
                try:
                    stream = streams[prefix] = stream_of(prefix)
                except ValueError as error:
                    raise self.damage(offset + at, str(error)) from None
            yield Head(*stream, sequence, timestamp_ms, size, offset + start, offset + at)
            at = end

    def damage(self, offset: int, problem: str) -> FileFormatError:
        """Return the error that describes damage at an offset."""
        return FileFormatError(path=str(self.path), offset=offset, problem=problem)

    def _room(self, offset: int) -> tuple[int, int]:
        """Return the offset of further message bytes, and their count to the next beacon."""
        within = offset % self.interval
        if within == 0 and offset:
            within = self.beacon(offset // self.interval).size
            offset += within
        return offset, self.interval - within

    def _block(self, number: int) -> bytes:
        if (block := self._blocks.get(number)) is None:
            if len(self._blocks) > 1:
                del self._blocks[next(iter(self._blocks))]
            block = os.pread(self.descriptor, _BLOCK_SIZE, number * _BLOCK_SIZE)
            self._blocks[number] = block
        return block


def open_to_read(path: Path) -> int:
    """Return a descriptor of a file; StreamConnectError when it cannot be opened."""
    try:
        # Without blocking on a pipe without a writer, which is reported as not a file.
        return os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except FileNotFoundError:
        raise FILE_MISSING(path=str(path)) from None
    except OSError as error:
        raise FILE_UNREADABLE(path=str(path), reason=error.strerror) from None


def read_header(path: Path, descriptor: int) -> FileHeader:
    """Return the header of an open file.

    Raises:
        FileFormatError: the bytes are not a valid header.
        StreamConnectError: the file cannot be read.
    """
    try:
        data = os.pread(descriptor, HEADER_SIZE, 0)
    except OSError as error:
        raise FILE_UNREADABLE(path=str(path), reason=error.strerror) from None
    try:
        return FileHeader.parse(data)
    except ValueError as error:
        problem = str(error)
    if problem == "magic":
        raise NOT_A_STREAM_FILE(path=str(path), offset=0, found=repr(data[:8]))
    if problem == "version":
        raise VERSION_UNKNOWN(path=str(path), offset=2, found=data[2:3].hex() or "nothing")
    if problem == "size" and len(data) < HEADER_SIZE:
        raise FILE_CUT_OFF(path=str(path), offset=len(data))
    raise FileFormatError(path=str(path), offset=3, problem=f"its header has a wrong {problem}")
