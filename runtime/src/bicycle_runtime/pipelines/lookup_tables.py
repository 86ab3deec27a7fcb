"""Records that are completed from a table of a database, many in one question."""

from __future__ import annotations

from typing import Any

from bicycle_runtime.endpoints.values import duration_ms
from bicycle_runtime.pipelines.operator_keys import Lookup
from bicycle_runtime.pipelines.record_functions import FieldKey
from bicycle_sdk.lookups import PostgresLookup
from bicycle_sdk.secrets import Secret


class LookupInTable(PostgresLookup[Any]):
    """Adds the columns of the row with the same key.

    Args:
        spec: The table, and which of its columns.
    """

    def __init__(self, spec: Lookup) -> None:
        super().__init__(
            spec.url,
            spec.table,
            key=spec.column or spec.key,
            key_of=FieldKey([spec.key]),
            columns=spec.fields,
            password=None if spec.password is None else Secret.parse(spec.password),
            cache_rows=spec.cache_rows,
            cache_ms=duration_ms(spec.cache_for),
        )
        self.spec = spec

    async def async_invoke_batch(self, values: list[Any]) -> list[list[Any]]:
        """Return the records with data of their rows; a record without a key is unchanged."""
        keys = [self.key_of(value) for value in values]
        rows = await self.found_in.find(key for key in keys if key is not None)
        return [
            self._complete(value, rows.get(key)) for value, key in zip(values, keys, strict=True)
        ]

    def _complete(self, value: Any, row: dict[str, Any] | None) -> list[Any]:
        if row is None:
            return [value] if self.spec.how == "left" else []
        taken = self.columns or [name for name in row if name != self.key]
        return [{**value, **{name: row[name] for name in taken}}]
