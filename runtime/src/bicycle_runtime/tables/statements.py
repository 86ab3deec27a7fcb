"""The statements of an SQL file: CREATE TABLE, CREATE VIEW, INSERT INTO and SET.

Definitions are read here, because their clauses (options, watermarks, computed columns) are those
of streams; queries are parsed by ``dialect``. A statement with an error does not hide errors of
others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from bicycle_runtime.endpoints.checking import Checks, likely
from bicycle_runtime.expressions.sql.types import SqlType, type_named
from bicycle_runtime.tables.dialect import (
    Cursor,
    Name,
    Query,
    parse_query,
    parse_value,
    split_statements,
)
from bicycle_runtime.tables.errors import SqlProblem
from bicycle_runtime.tables.texts import SqlText

_TIME_DIGITS_MAX = 3
_VALUES = (TokenType.STRING, TokenType.NUMBER, TokenType.TRUE, TokenType.FALSE, TokenType.VAR)
_LONG_TYPES = ("DOUBLE PRECISION", "CHARACTER VARYING")  # Each is one token.
_SHELL = "a job has no output; `bicycle sql FILE` runs such statements"
# Statements of other systems, with the reason why they are rejected.
_REJECTED = {
    **dict.fromkeys(("EXPLAIN", "SHOW", "DESCRIBE", "DESC", "RESET"), _SHELL),
    **dict.fromkeys(("SELECT", "FROM", "WITH", "VALUES"),
                    "a query needs a table for its rows: INSERT INTO name SELECT …"),
    **dict.fromkeys(("UPDATE", "DELETE", "MERGE", "TRUNCATE"),
                    "tables are streams; a job only appends rows to them"),
    "DROP": "a file defines all tables of its job; remove the CREATE statement",
    "ALTER": "a file defines all tables of its job; change the CREATE statement",
    **dict.fromkeys(("ADD", "LOAD", "UNLOAD"),
                    "functions and connectors are those of installed packages"),
    **dict.fromkeys(("ANALYZE", "CACHE", "CALL", "COMMENT", "COPY", "DECLARE", "GRANT", "REFRESH"),
                    "a file has tables, views, functions, and queries that fill tables"),
    "USE": "there are no catalogs and databases; a file has all tables of its job",
    **dict.fromkeys(("BEGIN", "COMMIT", "EXECUTE", "END", "STATEMENT"),
                    "all statements of a file are one job, which publishes its epochs as a whole"),
}  # fmt: skip
# Objects that other systems create, with the statement that does the same here.
_NOT_CREATED = {
    "MATERIALIZED": "use CREATE VIEW and INSERT INTO",
    "SOURCE": "use CREATE TABLE … WITH (kind = '…')",
    "STREAMING": "use CREATE TABLE … WITH (kind = '…')",
    "SINK": "use CREATE TABLE … WITH (kind = '…') and INSERT INTO … SELECT",
    "SYSTEM": "use CREATE FUNCTION name AS 'module:function'",
    "SECRET": "use a reference as the value of an option, such as 'env:SHOP_PASSWORD'",
    **dict.fromkeys(("CATALOG", "DATABASE", "SCHEMA"), _REJECTED["USE"]),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnDefinition:
    """A column of a table; ``value`` is its expression if it is computed."""

    name: Name
    type: SqlType
    is_nullable: bool = True
    value: exp.Expr | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Watermark:
    """The event time of a table: a column, and how far its values may be out of order."""

    column: Name
    delay_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Created:
    """A definition; ``if_known`` is ``keep`` or ``replace`` if its name may be known."""

    name: Name
    if_known: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTable(Created):
    """A table of a connector. The positions of its options are in the text, by its name."""

    columns: tuple[ColumnDefinition, ...]
    watermark: Watermark | None
    key: tuple[Name, ...]
    options: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateView(Created):
    """A name for a query; ``columns`` are other names for its columns."""

    columns: tuple[Name, ...]
    query: Query


@dataclass(frozen=True, slots=True, kw_only=True)
class Insert:
    """A query whose rows are appended to a table."""

    name: Name
    columns: tuple[Name, ...]
    query: Query


@dataclass(frozen=True, slots=True, kw_only=True)
class SetOption:
    """An option of the job; its position is in the text."""

    key: Name
    value: str
    value_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Select:
    """A query without a table for its rows."""

    query: Query


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateFunction(Created):
    """A name for a function in Python: ``module:name``, or an entry point."""

    location: Name


@dataclass(frozen=True, slots=True, kw_only=True)
class WrongDefinition:
    """A CREATE statement with a noted problem; its name is one of its words."""

    words: frozenset[str]


Statement = (
    CreateTable | CreateView | CreateFunction | Insert | SetOption | Select | WrongDefinition
)


def read_statements(text: SqlText, checks: Checks, *, has_queries: bool = False) -> list[Statement]:
    """Return the statements of a text; problems are noted.

    Args:
        text: The text.
        checks: Takes the problems.
        has_queries: Whether a statement may be a query.
    """
    found: list[Statement] = []
    try:
        cursors = split_statements(text)
    except SqlProblem as problem:
        checks.note_position(text.position(problem.at), str(problem))
        return found
    for cursor in cursors:
        try:
            found.append(read_statement(cursor, has_queries=has_queries))
        except SqlProblem as problem:
            checks.note_position(text.position(problem.at), str(problem))
            words = [token.text.lower() for token in cursor.tokens]
            if words[0] == "create":
                found.append(WrongDefinition(words=frozenset(words)))
    return found


def statement_words() -> list[str]:
    """Return the first words of all statements, including rejected ones."""
    return [*_STATEMENTS, *_REJECTED]


def read_statement(cursor: Cursor, *, has_queries: bool = False) -> Statement:
    """Return a statement of a file, or of a program, which may be a query.

    Raises:
        SqlProblem: it is wrong, or has no place in a file.
    """
    token = cursor.peek()
    assert token is not None
    word, at = token.text.upper(), cursor.at
    if has_queries and cursor.sees_query():
        return Select(query=parse_query(cursor))
    read = _STATEMENTS.get(word)
    if read is None:
        if word in _REJECTED:
            raise SqlProblem(at, f"{word} is not supported in an SQL file: {_REJECTED[word]}")
        near = likely(word, [*_STATEMENTS, *_REJECTED])
        hint = f"did you mean {near}? " if near else ""
        raise SqlProblem(at, f"there is no statement {token.text!r}; {hint}known: {_KNOWN}")
    cursor.index += 1
    found = read(cursor)
    if not cursor.is_at_end:
        raise cursor.unexpected("a semicolon")
    return found


def _create(cursor: Cursor) -> Statement:
    if_known = "replace" if cursor.take("OR", "REPLACE") else ""
    if not cursor.take("TEMPORARY"):
        cursor.take("TEMP")
    for word, read in _CREATED.items():
        if cursor.take(word):
            if cursor.take("IF", "NOT", "EXISTS"):
                if_known = "keep"
            return replace(read(cursor), if_known=if_known)
    token = cursor.peek()
    word = "" if token is None else token.text.upper()
    if word in _NOT_CREATED:
        shown = f"{word} VIEW" if word == "MATERIALIZED" else word
        raise SqlProblem(cursor.at, f"CREATE {shown} is not supported; {_NOT_CREATED[word]}")
    raise cursor.unexpected("TABLE, VIEW or FUNCTION")


def _read_name(cursor: Cursor, of: str) -> Name:
    name = cursor.name(of)
    if cursor.sees("."):
        raise SqlProblem(cursor.at, f"the name of {of} has one part: there are no databases")
    return name


def _create_table(cursor: Cursor) -> CreateTable:
    name = _read_name(cursor, "a table")
    columns: list[ColumnDefinition] = []
    watermark: Watermark | None = None
    keys: list[tuple[Name, ...]] = []
    if cursor.sees("LIKE"):
        raise SqlProblem(cursor.at, "LIKE is not supported; declare the columns in parentheses")
    _reject_query(cursor, name.text)
    cursor.expect("(")
    while True:
        if cursor.sees("WATERMARK", "FOR"):
            if watermark is not None:
                raise SqlProblem(cursor.at, "a table has at most one WATERMARK")
            watermark = _watermark(cursor)
        elif cursor.sees("PRIMARY") or cursor.sees("PRIMARY KEY") or cursor.sees("CONSTRAINT"):
            keys.append(_primary_key(cursor))
        else:
            column, is_key = _column(cursor)
            columns.append(column)
            keys += [(column.name,)] if is_key else []
        if len(keys) > 1:
            raise SqlProblem(keys[1][0].at, "a table has at most one PRIMARY KEY")
        if not cursor.take(","):
            break
    cursor.expect(")")
    if cursor.take("COMMENT"):
        _text(cursor, "a comment")
    if cursor.sees("PARTITIONED") or cursor.sees("PARTITIONED BY"):
        raise SqlProblem(cursor.at, "PARTITIONED BY is not supported; set partition_by in WITH (…)")
    options = _options(cursor, name)
    return CreateTable(
        name=name, columns=tuple(columns), watermark=watermark, key=next(iter(keys), ()),
        options=options,
    )  # fmt: skip


def _reject_query(cursor: Cursor, name: str) -> None:
    """Reject a query in CREATE TABLE, also after options and columns without types."""
    begin = cursor.index
    while not cursor.is_at_end:
        if cursor.sees("AS", "SELECT") or cursor.sees("AS", "WITH"):
            raise SqlProblem(
                cursor.at, f"CREATE TABLE … AS is not supported; declare {name} with its columns "
                f"and WITH (kind = '…'), then write INSERT INTO {name} SELECT …",
            )  # fmt: skip
        cursor.index += 1
    cursor.index = begin


def _column(cursor: Cursor) -> tuple[ColumnDefinition, bool]:
    """Read a column; return it, and whether it is the primary key."""
    name = cursor.name("a column")
    if cursor.take("AS"):
        tokens = cursor.part()
        if not tokens:
            raise cursor.unexpected("an expression")
        value = parse_value(tokens, cursor.text)
        if isinstance(value, exp.Anonymous) and value.name.upper() == "PROCTIME":
            raise SqlProblem(
                tokens[0].start, "PROCTIME() is not a column; write it in a join: FOR SYSTEM_TIME "
                "AS OF PROCTIME()",
            )  # fmt: skip
        return ColumnDefinition(name=name, type="NULL", value=value), False
    kind = _type(cursor)
    is_nullable, is_key = True, False
    while not (cursor.sees(",") or cursor.sees(")") or cursor.is_at_end):
        if cursor.take("NOT", "NULL"):
            is_nullable = False
        elif cursor.take("NULL"):
            continue
        elif cursor.take("PRIMARY", "KEY") or cursor.take("PRIMARY KEY"):
            _not_enforced(cursor)
            is_nullable, is_key = False, True
        elif cursor.take("COMMENT"):
            _text(cursor, "a comment")
        elif cursor.sees("METADATA"):
            raise SqlProblem(cursor.at, "METADATA columns are not supported")
        elif cursor.sees("DEFAULT"):
            raise SqlProblem(
                cursor.at, "DEFAULT is not supported; use coalesce(column, value) in a query"
            )
        else:
            raise cursor.unexpected("NOT NULL, PRIMARY KEY, COMMENT, a comma or ')'")
    return ColumnDefinition(name=name, type=kind, is_nullable=is_nullable), is_key


def _type(cursor: Cursor) -> SqlType:
    """Read the type of a column, such as ``DECIMAL(10, 2)`` or ``BIGINT[]``."""
    begin, at = cursor.index, cursor.at
    if not any(map(cursor.take, _LONG_TYPES)):
        cursor.name("a type")
    if cursor.take("("):
        cursor.part()
        while cursor.take(","):
            cursor.part()
        cursor.expect(")")
    if cursor.take("WITH", "LOCAL") or cursor.take("WITH") or cursor.take("WITHOUT"):
        cursor.expect("TIME", "ZONE")
    if cursor.sees("<"):
        shown = cursor.tokens[begin].text.upper()
        raise SqlProblem(at, f"the type {shown}<…> is not supported; use JSON, or T[] for an array")
    while cursor.take("["):
        cursor.expect("]")
    tokens = cursor.tokens[begin : cursor.index]
    given = cursor.text.text[tokens[0].start : tokens[-1].end + 1]
    try:
        found = type_named(given)
    except ValueError as error:
        raise SqlProblem(at, str(error)) from error
    if found.rstrip("[]") in ("INTERVAL", "BLOB"):
        raise SqlProblem(at, f"columns of type {found} are not supported")
    digits = [token.text for token in tokens if token.token_type == TokenType.NUMBER]
    if found in ("TIMESTAMP", "TIME") and digits and int(digits[0]) > _TIME_DIGITS_MAX:
        raise SqlProblem(at, f"{given}: times have milliseconds; use {found}(3)")
    return found


def _watermark(cursor: Cursor) -> Watermark:
    cursor.expect("WATERMARK", "FOR")
    column = cursor.name("a column")
    cursor.expect("AS")
    at = cursor.at
    same = cursor.name("the column")
    if same.text.lower() != column.text.lower():
        raise SqlProblem(
            at, f"expected {column.text}, or {column.text} - INTERVAL '…' SECOND, as the watermark"
        )
    delay_ms = 0
    if cursor.take("-"):
        begin = cursor.at
        delay_ms = cursor.interval_ms()
        if delay_ms < 0:
            raise SqlProblem(begin, "a watermark is not later than its column")
    return Watermark(column=column, delay_ms=delay_ms)


def _primary_key(cursor: Cursor) -> tuple[Name, ...]:
    if cursor.take("CONSTRAINT"):
        cursor.name("a constraint")
    if not cursor.take("PRIMARY KEY"):
        cursor.expect("PRIMARY", "KEY")
    found = cursor.names("a column")
    _not_enforced(cursor)
    return found


def _not_enforced(cursor: Cursor) -> None:
    if cursor.take("NOT"):
        cursor.expect("ENFORCED")


def _options(cursor: Cursor, table: Name) -> dict[str, Any]:
    """Read ``WITH ('key' = 'value', …)``, and note the positions of keys and values."""
    if not cursor.sees("WITH") and cursor.text.default_kind:
        for path in ((table.text,), (table.text, "kind"), (table.text, "path")):
            cursor.text.keys[path] = cursor.text.values[path] = table.at
        return {"kind": cursor.text.default_kind, "path": table.text}
    if not cursor.sees("WITH"):
        raise cursor.unexpected("WITH (kind = '…'), which names the connector of the table")
    cursor.expect("WITH", "(")
    found: dict[str, Any] = {}
    while True:
        key, at = _option_key(cursor)
        cursor.expect("=")
        value_at = cursor.at
        if key in found:
            raise SqlProblem(at, f"option {key!r} is set twice")
        found[key] = _option_value(cursor)
        path = (table.text, key)
        cursor.text.keys[path], cursor.text.values[path] = at, value_at
        if not cursor.take(","):
            break
    cursor.text.keys[(table.text,)] = table.at
    cursor.expect(")")
    return found


def _option_key(cursor: Cursor) -> tuple[str, int]:
    """Read the name of an option: a text, or words with dots."""
    token, at = cursor.peek(), cursor.at
    if token is not None and token.token_type == TokenType.STRING:
        cursor.index += 1
        return token.text, at
    words = [cursor.name("an option").text]
    while cursor.take("."):
        words.append(cursor.name("an option").text)
    return ".".join(words), at


def _option_value(cursor: Cursor) -> str:
    token = cursor.peek()
    sign = "-" if cursor.take("-") else ""
    token = cursor.peek() if sign else token
    if token is None or token.token_type not in _VALUES:
        raise cursor.unexpected("a value: a text in quotes, a number, TRUE or FALSE")
    cursor.index += 1
    is_word = token.token_type in (TokenType.TRUE, TokenType.FALSE)
    return sign + (token.text.lower() if is_word else token.text)


def _text(cursor: Cursor, what: str) -> Token:
    token = cursor.peek()
    if token is None or token.token_type != TokenType.STRING:
        raise cursor.unexpected(f"{what} in quotes")
    cursor.index += 1
    return token


def _create_view(cursor: Cursor) -> CreateView:
    name = _read_name(cursor, "a view")
    columns = cursor.names("a column") if cursor.sees("(") else ()
    if cursor.take("COMMENT"):
        _text(cursor, "a comment")
    cursor.expect("AS")
    query = parse_query(cursor)
    return CreateView(name=name, columns=columns, query=query)


def _create_function(cursor: Cursor) -> CreateFunction:
    name = _read_name(cursor, "a function")
    cursor.expect("AS")
    location = _text(cursor, "'module:function'")
    if cursor.take("LANGUAGE") and not cursor.take("PYTHON"):
        raise SqlProblem(cursor.at, "functions are in Python: LANGUAGE PYTHON")
    return CreateFunction(name=name, location=Name(location.text, int(location.start)))


_CREATED: Mapping[str, Callable[[Cursor], CreateTable | CreateView | CreateFunction]] = {
    "TABLE": _create_table, "VIEW": _create_view, "FUNCTION": _create_function,
}  # fmt: skip


def _insert(cursor: Cursor) -> Insert:
    if cursor.sees("OVERWRITE"):
        raise SqlProblem(cursor.at, "OVERWRITE is not supported; a job appends rows")
    cursor.expect("INTO")
    cursor.take("TABLE")
    name = _read_name(cursor, "a table")
    if cursor.sees("PARTITION"):
        problem = "PARTITION is not supported; the option partition_by of a table names the columns"
        raise SqlProblem(cursor.at, problem)
    columns = cursor.names("a column") if cursor.sees("(") and not cursor.sees_query(1) else ()
    if cursor.sees("VALUES"):
        raise SqlProblem(
            cursor.at, "VALUES is not supported: a job reads the rows of its sources; the files of "
            "`bicycle sql test` insert rows",
        )  # fmt: skip
    return Insert(name=name, columns=columns, query=parse_query(cursor))


def _set(cursor: Cursor) -> SetOption:
    key, at = _option_key(cursor)
    if cursor.sees("ZONE"):
        raise SqlProblem(at, "there is no time zone to set: all parts of a time are those of UTC")
    if not cursor.take("="):
        cursor.expect("TO")
    value_at = cursor.at
    value = _option_value(cursor)
    path = ("SET", key)
    cursor.text.keys[path], cursor.text.values[path] = at, value_at
    return SetOption(key=Name(key, at), value=value, value_at=value_at)


_STATEMENTS: dict[str, Callable[[Cursor], Statement]] = {
    "CREATE": _create, "INSERT": _insert, "SET": _set,
}  # fmt: skip
_KNOWN = "CREATE TABLE, CREATE VIEW, CREATE FUNCTION, INSERT INTO, SET"
