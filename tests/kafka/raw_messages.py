"""Messages that no client library sends: names of headers that are not UTF-8, and odd times."""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence
from typing import TypeAlias

# Key, value, headers.
RawMessage: TypeAlias = tuple[bytes | None, bytes | None, Sequence[tuple[bytes, bytes | None]]]
_POLYNOMIAL = 0x82F63B78


def produce_raw(
    bootstrap: str, topic: str, messages: Sequence[RawMessage], *, timestamp_ms: int
) -> None:
    """Write one batch to partition 0, byte by byte as given.

    Source: Kafka protocol, Produce version 3 and record batch version 2.
    """
    records = b"".join(_record(number, *message) for number, message in enumerate(messages))
    count = len(messages)
    times = (timestamp_ms, timestamp_ms)
    checked = struct.pack(">hiqqqhii", 0, count - 1, *times, -1, -1, -1, count) + records
    batch = struct.pack(">ibI", -1, 2, _crc32c(checked)) + checked
    data = struct.pack(">qi", 0, len(batch)) + batch
    name = topic.encode()
    request = b"".join(
        [
            struct.pack(">hhih", 0, 3, 1, 3) + b"raw",
            struct.pack(">hhii", -1, -1, 10_000, 1),
            struct.pack(">h", len(name)) + name,
            struct.pack(">iii", 1, 0, len(data)) + data,
        ]
    )
    host, port = bootstrap.split(":")
    with socket.create_connection((host, int(port))) as connection, connection.makefile("rb") as f:
        connection.sendall(struct.pack(">i", len(request)) + request)
        answer = f.read(struct.unpack(">i", f.read(4))[0])
    place = 4 + 4 + 2 + len(name) + 4 + 4
    assert struct.unpack(">h", answer[place : place + 2]) == (0,)


def _record(
    number: int, key: bytes | None, value: bytes | None, headers: Sequence[tuple[bytes, bytes]]
) -> bytes:
    named = b"".join(_number(len(name)) + name + _sized(data) for name, data in headers)
    sized = _sized(key) + _sized(value)
    body = b"\0" + _number(0) + _number(number) + sized + _number(len(headers)) + named
    return _number(len(body)) + body


def _sized(data: bytes | None) -> bytes:
    return _number(-1) if data is None else _number(len(data)) + data


def _number(value: int) -> bytes:
    left, found = (value << 1) ^ (value >> 63), b""
    while left > 0x7F:
        found += bytes([left & 0x7F | 0x80])
        left >>= 7
    return found + bytes([left])


def _crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (_POLYNOMIAL if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF
