"""A blob of records that is staged for a feedback edge: the header."""

from __future__ import annotations

import msgspec

__all__ = ["BLOB_VERSION", "BlobHeader"]

BLOB_VERSION = 1


class BlobHeader(msgspec.Struct, array_like=True):
    """The header of a blob of records, as ``records.blobs.RecordBlob`` explains it."""

    edge: int
    sender: int
    sequence: int
    record_count: int
    codec: str
    origin: str
    has_times: bool = False  # headers written without it have no times
    holder: tuple[int, int] | None = None  # headers written without it have their own records
