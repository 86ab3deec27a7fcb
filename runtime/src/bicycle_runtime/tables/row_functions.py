"""Functions of SQL jobs for workers that return several rows.

They sort rows, find rows by key, and call table functions in Python. This module imports no parser.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Any

from bicycle_runtime.expressions.sql.nested import json_value
from bicycle_runtime.expressions.sql.python_calls import PythonFunction
from bicycle_runtime.tables.functions import JoinedFields, SqlRow
from bicycle_sdk.contexts import WATERMARK_MAX
from bicycle_sdk.database_options import PostgresLookupOptions
from bicycle_sdk.functions import KeyedProcessFunction
from bicycle_sdk.lookups import PostgresLookup
from bicycle_sdk.state import ListStateDescriptor
from bicycle_sdk.time import WatermarkStrategy

_SPARE_ROWS = 1_000


class FirstRows(KeyedProcessFunction[int, Any, dict[str, Any]]):
    """The first rows in an order, as records, when the input has ended.

    Rows with equal keys are ordered by their values as text: so results do not depend on the order
    in which rows arrive. With a limit, the state has at most twice as many rows, or 1,000 more.

    Args:
        names: The fields of the results, which are the first columns of the rows.
        row_type: The type of a row.
        keys: Columns with flags: whether descending, and whether NULL comes first.
        limit: The number of results; None for all.
        offset: The number of rows before the first result.
        is_sorted: Whether the rows arrive in their order.
    """

    def __init__(
        self, names: Sequence[str], row_type: Any, keys: Sequence[tuple[int, bool, bool]],
        *, limit: int | None, offset: int, is_sorted: bool,
    ) -> None:  # fmt: skip
        self._names, self._keys, self._offset = tuple(names), tuple(keys), offset
        self._end, self._is_sorted = None if limit is None else offset + limit, is_sorted
        self.rows = ListStateDescriptor("rows", row_type)

    @property
    def state_bound(self) -> str:
        """The bound of the state, for plans."""
        if self._end is None:
            return "unbounded: it has all rows until the input ends"
        return "bounded: it has at most twice as many rows as results, or 1,000 more"

    def open(self, ctx: Any) -> None:
        """Open the state of rows."""
        self._rows, self._spare = ctx.get_list_state(self.rows), 0

    def process_element(self, value: Any, ctx: Any) -> tuple[()]:
        """Store a row, and remove rows that cannot be results."""
        self._rows.add(value)
        ctx.timer_service.register_event_time_timer(WATERMARK_MAX)
        self._spare += 1
        if self._end is not None and self._spare > max(self._end, _SPARE_ROWS):
            self._rows.update(self._sort(self._rows.get())[: self._end])
            self._spare = 0
        return ()

    def on_timer(self, timestamp_ms: int, ctx: Any) -> list[dict[str, Any]]:  # noqa: ARG002 - as its base
        """Return the results at the end of the input."""
        rows = self._sort(self._rows.get())[self._offset : self._end]
        self._rows.clear()
        return [dict(zip(self._names, row, strict=False)) for row in rows]

    def _sort(self, rows: list[Any]) -> list[Any]:
        if self._is_sorted:
            return rows
        rows.sort(key=_row_text)
        for at, is_descending, nulls_first in reversed(self._keys):
            null_flag = nulls_first is is_descending
            rows.sort(key=partial(_sort_value, at, null_flag), reverse=is_descending)
        return rows


def _row_text(row: Any) -> tuple[tuple[bool, str], ...]:
    return tuple((value is None, str(value)) for value in row)


def _sort_value(at: int, null_flag: bool, row: Any) -> tuple[bool, bool, Any]:
    """Return a value with flags of NULL and NaN, which is greater than all numbers."""
    value = row[at]
    is_nan = value != value  # noqa: PLR0124 - NaN differs.
    return (value is None) is null_flag, is_nan, None if value is None or is_nan else value


def _no_time(_row: Any) -> int:
    return 0


# Rows without event time; their watermark marks the end of the input.
NO_TIMES: WatermarkStrategy[Any] = WatermarkStrategy.bounded_out_of_orderness(0).with_timestamps(
    _no_time
)


class LookupRows(PostgresLookup[Any]):
    """A lookup of rows by the first values of a left row, for ``JoinedLookup``.

    Args:
        options: The table and the cache.
        keys: The columns of the key.
        columns: The columns that ``row`` reads.
        row: The columns of a row as a tuple, which begins with the keys.
        keeps_left: Whether a left row without a match is a result, too.
    """

    def __init__(
        self, options: PostgresLookupOptions, keys: Sequence[str], *, columns: Sequence[str],
        row: SqlRow, keeps_left: bool,
    ) -> None:  # fmt: skip
        super().__init__(
            options.url, options.table, key=keys[0] if len(keys) == 1 else keys,
            key_of=itemgetter(*range(len(keys))), columns=columns, password=options.password,
            cache_rows=options.cache_rows, cache_ms=options.cache_ms,
        )  # fmt: skip
        self.row, self.keeps_left, self.key_count = row, keeps_left, len(keys)

    async def async_invoke_batch(self, values: list[Any]) -> list[list[Any]]:
        """Return each left row with its match, None, or the error of the match."""
        known = [value for value in values if None not in value[: self.key_count]]
        rows = await self.found_in.find(map(self.key_of, known))
        found = [rows.get(self.key_of(value)) for value in values]
        matches = [row for row in found if row is not None]
        computed = iter(self.row.results(matches) if matches else ())
        pairs = [(None if row is None else next(computed)) for row in found]
        return [
            [] if right is None and not self.keeps_left else [(left, right)]
            for left, right in zip(values, pairs, strict=True)
        ]


class JoinedLookup:
    """The record of a left row and its match, or the error of the match.

    Args:
        joined: Makes the record.
    """

    def __init__(self, joined: JoinedFields) -> None:
        self.joined = joined

    def __call__(self, pair: Any) -> dict[str, Any]:
        left, right = pair
        if isinstance(right, Exception):
            raise right
        return self.joined(left, right)


class CalledRows:
    """The rows that a function returns for a record, beside the columns of the record.

    Args:
        function: The function.
        arguments: The fields of its arguments, which are not in the results.
        fields: The fields of its rows, by the name in the row; a function that returns values
            instead of rows has one field, whose name is empty.
        is_outer: Whether a call without rows leads to a row with NULL.
    """

    def __init__(
        self, function: PythonFunction, arguments: Sequence[str], fields: Mapping[str, str],
        *, is_outer: bool,
    ) -> None:  # fmt: skip
        self.function, self.arguments, self.fields = function, tuple(arguments), dict(fields)
        self.is_outer = is_outer

    def __call__(self, record: Mapping[str, Any]) -> list[dict[str, Any]]:
        given = [
            json_value(record[name]) if "JSON" in kind else record[name]
            for name, kind in zip(self.arguments, self.function.types, strict=True)
        ]
        kept = {name: value for name, value in record.items() if name not in self.arguments}
        found = [{**kept, **self._values(row)} for row in self.function.rows(given)]
        if found or not self.is_outer:
            return found
        return [{**kept, **dict.fromkeys(self.fields.values())}]

    def _values(self, row: Any) -> dict[str, Any]:
        if "" in self.fields:
            return {self.fields[""]: row}
        read = row.get if isinstance(row, dict) else partial(getattr, row)
        return {field: read(name) for name, field in self.fields.items()}
