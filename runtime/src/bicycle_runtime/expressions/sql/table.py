"""The table of SQL functions; one row of one module adds a function."""

from __future__ import annotations

from collections.abc import Mapping

from bicycle_runtime.expressions.sql.functions import SqlFunction
from bicycle_runtime.expressions.sql.nested import ARRAYS, JSON_VALUES
from bicycle_runtime.expressions.sql.numbers import ARITHMETIC, COMPARISONS, LOGIC, MATHEMATICS
from bicycle_runtime.expressions.sql.texts import TEXTS
from bicycle_runtime.expressions.sql.times import TIMES

ROWS: tuple[SqlFunction, ...] = (
    *COMPARISONS, *LOGIC, *ARITHMETIC, *MATHEMATICS, *TEXTS, *TIMES, *JSON_VALUES, *ARRAYS,
)  # fmt: skip
FUNCTIONS: Mapping[str, SqlFunction] = {name: row for row in ROWS for name in row.names}
