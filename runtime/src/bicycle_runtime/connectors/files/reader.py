"""Reading slices of files on a worker: find the file, seek, decode in blocks.

A compressed file stays open between epochs when the next slice begins at the end of the last one;
otherwise it is read again from its start. Nothing else is remembered, so any worker can read any
slice at any time.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import closing
from typing import Any, Literal

from bicycle_runtime.connectors.errors import INPUT_CHANGED
from bicycle_runtime.connectors.files.blocks import (
    ByteCursor,
    LineRange,
    is_compressed,
    line_blocks,
    open_at,
)
from bicycle_runtime.connectors.files.csv_rows import CsvRows, is_untyped
from bicycle_runtime.connectors.files.decoding import (
    BlockDecoder,
    field_decoder,
    json_decoder,
    long_line_batch,
)
from bicycle_runtime.connectors.files.identity import FileIdentity, find_file
from bicycle_runtime.connectors.lines import text_decoder
from bicycle_runtime.connectors.typed_rows import with_event_times
from bicycle_runtime.contract import Slice, SourceBatch
from bicycle_runtime.frames.rows import field_types

FileFormat = Literal["text", "jsonl", "csv", "parquet"]
_OPEN_FILES_MAX = 16


class SliceReader:
    """Reads slices of text, JSON lines or CSV files.

    ``Slice.details``: ``path``, ``identity``, ``aligned``, ``limit`` (where the file counts as
    ended, or null), ``records`` (most records to read, or null), ``complete`` (a last line without
    newline is a record).

    Args:
        file_format: How bytes become records.
        record_type: The type to which records are decoded.
        line_bytes_max: Longer lines are bad records.
        timestamp_field: Field with the event time, or an empty text.
    """

    def __init__(
        self,
        file_format: FileFormat,
        record_type: Any,
        line_bytes_max: int,
        timestamp_field: str = "",
    ) -> None:
        self.file_format = file_format
        self.record_type = record_type
        self.line_bytes_max = line_bytes_max
        self.timestamp_field = timestamp_field
        self._start()

    def _start(self) -> None:
        self._decode: BlockDecoder | None = None
        self._gives_fields = False
        self._open: OrderedDict[str, ByteCursor] = OrderedDict()

    def __getstate__(self) -> tuple[FileFormat, Any, int, str]:
        """Return the pickled state, without open files."""
        return self.file_format, self.record_type, self.line_bytes_max, self.timestamp_field

    def __setstate__(self, state: tuple[FileFormat, Any, int, str]) -> None:
        self.file_format, self.record_type, self.line_bytes_max, self.timestamp_field = state
        self._start()

    def read(self, part: Slice) -> Iterator[SourceBatch]:
        """Yield the records of the lines that start in the slice.

        Raises:
            INPUT_CHANGED: the file is not the planned one any more.
            INPUT_UNREADABLE: it cannot be opened.
            INPUT_DAMAGED: it cannot be decompressed.
        """
        details = part.details
        path = locate_file(part)
        lines = LineRange(
            start=part.start,
            end=part.end,
            limit=details["limit"],
            is_aligned=details["aligned"],
            line_bytes_max=self.line_bytes_max,
        )
        cursor = self._cursor(part, path)
        identity = FileIdentity.from_json(details["identity"])
        next_offset = part.start
        is_done = False
        try:
            for batch in self._limit(cursor, lines, part, path):
                next_offset = batch.next_offset
                _require_whole(cursor, part, identity)
                yield batch
            _require_whole(cursor, part, identity)
            if next_offset == part.start:
                yield SourceBatch(values=[], offsets=(), next_offset=part.start)
            is_done = True
        finally:
            self._put_away(part.shard, cursor, is_kept=is_done and is_compressed(path))

    def give_fields(self) -> bool:
        """Switch to frames; return whether the record type allows it."""
        if self.file_format == "csv":
            self._gives_fields = is_untyped(self.record_type) or bool(field_types(self.record_type))
            return self._gives_fields
        if self.file_format != "jsonl":
            return False
        self._decode = field_decoder(self.record_type)
        return self._decode is not None

    def close(self) -> None:
        """Close the files that are kept open."""
        while self._open:
            self._open.popitem()[1].close()

    def _limit(
        self, cursor: ByteCursor, lines: LineRange, part: Slice, path: str
    ) -> Iterator[SourceBatch]:
        """Yield batches until the slice's record limit; a batch that crosses it is cut."""
        left = part.details["records"]
        for batch, data in self._batches(cursor, lines, part, path):
            count = len(batch.values) + len(batch.failures)
            if left is None or count <= left:
                yield batch
                left = None if left is None else left - count
            else:
                cut = _cut(batch, left)
                cursor.unread(data[len(data) - (batch.next_offset - cut.next_offset) :])
                yield cut
                return
            if left == 0:
                return

    def _batches(
        self, cursor: ByteCursor, lines: LineRange, part: Slice, path: str
    ) -> Iterator[tuple[SourceBatch, bytes]]:
        """Yield batches, each with the bytes that it was decoded from."""
        for batch, data in self._decoded_batches(cursor, lines, part, path):
            if self.timestamp_field:
                yield with_event_times(batch, data, self.timestamp_field), data
            else:
                yield batch, data

    def _decoded_batches(
        self, cursor: ByteCursor, lines: LineRange, part: Slice, path: str
    ) -> Iterator[tuple[SourceBatch, bytes]]:
        if self.file_format == "csv":
            is_complete = part.details["complete"]
            rows = CsvRows(
                self.record_type, is_complete=is_complete, gives_fields=self._gives_fields
            )
            with closing(open_at(path, 0)) as header:
                yield from rows.batches(cursor, header, lines)
            return
        for block in line_blocks(cursor, lines):
            batch = long_line_batch(block) if block.long_line_byte_count else self._decoder(block)
            yield batch, block.data

    @property
    def _decoder(self) -> BlockDecoder:
        if self._decode is None:
            is_text = self.file_format == "text"
            self._decode = text_decoder if is_text else json_decoder(self.record_type)
        return self._decode

    def _cursor(self, part: Slice, path: str) -> ByteCursor:
        kept = self._open.pop(part.shard, None)
        if kept is not None:
            if kept.position == part.start and kept.path == path:
                return kept
            kept.close()
        return open_at(path, part.start if part.details["aligned"] else part.start - 1)

    def _put_away(self, shard: str, cursor: ByteCursor, *, is_kept: bool) -> None:
        if not is_kept:
            cursor.close()
            return
        self._open[shard] = cursor
        if len(self._open) > _OPEN_FILES_MAX:
            self._open.popitem(last=False)[1].close()


def locate_file(part: Slice) -> str:
    """Return where the planned file of a slice is now.

    Raises:
        INPUT_CHANGED: it is gone, or another file has its place.
    """
    planned: str = part.details["path"]
    found = find_file(planned, FileIdentity.from_json(part.details["identity"]))
    if found is None:
        problem = "it was removed, or its bytes have changed"
        raise INPUT_CHANGED(path=planned, offset=part.start, problem=problem)
    return found[0]


def _require_whole(cursor: ByteCursor, part: Slice, identity: FileIdentity) -> None:
    """Raise if the file was truncated: its end would count as that of the slice."""
    limit = part.details["limit"]
    if limit is not None and not cursor.holds(identity, limit):
        problem = "it was truncated while it was read"
        raise INPUT_CHANGED(path=cursor.path, offset=part.start, problem=problem)


def _cut(batch: SourceBatch, count: int) -> SourceBatch:
    """Return the first ``count`` records (failures are records, too) of a batch."""
    found = sorted([*batch.offsets, *(failure.offset for failure in batch.failures)])
    stop = found[count]
    kept = [offset for offset in batch.offsets if offset < stop]
    return SourceBatch(
        values=batch.values[: len(kept)],
        offsets=kept,
        next_offset=stop,
        failures=[failure for failure in batch.failures if failure.offset < stop],
        timestamps=None if batch.timestamps is None else batch.timestamps[: len(kept)],
    )
