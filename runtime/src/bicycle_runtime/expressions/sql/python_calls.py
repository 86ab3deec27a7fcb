"""Calls of functions in Python from SQL, value by value or on Arrow arrays.

A row on which a function raises has the error, with file and line; other rows are not affected.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bicycle_runtime.expressions.sql.nested import json_value
from bicycle_runtime.expressions.sql.types import SqlType
from bicycle_runtime.frames.arrays import listed_values


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonFunction:
    """A function in Python, with the SQL types of its arguments.

    ``takes_null`` has a flag for each argument: without it, NULL leads to NULL. Without
    ``returns_null``, a call that returns None is an error of its row.
    """

    location: str
    function: Callable[..., Any]
    types: tuple[SqlType, ...]
    takes_null: tuple[bool, ...]
    returns_null: bool
    is_on_columns: bool = False
    is_deterministic: bool = False

    def each(
        self, columns: Sequence[Any], count: int, failed: Mapping[int, str]
    ) -> tuple[list[Any], dict[int, str]]:
        """Return the result for each row, and the errors of rows.

        Args:
            columns: The arguments, as Arrow arrays.
            count: The number of rows.
            failed: Rows whose arguments have errors; they are not computed.
        """
        lists = [self._values(at, column) for at, column in enumerate(columns)]
        required = [at for at, takes in enumerate(self.takes_null) if not takes]
        rows = zip(*lists, strict=True) if lists else ((),) * count
        found: list[Any] = []
        errors: dict[int, str] = {}
        for index, row in enumerate(rows):
            is_null = any(row[at] is None for at in required)
            if is_null or index in failed:
                found.append(None)
                continue
            try:
                result = self.function(*row)
            except Exception as error:  # noqa: BLE001 - the boundary to code of users
                result, errors[index] = None, self._describe(error)
            else:
                if result is None and not self.returns_null:
                    errors[index] = f"{self.location} returned None, which its annotation excludes"
            found.append(result)
        return found, errors

    def rows(self, arguments: Sequence[Any]) -> list[Any]:
        """Return the rows of a table function.

        If an argument is NULL that must not be, the function is not called.

        Raises:
            ValueError: the function raises, or returns nothing that has items.
        """
        if any(
            one is None and not takes for one, takes in zip(arguments, self.takes_null, strict=True)
        ):
            return []
        try:
            return list(self.function(*arguments))
        except Exception as error:
            raise ValueError(self._describe(error)) from error

    def on_arrays(self, *columns: Any) -> Any:
        """Return the result for Arrow arrays.

        Raises:
            ValueError: the function raises, or returns another number of values.
        """
        try:
            found = self.function(*columns)
            count = len(found)
        except Exception as error:
            raise ValueError(self._describe(error)) from error
        if count != len(columns[0]):
            raise ValueError(f"{self.location} returned {count} values for {len(columns[0])} rows")
        return found

    def _values(self, at: int, column: Any) -> list[Any]:
        values = listed_values(column)
        return json_value(values) if "JSON" in self.types[at] else values

    def _describe(self, error: Exception) -> str:
        frames = [each for each in traceback.extract_tb(error.__traceback__)][1:]
        code = getattr(self.function, "__code__", None)
        own = [each for each in frames if code is None or each.filename == code.co_filename]
        text = f"{self.location} raised {type(error).__name__}: {error}"
        return f"{text} ({Path(own[-1].filename).name}:{own[-1].lineno})" if own else text
