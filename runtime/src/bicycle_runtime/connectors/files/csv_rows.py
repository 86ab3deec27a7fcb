"""CSV to records: field names in the header, quoted newlines, declared types.

A record belongs to the slice in which it starts and may end behind it. Where a block has no quotes,
each line is a record and the block is decoded in one step; otherwise rows are taken one by one,
with their offsets.
"""

from __future__ import annotations

import csv
import typing
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from operator import itemgetter
from typing import Any

from bicycle_runtime.base.user_code import decoding_problem, users_error
from bicycle_runtime.connectors.errors import CSV_HEADER_AMBIGUOUS
from bicycle_runtime.connectors.files.blocks import ByteCursor, LineRange, line_blocks
from bicycle_runtime.connectors.files.decoding import long_line_batch
from bicycle_runtime.connectors.lines import LineBlock
from bicycle_runtime.connectors.typed_rows import raw_of
from bicycle_runtime.contract import BadRecord, SourceBatch
from bicycle_runtime.formats.csv_values import declared_names, read_rows
from bicycle_runtime.formats.typed_values import TypedConverter
from bicycle_runtime.frames.frame import MISSING, FieldRows, Frame
from bicycle_runtime.frames.rows import field_types, plain_fields

_RAW_BYTES_MAX = 4096
_BEYOND_BYTES = 64 << 10  # Read at once if a record continues behind its slice.
_Row = tuple[int, list[str]]


class CsvRows:
    """Reads rows of one slice.

    Args:
        record_type: None or dict for ``dict[str, str]``; a tuple type takes the fields by place;
            any other type that msgspec knows takes them by name. Texts are converted to the
            declared types.
        is_complete: Whether the input ends at the limit, so that an open quote there is an error,
            not a record that is still being written.
        gives_fields: Whether records are frames, where their type allows it.
    """

    def __init__(self, record_type: Any, *, is_complete: bool, gives_fields: bool = False) -> None:
        self._is_plain = is_untyped(record_type)
        self._is_by_index = typing.get_origin(record_type) is tuple
        if not self._is_plain:
            self._convert = TypedConverter(record_type, is_text=True)
            self._convert_all = TypedConverter(list[record_type], is_text=True)
        self._fields = frozenset(declared_names(record_type))
        self._is_complete = is_complete
        self._gives_fields = gives_fields
        self._kinds = plain_fields(record_type) if gives_fields else {}
        self._columns: dict[str, TypedConverter] = {
            name: TypedConverter(list[kind], is_text=True)  # type: ignore[valid-type]  # it is known when it runs
            for name, kind in field_types(record_type if gives_fields else None).items()
        }

    def batches(
        self, cursor: ByteCursor, header: ByteCursor, lines: LineRange
    ) -> Iterator[tuple[SourceBatch, bytes]]:
        """Yield the slice's records, each batch with the bytes that it was decoded from.

        Args:
            cursor: At the start of the slice.
            header: At the start of the file.
            lines: The slice.

        Raises:
            CSV_HEADER_AMBIGUOUS: a field has two columns, of which one would be lost.
        """
        try:
            names, body_offset = self._header(header, lines)
        except _NoHeaderError as error:
            bad = BadRecord(offset=lines.start, raw=error.raw, reason=str(error))
            cursor.skip_to(lines.end if lines.limit is None else min(lines.end, lines.limit))
            end = max(cursor.position, lines.start + 1)
            yield SourceBatch(values=[], offsets=(), next_offset=end, failures=[bad]), b""
            return
        if cursor.position < body_offset:
            cursor.skip_to(body_offset)
            lines = replace(lines, start=body_offset)
            yield SourceBatch(values=[], offsets=(), next_offset=cursor.position), b""
        blocks = line_blocks(cursor, lines)
        for block in blocks:
            if block.long_line_byte_count:
                yield long_line_batch(block), block.data
                continue
            rows = _plain_rows(block)
            if rows is not None:
                batch = self._batch(names, rows, [], block.next_offset)
                yield _with_raw_rows(batch, block.data), block.data
                continue
            feed = _LineFeed(block, blocks, cursor, lines)
            quoted_rows, failures = self._quoted_rows(feed)
            data = feed.end()
            batch = self._batch(names, quoted_rows, failures, feed.record_start)
            yield _with_raw_rows(batch, data), data

    def _header(self, header: ByteCursor, lines: LineRange) -> tuple[list[str], int]:
        """Return the names in the first line that is not blank, and where the rows begin."""
        first = replace(lines, start=0, end=4, is_aligned=True)
        for block in line_blocks(header, first):
            if block.long_line_byte_count:
                raise _NoHeaderError("it is longer than line_bytes_max", block.data)
            feed = _LineFeed(block, iter(()), header, first)
            reader = read_rows(feed)
            names: list[str] = []
            try:
                while not any(names):
                    feed.begin_record()
                    names = [name.strip() for name in next(reader)]
            except StopIteration:
                return [], feed.position  # There are only blank lines.
            except (csv.Error, _RecordTooLongError) as error:
                raise _NoHeaderError(str(error), feed.raw()) from error
            if not self._is_complete and feed.has_open_line:
                return [], feed.record_start  # The header is still being written.
            self._require_one_column_each(names, header.path)
            return names, feed.position
        return [], 0

    def _require_one_column_each(self, names: list[str], path: str) -> None:
        if self._is_by_index or len(set(names)) == len(names):
            return
        twice = sorted({name for name in names if names.count(name) > 1})
        needed = [name for name in twice if not self._fields or name in self._fields]
        if needed:
            raise CSV_HEADER_AMBIGUOUS(
                path=path, names=needed, name_text=", ".join(map(repr, needed))
            )

    def _quoted_rows(self, feed: _LineFeed) -> tuple[list[_Row], list[BadRecord]]:
        rows: list[_Row] = []
        failures: list[BadRecord] = []
        reader = read_rows(feed)
        while not feed.is_exhausted:
            feed.begin_record()
            try:
                row = next(reader)
                problem = feed.problem
            except (csv.Error, _RecordTooLongError) as error:
                row, problem = [], str(error)
                reader = read_rows(feed)
            if feed.is_cut and not self._is_complete:
                return rows, failures
            if problem:
                failures.append(BadRecord(offset=feed.record_start, raw=feed.raw(), reason=problem))
            elif row:
                rows.append((feed.record_start, row))
        feed.begin_record()
        return rows, failures

    def _batch(
        self, names: list[str], rows: list[_Row], failures: list[BadRecord], next_offset: int
    ) -> SourceBatch:
        whole = [row for row in rows if len(row[1]) == len(names)]
        if len(whole) < len(rows):
            failures += [
                _bad_row(offset, f"the row has {len(row)} fields, the header {len(names)}")
                for offset, row in rows
                if len(row) != len(names)
            ]
        values: Sequence[Any] | None = self._fields_of(names, whole)
        if values is None:
            try:
                values = self._make_rows(names, whole)
            except BaseException as error:  # noqa: BLE001  # a record type may have code
                users_error(error)
                values, whole = self._convert_each(self._shape(names, whole), whole, failures)
        failures.sort(key=lambda failure: failure.offset)
        offsets = [offset for offset, _ in whole]
        return SourceBatch(
            values=values, offsets=offsets, next_offset=next_offset, failures=failures
        )

    def _fields_of(self, names: list[str], rows: list[_Row]) -> Frame | None:
        """Return rows as records created on access, or None if required at once.

        Texts are converted to the types of the fields column by column.
        """
        if not self._gives_fields or not rows:
            return None
        make = partial(self._make_rows, names, rows)
        cells = [row for _, row in rows]
        indexes = {name: index for index, name in enumerate(names)}
        if self._is_plain:
            return Frame.of_rows(FieldRows(
                objects=cells, make=make, names=lambda: names,
                getter=lambda name: itemgetter(indexes[name]) if name in indexes else _missing,
            ))  # fmt: skip
        if not self._columns or not indexes.keys() >= self._columns.keys():
            return None  # A missing field may have a default.
        try:
            columns = {
                name: convert(list(map(itemgetter(indexes[name]), cells)))
                for name, convert in self._columns.items()
            }
        except BaseException as error:  # noqa: BLE001  # a field type may have code
            users_error(error)
            return None
        return Frame.of_rows(FieldRows(
            objects=range(len(cells)), make=make, kinds=self._kinds,
            getter=lambda name: columns[name].__getitem__,
        ))  # fmt: skip

    def _make_rows(self, names: list[str], rows: list[_Row]) -> list[Any]:
        shaped = self._shape(names, rows)
        if self._is_plain:
            return shaped
        made: list[Any] = self._convert_all(shaped)
        return made

    def _shape(self, names: list[str], rows: list[_Row]) -> list[Any]:
        if self._is_by_index:
            return [row for _, row in rows]
        return [dict(zip(names, row, strict=True)) for _, row in rows]

    def _convert_each(
        self, shaped: list[Any], rows: list[_Row], failures: list[BadRecord]
    ) -> tuple[list[Any], list[_Row]]:
        values, kept = [], []
        for shape, (offset, row) in zip(shaped, rows, strict=True):
            try:
                values.append(self._convert(shape))
                kept.append((offset, row))
            except BaseException as error:  # noqa: BLE001  # a record type may have code
                failures.append(_bad_row(offset, decoding_problem(error)))
        return values, kept


def is_untyped(record_type: Any) -> bool:
    """Return whether records of a type are ``dict[str, str]``."""
    return record_type in (None, dict, Any) or record_type == dict[str, str]


class _NoHeaderError(Exception):
    """A file whose header cannot be read, so that all rows are unreadable."""

    def __init__(self, problem: str, raw: bytes) -> None:
        if b"\r" in raw:
            problem = "it has a carriage return within the line; end lines with \\n or \\r\\n"
        super().__init__(f"the header of the file is invalid, so no row can be read: {problem}")
        self.raw = raw


class _RecordTooLongError(Exception):
    """A quoted field is not closed within the bound of a line."""


class _LineFeed:
    """An iterator of lines for ``csv.reader``, which knows where each record starts.

    It continues behind its first block only while a record is open: into the following blocks, then
    behind the end of the slice, from where ``end`` puts surplus back.
    """

    def __init__(
        self, block: LineBlock, blocks: Iterator[LineBlock], cursor: ByteCursor, lines: LineRange
    ) -> None:
        self._data = bytearray()
        self.position = block.offset
        self.record_start = block.offset
        self.is_cut = False
        self._start = block.offset
        self._blocks = blocks
        self._cursor = cursor
        self._range = lines
        self._pending: list[bytes] = []
        self._is_undecodable = False
        self._is_beyond = False
        self._add(block)

    def __iter__(self) -> _LineFeed:
        return self

    def __next__(self) -> str:
        if not self._pending and not self._pull():
            self.is_cut = True
            raise StopIteration
        line = self._pending.pop()
        self.position += len(line)
        if self.position - self.record_start > self._range.line_bytes_max:
            raise _RecordTooLongError(
                "the record is longer than line_bytes_max; check for an unclosed quote"
            )
        try:
            return line.decode()
        except UnicodeDecodeError:
            self._is_undecodable = True
            return line.decode(errors="replace")

    @property
    def is_exhausted(self) -> bool:
        """Return whether all lines that begin in the slice were returned."""
        return self._is_beyond or not self._pending

    @property
    def problem(self) -> str:
        """The problem of the last record, or an empty text."""
        if self.is_cut:
            return "the input ends inside a quoted field"
        return "not UTF-8" if self._is_undecodable else ""

    @property
    def has_open_line(self) -> bool:
        """Return whether the last line has no line end."""
        return not self._pending and not self._data.endswith(b"\n")

    def begin_record(self) -> None:
        """Mark the next line as the start of a record."""
        self.record_start = self.position
        self._is_undecodable = False

    def raw(self) -> bytes:
        """Return the (beginning of the) record's bytes."""
        start = self.record_start - self._start
        end = min(self.position - self._start, start + _RAW_BYTES_MAX)
        return bytes(self._data[start:end]).rstrip(b"\r\n")

    def end(self) -> bytes:
        """Return the bytes of the records, and unread the bytes after the last one."""
        rest = b"".join(reversed(self._pending))
        self._pending.clear()
        self._cursor.unread(rest)
        del self._data[len(self._data) - len(rest) :]
        return bytes(self._data)

    def _pull(self) -> bool:
        block = next(self._blocks, None)
        if block is None:
            self._is_beyond = True
            position = self._cursor.position
            end = position + _BEYOND_BYTES
            beyond = replace(self._range, start=position, end=end, is_aligned=True)
            block = next(line_blocks(self._cursor, beyond), None)
        if block is None:
            return False
        if block.long_line_byte_count:
            self.position = block.next_offset
            self._data += b" " * block.long_line_byte_count
            raise _RecordTooLongError("the record is longer than line_bytes_max")
        self._add(block)
        return True

    def _add(self, block: LineBlock) -> None:
        self._data += block.data
        lines = [line + b"\n" for line in block.data.split(b"\n")]
        lines[-1] = lines[-1][:-1]
        self._pending = [line for line in reversed(lines) if line]


def _plain_rows(block: LineBlock) -> list[_Row] | None:
    """Return the rows of a block without quotes, or None if it needs full parsing."""
    # hot path: one csv.reader run per block, 0.7 M rows of three fields/s; row by row 0.5 M/s.
    if b'"' in block.data or b"\r" in block.data.replace(b"\r\n", b""):
        return None
    try:
        text = block.data.decode()
    except UnicodeDecodeError:
        return None
    rows: list[_Row] = []
    position = block.offset
    lines = block.data.split(b"\n")
    for line, row in zip(lines, read_rows(text.split("\n")), strict=True):
        if row:
            rows.append((position, row))
        position += len(line) + 1
    return rows


def _missing(_: list[str]) -> Any:
    return MISSING


def _bad_row(offset: int, reason: str) -> BadRecord:
    return BadRecord(offset=offset, raw=b"", reason=reason)


def _with_raw_rows(batch: SourceBatch, data: bytes) -> SourceBatch:
    """Return a batch whose bad rows have their bytes in the file."""
    if not batch.failures:
        return batch
    raw = raw_of(batch, data)
    batch.failures = [
        bad if bad.raw else replace(bad, raw=raw(bad.offset)) for bad in batch.failures
    ]
    return batch
