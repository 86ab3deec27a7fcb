"""Tests of SQL: the records of a file are played as one job.

All statements and queries of a file become one job, which runs once while the records are played
in order: rows arrive, and results are compared. A record that expects an error is a separate job,
after the rows of the records before it. This module does not run jobs: its caller passes the
harness.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlglot import exp

from bicycle_runtime.endpoints.checking import Checks
from bicycle_runtime.expressions.sql import tree
from bicycle_runtime.expressions.sql.nested import json_value
from bicycle_runtime.tables.building import Building
from bicycle_runtime.tables.dialect import (
    Cursor,
    Name,
    Query,
    parse_query,
    parse_value,
    split_statements,
)
from bicycle_runtime.tables.errors import SQL_INVALID, SqlProblem
from bicycle_runtime.tables.functions import SqlRecord
from bicycle_runtime.tables.logic_records import (
    LogicRecord,
    LogicText,
    difference,
    read_records,
    read_text,
    shown_value,
)
from bicycle_runtime.tables.plans import Plan, WindowRows
from bicycle_runtime.tables.scope import NameScope, compile_in
from bicycle_runtime.tables.statements import ColumnDefinition
from bicycle_runtime.tables.texts import SqlText
from bicycle_sdk import StreamEnvironment
from bicycle_sdk.errors import BicycleError
from bicycle_sdk.graph import OperatorKind

_LETTERS = "$dead_letters"
NewHarness = Callable[[StreamEnvironment, list[str]], AbstractContextManager[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogicFailure:
    """A record that failed, with the line of the fault and its text."""

    file: str
    line: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Values:
    """The rows of INSERT INTO … VALUES."""

    table: Name
    columns: tuple[Name, ...]
    rows: list[exp.Expr]


class LogicTest:
    """The test of a file.

    Args:
        path: The file.
        before: The name and the text of an SQL file whose statements come first; by default the
            file with the same name beside it, if there is one.
        new_harness: Returns the harness of a job with some scripted sources.
        epochs: The number of epochs into which the rows before each result are split.

    Raises:
        SQL_TEST_INVALID: a record is not valid.
        SQL_INVALID: a statement of the SQL file is wrong.
    """

    def __init__(
        self, path: Path, new_harness: NewHarness, *, epochs: int = 1,
        before: tuple[str, str] | None = None,
    ) -> None:  # fmt: skip
        beside = path.with_suffix(".sql")
        if before is None:
            before = str(beside), read_text(beside) if beside.exists() else ""
        file, statements = before
        if statements:
            Building(SqlText(statements, file)).bind({})
        self.text = LogicText(str(path), statements, read_text(path))
        self.records = read_records(self.text)
        self.failures: list[LogicFailure] = []
        self.new_harness, self.epochs = new_harness, epochs

    def run(self) -> list[LogicFailure]:
        """Run the records, and return the failures."""
        job = _Job(self, [each for each in self.records if each.error is None])
        self._run(job)
        for record in self.records:
            if record.error is not None:
                self._expect_error(record, record.error)
        self.failures.sort(key=lambda each: each.line)
        return self.failures

    def fail(self, line: int, text: str) -> None:
        """Note a failure."""
        self.failures.append(LogicFailure(file=self.text.file, line=line, text=text))

    def _run(self, job: _Job) -> None:
        try:
            job.run()
        except BicycleError as error:
            if error.code != SQL_INVALID.code:
                self.fail(job.line, f"the job failed: {error}")
                return
            for each in error.facts["problems"]:
                self.fail(each["line"], f"column {each['column']}: {each['text']}")

    def _expect_error(self, record: LogicRecord, pattern: str) -> None:
        """Run a record that must fail, after the rows and definitions before it."""
        before = [
            each
            for each in self.records
            if each.line < record.line
            and each.kind in ("statement", "epoch", "watermark")
            and each.error is None
            and each.expected is None
        ]
        try:
            _Job(self, [*before, record]).run()
        except BicycleError as error:
            if not re.search(pattern, str(error)):
                self.fail(record.line, f"the error differs\n-{pattern}\n+{error}")
            return
        self.fail(record.line, f"expected an error, but there was none\n-{pattern}")


class _Job:
    """The job of some records. The last one may expect an error; then nothing is compared."""

    def __init__(self, test: LogicTest, records: Sequence[LogicRecord]) -> None:
        self._test, self._records = test, records
        self._building = Building(test.text)
        self._values: dict[int, list[_Values]] = {}
        self._seen: dict[str, int] = {}
        self._labeled: dict[str, list[list[str]]] = {}
        self._hash_threshold = 0
        self.line = 1

    def run(self) -> None:
        """Build the job, run it, and compare.

        Raises:
            SQL_INVALID: a statement or a row is wrong.
            BicycleError: the job failed.
        """
        try:
            self._bind()
            env = StreamEnvironment()
            self._building.lower(env)
            vertices = env.build_graph("test").vertices
            if any(each.kind is OperatorKind.SINK for each in vertices):
                # The others have the row of a query without FROM.
                ids = [each.id for each in vertices if each.kind is OperatorKind.SOURCE]
                sources = [each for each in ids if each.endswith("-source")]
                with self._test.new_harness(env, sources) as harness:
                    self._play(harness, frozenset(sources))
        except SqlProblem as problem:
            checks = Checks(self._test.text, SQL_INVALID)
            checks.note_position(self._test.text.position(problem.at), str(problem))
            checks.raise_problems()

    # --- building ----------------------------------------------------------------------------

    def _bind(self) -> None:
        text, spans = self._test.text, []
        before = split_statements(text.only([(0, text.begin - 2)])) if text.begin else []
        spans = [_span(cursor) for cursor in before]
        outputs: dict[str, Query | Name] = {}
        for record in self._records:
            self.line = record.line
            for output in self._read(record, spans):
                outputs[f"line-{record.line}"] = output
        building = Building(text.only(spans))
        if not outputs:  # Rows are read and computed nevertheless.
            building.bind({})
            catalog, plan_of = building.catalog, building.binder.relation
            views = [view.name for view in catalog.views]
            # The rows of a window function have no readers here, and are not rows of their own.
            names = [e for e in views if not isinstance(plan_of(e.text, e.at), WindowRows)]
            names += [each.definition.name for each in catalog.tables if catalog.is_source(each)]
            outputs = {name.text: name for name in names}
            building = Building(text.only(spans))
        building.bind(outputs)
        self._building = building

    def _read(self, record: LogicRecord, spans: list[tuple[int, int]]) -> Iterator[Query | Name]:
        """Note rows and the spans of definitions; yield the query or table of a result."""
        text = self._test.text
        if record.kind == "changes" or (record.kind == "watermark" and record.expected is not None):
            name = record.words[1]
            if name != _LETTERS:
                yield Name(name, text.whole.rindex(name, 0, record.begin))
        if record.begin == record.end:
            return
        for cursor in split_statements(text.only([(record.begin, record.end)])):
            if record.kind == "query":
                yield parse_query(cursor)
            elif (values := _read_values(cursor)) is not None:
                self._values.setdefault(record.line, []).append(values)
            elif record.kind == "epoch":
                raise SqlProblem(_span(cursor)[0], "epoch takes INSERT INTO table VALUES (…), …")
            elif cursor.sees_query():
                yield parse_query(cursor)
            else:
                spans.append(_span(cursor))

    # --- running -----------------------------------------------------------------------------

    def _play(self, harness: Any, sources: frozenset[str]) -> None:
        waiting: dict[str, list[Any]] = {}
        if not sources:  # Queries without FROM wait for no rows.
            harness.run()
        for record in self._records:
            self.line = record.line
            if record.kind != "statement":
                _push(harness, waiting, self._test.epochs)
            for values in self._values.get(record.line, ()):
                source, rows = self._rows(values)
                if source in sources:
                    waiting.setdefault(source, []).extend(rows)
            if record.kind == "epoch":
                _push(harness, waiting, 1)
            elif record.error is None:
                self._step(harness, record)
        _push(harness, waiting, self._test.epochs)

    def _step(self, harness: Any, record: LogicRecord) -> None:
        if record.kind == "hash-threshold":
            self._hash_threshold = int(record.words[1])
        elif record.kind == "watermark" and record.expected is None:
            self._advance(harness, record)
        elif record.kind == "watermark":
            time_ms = harness.watermark(f"line-{record.line}")
            moment = None if time_ms is None else datetime.fromtimestamp(time_ms / 1_000, UTC)
            self._compare(record, [[shown_value(moment)]])
        elif record.kind in ("query", "changes"):
            self._compare(record, self._results(harness, record))

    def _advance(self, harness: Any, record: LogicRecord) -> None:
        """Advance event time, or end the input."""
        given = record.header.partition(" ")[2]
        if given == "end":
            harness.end()
            harness.run()
            return
        try:
            moment = datetime.fromisoformat(given)
        except ValueError:
            text = f"expected a time such as 2026-11-28 10:00:00, or end; got {given!r}"
            self._test.fail(record.line, text)
            return
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        harness.advance_watermark(int(moment.timestamp() * 1_000))

    def _results(self, harness: Any, record: LogicRecord) -> list[list[str]]:
        """Return the rows of a query, or the new rows of a view or table."""
        if record.words[1] == _LETTERS:
            rows = [[each["operator"], each["message"]] for each in harness.dead_letters]
        else:
            output = f"line-{record.line}"
            rows = _shown_rows(harness.results(output), self._building.outputs[output])
        if record.kind == "query":
            return rows
        name = record.words[1].lower()
        begin, self._seen[name] = self._seen.get(name, 0), len(rows)
        return rows[begin:]

    def _compare(self, record: LogicRecord, rows: list[list[str]]) -> None:
        found = difference(record, rows, hash_threshold=self._hash_threshold)
        if found is not None:
            self._test.fail(record.line, found)
        if record.label and sorted(self._labeled.setdefault(record.label, rows)) != sorted(rows):
            text = f"the result differs from that of the other query with label {record.label}"
            self._test.fail(record.line, text)

    def _rows(self, values: _Values) -> tuple[str, list[dict[str, Any]]]:
        """Return the source of a table, and the records of its rows."""
        table = self._building.catalog.target(values.table)
        columns = table.targets(values.columns)
        found = []
        for row in values.rows:
            parts = row.expressions if isinstance(row, exp.Tuple) else [row]
            if len(parts) != len(columns):
                problem = f"{table.name} takes {len(columns)} values, got {len(parts)}"
                raise SqlProblem(values.table.at, problem)
            pairs = zip(columns, parts, strict=True)
            found.append({each.name.text: _value(each, part, values.table) for each, part in pairs})
        return f"{table.name}-source", found


def _span(cursor: Cursor) -> tuple[int, int]:
    return int(cursor.tokens[0].start), int(cursor.tokens[-1].end) + 1


def _read_values(cursor: Cursor) -> _Values | None:
    """Return the rows of INSERT INTO … VALUES; None for another statement."""
    if not cursor.take("INSERT", "INTO"):
        return None
    table = cursor.name("a table")
    has_columns = cursor.sees("(") and not cursor.sees_query(1)
    columns = cursor.names("a column") if has_columns else ()
    if not cursor.sees("VALUES"):
        cursor.index = 0
        return None
    values = parse_value(cursor.tokens[cursor.index :], cursor.text)
    return _Values(table=table, columns=columns, rows=values.expressions)


def _push(harness: Any, waiting: dict[str, list[Any]], epochs: int) -> None:
    """Run the rows of some sources in some epochs."""
    for epoch in range(epochs if waiting else 0):
        for source, rows in waiting.items():
            begin, end = (len(rows) * at // epochs for at in (epoch, epoch + 1))
            harness.push(rows[begin:end], source=source)
        harness.run()
    waiting.clear()


def _shown_rows(records: Iterable[Mapping[str, Any]], plan: Plan) -> list[list[str]]:
    return [[shown_value(each[column.field]) for column in plan.columns] for each in records]


def _value(column: ColumnDefinition, node: exp.Expr, table: Name) -> Any:
    """Return a value of a row. A value that does not fit its column arrives as it is."""
    value = compile_in(NameScope([]), node, table.at)
    plain = _compute(value)
    try:
        return (
            json_value(plain) if "JSON" in column.type else _compute(tree.cast(value, column.type))
        )
    except ValueError:
        return plain


def _compute(value: Any) -> Any:
    [row] = SqlRecord(["value"], [value]).results([{}])
    if isinstance(row, Exception):
        raise ValueError(str(row))
    return row[0]
