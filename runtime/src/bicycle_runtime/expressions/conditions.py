"""SQL conditions that rows must meet, such as the constraints of a table."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow
import pyarrow.compute as pc

from bicycle_runtime.expressions.sql.computing import rows_of
from bicycle_runtime.expressions.sql.tree import column
from bicycle_runtime.expressions.sql.types import type_of_arrow


class Conditions:
    """Conditions over columns, by name; picklable.

    Args:
        texts: Name of a condition -> SQL. Names of columns keep their case.
        schema: The columns that rows have.

    Raises:
        ValueError: a condition cannot be computed over the columns.
    """

    def __init__(self, texts: Mapping[str, str], schema: pyarrow.Schema) -> None:
        # The parser is slow to import, and needed only where a table has constraints.
        from bicycle_runtime.expressions.sql.compiling import compile_text

        self._texts = dict(texts)
        self._schema = schema
        columns = {}
        for field in schema:
            try:
                columns[field.name] = column(field.name, type_of_arrow(field.type))
            except ValueError:  # No condition can name it.
                continue
        self._trees = {}
        for name, text in texts.items():
            try:
                self._trees[name] = compile_text(text, columns)
            except ValueError as error:
                raise ValueError(f"the constraint {name!r} ({text}): {error}") from error

    def check(self, rows: pyarrow.RecordBatch) -> None:
        """Raise an error if a condition is not true for all rows; absent columns are null.

        Raises:
            ValueError: so it is; the message names the condition.
        """
        names = set(rows.schema.names)
        columns = [
            rows.column(field.name)
            if field.name in names
            else pyarrow.nulls(rows.num_rows, field.type)
            for field in self._schema
        ]
        whole = rows_of(pyarrow.RecordBatch.from_arrays(columns, names=self._schema.names))
        for name, tree in self._trees.items():
            found, errors = whole.array(tree)
            if errors or not pc.all(found, skip_nulls=False, min_count=0).as_py():
                text = self._texts[name]
                raise ValueError(f"it violates the constraint {name!r} of the table: {text}")
