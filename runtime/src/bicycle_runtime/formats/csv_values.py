"""CSV rows: cells of a record by column, and a format of one row per value.

A row has no header: its columns are the declared ones. Nested values are written as JSON.
"""

from __future__ import annotations

import csv
import io
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from functools import cached_property, lru_cache
from operator import attrgetter
from typing import Any

import msgspec

from bicycle_runtime.formats.plain import refuse_options
from bicycle_runtime.formats.typed_values import TypedConverter, json_decoder, json_text
from bicycle_runtime.frames.record_fields import fields_of

_OPTIONS = frozenset({"fields", "delimiter"})
_CELL_LENGTH_MAX = 2**31 - 1  # Readers of lines and messages bound their size.


class CellError(ValueError):
    """A value has no form in CSV, or does not fit the columns.

    Args:
        value: The value.
        reason: Why.
    """

    def __init__(self, value: object, reason: object) -> None:
        super().__init__(str(reason))
        self.value = value


class CsvCodec:
    """One row for each value.

    Records are what is declared, by the names of fields, or by place for tuples; ``dict[str, str]``
    when nothing is declared. An empty cell is None where the type has None and no text.

    Args:
        record_type: Declared type of the records, or None.
        options: ``fields``: names of the columns; ``delimiter``.

    Raises:
        ValueError: nothing names the columns.
    """

    def __init__(self, record_type: Any, options: Mapping[str, Any]) -> None:
        refuse_options(options, _OPTIONS)
        self._delimiter = options.get("delimiter", ",")
        self._is_by_index = typing.get_origin(record_type) is tuple
        self._names = list(options.get("fields") or declared_names(record_type))
        if not self._names and not self._is_by_index:
            raise ValueError(
                "its columns have no names; declare a dataclass, or set fields (the declared type "
                f"is {record_type!r})"
            )
        self._is_plain = record_type in (None, Any, dict) or record_type == dict[str, str]
        self._type = record_type
        if not self._is_plain:
            json_decoder(record_type)  # Refuses a type that nothing can be converted to.

    def __getstate__(self) -> dict[str, Any]:
        """Return the pickled state, without the converter."""
        return {name: value for name, value in vars(self).items() if name != "_convert"}

    @cached_property
    def _convert(self) -> TypedConverter:
        return TypedConverter(self._type, is_text=True)

    def decode(self, data: bytes) -> Any:
        """Return the record of a row.

        Raises:
            ValueError: the bytes are no UTF-8, not one row, or a cell is not of its type.
        """
        text = io.StringIO(data.decode(), newline="")
        rows = list(read_rows(text, delimiter=self._delimiter))
        if len(rows) != 1:
            raise ValueError(f"one row is expected, found {len(rows)}")
        [cells] = rows
        if self._names and len(cells) != len(self._names):
            raise ValueError(f"the row has {len(cells)} cells for {len(self._names)} columns")
        shaped = cells if self._is_by_index else dict(zip(self._names, cells, strict=True))
        return shaped if self._is_plain else self._convert(shaped)

    def encode(self, value: Any) -> bytes:
        """Return the row of a record, without an end of line.

        Raises:
            CellError: the record does not fit the columns, or holds what has no form in CSV.
        """
        cells = row_of(value, self._names or column_names(value))
        return csv_text([cells], delimiter=self._delimiter).rstrip("\n").encode()


def read_rows(lines: Iterable[str], *, delimiter: str = ",") -> Iterator[list[str]]:
    """Return the rows of CSV, with cells of any size."""
    # The limit is one of the process, and user code may have set it.
    csv.field_size_limit(_CELL_LENGTH_MAX)
    return csv.reader(lines, delimiter=delimiter)


def csv_text(rows: Iterable[Sequence[Any]], *, delimiter: str = ",") -> str:
    """Return rows as CSV, each ended by a newline."""
    buffer, several = io.StringIO(), list(rows)
    csv.writer(buffer, lineterminator="\n", delimiter=delimiter).writerows(several)
    text = buffer.getvalue()
    if "\r" not in text:
        return text
    # Before Python 3.13, the writer quotes only the characters with which it ends lines.
    return "".join(_row_text(row, delimiter) for row in several)


def _row_text(row: Sequence[Any], delimiter: str) -> str:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\r\n", delimiter=delimiter).writerow(row)
    return buffer.getvalue().removesuffix("\r\n") + "\n"


def row_of(value: Any, names: list[str]) -> list[Any]:
    """Return the cells of a record in the order of the columns.

    Raises:
        CellError: it has other fields, or a cell has no form in CSV.
    """
    cells = _cells(value)
    if isinstance(cells, dict):
        unknown = cells.keys() - set(names)
        if unknown:
            reason = f"it has fields that are not in the header: {sorted(map(str, unknown))}"
            raise CellError(value, reason)
        return [cell_text(cells.get(name)) for name in names]
    if len(cells) != len(names):
        raise CellError(value, f"it has {len(cells)} fields, the header {len(names)}")
    return [cell_text(cell) for cell in cells]


def declared_names(record_type: Any) -> list[str]:
    """Return the field names of a record type, empty if it declares no fields."""
    return list(_columns_of(record_type))


def _columns_of(record_type: Any) -> dict[str, Callable[[Any], Any]]:
    """Return a getter for each column; empty if the record type declares no fields."""
    found = typing.get_origin(record_type) or record_type
    if not (isinstance(found, type) and issubclass(found, msgspec.Struct)):
        declared = fields_of(found)
        return {} if declared is None else {name: attrgetter(name) for name in declared.names}
    config = found.__struct_config__
    if config.array_like:
        return {}
    tags: dict[str, Any] = (
        {} if config.tag is None else {str(config.tag_field): lambda _: config.tag}
    )
    names = zip(found.__struct_encode_fields__, found.__struct_fields__, strict=True)
    return tags | {name: attrgetter(attribute) for name, attribute in names}


_known_columns: Callable[[type], dict[str, Callable[[Any], Any]]] = lru_cache(1_024)(_columns_of)


def column_names(value: Any) -> list[str]:
    """Return the columns of a record whose type declares no fields.

    They are names of a dict or of fields, ``field_1`` … of a tuple or list, else ``value``.
    """
    if hasattr(value, "_fields"):
        return list(value._fields)
    cells = _cells(value)
    if isinstance(cells, dict):
        return [str(name) for name in cells]
    if isinstance(value, (tuple, list)):
        return [f"field_{number}" for number in range(1, len(cells) + 1)]
    return ["value"]


def named_cells(value: Any) -> dict[str, Any]:
    """Return the cells of a record by column."""
    cells = _cells(value)
    return cells if isinstance(cells, dict) else dict(zip(column_names(value), cells, strict=True))


def _cells(value: Any) -> dict[str, Any] | list[Any]:
    if isinstance(value, dict):
        return value
    if isinstance(value, (tuple, list)):
        return list(value)
    found = _known_columns(type(value))
    return {name: get(value) for name, get in found.items()} if found else [value]


def cell_text(cell: Any) -> Any:
    """Return a value that the CSV writer accepts; nested ones become JSON.

    Raises:
        CellError: it has no form in CSV.
    """
    if isinstance(cell, Enum):
        return cell_text(cell.value)
    if cell is None or isinstance(cell, (str, int, float)):
        return cell
    try:
        return json_text(cell)
    except (TypeError, ValueError, OverflowError) as error:
        raise CellError(cell, error) from error
