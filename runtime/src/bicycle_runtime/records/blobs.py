"""Blobs of an exchange: a few large ones per pair of tasks, never one row per record.

A *shuffle block* is ``(target task of the next stage, bytes)``. Its bytes start with a fixed
envelope that says for which level and task it is meant, so that a task in between carries it on
unread. Inside is either a record blob (a header and encoded records) or a task report. This module
moves bytes; it routes nothing.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import msgspec

from bicycle_runtime.layouts.blob import BLOB_VERSION, BlobHeader
from bicycle_runtime.records.codecs import CodecName, RecordCodec
from bicycle_runtime.records.errors import BLOB_UNREADABLE

__all__ = [
    "BlockKind",
    "Envelope",
    "RecordBlob",
    "decode_records",
    "encode_records",
    "open_block",
    "read_header",
    "seal_block",
]

BYTE_GROUPS_MAX = 256  # up to so many key groups, one byte per record says which
_ENVELOPE = struct.Struct("<BBHI")
_SIZES = struct.Struct("<II")


class BlockKind(IntEnum):
    """What a shuffle block holds."""

    RECORDS = 1
    REPORT = 2
    MARK = 3  # what a task tells all tasks of the next level, with or without records


@dataclass(frozen=True, slots=True)
class Envelope:
    """For whom a shuffle block is: levels count from 0; reports go to the level after the last."""

    kind: BlockKind
    level: int
    task: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordBlob:
    """The header of encoded records.

    ``edge`` is the index of the edge in the stage plan, ``sender`` the upstream subtask,
    ``sequence`` the order of the sender's blobs. ``origin`` says for people where the records came
    from. With ``has_times`` there is an event time for each record.
    """

    edge: int
    sender: int
    sequence: int
    record_count: int
    codec: CodecName
    origin: str
    has_times: bool = False


_HEADER_ENCODER = msgspec.msgpack.Encoder()
_HEADER_DECODER = msgspec.msgpack.Decoder(BlobHeader)


def seal_block(envelope: Envelope, body: bytes) -> bytes:
    """Put the envelope before the body."""
    head = _ENVELOPE.pack(BLOB_VERSION, envelope.kind, envelope.level, envelope.task)
    return head + body


def open_block(data: bytes) -> tuple[Envelope, memoryview]:
    """Return envelope and body.

    Raises:
        BLOB_UNREADABLE: too short, or written by another version.
    """
    if len(data) < _ENVELOPE.size:
        raise BLOB_UNREADABLE(reason=f"{len(data)} bytes are too short for an envelope")
    version, kind, level, task = _ENVELOPE.unpack_from(data)
    if version != BLOB_VERSION:
        raise BLOB_UNREADABLE(reason=f"format version {version}, this runtime reads {BLOB_VERSION}")
    return Envelope(BlockKind(kind), level, task), memoryview(data)[_ENVELOPE.size :]


def encode_records(
    values: list[Any],
    groups: bytes | list[int] | None,
    times: Iterable[int] | None = None,
    *,
    codec: RecordCodec,
    blob: tuple[int, int, int],
    origin: str,
) -> bytes:
    """Return header, key groups, event times and records as one body.

    Args:
        values: The records.
        groups: Key group of each record (one or two bytes), or None on edges that are not keyed.
        times: Event time of each record in ms (eight bytes), or None.
        codec: Codec of the edge.
        blob: Edge index, sender and sequence.
        origin: Source positions that the records came from, for error messages.
    """
    name, encoded = codec.encode(values)
    edge, sender, sequence = blob
    has_times = times is not None
    header = _HEADER_ENCODER.encode(
        BlobHeader(edge, sender, sequence, len(values), name, origin, has_times)
    )
    column = groups if isinstance(groups, bytes) else array("H", groups or ()).tobytes()
    stamps = b"" if times is None else _little_endian(array("q", times)).tobytes()
    return b"".join((_SIZES.pack(len(header), len(column)), header, column, stamps, encoded))


def _little_endian(column: array[int]) -> array[int]:
    if sys.byteorder == "big":
        column.byteswap()
    return column


def read_header(body: memoryview) -> RecordBlob:
    """Return the header of a record body without decoding the records."""
    header_size, _ = _SIZES.unpack_from(body)
    header = _HEADER_DECODER.decode(body[_SIZES.size : _SIZES.size + header_size])
    return RecordBlob(
        edge=header.edge,
        sender=header.sender,
        sequence=header.sequence,
        record_count=header.record_count,
        codec=header.codec,  # type: ignore[arg-type]  # the encoder above writes only these words
        origin=header.origin,
        has_times=header.has_times,
    )


def decode_records(
    body: memoryview, blob: RecordBlob, codec: RecordCodec
) -> tuple[list[Any], bytes | list[int] | None, list[int] | None]:
    """Return the records, their key groups and their event times (None where there are none)."""
    header_size, column_size = _SIZES.unpack_from(body)
    start = _SIZES.size + header_size
    end = start + column_size
    times: list[int] | None = None
    if blob.has_times:
        stamps = array("q")
        stamps.frombytes(body[end : end + 8 * blob.record_count])
        times = _little_endian(stamps).tolist()
        end += 8 * blob.record_count
    values = codec.decode(blob.codec, body[end:])
    if not column_size:
        return values, None, times
    groups = bytes(body[start : start + column_size])
    if column_size == blob.record_count:
        return values, groups, times
    return values, array("H", groups).tolist(), times
