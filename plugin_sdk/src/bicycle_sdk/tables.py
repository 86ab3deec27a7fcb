"""Tables: SQL and streams in one program.

A table is the name of a query in the session of an environment. Each call renders its arguments as
SQL text, which the runtime binds at once: there is one binder, and its errors name the line of the
program. This module has texts and names only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Generic, Literal, Self, TypeVar, overload

from bicycle_sdk.errors import StreamDefinitionError
from bicycle_sdk.expressions import Expression
from bicycle_sdk.installed import sql_session
from bicycle_sdk.locations import calling_location
from bicycle_sdk.windows.assigners import Duration, duration_ms

if TYPE_CHECKING:
    from bicycle_sdk.datastream import DataStream

__all__ = ["GroupedTable", "Table", "WindowedTable", "sql_table", "stream_table"]

T = TypeVar("T")
V = TypeVar("V")
_WINDOW_KEYS = ("window_start", "window_end")


class Table(Generic[T]):
    """The rows of a table, a view or a query; ``T`` is the type of its records.

    Arguments are expressions of ``col``, or SQL texts, such as names of columns. Both have the
    semantics of SQL: NULL is unknown, and the quotient of whole numbers is a whole number.
    Methods return new tables. A table that several calls read is computed once.
    """

    def __init__(self, env: Any, view: str | None, record_type: Any) -> None:
        self._env, self._view, self._type = env, view, record_type

    # --- queries -----------------------------------------------------------------------------

    def select(self, *columns: Any, **named: Any) -> Table[dict[str, Any]]:
        """Return a table of columns: names or expressions, or values by new names."""
        items = [*map(_item, columns), *_named_items(named)]
        return self._query("select", f"SELECT {', '.join(items)} FROM {self._source('select')}")

    def where(self, condition: Any) -> Table[T]:
        """Return the rows for which a condition is true; NULL is not true."""
        source = self._source("where")
        return self._query("where", f"SELECT * FROM {source} WHERE {_text(condition)}", self._type)

    def with_columns(self, **columns: Any) -> Table[dict[str, Any]]:
        """Return the table with added or replaced columns."""
        kept = [_quote(name) for name in self.columns if name not in columns]
        items = [*kept, *_named_items(columns)]
        source = self._source("with_columns")
        return self._query("with_columns", f"SELECT {', '.join(items)} FROM {source}")

    def union_all(self, *others: Table[Any]) -> Table[T]:
        """Return the rows of several tables, which have the same columns in order."""
        parts = [f"SELECT * FROM {each._source('union_all')}" for each in (self, *others)]
        return self._query("union_all", " UNION ALL ".join(parts), self._type)

    def join(
        self,
        other: Table[Any],
        *,
        on: str | Sequence[str],
        how: Literal["inner", "left", "right", "full"] = "inner",
        within: tuple[Duration, Duration] | None = None,
        as_of: str | None = None,
    ) -> Table[dict[str, Any]]:
        """Join rows with equal keys.

        The state of a join needs a bound: ``within``, ``as_of``, or windows with equal bounds, for
        which ``on`` contains ``window_start`` and ``window_end``. The result has the keys, then
        the other columns of both tables, whose names must differ.

        Args:
            other: The other table.
            on: Names of columns that both tables have.
            how: Which rows without a partner are kept: none, or those of the left, the right or
                both tables. Columns of the other side are NULL then.
            within: The least and the greatest event time of the other row, relative to the event
                time of this row; in milliseconds, or as timedeltas.
            as_of: A column with event times. Each row is joined with the row of the other table
                that was valid at this time: the latest one with the same key, where ``on`` is the
                ``key`` of the other table. ``how`` is inner or left.

        Raises:
            StreamDefinitionError: a key is missing, the state has no bound, or both tables have a
                column that ``on`` does not contain.

        Source: ``JOIN`` of SQL, with its interval, window and temporal joins.
        """
        keys = [on] if isinstance(on, str) else list(on)
        mine, theirs = self.columns, other.columns
        missing = [each for each in keys if each not in mine or each not in theirs]
        if missing:
            raise _refusal(
                "join", f"{missing[0]!r} is not a column of both tables",
                "name the keys alike: select(…, new_name=col(…))",
            )  # fmt: skip
        rest = [name for name in theirs if name not in keys]
        twice = [name for name in rest if name in mine]
        if twice:
            raise _refusal(
                "join", f"both tables have a column {twice[0]}",
                f"rename it in one table: select(…, new_name=col({twice[0]!r}))",
            )  # fmt: skip
        if within is None and as_of is None and not {*_WINDOW_KEYS} <= {*keys}:
            raise _refusal(
                "join", "the join has no bound, so it would keep all rows",
                "pass within=… or as_of=…, or join windows on window_start and window_end",
            )  # fmt: skip
        key = "l.{0}" if how in ("inner", "left") else "COALESCE(l.{0}, r.{0}) AS {0}"
        shown = [key.format(_quote(each)) for each in keys]
        shown += [f"l.{_quote(each)}" for each in mine if each not in keys]
        shown += [f"r.{_quote(each)}" for each in rest]
        version = "" if as_of is None else f" FOR SYSTEM_TIME AS OF l.{_quote(as_of)}"
        terms = [f"l.{_quote(each)} = r.{_quote(each)}" for each in keys]
        if within is not None:
            time, other_time = self._time("join"), other._time("join")
            low, high = (_move(f"l.{time}", each) for each in within)
            terms.append(f"r.{other_time} BETWEEN {low} AND {high}")
        return self._query(
            "join",
            f"SELECT {', '.join(shown)} FROM {self._source('join')} AS l {how.upper()} JOIN "
            f"{other._source('join')}{version} AS r ON {' AND '.join(terms)}",
        )

    def group_by(self, *keys: Any) -> GroupedTable:
        """Group the rows of a table; ``agg`` is supported only after ``window``."""
        return GroupedTable(self, self._source("group_by"), keys)

    def agg(self, **aggregates: Any) -> Table[dict[str, Any]]:
        """Return aggregates of all rows; supported only after ``window``."""
        return GroupedTable(self, self._source("agg"), ()).agg(**aggregates)

    def window(
        self,
        time: str,
        *,
        tumble: Duration | None = None,
        hop: tuple[Duration, Duration] | None = None,
        cumulate: tuple[Duration, Duration] | None = None,
        session: Duration | None = None,
    ) -> WindowedTable:
        """Assign windows of event time, for ``group_by`` and ``agg``.

        Args:
            time: The column with the event time.
            tumble: The length of adjacent windows, in milliseconds or as a timedelta.
            hop: The step and the length of overlapping windows.
            cumulate: The step and the maximum length of windows that grow.
            session: The gap that ends a session.

        Raises:
            StreamDefinitionError: there is no window, or there are several.
        """
        given: dict[str, Any] = {
            "TUMBLE": tumble, "HOP": hop, "CUMULATE": cumulate, "SESSION": session
        }  # fmt: skip
        found = [(word, value) for word, value in given.items() if value is not None]
        if len(found) != 1:
            raise _refusal(
                "window", f"expected one window, got {len(found)}", "pass tumble, hop, cumulate or "
                "session"
            )  # fmt: skip
        [(word, value)] = found
        lengths = value if isinstance(value, tuple) else (value,)
        intervals = ", ".join(_interval("window", each) for each in lengths)
        table = _quote(self._name("window"))
        text = f"TABLE({word}(TABLE {table}, DESCRIPTOR({_quote(time)}), {intervals}))"
        return WindowedTable(self, text)

    # --- ends --------------------------------------------------------------------------------

    def insert_into(self, table: str) -> None:
        """Write the rows to a table; columns are assigned by name, others are NULL."""
        names = ", ".join(map(_quote, self.columns))
        text = f"INSERT INTO {_quote(table)} ({names}) SELECT {names} FROM "
        self._run("insert_into", text + self._source("insert_into"))

    @overload
    def to_stream(self) -> DataStream[T]: ...
    @overload
    def to_stream(self, record_type: type[V]) -> DataStream[V]: ...
    def to_stream(self, record_type: Any = None) -> DataStream[Any]:
        """Return the rows as a stream of records.

        Args:
            record_type: A dataclass, NamedTuple or TypedDict. Its fields and the columns must have
                the same names and types; a column that may be NULL needs a field that may be None.
                Without a type the records are those of ``T``: dicts, after queries.

        Raises:
            StreamDefinitionError: columns and fields differ; the error lists the differences.
        """
        kind = self._type if record_type is None else record_type
        session, view = self._session, self._name("to_stream")
        found: DataStream[Any] = session.stream(view, kind, location=calling_location())
        return found

    def preview(self, n: int = 10) -> list[T]:
        """Run the job so far in this process, and return the first ``n`` records.

        The graph of the job stays as it is. Rows without a type are shown as a table.
        """
        session, view = self._session, self._name("preview")
        found: list[T] = session.preview(view, self._type, n, location=calling_location())
        return found if self._type is not None else self._show_rows(found)

    def _show_rows(self, rows: list[Any]) -> list[Any]:
        # Slow on the start path: only a preview draws a table.
        from bicycle_sdk.result_tables import ResultTable

        return ResultTable(rows, columns=self.columns)

    # --- properties --------------------------------------------------------------------------

    @property
    def columns(self) -> dict[str, str]:
        """The SQL types of the columns, by name."""
        found: dict[str, str] = self._session.columns(self._name("columns"))
        return found

    def explain(self) -> str:
        """Return the columns, the event time and the operators of the table as text."""
        found: str = self._session.explain(self._name("explain"))
        return found

    def uid(self, uid: str) -> Self:
        """Set a stable identity: the ids of the table's operators begin with it.

        Without it, they begin with the name of the view, or of the target of the rows.
        """
        self._session.set_name(self._name("uid"), uid, location=calling_location())
        return self

    def __repr__(self) -> str:
        columns = ", ".join(f"{name} {kind}" for name, kind in self.columns.items())
        return f"Table({columns})"

    # --- texts -------------------------------------------------------------------------------

    @property
    def _session(self) -> Any:
        return _session_of(self._env, "table")

    def _name(self, call: str) -> str:
        if self._view is None:
            raise _refusal(
                call, "the SQL text has no query, so there is no table",
                "end the text with SELECT … FROM …",
            )  # fmt: skip
        return self._view

    def _time(self, call: str) -> str:
        """Return the column with the event time as SQL text."""
        found: str | None = self._session.time(self._name(call))
        if found is None:
            raise _refusal(
                call, "a table has no event time", "pass watermark=… to env.table, or declare "
                "WATERMARK FOR the column in CREATE TABLE"
            )  # fmt: skip
        return _quote(found)

    def _source(self, call: str) -> str:
        """Return the table in FROM."""
        return _quote(self._name(call))

    def _run(self, call: str, text: str) -> str | None:
        found: str | None = self._session.run(text, call=call, location=calling_location())
        return found

    def _query(self, call: str, text: str, record_type: Any = None) -> Table[Any]:
        return Table(self._env, self._run(call, text), record_type)


class GroupedTable:
    """The groups of a table, from ``group_by``."""

    def __init__(
        self, table: Table[Any], source: str, keys: Sequence[Any], window: Sequence[str] = ()
    ) -> None:
        self._table, self._source, self._keys, self._window = table, source, keys, window

    def agg(self, **aggregates: Any) -> Table[dict[str, Any]]:
        """Return a table with the keys, the bounds of the window, and aggregates by name.

        An aggregate is ``col("amount").sum()``, with ``sum``, ``min``, ``max`` or ``count``, or an
        SQL text, such as ``"avg(amount)"`` or ``"count(*) FILTER (WHERE amount > 10)"``.
        """
        items = [*map(_item, self._keys), *self._window, *_named_items(aggregates)]
        keys = ", ".join([*map(_text, self._keys), *self._window])
        group = f" GROUP BY {keys}" if keys else ""
        return self._table._query("agg", f"SELECT {', '.join(items)} FROM {self._source}{group}")


class WindowedTable:
    """The windows of a table, from ``window``."""

    def __init__(self, table: Table[Any], source: str) -> None:
        self._table, self._source = table, source

    def group_by(self, *keys: Any) -> GroupedTable:
        """Group the rows of each window."""
        return GroupedTable(self._table, self._source, keys, _WINDOW_KEYS)

    def agg(self, **aggregates: Any) -> Table[dict[str, Any]]:
        """Return aggregates of all rows of each window; see ``GroupedTable.agg``."""
        return self.group_by().agg(**aggregates)


# --- the session of an environment ---------------------------------------------------------------


def sql_table(env: Any, text: str) -> Table[dict[str, Any]]:
    """Run the statements of a text; see ``StreamEnvironment.sql``."""
    given: object = text  # Jobs need not be type-checked.
    if not isinstance(given, str):
        raise _refusal("sql", f"expected a text, got {given!r}", "pass SQL statements")
    view = _session_of(env, "sql").run(text, call="env.sql", location=calling_location())
    return Table(env, view, None)


def stream_table(
    env: Any, stream: DataStream[T], *, name: str, type: Any,
    watermark: str | None, delay: Duration, key: str | Sequence[str],
) -> Table[T]:  # fmt: skip
    """Make a stream a table; see ``StreamEnvironment.table``."""
    if stream._draft is not env:
        raise _refusal(
            "table", "the stream belongs to another environment", "build both from one environment"
        )
    kind = stream._record_type() if type is None else type
    if kind is None:
        raise _refusal(
            "table", "the type of the records is unknown",
            "annotate the function of the stream, or pass type=…",
        )  # fmt: skip
    _session_of(env, "table").add_stream(
        stream, name, kind=kind, watermark=watermark,
        delay_ms=duration_ms("table", delay, low=0),
        key=(key,) if isinstance(key, str) else tuple(key), location=calling_location(),
    )  # fmt: skip
    return Table(env, name, kind)


def _session_of(env: Any, call: str) -> Any:
    if env._sql_session is None:
        env._sql_session = sql_session(env, call=call, location=str(calling_location()))
    return env._sql_session


def _refusal(call: str, problem: str, hint: str) -> StreamDefinitionError:
    return StreamDefinitionError(call=call, problem=problem, hint=hint)


# --- SQL texts -----------------------------------------------------------------------------------


def _quote(name: str) -> str:
    """Return the name of a table or column as SQL text.

    Example:
        >>> print(_quote('a "b" c'))
        "a ""b"" c"
    """
    return '"' + name.replace('"', '""') + '"'


def _item(column: Any) -> str:
    """Return a column of SELECT."""
    return "*" if isinstance(column, str) and column == "*" else _text(column)


def _named_items(columns: Mapping[str, Any]) -> list[str]:
    return [f"{_text(value)} AS {_quote(name)}" for name, value in columns.items()]


def _text(value: Any) -> str:
    """Return an expression as SQL text: of ``col``, or a text that is one already."""
    if isinstance(value, str):
        is_name = value.isidentifier() and value.upper() not in ("TRUE", "FALSE", "NULL")
        return _quote(value) if is_name else f"({value}\n)"  # It may end in a comment.
    return _render(value)


def _render(value: Any) -> str:
    """Return an expression of ``col`` as SQL text.

    Raises:
        StreamDefinitionError: SQL has no counterpart.

    Example:
        >>> from bicycle_sdk import col
        >>> print(_render((col("price") * 2 > 10) & ~col("kind").is_in(["gift"])))
        ((("price" * 2) > 10) AND (NOT ("kind" IN ('gift'))))
    """
    if not isinstance(value, Expression) or value.operation == "literal":
        return _literal(value.arguments[0] if isinstance(value, Expression) else value)
    operation, arguments = value.operation, value.arguments
    if operation == "field":
        return _quote(arguments[0])
    if operation in ("==", "!=") and _is_null(arguments):
        raise _refusal(repr(value), "a comparison with None is never true in SQL", "use is_null()")
    if operation == "is_in":
        items = ", ".join(map(_literal, arguments[1]))
        return f"({_render(arguments[0])} IN ({items}))" if items else "FALSE"
    given = [_render(each) for each in arguments if each is not None]
    if operation == "+" and any(map(_is_text, arguments)):
        return f"({given[0]} || {given[1]})"
    name = _FUNCTIONS.get(operation)
    if operation not in _SYNTAX and name is None:
        raise _refusal(
            repr(value), f"{operation} has no counterpart in SQL",
            "pass an SQL text instead, such as \"split_part(name, '-', 1)\"",
        )  # fmt: skip
    return _SYNTAX[operation](*given) if name is None else f"{name}({', '.join(given)})"


def _is_null(arguments: Sequence[Any]) -> bool:
    return any(each.operation == "literal" and each.arguments[0] is None for each in arguments)


def _is_text(value: Expression) -> bool:
    is_constant = value.operation == "literal" and isinstance(value.arguments[0], str)
    is_sum = value.operation == "+" and any(map(_is_text, value.arguments))
    return is_constant or is_sum or value.operation in _TEXTS


def _literal(value: Any) -> str:
    write = _LITERALS.get(type(value))
    if write is None or repr(value) in ("nan", "inf", "-inf"):
        raise _refusal("lit", f"{value!r} has no constant in SQL", "use a number, text or time")
    return write(value)


def _interval(call: str, length: Duration) -> str:
    return f"INTERVAL '{duration_ms(call, length, low=1)}' MILLISECOND"


def _move(time: str, by: Duration) -> str:
    """Return a time, later or earlier by a duration."""
    is_earlier = by.days < 0 if isinstance(by, timedelta) else by < 0
    length = duration_ms("within", -by if is_earlier else by, low=0)
    return f"{time} {'-' if is_earlier else '+'} INTERVAL '{length}' MILLISECOND"


def _infix(symbol: str) -> Callable[..., str]:
    return lambda left, right: f"({left} {symbol} {right})"


def _cast(kind: str) -> Callable[..., str]:
    return lambda value: f"CAST({value} AS {kind})"


def _text_as(kind: str) -> Callable[[Any], str]:
    return lambda value: f"CAST('{value}' AS {kind})"


_LITERALS: Mapping[type, Callable[[Any], str]] = {
    type(None): lambda _: "NULL",
    bool: lambda value: str(value).upper(),
    int: lambda value: str(value) if value >= 0 else f"({value})",
    Decimal: lambda value: f"({value:f})",
    float: repr,
    str: lambda value: "'" + value.replace("'", "''") + "'",
    datetime: lambda value: f"CAST('{value.isoformat()}' AS TIMESTAMP)",
    date: _text_as("DATE"),
    timedelta: lambda value: _interval("lit", value),
}
_SYNTAX: Mapping[str, Callable[..., str]] = {
    **{symbol: _infix(symbol) for symbol in ("+", "-", "*", "/", "%", "<", "<=", ">", ">=")},
    "==": _infix("="), "!=": _infix("<>"), "&": _infix("AND"), "|": _infix("OR"),
    "~": lambda value: f"(NOT {value})", "negative": lambda value: f"(- {value})",
    "is_null": lambda value: f"({value} IS NULL)",
    "int": _cast("BIGINT"), "float": _cast("DOUBLE"), "bool": _cast("BOOLEAN"),
    "str": _cast("VARCHAR"), "text": _cast("VARCHAR"),
}  # fmt: skip
_TEXTS = frozenset({"lower", "upper", "replace", "strip", "lstrip", "rstrip", "str", "text"})
# Functions and aggregates of SQL, by the operations of expressions with the same meaning.
_FUNCTIONS: Mapping[str, str] = {
    **{name: name for name in (
        "lower", "upper", "round", "floor", "ceil", "sqrt", "log10", "exp", "isnan", "replace",
        "year", "month", "day", "hour", "minute", "second", "sum", "min", "max", "count",
    )},
    "absolute": "abs", "len": "length", "strip": "trim", "lstrip": "ltrim", "rstrip": "rtrim",
    "startswith": "starts_with", "endswith": "ends_with", "log": "ln", "ord": "ascii",
}  # fmt: skip
