"""A blob of records as it is staged for a feedback edge: what stands before the records."""

from __future__ import annotations

import msgspec

__all__ = ["BLOB_VERSION", "BlobHeader"]

BLOB_VERSION = 1


class BlobHeader(msgspec.Struct, array_like=True):
    """What a blob says of its records, as ``records.blobs.RecordBlob`` explains it."""

    edge: int
    sender: int
    sequence: int
    record_count: int
    codec: str
    origin: str
    has_times: bool = False  # headers written without it have no times
    holder: tuple[int, int] | None = None  # headers written without it have their own records
