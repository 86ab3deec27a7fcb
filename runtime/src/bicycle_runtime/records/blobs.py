"""Blobs of an exchange: a few large ones per pair of tasks, not a row per record.

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

from bicycle_runtime.base.thread_safe_types import prepare_type
from bicycle_runtime.layouts.blob import BLOB_VERSION, BlobHeader
from bicycle_runtime.records.codecs import CodecName, RecordCodec
from bicycle_runtime.records.errors import BLOB_UNREADABLE

BYTE_GROUPS_MAX = 256  # up to so many key groups fit in one byte per record
_ENVELOPE = struct.Struct("<BBHI")
_SIZES = struct.Struct("<II")


class BlockKind(IntEnum):
    """The kind of content of a shuffle block."""

    RECORDS = 1
    REPORT = 2
    MARK = 3  # a message of a task to all tasks of the next level, with or without records


@dataclass(frozen=True, slots=True)
class Envelope:
    """The address of a shuffle block: levels count from 0, reports go beyond the last."""

    kind: BlockKind
    level: int
    task: int


@dataclass(frozen=True, slots=True)
class Holder:
    """A blob of the same sender with another blob's records, and its encoding."""

    edge: int
    sequence: int
    codec: CodecName


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordBlob:
    """The header of encoded records.

    ``edge`` is the index of the edge in the stage plan, ``sender`` the upstream subtask,
    ``sequence`` the order of the sender's blobs. ``origin`` says for people where the records came
    from. With ``has_times`` there is an event time for each record. The records of a blob with a
    ``holder`` are in that one.
    """

    edge: int
    sender: int
    sequence: int
    record_count: int
    codec: CodecName
    origin: str
    has_times: bool = False
    holder: Holder | None = None


_HEADER_ENCODER = msgspec.msgpack.Encoder()
_HEADER_DECODER = msgspec.msgpack.Decoder(prepare_type(BlobHeader))


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
    holder: Holder | None = None,
) -> tuple[bytes, CodecName]:
    """Return header, key groups, times and records as one body, and the codec's name.

    Args:
        values: The records.
        groups: Key group of each record (one or two bytes), or None on edges that are not keyed.
        times: Event time of each record in ms (eight bytes), or None.
        codec: Codec of the edge.
        blob: Edge index, sender and sequence.
        origin: Source positions that the records came from, for error messages.
        holder: The blob that has the records, so that this one goes without; None for none.
    """
    if holder is None:
        holder_id, (name, encoded) = None, codec.encode(values)
    else:
        holder_id, name, encoded = (holder.edge, holder.sequence), holder.codec, b""
    edge, sender, sequence = blob
    has_times = times is not None
    header = _HEADER_ENCODER.encode(
        BlobHeader(edge, sender, sequence, len(values), name, origin, has_times, holder_id)
    )
    column = groups if isinstance(groups, bytes) else array("H", groups or ()).tobytes()
    stamps = b"" if times is None else _little_endian(array("q", times)).tobytes()
    body = b"".join((_SIZES.pack(len(header), len(column)), header, column, stamps, encoded))
    return body, name


def _size_of_times(blob: RecordBlob) -> int:
    return 8 * blob.record_count if blob.has_times else 0


def _little_endian(column: array[int]) -> array[int]:
    if sys.byteorder == "big":
        column.byteswap()
    return column


def read_header(body: memoryview) -> RecordBlob:
    """Return the header of a record body without decoding the records."""
    header_size, _ = _SIZES.unpack_from(body)
    header = _HEADER_DECODER.decode(body[_SIZES.size : _SIZES.size + header_size])
    codec: CodecName = header.codec  # type: ignore[assignment]  # the encoder above writes only these words
    return RecordBlob(
        edge=header.edge,
        sender=header.sender,
        sequence=header.sequence,
        record_count=header.record_count,
        codec=codec,
        origin=header.origin,
        has_times=header.has_times,
        holder=None if header.holder is None else Holder(*header.holder, codec),
    )


def encoded_part(body: memoryview, blob: RecordBlob) -> memoryview:
    """Return the bytes of the records in a body."""
    return body[sum(_SIZES.unpack_from(body), _SIZES.size) + _size_of_times(blob) :]


def decode_records(
    body: memoryview, blob: RecordBlob, codec: RecordCodec, values: list[Any] | None = None
) -> tuple[list[Any], bytes | list[int] | None, list[int] | None]:
    """Return the records, their key groups and their event times, each or None.

    Args:
        body: The body.
        blob: Its header.
        codec: Codec of the edge.
        values: The records, where they are known; None to read them.
    """
    header_size, column_size = _SIZES.unpack_from(body)
    start = _SIZES.size + header_size
    end = start + column_size
    times: list[int] | None = None
    if blob.has_times:
        stamps = array("q")
        stamps.frombytes(body[end : end + _size_of_times(blob)])
        times = _little_endian(stamps).tolist()
    if values is None:
        values = codec.decode(blob.codec, encoded_part(body, blob))
    if not column_size:
        return values, None, times
    groups = bytes(body[start : start + column_size])
    if column_size == blob.record_count:
        return values, groups, times
    return values, array("H", groups).tolist(), times
