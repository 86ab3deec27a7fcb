"""Records that are completed from a file, which each process holds in memory once."""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

import msgspec

from bicycle_runtime.endpoints.field_functions import expression_of, field_of
from bicycle_runtime.expressions.evaluation import HasExpression, evaluate
from bicycle_runtime.formats.typed_values import json_text
from bicycle_runtime.frames.arrays import numpy
from bicycle_runtime.frames.frame import Frame
from bicycle_runtime.frames.vectors import Refused, Vector
from bicycle_runtime.pipelines.errors import LOOKUP_FILE_UNUSABLE
from bicycle_runtime.pipelines.operator_keys import Enrich
from bicycle_sdk.expressions import Expression, col

_BYTES_MAX = 256 << 20
_FORMATS = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}
_PLAIN = frozenset({int, float, str, bool, type(None)})


class _RowsByKey(dict[str | None, dict[str, Any]]):
    """The rows of a file by their key's text; the last row of a key counts. None has no row."""


# By file, as it is now, and the columns taken of it: functions of one process share them.
_HELD: weakref.WeakValueDictionary[Any, _RowsByKey] = weakref.WeakValueDictionary()


class _WithFile(ABC):
    """A function that looks up records in a file, which is read at first use.

    Args:
        spec: The file, and which of its fields.
    """

    def __init__(self, spec: Enrich) -> None:
        self.spec = spec
        self._rows: _RowsByKey | None = None

    def __reduce__(self) -> Any:
        return type(self), (self.spec,)

    def answer_all(self, values: Sequence[Any]) -> list[Any]:
        """Return the function's result for each record, or its exception.

        Raises:
            LOOKUP_FILE_UNUSABLE: it cannot be read, is too large, or lacks a field.
        """
        self._load()
        try:
            return list(map(self, values))
        except Exception:  # noqa: BLE001 - any error is reported for its record
            return list(map(self._attempt, values))

    @abstractmethod
    def __call__(self, value: Any) -> Any:
        """Return the function's result for a record."""

    def _attempt(self, value: Any) -> Any:
        try:
            return self(value)
        except Exception as error:  # noqa: BLE001 - as above
            return error

    def _row_of(self, value: Any) -> dict[str, Any] | None:
        return self._load().get(_key_text(field_of(value, self.spec.key)))

    def _rows_on_columns(self, inputs: Sequence[Expression], columns: Frame) -> list[Any]:
        """Return the row for each record, None if the file has no row.

        Raises:
            LOOKUP_FILE_UNUSABLE: as above.
            Refused: a key is no plain value.
        """
        keys = evaluate(inputs[0], columns)
        if not keys.kinds <= _PLAIN:
            raise Refused
        texts = keys.each() if keys.kinds == {str} else map(_key_text, keys.each())
        return list(map(self._load().get, texts))

    def _load(self) -> _RowsByKey:
        if self._rows is None:
            self._rows = _held_rows(self.spec)
        return self._rows

    def _column(self, index: int) -> Expression:
        return Expression("columns", self, index, expression_of(self.spec.key))


class FoundInFile(_WithFile, HasExpression):
    """A condition: whether the file contains a record."""

    def __call__(self, value: Any) -> bool:
        return self._row_of(value) is not None

    def expression(self) -> Expression:
        return self._column(0)

    def vectors(self, inputs: Sequence[Expression], columns: Frame) -> Sequence[Vector]:
        """Return it as a column; see ``ComputedColumns``."""
        rows = self._rows_on_columns(inputs, columns)
        found = numpy().array([row is not None for row in rows], numpy().bool_)
        return [Vector(columns.count, None, found)]


class CompletedFromFile(_WithFile):
    """A record with the fields of its row; as it is where the file does not know it."""

    def __call__(self, value: Any) -> Any:
        row = self._row_of(value)
        return value if row is None else {**value, **row}


class CompletedOnColumns(CompletedFromFile, HasExpression):
    """The same for records of known fields; records without a row go singly.

    Args:
        spec: The file, and which of its fields; they must be named.
        names: The fields of the records.
    """

    def __init__(self, spec: Enrich, names: Sequence[str]) -> None:
        super().__init__(spec)
        self.names = tuple(names)
        self._last: tuple[weakref.ref[Frame], list[Vector]] | None = None

    def __reduce__(self) -> Any:
        return type(self), (self.spec, self.names)

    def expression(self) -> Expression:
        added = {name: self._column(index) for index, name in enumerate(self.spec.fields or ())}
        values = {**{name: col(name) for name in self.names}, **added}
        return Expression("record", tuple(values), *values.values())

    def vectors(self, inputs: Sequence[Expression], columns: Frame) -> Sequence[Vector]:
        """Return the added fields as columns; see ``ComputedColumns``."""
        if self._last is None or self._last[0]() is not columns:
            rows = self._rows_on_columns(inputs, columns)
            if None in rows:
                raise Refused
            getters = map(itemgetter, self.spec.fields or ())
            found = [Vector(columns.count, list(map(getter, rows))) for getter in getters]
            self._last = weakref.ref(columns), found
        return self._last[1]


def _held_rows(spec: Enrich) -> _RowsByKey:
    path = Path(spec.path).expanduser()
    try:
        stat = path.stat()
        held = (str(path), stat.st_mtime_ns, stat.st_size, msgspec.json.encode(spec))
        found = _HELD.get(held)
        if found is None:
            found = _HELD[held] = _read(path, stat.st_size, spec)
    except (OSError, ValueError, msgspec.DecodeError) as error:
        raise LOOKUP_FILE_UNUSABLE(path=str(path), reason=str(error)) from error
    except KeyError as error:
        reason = f"a row has no field {error.args[0]!r}"
        raise LOOKUP_FILE_UNUSABLE(path=str(path), reason=reason) from error
    return found


def _read(path: Path, size: int, spec: Enrich) -> _RowsByKey:
    if size > _BYTES_MAX:
        raise ValueError(f"it has {size:,} bytes, but at most {_BYTES_MAX:,} are supported")
    key = spec.lookup_key or spec.key
    take = _taker(spec, key)
    rows = _rows(path, spec.format or _FORMATS.get(path.suffix, ""))
    return _RowsByKey((_key_text(row[key]), take(row)) for row in rows if row[key] is not None)


def _taker(spec: Enrich, key: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    names = spec.fields
    if names is not None:
        return lambda row: {name: row[name] for name in names}
    return lambda row: {name: value for name, value in row.items() if name != key}


def _key_text(value: Any) -> str | None:
    """Return a key as text, since CSV files contain only texts; None for null."""
    return value if isinstance(value, str | None) else json_text(value)


def _rows(path: Path, format: str) -> list[dict[str, Any]]:
    if format == "csv":
        # Slow to import on workers that read no file.
        import csv

        with path.open(encoding="utf-8-sig", newline="") as file:
            found: list[dict[str, Any]] = []
            for row in (reader := csv.DictReader(file)):
                if None in row:
                    raise ValueError(f"line {reader.line_num} has more cells than the header")
                if missing := [name for name, cell in row.items() if cell is None]:
                    names = ", ".join(map(repr, missing))
                    raise ValueError(f"line {reader.line_num} has no cell for {names}")
                found.append(row)
            return found
    if format == "jsonl":
        return msgspec.json.Decoder(dict[str, Any]).decode_lines(path.read_bytes())
    if format == "parquet":
        # Slow to import on workers that read no file.
        import pyarrow.parquet

        rows: list[dict[str, Any]] = pyarrow.parquet.read_table(path).to_pylist()
        return rows
    raise ValueError("its name does not identify the format; set format to csv, jsonl or parquet")
