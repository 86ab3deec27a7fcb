"""The kernel of expressions of pipelines: DataFusion, called for a batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC
from functools import cache
from typing import Any

import datafusion
import msgspec
import numpy
import pyarrow

from bicycle_runtime.expressions.types import (
    CompiledExpressions,
    ExpressionFailedError,
    FieldRead,
    FieldWord,
)
from bicycle_runtime.records.times import time_of

_TABLE = "t"
_TYPES: Mapping[FieldWord, Any] = {
    "string": pyarrow.string(),
    "int": pyarrow.int64(),
    "float": pyarrow.float64(),
    "bool": pyarrow.bool_(),
    "timestamp": pyarrow.timestamp("ms", tz="UTC"),
    "json": pyarrow.string(),
}
# The types whose columns are arrays of numpy, too.
_NUMPY: Mapping[FieldWord, str] = {"int": "i", "float": "f", "bool": "b"}
# The types that results are told to have: the library has smaller ones, and other texts.
_CAST = frozenset({"string", *_NUMPY})
_BESIDE = ("DataFusion error: ", "Arrow error: ", "Error during planning: ", "Execution error: ")


class Kernel:
    """A kernel that computes expressions; created where it is used, not pickled.

    Args:
        compiled: The expressions.
    """

    def __init__(self, compiled: CompiledExpressions) -> None:
        self._compiled = compiled
        self._session = _session()
        columns = (f"({text}) AS x{index}" for index, text in enumerate(compiled.texts))
        self._query = f"SELECT {', '.join(columns)} FROM {_TABLE}"

    def column(self, read: FieldRead, values: Any) -> Any:
        """Return the Arrow column that the expressions read."""
        if isinstance(values, pyarrow.Array):
            is_as_read = not read.path and values.type == _TYPES[read.type] and read.type != "json"
            return values if is_as_read else _column(read, values.to_pylist())
        if isinstance(values, numpy.ndarray):
            is_as_read = not read.path and values.dtype.kind == _NUMPY.get(read.type)
            return pyarrow.array(values) if is_as_read else _column(read, values.tolist())
        return _column(read, values)

    def compute(self, columns: Sequence[Any], count: int) -> list[Any]:
        """Return a column for each expression."""
        self._session.deregister_table(_TABLE)
        self._session.register_record_batches(_TABLE, [[_batch(columns, count)]])
        found = pyarrow.Table.from_batches(self._session.sql(self._query).collect())
        return [
            column.cast(_TYPES[word]) if word in _CAST else column
            for word, column in zip(self._compiled.types, found.columns, strict=True)
        ]

    def answers(self, records: Sequence[Mapping[str, Any]]) -> list[Any]:
        """Return for each record the tuple of values, or the exception that it leads to."""
        if not records:
            return []
        try:
            return self._values(records)
        except Exception as error:  # noqa: BLE001 - the library raises whatever it likes
            if len(records) == 1:
                return [ExpressionFailedError(self._blame(records, error))]
        half = len(records) // 2
        return [*self.answers(records[:half]), *self.answers(records[half:])]

    def _values(self, records: Sequence[Mapping[str, Any]]) -> list[tuple[Any, ...]]:
        found = self.compute(self._columns_of(records), len(records))
        return list(zip(*map(python_values, found), strict=True))

    def _columns_of(self, records: Sequence[Mapping[str, Any]]) -> list[Any]:
        return [
            _column(read, [record.get(read.field) for record in records])
            for read in self._compiled.reads
        ]

    def _blame(self, records: Sequence[Mapping[str, Any]], error: Exception) -> str:
        """Return why a record has no values, after the name of the expression if several.

        Args:
            records: The record.
            error: What all expressions together led to.
        """
        try:
            given = self._columns_of(records)
        except Exception:  # noqa: BLE001 - the record cannot be read, whatever is computed of it
            return _shorten(error)
        whole = self._compiled
        each = zip(whole.names, whole.texts, whole.types, strict=True)
        for name, text, word in each if len(whole.names) > 1 else ():
            one = replace(whole, names=(name,), texts=(text,), types=(word,))
            try:
                Kernel(one).compute(given, len(records))
            except Exception as found:  # noqa: BLE001 - as above
                return f"{name}: {_shorten(found)}"
        return _shorten(error)


def planned_type(text: str, reads: Sequence[FieldRead]) -> FieldWord:
    """Return the type of an expression over columns.

    Raises:
        ValueError: the kernel does not know a function, or types do not fit.
    """
    session = _session()
    empty = [_column(read, []) for read in reads]
    session.deregister_table(_TABLE)
    session.register_record_batches(_TABLE, [[_batch(empty, 0)]])
    try:
        schema = session.sql(f"SELECT ({text}) AS x FROM {_TABLE}").schema()
    except Exception as error:  # The library raises whatever it likes.
        raise ValueError(_shorten(error)) from error
    return _word(schema.field(0).type)


@cache
def _session() -> Any:
    """Return the session of this process: one thread and partition, to keep order."""
    return datafusion.SessionContext(datafusion.SessionConfig().with_target_partitions(1))


def _batch(columns: Sequence[Any], count: int) -> Any:
    """Return columns as a batch; an extra column carries the number of records."""
    names = ["n", *(f"c{index}" for index in range(len(columns)))]
    return pyarrow.RecordBatch.from_arrays([pyarrow.nulls(count, pyarrow.int8()), *columns], names)


def _column(read: FieldRead, found: Sequence[Any]) -> Any:
    values = [_value(read, value) for value in found]
    if read.type == "int" and any(type(each) is float for each in values):
        raise TypeError(f"field {read.field!r} is not a whole number")  # It would be cut.
    return pyarrow.array(values, _TYPES[read.type])


def _value(read: FieldRead, value: Any) -> Any:
    """Return the value that an expression reads from a field."""
    for key in read.path:
        if isinstance(value, dict) and isinstance(key, str):
            value = value.get(key)
        elif isinstance(value, list) and isinstance(key, int) and -len(value) <= key < len(value):
            value = value[key]
        else:
            return None
    if value is None:
        return None
    if read.type == "timestamp":
        return time_of(value)
    if read.path and read.is_text and isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode() if read.path or read.type == "json" else value


def python_values(column: Any) -> list[Any]:
    """Return a column as values of records: times as RFC 3339 in UTC."""
    values: list[Any] = column.to_pylist()
    if not pyarrow.types.is_timestamp(column.type):
        return values
    return [
        None if each is None else each.astimezone(UTC).isoformat().replace("+00:00", "Z")
        for each in values
    ]


def _word(kind: Any) -> FieldWord:
    checks = pyarrow.types
    if checks.is_boolean(kind):
        return "bool"
    if checks.is_integer(kind):
        return "int"
    if checks.is_floating(kind):
        return "float"
    if checks.is_timestamp(kind):
        return "timestamp"
    if checks.is_string(kind) or checks.is_large_string(kind) or str(kind) == "string_view":
        return "string"
    raise ValueError(f"it returns {kind}, which is not a type of fields; cast it")


def _shorten(error: Exception) -> str:
    """Return a library's message without its internal names."""
    text = str(error).partition("\n")[0]
    for words in _BESIDE:
        text = text.replace(words, "")
    return text if text[1:2].isupper() else text[:1].lower() + text[1:]
