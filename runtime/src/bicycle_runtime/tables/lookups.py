"""Tables whose rows are found by key: their options, and the join with them.

Such a table is no stream: the rows of keys are requested when rows of the left side need them,
many keys at once, and are cached.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, ClassVar

from bicycle_runtime.endpoints.catalog import ConnectorDescription
from bicycle_runtime.endpoints.keys import keys_of_connector
from bicycle_runtime.endpoints.sources import SourceKeys
from bicycle_runtime.tables.errors import SqlProblem
from bicycle_sdk.connector_options import SourceOptions
from bicycle_sdk.database_options import PostgresLookupOptions
from bicycle_sdk.options import from_mapping

# The options of lookups, by the connector of the table.
LOOKUPS: Mapping[str, type[SourceOptions[Any]]] = {"postgres": PostgresLookupOptions}
# Types whose values are equal in the database and here; times may differ by zone or digits.
_KEY_TYPES = ("BIGINT", "VARCHAR", "DATE", "BOOLEAN")


class _LookupKeys(SourceKeys, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """The options of a table whose rows are found by key."""

    hidden: ClassVar[frozenset[str]] = frozenset({"connect_timeout_ms"})

    def options(self) -> SourceOptions[Any]:
        found: SourceOptions[Any]
        found = from_mapping(self.connector.options_class, self.given_properties())
        return found


@cache
def lookup_keys(kind: str) -> type[Any]:
    """Return the options of lookups of a connector as keys."""
    options = LOOKUPS[kind]
    found = ConnectorDescription(
        name=kind, options_class=options, about=(options.__doc__ or "").partition("\n\n")[0]
    )
    return keys_of_connector(f"{kind.title()}Lookup", found, _LookupKeys)


def check_lookup(table: Any, at: int, *, is_current: bool) -> None:
    """Require that rows of a table can be found by its key.

    Args:
        table: The table.
        at: The offset of the join.
        is_current: Whether the join is with the current rows.

    Raises:
        SqlProblem: they cannot.
    """
    name, definition = table.name, table.definition
    if not is_current:
        raise SqlProblem(
            at, f"{name} has only current rows: write FOR SYSTEM_TIME AS OF PROCTIME()"
        )
    if definition.watermark is not None:
        raise SqlProblem(
            definition.watermark.column.at, f"rows of {name} are found by key, without event time; "
            "remove WATERMARK FOR",
        )  # fmt: skip
    kinds = {each.name.text.lower(): each.type for each in table.columns}
    for key in definition.key:
        if (kind := kinds[key.text.lower()]) not in _KEY_TYPES:
            raise SqlProblem(
                key.at, f"rows of {name} are found by columns that are "
                f"{', '.join(_KEY_TYPES[:-1])} or {_KEY_TYPES[-1]}; {key.text} is {kind}",
            )  # fmt: skip
