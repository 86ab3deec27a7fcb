"""The table of a PostgreSQL sink: its requirements, and its creation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
import pyarrow
from psycopg import sql

from bicycle_runtime.connectors.postgres.copy_rows import ColumnLimits

_MADE: Sequence[tuple[Any, str]] = (
    (pyarrow.types.is_boolean, "boolean"),
    (pyarrow.types.is_integer, "bigint"),
    (pyarrow.types.is_floating, "double precision"),
    (pyarrow.types.is_decimal, "numeric"),
    (pyarrow.types.is_timestamp, "timestamptz"),
    (pyarrow.types.is_date, "date"),
    (pyarrow.types.is_time, "time"),
    (pyarrow.types.is_duration, "interval"),
    (pyarrow.types.is_string, "text"),
    (pyarrow.types.is_binary, "bytea"),
    (pyarrow.types.is_nested, "jsonb"),
)
_TAKEN: Mapping[str, frozenset[str]] = {
    "boolean": frozenset({"bool"}),
    "bigint": frozenset({"int2", "int4", "int8", "numeric", "float8"}),
    "double precision": frozenset({"float8", "numeric"}),
    "numeric": frozenset({"numeric", "float8"}),
    "timestamptz": frozenset({"timestamptz", "timestamp"}),
    "date": frozenset({"date"}),
    "time": frozenset({"time"}),
    "interval": frozenset({"interval"}),
    "text": frozenset({"text", "varchar", "bpchar", "name"}),
    "bytea": frozenset({"bytea"}),
    "jsonb": frozenset({"json", "jsonb", "text"}),
}
_NUMBERS_MAX = {"int2": (1 << 15) - 1, "int4": (1 << 31) - 1}
_COLUMNS = """
    select a.attname, t.typname, a.attnotnull,
           a.atthasdef or a.attidentity <> '' or a.attgenerated <> '', a.attgenerated <> '',
           case when t.typname in ('varchar', 'bpchar') and a.atttypmod > 4
                then a.atttypmod - 4 end,
           case when t.typname = 'numeric' and a.atttypmod > 4
                then ((a.atttypmod - 4) >> 16) - ((a.atttypmod - 4) & 65535) end,
           array(select enumlabel::text from pg_enum e where e.enumtypid = t.oid
                 order by enumsortorder)
    from pg_attribute a join pg_type t on t.oid = a.atttypid
    where a.attrelid = %s and a.attnum > 0 and not a.attisdropped order by a.attnum
"""
_UNIQUE = """
    select array(select attname::text from pg_attribute a
                 where a.attrelid = i.indrelid and a.attnum = any(i.indkey))
    from pg_index i
    where i.indrelid = %s and i.indisunique and i.indisvalid and i.indpred is null
          and i.indexprs is null
"""


class UnsuitableError(Exception):
    """The reason why a table cannot be used, and the fix."""

    def __init__(self, problem: str, hint: str, *, is_missing: bool = False) -> None:
        super().__init__(problem)
        self.hint = hint
        self.is_missing = is_missing


@dataclass(frozen=True, slots=True)
class _Found:
    name: str
    kind: str
    is_required: bool
    has_default: bool
    is_generated: bool
    length_max: int | None
    digits_max: int | None
    words: Sequence[str]


def table_name(text: str) -> sql.Identifier:
    """Return a name for statements: ``table`` or ``schema.table``."""
    return sql.Identifier(*text.split(".", 1))


def column_names(names: Iterable[str] | None) -> sql.Composable:
    """Return columns for statements, separated by commas; all columns for None."""
    if names is None:
        return sql.SQL("*")
    return sql.SQL(", ").join(map(sql.Identifier, names))


def create_table(
    connection: psycopg.Connection[Any], table: str, schema: pyarrow.Schema, keys: Sequence[str]
) -> None:
    """Make the table where it is missing."""
    parts = [
        sql.SQL("{} {}").format(sql.Identifier(field.name), sql.SQL(_made_type(field.type)))
        for field in schema
    ]
    if keys:
        parts.append(sql.SQL("primary key ({})").format(column_names(keys)))
    statement = sql.SQL("create table if not exists {} ({})")
    connection.execute(statement.format(table_name(table), sql.SQL(", ").join(parts)))


def limits_of(
    connection: psycopg.Connection[Any], table: str, schema: pyarrow.Schema, keys: Sequence[str]
) -> dict[str, ColumnLimits]:
    """Return the limits of each column of the table, without any change.

    Args:
        connection: To the server.
        table: Its name.
        schema: The schema of the rows to write.
        keys: Of an upsert, else empty.

    Raises:
        UnsuitableError: it is missing, or does not fit.
    """
    text = table_name(table).as_string(connection)
    [row] = connection.execute("select to_regclass(%s)::oid", [text]).fetchall()
    if row[0] is None:
        raise UnsuitableError(
            "it is missing, or not visible to the user",
            "create it, or set create_table",
            is_missing=True,
        )
    found = {each[0]: _Found(*each) for each in connection.execute(_COLUMNS, row).fetchall()}
    _check_columns(found, schema)
    rights = ["insert", "update", "delete"] if keys else ["insert"]
    for right in rights:
        [[is_given]] = connection.execute(
            "select has_table_privilege(%s::oid, %s)", [row[0], right]
        ).fetchall()
        if not is_given:
            raise UnsuitableError(f"the user lacks the permission {right}", f"grant {right} on it")
    if keys and sorted(keys) not in [
        sorted(each[0]) for each in connection.execute(_UNIQUE, row).fetchall()
    ]:
        names = ", ".join(keys)
        raise UnsuitableError(
            f"it has no unique index with exactly the columns {names}",
            f"create unique index on {text} ({names})",
        )
    return {field.name: _limits(found[field.name], field.type) for field in schema}


def _check_columns(found: Mapping[str, _Found], schema: pyarrow.Schema) -> None:
    for field in schema:
        column = found.get(field.name)
        if column is None:
            raise UnsuitableError(f"it has no column {field.name!r}", "add it, or remove the field")
        if column.is_generated:
            raise UnsuitableError(f"column {field.name!r} is generated", "remove the field")
        made = _made_type(field.type)
        is_enum = made == "text" and bool(column.words)
        if column.kind not in _TAKEN[made] and not is_enum:
            raise UnsuitableError(
                f"column {field.name!r} is {column.kind}, but the records have {made}",
                f"map the field, or change the type of the column to {made}",
            )
    for column in found.values():
        if column.is_required and not column.has_default and column.name not in schema.names:
            raise UnsuitableError(
                f"column {column.name!r} is NOT NULL, but missing in the records",
                "set a default for the column, or add a field to the records",
            )


def _limits(column: _Found, data_type: pyarrow.DataType) -> ColumnLimits:
    most = _NUMBERS_MAX.get(column.kind)
    if column.digits_max is not None and not pyarrow.types.is_string(data_type):
        most = 10**column.digits_max - 1
    return ColumnLimits(
        is_required=column.is_required,
        number_max=most,
        length_max=column.length_max,
        words=tuple(column.words),
        is_jsonb=column.kind == "jsonb",
    )


def _made_type(data_type: pyarrow.DataType) -> str:
    return next(name for is_kind, name in _MADE if is_kind(data_type))
