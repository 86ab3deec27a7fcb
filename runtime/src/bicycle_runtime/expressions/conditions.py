"""SQL conditions that rows must meet, such as the constraints of a table."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import datafusion
import pyarrow

_TABLE = "t"


class Conditions:
    """Conditions over columns, by name; picklable.

    Args:
        texts: Name of a condition -> SQL. Names of columns keep their case.
        schema: The columns that rows have.

    Raises:
        ValueError: a condition cannot be computed over the columns.
    """

    def __init__(self, texts: Mapping[str, str], schema: pyarrow.Schema) -> None:
        self._texts = dict(texts)
        self._schema = schema
        for name, text in texts.items():
            try:
                self._count(text, pyarrow.RecordBatch.from_pylist([], schema))
            except Exception as error:  # The library raises whatever it likes.
                problem = str(error).partition("\n")[0]
                raise ValueError(f"the constraint {name!r} ({text}): {problem}") from error

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
        whole = pyarrow.RecordBatch.from_arrays(columns, names=self._schema.names)
        for name, text in self._texts.items():
            if self._count(text, whole):
                raise ValueError(f"it violates the constraint {name!r} of the table: {text}")

    def _count(self, text: str, rows: pyarrow.RecordBatch) -> int:
        session = _session()
        session.deregister_table(_TABLE)
        session.register_record_batches(_TABLE, [[rows]])
        query = f"SELECT count(*) FROM {_TABLE} WHERE ({text}) IS NOT TRUE"
        [found] = session.sql(query).collect()
        count: int = found.column(0)[0].as_py()
        return count


@cache
def _session() -> Any:
    config = datafusion.SessionConfig().with_target_partitions(1)
    words = {"datafusion.sql_parser.enable_ident_normalization": "false"}
    for name, value in words.items():
        config = config.set(name, value)
    return datafusion.SessionContext(config)
