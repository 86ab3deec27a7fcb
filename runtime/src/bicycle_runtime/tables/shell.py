"""A session of the SQL shell: definitions, settings, and answers to statements.

Statements that define something are kept as text, and bound again with each query, as in a file.
So a query at the prompt and in a file mean the same. Nothing runs here: an answer names the stream
whose records are the rows of a query, or the text of a job.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import itemgetter
from typing import Any

from bicycle_runtime.endpoints.checking import Checks
from bicycle_runtime.expressions.sql.compiling import AGGREGATES
from bicycle_runtime.expressions.sql.table import ROWS
from bicycle_runtime.tables.building import Building
from bicycle_runtime.tables.catalog import Table, no_such
from bicycle_runtime.tables.dialect import Name, Query, split_statements
from bicycle_runtime.tables.errors import SQL_STATEMENT_INVALID, SqlProblem
from bicycle_runtime.tables.lowering import Lowering
from bicycle_runtime.tables.nullability import nullable_fields
from bicycle_runtime.tables.plans import require_append_only, require_rows
from bicycle_runtime.tables.requests import KEYWORDS, Request, read_request
from bicycle_runtime.tables.statements import (
    Created,
    CreateFunction,
    CreateTable,
    Insert,
    SetOption,
)
from bicycle_runtime.tables.texts import SqlText
from bicycle_sdk import StreamEnvironment
from bicycle_sdk.errors import BicycleError
from bicycle_sdk.quantities import amount
from bicycle_sdk.result_tables import ResultTable

_RESULT = "result"
_SHOWN_BEFORE, _SHOWN_MAX = 40, 70  # Characters of the line with an error.
_COLUMNS = ("column", "type", "null", "extra")
_FUNCTIONS = {name: row for row in ROWS for name in row.names if not row.symbol}


@dataclass(frozen=True, slots=True)
class Piece:
    """A statement as it was written, with the position of its first character."""

    text: str
    file: str = ""
    line: int = 1
    column: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A query to run, or one to explain, which has no ``vertex``."""

    env: StreamEnvironment
    vertex: str = ""
    columns: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobText:
    """The text of an SQL file that runs an INSERT as a job."""

    text: str


Answer = str | ResultTable | Running | JobText


def pieces_of(text: str, *, file: str = "") -> list[Piece]:
    """Return the statements of a text.

    Raises:
        SQL_STATEMENT_INVALID: a quote or a comment is not closed.
    """
    source = SqlText(text, file)
    try:
        cursors = split_statements(source)
    except SqlProblem as problem:
        raise _Bound([Piece(text, file)]).error([(problem.at, str(problem))]) from problem
    spans = [(each.tokens[0].start, each.tokens[-1].end + 1) for each in cursors]
    return [Piece(text[begin:end], file, *source.position(begin)) for begin, end in spans]


def is_complete(text: str) -> bool:
    """Return whether a text ends after a semicolon, outside of quotes and comments."""
    try:
        return len(split_statements(SqlText(f"{text}\nend", ""))[-1].tokens) == 1
    except SqlProblem:
        return False


class ShellSession:
    """The definitions of a session; each statement gets an answer."""

    def __init__(self) -> None:
        # By name in lower case; options and functions by "SET name" and "FUNCTION name".
        self._kept: dict[str, Piece] = {}

    def answer(self, piece: Piece) -> Answer:
        """Return the answer to a statement.

        Raises:
            SQL_STATEMENT_INVALID: the statement is wrong; the session is unchanged.
        """
        bound = _Bound([*self._kept.values(), piece])
        created, kept = bound.request, self._kept
        key = ""
        if isinstance(created, Created):
            is_function = isinstance(created, CreateFunction)
            key = _key(created.name.text, is_function=is_function)
        if key in kept:
            name = created.name
            if created.if_known == "keep":
                return f"{name.text} exists"
            if not created.if_known:
                problem = f"{name.text} is defined; write CREATE OR REPLACE, or DROP it before"
                raise bound.error([(name.at, problem)])
            bound = _Bound([*(each for one, each in kept.items() if one != key), piece])
        bound.require_valid()
        try:
            return self._answer(bound, piece, key)
        except SqlProblem as problem:
            raise bound.error([(problem.at, str(problem))]) from problem

    def words(self) -> dict[str, list[str]]:
        """Return the words that complete a statement, by their kind."""
        bound = _Bound(list(self._kept.values()))
        names = [each.name for each in bound.catalog.tables]
        names += [view.name.text for view in bound.catalog.views]
        columns = dict.fromkeys(row[0] for each in names for row in bound.columns(each))
        functions = [*_FUNCTIONS, *AGGREGATES, *bound.catalog.functions]
        return {"table": names, "column": list(columns), "keyword": list(KEYWORDS),
                "function": functions}  # fmt: skip

    def _answer(self, bound: _Bound, piece: Piece, key: str) -> Answer:
        match bound.request:
            case Request() as request:
                return self._request(bound, request)
            case SetOption(key=option, value=value):
                self._kept[f"SET {option.text}"] = piece
                return f"{option.text} = {value}"
            case Insert():
                texts = [each.text for each in [*self._kept.values(), piece]]
                return JobText(text="".join(f"{text}\n;\n" for text in texts))
            case created:
                self._kept[key] = piece
                return f"{created.name.text} created"

    def _request(self, bound: _Bound, request: Request) -> Answer:
        """Answer a request that defines nothing."""
        name = request.name
        if request.statement is not None:
            return bound.stream(request.statement, is_explained=request.kind == "EXPLAIN")
        if request.kind == "RESET":
            return self._reset(name)
        if name is None:
            return self._listing(bound, request.kind)
        is_function = request.kind.endswith(" FUNCTION")
        key = _key(name.text, is_function=is_function)
        if request.if_exists and key not in self._kept:
            return f"{name.text} does not exist"
        if not is_function:
            bound.catalog.find(name.text, name.at)
        elif key not in self._kept:
            raise SqlProblem(name.at, no_such("function", name.text, bound.catalog.functions))
        if request.kind.startswith("DROP"):
            return self._drop(bound, request.kind, name, key)
        is_shown = request.kind.startswith("SHOW")
        rows = () if is_shown else bound.columns(name.text)
        return self._kept[key].text if is_shown else _table(_COLUMNS, rows)

    @staticmethod
    def _listing(bound: _Bound, kind: str) -> ResultTable:
        if kind == "SHOW TABLES":
            return _table(("table", "connector"), [(t.name, t.kind) for t in bound.catalog.tables])
        if kind == "SHOW VIEWS":
            return _table(("view",), [(view.name.text,) for view in bound.catalog.views])
        if kind == "SET":
            options = [(each.key.text, each.value) for each in bound.options]
            return _table(("option", "value"), options)
        own = {each.name: each.row for each in bound.catalog.functions.values()}
        rows = [
            (
                name,
                "python" if name in own else row.group,
                " | ".join(f"{each} → {each.result}" for each in row.signatures),
            )
            for name, row in sorted({**_FUNCTIONS, **own}.items())
        ]
        return _table(("function", "group", "types"), rows)

    def _reset(self, key: Name | None) -> str:
        known = [each for each in self._kept if each.startswith("SET ")]
        if key is not None and f"SET {key.text}" not in known:
            names = [each.removeprefix("SET ") for each in known]
            raise SqlProblem(key.at, no_such("option that was set", key.text, names))
        removed = known if key is None else [f"SET {key.text}"]
        for each in removed:
            del self._kept[each]
        return f"{amount(len(removed), 'option')} reset"

    def _drop(self, bound: _Bound, kind: str, name: Name, key: str) -> str:
        is_view = any(key == view.name.text.lower() for view in bound.catalog.views)
        if kind == ("DROP TABLE" if is_view else "DROP VIEW"):
            word = "view" if is_view else "table"
            raise SqlProblem(name.at, f"{name.text} is a {word}; write DROP {word.upper()}")
        kept = {each: piece for each, piece in self._kept.items() if each != key}
        problems = _Bound(list(kept.values())).checks.problems
        if problems:
            raise SqlProblem(name.at, f"{name.text} is in use: {problems[0].text}")
        self._kept = kept
        return f"{name.text} dropped"


def _key(name: str, *, is_function: bool) -> str:
    return f"FUNCTION {name.lower()}" if is_function else name.lower()


def _table(names: Sequence[str], rows: Iterable[Sequence[str]]) -> ResultTable:
    found = [dict(zip(names, row, strict=True)) for row in rows]
    return ResultTable(found, columns=dict.fromkeys(names, "VARCHAR"))


class _Pieces(SqlText):
    """The text of some statements."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        # A line of its own ends a comment at the end of a statement.
        texts = [f"{each.text}\n;\n" for each in pieces]
        super().__init__("".join(texts).removesuffix("\n;\n"), "")
        begins = accumulate(map(len, texts[:-1]), initial=0)
        self._pieces = [*zip(begins, pieces, strict=False)]

    def user_position(self, at: int) -> tuple[str, int, int]:
        """Return file, line and column of an offset as the user sees them."""
        begin, piece = self._pieces[bisect_right(self._pieces, at, key=itemgetter(0)) - 1]
        (first, _), (line, column) = self.position(begin), self.position(at)
        before = piece.column - 1 if line == first else 0
        return piece.file, line - first + piece.line, column + before

    def location(self, at: int) -> str:
        """Return an offset as text."""
        return ":".join(map(str, filter(None, self.user_position(at))))


class _Bound:
    """Statements of a session, bound as a file; the last one may be any request."""

    def __init__(self, pieces: list[Piece]) -> None:
        self.text = _Pieces(pieces)
        building = Building(self.text, checks=Checks(self.text, SQL_STATEMENT_INVALID))
        self.checks, self.catalog, self.binder = building.checks, building.catalog, building.binder
        cursors = building.note(split_statements, self.text) or []
        found = [building.note(read_request, each) for each in cursors]
        self.request: Any = found[-1] if found else None
        self.options = [each for each in found if isinstance(each, SetOption)]
        building.set_options(self.options)
        self.settings = building.settings
        building.bind_statements(found)
        if isinstance(self.request, CreateTable) and not self.checks.problems:
            building.check_unused(self.catalog.target(self.request.name))

    def require_valid(self) -> None:
        """Raise all problems.

        Raises:
            SQL_STATEMENT_INVALID: there are some.
        """
        found = {(each.line, each.column, each.text) for each in self.checks.problems}
        if found:
            offset = self.text.offset
            raise self.error([(offset(line, column), text) for line, column, text in sorted(found)])

    def error(self, problems: list[tuple[int, str]]) -> BicycleError:
        """Return the error of problems at offsets, each with its line and a caret."""
        listing, facts = [], []
        for at, text in problems:
            found, (file, line, column) = self.text.position(at), self.text.user_position(at)
            source = self.text.text.split("\n")[found.line - 1].replace("\t", " ")
            skipped = max(min(found.column - _SHOWN_BEFORE, len(source) - _SHOWN_MAX), 0)
            caret = " " * (found.column - 1 - skipped) + "^"
            shown = source[skipped : skipped + _SHOWN_MAX]
            listing.append(f"  {self.text.location(at)}: {text}\n    {shown}\n    {caret}")
            facts.append({"file": file, "line": line, "column": column, "text": text})
        return SQL_STATEMENT_INVALID(
            count_text=amount(len(problems), "problem"), listing="\n".join(listing), problems=facts
        )

    def stream(self, statement: Query | Insert, *, is_explained: bool = False) -> Running:
        """Return the stream of a query, or the job of an INSERT.

        Raises:
            SqlProblem: the query is wrong.
            SQL_STATEMENT_INVALID: an option of a table is wrong in its role.
        """
        table = None
        if isinstance(statement, Insert):
            self.catalog.sink(self.catalog.target(statement.name), statement.name.at)
            table, plan = self.binder.insert(statement)
        else:
            plan = self.binder.query(statement)
        require_rows(plan)
        require_append_only(plan)
        self.require_valid()
        assert self.settings is not None  # A wrong setting is reported before.
        env = StreamEnvironment()
        self.settings.apply_to(env)
        names, on_error = self.binder.names(), self.settings.on_error
        lowering = Lowering(env, self.catalog, names, on_error, plans=[plan])
        columns = {column.field: column.type for column in plan.columns}
        if table is not None:
            lowering.write(table, [plan])
        elif is_explained:
            lowering.collect(_RESULT, plan)
        else:
            vertex = lowering.records(plan, _RESULT).vertex_id()
            return Running(env=env, vertex=vertex, columns=columns)
        return Running(env=env, columns=columns)

    def columns(self, name: str) -> list[tuple[str, str, str, str]]:
        """Return name, type, nullability and role of the columns of a table or view."""
        found = self.catalog.find(name, 0)
        types: dict[str, str] = {}
        if not isinstance(found, Table) or any(each.value is not None for each in found.columns):
            plan = self.binder.relation(name, 0)
            types = {each.name: each.type for each in plan.columns}
        if not isinstance(found, Table):
            may = nullable_fields(plan)
            return [
                (
                    each.name,
                    each.type,
                    "NULL" if each.field in may else "NOT NULL",
                    "event time" if each.field == plan.time else "",
                )
                for each in plan.columns
            ]
        roles = {each.text: "primary key" for each in found.definition.key}
        roles |= {each.name.text: "computed" for each in found.columns if each.value is not None}
        if (time := found.definition.watermark) is not None:
            roles[time.column.text] = f"event time, up to {time.delay_ms} ms late"
        return [
            (
                each.name.text,
                types.get(each.name.text, each.type),
                "NULL" if each.is_nullable else "NOT NULL",
                roles.get(each.name.text, ""),
            )
            for each in found.columns
        ]
