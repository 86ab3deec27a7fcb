"""The format of ``.ss`` files as bytes: header, messages and beacons. All numbers are big-endian.

A file consists of a header of 128 bytes and messages. At each multiple of the *beacon interval* is
a *beacon*, if necessary in the middle of a message. It contains the number of following bytes of
that message, and for each stream a *marker* with its position, so that a reader can start at any
beacon. This module opens no file. Source: ADR-0042.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from struct import Struct
from typing import NamedTuple

from fastcrc import crc16

from bicycle_streams.addresses import INTERNAL, StreamKey
from bicycle_streams.errors import StreamKeyError

HEADER_SIZE = 128
NAME_SIZE_MAX = 111  # The space that the other fields of the header leave.
MARK = 0x0D
END_OF_STREAM = b"EOS"
RUNNING_START = 0xFFFF
EMPTY_BEACON_SIZE = 7
_MAGIC = b"Ss"
_VERSION = 1
_MARKER_SIZE_MAX = 256 + 24 + 2

# Behind key and shard of a message: sequence, milliseconds, size of the payload.
FIXED = Struct(">QQI")
# Behind the payload: checksum and mark.
TAIL = Struct(">HB")
MESSAGE_OVERHEAD = 1 + 8 + FIXED.size + TAIL.size  # Beside key and payload.
_HEADER_TAIL = Struct(">QI")
_BEACON_HEAD = Struct(">BIB")
_MARKER_TAIL = Struct(">QQQH")
_SHARD = Struct(">Q")

# CRC-16/CDMA2000 of bytes; the second argument is the checksum of the preceding bytes.
checksum: Callable[..., int] = crc16.cdma2000


@dataclass(frozen=True, slots=True)
class FileHeader:
    """The first 128 bytes of a file."""

    file_name: str
    created_ms: int
    beacon_interval: int

    def encode(self) -> bytes:
        """Return the header as bytes; the name has at most 111 bytes."""
        name = self.file_name.encode()
        head = _MAGIC + bytes([_VERSION, len(name)]) + name
        data = head + _HEADER_TAIL.pack(self.created_ms, self.beacon_interval)
        return data.ljust(HEADER_SIZE - 1, b"\0") + bytes([MARK])

    @classmethod
    def parse(cls, data: bytes) -> FileHeader:
        """Return the header in 128 bytes; ValueError names an invalid part."""
        if data[:2] != _MAGIC:
            raise ValueError("magic")
        if data[2:3] != bytes([_VERSION]):
            raise ValueError("version")
        size = data[3] if len(data) == HEADER_SIZE else NAME_SIZE_MAX + 1
        if size > NAME_SIZE_MAX:
            raise ValueError("size")
        created_ms, interval = _HEADER_TAIL.unpack_from(data, 4 + size)
        if interval < 1024 or interval % 1024:
            raise ValueError("beacon interval")
        return cls(data[4 : 4 + size].decode(), created_ms, interval)


class StreamMarker(NamedTuple):
    """The progress of a stream at a beacon, including a message split by it."""

    key: StreamKey
    shard_id: int
    sequence: int
    timestamp_ms: int
    running: int


class Beacon(NamedTuple):
    """The content at a multiple of the interval."""

    remaining: int
    markers: tuple[StreamMarker, ...]
    size: int


def marker_count_max(interval: int) -> int:
    """Return the maximum of markers in a beacon: half of the space up to the next one."""
    return min(255, (interval - EMPTY_BEACON_SIZE) // _MARKER_SIZE_MAX) // 2


def encode_beacon(remaining: int, markers: Iterable[StreamMarker]) -> bytes:
    """Return a beacon as bytes."""
    items = [
        stream_prefix(m.key, m.shard_id)
        + _MARKER_TAIL.pack(m.shard_id, m.sequence, m.timestamp_ms, m.running)[8:]
        for m in markers
    ]
    return _BEACON_HEAD.pack(MARK, remaining, len(items)) + b"".join(items) + bytes([MARK])


def parse_beacon(data: bytes, at: int = 0) -> Beacon | None:
    """Return the beacon that begins at an index, or None if ``data`` is too short.

    Raises:
        ValueError: there is no beacon.
    """
    if len(data) < at + EMPTY_BEACON_SIZE:
        return None
    mark, remaining, count = _BEACON_HEAD.unpack_from(data, at)
    if mark != MARK:
        raise ValueError(f"a beacon begins with byte {mark:#04x} instead of 0x0d")
    markers = []
    position = at + 6
    for _ in range(count):
        if len(data) <= position:
            return None
        tail = position + 1 + data[position]
        if len(data) < tail + _MARKER_TAIL.size:
            return None
        shard_id, sequence, timestamp_ms, running = _MARKER_TAIL.unpack_from(data, tail)
        key = _key(data[position + 1 : tail])
        markers.append(StreamMarker(key, shard_id, sequence, timestamp_ms, running))
        position = tail + _MARKER_TAIL.size
    if len(data) <= position:
        return None
    if data[position] != MARK:
        raise ValueError(f"a beacon ends with byte {data[position]:#04x} instead of 0x0d")
    return Beacon(remaining, tuple(markers), position + 1 - at)


def stream_prefix(key: StreamKey, shard_id: int) -> bytes:
    """Return the prefix of each message of a stream: its key and its shard."""
    return bytes([len(key)]) + key.encode() + _SHARD.pack(shard_id)


def stream_of(prefix: bytes) -> tuple[StreamKey, int]:
    """Return the stream of a prefix; raise ValueError if the prefix is invalid."""
    return _key(prefix[1:-8]), _SHARD.unpack_from(prefix, len(prefix) - 8)[0]


def is_end(key: StreamKey, payload: bytes) -> bool:
    """Return whether a message marks the end of the file."""
    return key == INTERNAL and payload == END_OF_STREAM


def _key(name: bytes) -> StreamKey:
    try:
        return StreamKey(name.decode())
    except (UnicodeDecodeError, StreamKeyError):
        raise ValueError(f"{name[:40]!r} is not a valid key of a stream") from None
