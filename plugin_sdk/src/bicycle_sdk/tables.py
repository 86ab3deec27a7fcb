"""Tables: SQL and streams in one program.

A table is the name of a query in the session of an environment. Each call renders its arguments as
SQL text, which the runtime binds at once: there is one binder, and its errors name the line of the
program. This module has texts and names only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, Self, TypeVar, overload

from bicycle_sdk.installed import sql_session
from bicycle_sdk.locations import calling_location
from bicycle_sdk.sql_texts import (
    expression_text,
    interval_text,
    item_text,
    named_items,
    quote_name,
    refusal,
    shift_time,
)
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
        items = [*map(item_text, columns), *named_items(named)]
        return self._query("select", f"SELECT {', '.join(items)} FROM {self._source('select')}")

    def where(self, condition: Any) -> Table[T]:
        """Return the rows for which a condition is true; NULL is not true."""
        source = self._source("where")
        return self._query(
            "where", f"SELECT * FROM {source} WHERE {expression_text(condition)}", self._type
        )

    def with_columns(self, **columns: Any) -> Table[dict[str, Any]]:
        """Return the table with added or replaced columns."""
        kept = [quote_name(name) for name in self.columns if name not in columns]
        items = [*kept, *named_items(columns)]
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
            raise refusal(
                "join", f"{missing[0]!r} is not a column of both tables",
                "name the keys alike: select(…, new_name=col(…))",
            )  # fmt: skip
        rest = [name for name in theirs if name not in keys]
        twice = [name for name in rest if name in mine]
        if twice:
            raise refusal(
                "join", f"both tables have a column {twice[0]}",
                f"rename it in one table: select(…, new_name=col({twice[0]!r}))",
            )  # fmt: skip
        if within is None and as_of is None and not {*_WINDOW_KEYS} <= {*keys}:
            raise refusal(
                "join", "the join has no bound, so it would keep all rows",
                "pass within=… or as_of=…, or join windows on window_start and window_end",
            )  # fmt: skip
        key = "l.{0}" if how in ("inner", "left") else "COALESCE(l.{0}, r.{0}) AS {0}"
        shown = [key.format(quote_name(each)) for each in keys]
        shown += [f"l.{quote_name(each)}" for each in mine if each not in keys]
        shown += [f"r.{quote_name(each)}" for each in rest]
        version = "" if as_of is None else f" FOR SYSTEM_TIME AS OF l.{quote_name(as_of)}"
        terms = [f"l.{quote_name(each)} = r.{quote_name(each)}" for each in keys]
        if within is not None:
            time, other_time = self._time("join"), other._time("join")
            low, high = (shift_time(f"l.{time}", each) for each in within)
            terms.append(f"r.{other_time} BETWEEN {low} AND {high}")
        return self._query(
            "join",
            f"SELECT {', '.join(shown)} FROM {self._source('join')} AS l {how.upper()} JOIN "
            f"{other._source('join')}{version} AS r ON {' AND '.join(terms)}",
        )

    def order_by(self, *keys: Any, descending: bool | Sequence[bool] = False) -> Table[T]:
        """Sort the rows, once the input has ended.

        NULL is greater than all values, and NaN than all other numbers. Rows with equal keys are
        ordered by their values as text.

        Args:
            keys: Names or expressions; the first one decides first.
            descending: Whether the greatest value comes first, for all keys or for each.

        Raises:
            StreamDefinitionError: there is no key, or another number of flags.
            SQL_TEXT_INVALID: the input never ends, or a key cannot be sorted.
        """
        flags = [descending] * len(keys) if isinstance(descending, bool) else list(descending)
        if not keys or len(flags) != len(keys):
            raise refusal(
                "order_by", f"got {len(keys)} keys and {len(flags)} values of descending",
                "pass a key or more, and one value of descending for all or for each",
            )  # fmt: skip
        terms = [
            f"{expression_text(key)}{' DESC' if flag else ''}"
            for key, flag in zip(keys, flags, strict=True)
        ]
        text = f"SELECT * FROM {self._source('order_by')} ORDER BY {', '.join(terms)}"
        return self._query("order_by", text, self._type)

    def limit(self, n: int, *, offset: int = 0) -> Table[T]:
        """Return the first ``n`` rows after ``offset`` rows, once the input has ended.

        The rows are those of ``order_by``; without it, they are the same rows in each run.

        Raises:
            SQL_TEXT_INVALID: the input never ends, or a number is negative.
        """
        text = f"SELECT * FROM {self._source('limit')} LIMIT {n} OFFSET {offset}"
        return self._query("limit", text, self._type)

    def lookup_join(
        self, table: str, *, on: str | Sequence[str], how: Literal["inner", "left"] = "inner"
    ) -> Table[dict[str, Any]]:
        """Complete rows from a table of a database, whose rows are found by key.

        Args:
            table: The name of the table, from ``CREATE TABLE`` in ``env.sql``.
            on: The columns of the key, whose names are those of the ``PRIMARY KEY``.
            how: ``left`` keeps rows without a match; their columns of the table are NULL.

        Raises:
            StreamDefinitionError: both tables have a column that is not the key.
            SQL_TEXT_INVALID: the table cannot be looked up.
        """
        mine, theirs = self.columns, self._session.columns(table)
        keys = (on,) if isinstance(on, str) else on
        twice = [name for name in theirs if name in mine and name not in keys]
        if twice:
            raise refusal(
                "lookup_join", f"both tables have a column {twice[0]}",
                f"rename it in this table: select(…, new_name=col({twice[0]!r}))",
            )  # fmt: skip
        shown = ", ".join(f"r.{quote_name(name)}" for name in theirs if name not in keys)
        terms = (f"l.{quote_name(key)} = r.{quote_name(key)}" for key in keys)
        return self._query(
            "lookup_join",
            f"SELECT l.*{', ' if shown else ''}{shown} FROM {self._source('lookup_join')} AS l "
            f"{how.upper()} JOIN {quote_name(table)} FOR SYSTEM_TIME AS OF PROCTIME() AS r "
            f"ON {' AND '.join(terms)}",
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
            raise refusal(
                "window", f"expected one window, got {len(found)}", "pass tumble, hop, cumulate or "
                "session"
            )  # fmt: skip
        [(word, value)] = found
        lengths = value if isinstance(value, tuple) else (value,)
        intervals = ", ".join(interval_text("window", each) for each in lengths)
        table = quote_name(self._name("window"))
        text = f"TABLE({word}(TABLE {table}, DESCRIPTOR({quote_name(time)}), {intervals}))"
        return WindowedTable(self, text)

    # --- ends --------------------------------------------------------------------------------

    def insert_into(self, table: str) -> None:
        """Write the rows to a table; columns are assigned by name, others are NULL."""
        names = ", ".join(map(quote_name, self.columns))
        text = f"INSERT INTO {quote_name(table)} ({names}) SELECT {names} FROM "
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
        """Return operators, exchanges and bounds of state, as the statement EXPLAIN."""
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
            raise refusal(
                call, "the SQL text has no query, so there is no table",
                "end the text with SELECT … FROM …",
            )  # fmt: skip
        return self._view

    def _time(self, call: str) -> str:
        """Return the column with the event time as SQL text."""
        found: str | None = self._session.time(self._name(call))
        if found is None:
            raise refusal(
                call, "a table has no event time", "pass watermark=… to env.table, or declare "
                "WATERMARK FOR the column in CREATE TABLE"
            )  # fmt: skip
        return quote_name(found)

    def _source(self, call: str) -> str:
        """Return the table in FROM."""
        return quote_name(self._name(call))

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
        items = [*map(item_text, self._keys), *self._window, *named_items(aggregates)]
        keys = ", ".join([*map(expression_text, self._keys), *self._window])
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
        raise refusal("sql", f"expected a text, got {given!r}", "pass SQL statements")
    view = _session_of(env, "sql").run(text, call="env.sql", location=calling_location())
    return Table(env, view, None)


def stream_table(
    env: Any, stream: DataStream[T], *, name: str, type: Any,
    watermark: str | None, delay: Duration, key: str | Sequence[str],
) -> Table[T]:  # fmt: skip
    """Make a stream a table; see ``StreamEnvironment.table``."""
    if stream._draft is not env:
        raise refusal(
            "table", "the stream belongs to another environment", "build both from one environment"
        )
    kind = stream._record_type() if type is None else type
    if kind is None:
        raise refusal(
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
