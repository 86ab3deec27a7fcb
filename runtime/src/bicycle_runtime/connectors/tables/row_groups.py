"""Row groups of several Parquet files in one file, copied as bytes.

The footer of a Parquet file has the place of each row group. A file of several has the bytes of all
of them, and one footer whose places are moved by the size of the earlier bytes. pyarrow writes no
such footer, so it is read and written here, in Thrift's compact protocol; only fields with places
are read.

Source: the format's ``parquet.thrift``, and "Thrift Compact protocol encoding".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, BinaryIO

CODECS = {"none": 0, "snappy": 1, "gzip": 2, "zstd": 6}

_MAGIC = b"PAR1"
_TAIL = 8  # The length of the footer, and the magic bytes.
_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _STRUCT = 1, 2, 3, 7, 8, 9, 10, 12
_INTS = (4, 5, 6)

# A struct by the number of each field: its type and its value. A list: type of its items, items.
Fields = dict[int, tuple[int, Any]]

# Fields of FileMetaData, RowGroup, ColumnChunk and ColumnMetaData.
_ROW_COUNT, _ROW_GROUPS = 3, 4
_CHUNKS, _GROUP_OFFSET, _GROUP_NUMBER = 1, 5, 7
_CHUNK_OFFSETS, _CHUNK_DETAILS = (2, 4, 6), 3
_CODEC, _PAGE_OFFSETS = 4, (9, 10, 11, 14)


class Footer:
    """The footer of a Parquet file.

    Args:
        fields: Of its ``FileMetaData``.
        data_bytes: The number of bytes before it.
    """

    def __init__(self, fields: Fields, data_bytes: int) -> None:
        self.fields = fields
        self.data_bytes = data_bytes

    @property
    def groups(self) -> list[Fields]:
        """The row groups."""
        found: list[Fields] = self.fields[_ROW_GROUPS][1][1]
        return found

    @property
    def codecs(self) -> set[int]:
        """The compression codecs of chunks, as in ``CODECS``."""
        return {
            chunk[_CHUNK_DETAILS][1][_CODEC][1]
            for group in self.groups
            for chunk in group[_CHUNKS][1][1]
        }

    def is_like(self, other: Footer) -> bool:
        """Return whether row groups of both may be in one file: their columns are equal."""
        own, others = (
            {number: value for number, value in each.fields.items() if number not in _OF_ROWS}
            for each in (self, other)
        )
        return own == others


_OF_ROWS = (_ROW_COUNT, _ROW_GROUPS)


def footer_of(stream: BinaryIO) -> Footer:
    """Return the footer of a whole Parquet file."""
    end = stream.seek(-_TAIL, 2)
    length = int.from_bytes(stream.read(4), "little")
    stream.seek(end - length)
    return Footer(_Decoder(stream.read(length)).struct(), end - length)


def append_row_groups(
    out: BinaryIO, size: int, blocks: Iterable[bytes | memoryview], footer: Footer
) -> int:
    """Append the row groups of a file to another; return the next position.

    Args:
        out: The file to write. Its first bytes are the format's, written here.
        size: The number of its bytes, 0 if empty.
        blocks: The whole file that has the row groups; all of them are taken.
        footer: Of that file; its places are moved.
    """
    if not size:
        out.write(_MAGIC)
        size = len(_MAGIC)
    by, at = size - len(_MAGIC), 0
    for block in blocks:
        out.write(memoryview(block)[max(len(_MAGIC) - at, 0) : max(footer.data_bytes - at, 0)])
        at += len(block)
    if at < footer.data_bytes:
        raise OSError("a Parquet file is shorter than before")
    for group in footer.groups:
        _move(group, (_GROUP_OFFSET,), by)
        for chunk in group[_CHUNKS][1][1]:
            _move(chunk, _CHUNK_OFFSETS, by)
            _move(chunk[_CHUNK_DETAILS][1], _PAGE_OFFSETS, by)
    return footer.data_bytes + by


def end_file(out: BinaryIO, footers: Sequence[Footer]) -> None:
    """Write the footer of a file with the row groups of several equal files."""
    groups = [group for footer in footers for group in footer.groups]
    for number, group in enumerate(groups):
        if _GROUP_NUMBER in group:
            group[_GROUP_NUMBER] = (group[_GROUP_NUMBER][0], number)
    fields = dict(footers[0].fields)
    count = sum(footer.fields[_ROW_COUNT][1] for footer in footers)
    fields[_ROW_COUNT] = (fields[_ROW_COUNT][0], count)
    fields[_ROW_GROUPS] = (_LIST, (_STRUCT, groups))
    data = bytearray()
    _encode(data, _STRUCT, fields)
    out.write(data)
    out.write(len(data).to_bytes(4, "little"))
    out.write(_MAGIC)


def _move(fields: Fields, numbers: Sequence[int], by: int) -> None:
    """Shift positions in a file; 0 means no position."""
    for number in numbers:
        kind, offset = fields.get(number, (0, 0))
        if offset:
            fields[number] = (kind, offset + by)


class _Decoder:
    """Reads values in the compact protocol."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def struct(self) -> Fields:
        found: Fields = {}
        number = 0
        while head := self._byte():
            kind = head & 15
            number = number + (head >> 4) if head >> 4 else _decode_zigzag(self._number())
            found[number] = (kind, kind == _TRUE if kind in (_TRUE, _FALSE) else self._value(kind))
        return found

    def _value(self, kind: int) -> Any:
        if kind in _INTS:
            return _decode_zigzag(self._number())
        if kind == _BINARY:
            return self._take(self._number())
        if kind == _STRUCT:
            return self.struct()
        if kind in (_LIST, _SET):
            head = self._byte()
            count = head >> 4 if head >> 4 < 15 else self._number()
            return head & 15, [self._value(head & 15) for _ in range(count)]
        if kind == _DOUBLE:
            return self._take(8)
        if kind in (_TRUE, _FALSE, _BYTE):
            return self._byte()
        raise OSError(f"a Parquet footer has a value of the type {kind}")

    def _byte(self) -> int:
        self._position += 1
        return self._data[self._position - 1]

    def _take(self, count: int) -> bytes:
        self._position += count
        return self._data[self._position - count : self._position]

    def _number(self) -> int:
        found = shift = 0
        while True:
            byte = self._byte()
            found |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return found


def _decode_zigzag(number: int) -> int:
    return number >> 1 ^ -(number & 1)


def _encode(out: bytearray, kind: int, value: Any) -> None:
    if kind in _INTS:
        _put_number(out, value << 1 if value >= 0 else (-value << 1) - 1)
    elif kind == _BINARY:
        _put_number(out, len(value))
        out += value
    elif kind == _STRUCT:
        _encode_struct(out, value)
    elif kind in (_LIST, _SET):
        inner, items = value
        out.append(min(len(items), 15) << 4 | inner)
        if len(items) >= 15:
            _put_number(out, len(items))
        for item in items:
            _encode(out, inner, item)
    elif kind == _DOUBLE:
        out += value
    else:
        out.append(value)


def _encode_struct(out: bytearray, fields: Fields) -> None:
    last = 0
    for number, (kind, value) in fields.items():
        step = number - last
        if 0 < step < 16:
            out.append(step << 4 | kind)
        else:
            out.append(kind)
            _put_number(out, number << 1)
        last = number
        if kind not in (_TRUE, _FALSE):  # The type has the value of these.
            _encode(out, kind, value)
    out.append(0)


def _put_number(out: bytearray, number: int) -> None:
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
