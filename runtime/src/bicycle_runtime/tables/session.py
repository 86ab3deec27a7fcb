"""The SQL texts and tables of a program, which become streams of its environment.

``env.sql``, ``env.table`` and the calls of tables are texts for one session. A text is bound when
it is called, so that an error names the line of the program. Tables without a name have one that
no program uses. Ids of operators begin with the name of their view, as in SQL files.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, get_origin, is_typeddict

from bicycle_runtime.endpoints.checking import Checks
from bicycle_runtime.expressions.sql import tree
from bicycle_runtime.tables.building import Building, SqlSettings
from bicycle_runtime.tables.catalog import NO_NAME
from bicycle_runtime.tables.dialect import Name
from bicycle_runtime.tables.errors import SQL_TEXT_INVALID, SqlProblem
from bicycle_runtime.tables.lowering import Lowering, decode_json
from bicycle_runtime.tables.nullability import nullable_fields
from bicycle_runtime.tables.plans import Plan, PlanColumn, compose, name_nodes, require_rows
from bicycle_runtime.tables.records import differences, record_columns, record_type, records_of
from bicycle_runtime.tables.statements import (
    ColumnDefinition,
    CreateTable,
    CreateView,
    Select,
    SetOption,
    Statement,
    Watermark,
    read_statements,
)
from bicycle_runtime.tables.texts import SqlText
from bicycle_sdk import StreamEnvironment
from bicycle_sdk.errors import BicycleError, StreamDefinitionError
from bicycle_sdk.installed import explain
from bicycle_sdk.quantities import amount

# The fields of a job's configuration that settings with another name set.
_SETTINGS = {"max_restarts": "restart_strategy", "restart_delay_ms": "restart_strategy"}
_SQL = "env.sql"
_TIME_HINT = "set it in the call: env.table(…, watermark=…)"


class TableSession:
    """The tables of an environment.

    Args:
        env: The environment.
    """

    def __init__(self, env: StreamEnvironment) -> None:
        self._env = env
        text = SqlText("", "")
        self._building = Building(text, checks=Checks(text, self._invalid))
        self._names: dict[int, str] = {}
        self._lowering = Lowering(env, self._building.catalog, self._names, "fail")
        self._call, self._location, self._first_line = _SQL, "", 1
        self._rows: dict[str, Plan] = {}
        self._count = 0

    # --- statements --------------------------------------------------------------------------

    def run(self, text: str, *, call: str, location: str) -> str | None:
        """Run the statements of a text; return the name of the view of its query, or None.

        Args:
            text: The statements; at most the last one is a query.
            call: The call of the program, for errors.
            location: Its file and line.

        Raises:
            SQL_TEXT_INVALID: with all problems of the text; no statement has an effect then.
        """
        building, self._call, self._location = self._building, call, location
        shown = " (line {line}, column {column} of the text)" if call == _SQL else ""
        self._first_line = building.text.append(text, f"{location}{shown}")
        building.checks.problems.clear()
        saved = building.save()
        known = {name: len(plans) for name, (_, plans) in building.plans.items()}
        statements = read_statements(building.text, building.checks, has_queries=True)
        named, view = self._with_views(statements)
        try:
            building.set_options([each for each in statements if isinstance(each, SetOption)])
            building.bind_statements(named)
            building.checks.raise_problems()
        except BicycleError:
            building.restore(saved)
            raise
        if building.settings is not None:
            names = {each.key.text for each in statements if isinstance(each, SetOption)}
            self._apply(building.settings, names)
        self._names.update({**building.binder.names(), **self._names})
        with self._refusing(location):
            for name, (table, plans) in building.plans.items():
                if len(plans) > known.get(name, 0):
                    self._lowering.write(table, plans)
        return view

    def _with_views(self, statements: Sequence[Statement]) -> tuple[list[Statement], str | None]:
        """Return statements with the last one, if it is a query, as a view; and its name."""
        found: list[Statement] = [each for each in statements if not isinstance(each, Select)]
        queries = [each for each in statements if isinstance(each, Select)]
        for each in queries:
            if each is not statements[-1]:
                problem = "only the last statement of a text may be a query; write INSERT INTO"
                position = self._building.text.position(each.query.at)
                self._building.checks.note_position(position, problem)
        if not queries:
            return found, None
        self._count += 1
        name = f"{NO_NAME}table {self._count}"
        last = queries[-1].query
        view = CreateView(name=Name(name, last.at), columns=(), query=last)
        return [*found, view], name

    def _apply(self, settings: SqlSettings, given: set[str]) -> None:
        """Set the settings that a text names."""
        if not given:
            return
        before = self._env.config
        settings.apply_to(self._env)
        names = {_SETTINGS.get(settings.aliases.get(name, name), name) for name in given}
        names |= {"properties", *(settings.aliases.get(name, name) for name in given)}
        kept = {
            field.name: getattr(before, field.name)
            for field in dataclasses.fields(before)
            if field.name not in names
        }
        self._env.config = dataclasses.replace(self._env.config, **kept)
        if "on_error" in given:
            self._lowering.set_policy(settings.on_error)

    def _invalid(self, *, problems: list[dict[str, Any]], **_: Any) -> BicycleError:
        """Return the error of a text; positions count from its first line."""
        found = [{**each, "line": each["line"] - self._first_line + 1} for each in problems]
        is_text = self._call == _SQL
        found = found if is_text else found[:1]  # Others follow from the text of the call.
        lines = [
            f"  line {each['line']}, column {each['column']}: {each['text']}"
            if is_text and each["line"] > 0
            else f"  {each['text']}"
            for each in found
        ]
        return SQL_TEXT_INVALID(
            call=self._call, location=self._location, problems=found,
            count_text=amount(len(found), "problem"), listing="\n".join(lines),
        )  # fmt: skip

    @contextmanager
    def _refusing(
        self, location: str, hint: str = "define and read all of it in one text"
    ) -> Iterator[None]:
        """Raise problems of streams as errors of the call."""
        try:
            yield
        except SqlProblem as problem:
            raise _refusal(self._call, str(problem), hint, location) from problem

    # --- streams and tables ------------------------------------------------------------------

    def add_stream(
        self, stream: Any, name: str, *, kind: Any, watermark: str | None, delay_ms: int,
        key: Sequence[str], location: str,
    ) -> None:  # fmt: skip
        """Make a stream of records a table.

        Raises:
            StreamDefinitionError: records of the type have no columns, or a column is unknown.
        """
        origin = get_origin(kind) or kind
        self._building.text.append("", location)
        at = len(self._building.text.text)
        try:
            columns = [
                ColumnDefinition(
                    name=Name(each.name, at), type=each.type, is_nullable=each.is_nullable
                )
                for each in record_columns(kind)
            ]
            time = None
            if watermark is not None:
                time = Watermark(column=Name(watermark, at), delay_ms=delay_ms)
            definition = CreateTable(
                name=Name(name, at), columns=tuple(columns), watermark=time,
                key=tuple(Name(each, at) for each in key), options={},
            )  # fmt: skip
            saved = self._building.save()
            self._building.catalog.add_stream(
                definition, stream=stream, has_fields=not is_typeddict(origin), time_hint=_TIME_HINT
            )
            try:
                self._plan(name)
            except SqlProblem:
                self._building.restore(saved)
                raise
        except (ValueError, SqlProblem) as error:
            raise _refusal(
                "table", str(error), "correct the call, or the record type", location
            ) from error

    def columns(self, view: str) -> dict[str, str]:
        """Return the types of the columns of a table or view, by name."""
        return {column.name: column.type for column in self._plan(view).columns}

    def time(self, view: str) -> str | None:
        """Return the column with the event time of a table or view, or None."""
        plan = self._plan(view)
        return next((each.name for each in plan.columns if each.field == plan.time), None)

    def set_name(self, view: str, name: str, *, location: str) -> None:
        """Set the beginning of the ids of the operators of a view.

        Raises:
            StreamDefinitionError: the operators exist already.
        """
        plan, names = self._plan(view), dict[int, str]()
        if self._lowering.has(plan):
            problem = "the table has been read, so its operators have ids"
            hint = "call uid(…) before to_stream and insert_into"
            raise _refusal("uid", problem, hint, location)
        name_nodes(plan, name, names)
        self._names.update({**names, **self._names, id(plan): name})

    def stream(self, view: str, kind: Any, *, location: str) -> Any:
        """Return the rows of a table or view as a stream of dicts or of a type.

        Raises:
            StreamDefinitionError: the columns differ from the fields of the type.
        """
        plan = self._with_rows(view, location)
        names = [column.name for column in plan.columns]
        twice = sorted({name for name in names if names.count(name) > 1})
        fields = None
        problem = f"two columns are named {twice[0]}; rename one with AS" if twice else ""
        if kind is not None and not problem:
            try:
                fields = record_columns(kind)
            except ValueError as error:
                problem = str(error)
        if fields is not None:
            may = nullable_fields(plan)
            nullable = frozenset(each.name for each in plan.columns if each.field in may)
            problem = "; ".join(differences(fields, self.columns(view), nullable))
        if problem:
            hint = "select the columns of the record type"
            raise _refusal("to_stream", problem, hint, location)
        words = {each.name: each.type for each in fields or ()}
        columns = [
            PlanColumn(
                each.name, each.name, record_type(each.type, words.get(each.name, each.type))
            )
            for each in plan.columns
        ]
        key = f"{view} {columns}"
        if key not in self._rows:
            json = {each.name for each in columns if "JSON" in each.type}
            values = map(
                tree.cast, (each.read() for each in plan.columns), (each.type for each in columns)
            )
            self._rows[key] = decode_json(compose(plan, columns, list(values)), json)
        owner = self._names.get(id(plan)) or getattr(kind, "__name__", "") or view.strip()
        step = None if kind is None else records_of(get_origin(kind) or kind, names)
        with self._refusing(location), self._lowering.locating(location):
            return self._lowering.records(self._rows[key], owner.replace(" ", "-"), step, kind)

    def preview(self, view: str, kind: Any, n: int, *, location: str) -> list[Any]:
        """Return the first records of a view; the graph of the job stays as it is."""
        with self._trying():
            found: list[Any] = self.stream(view, kind, location=location).preview(n)
            return found

    def explain(self, view: str) -> str:
        """Return the text of EXPLAIN for a view; the graph of the job stays as it is."""
        with self._trying():
            self._lowering.collect("rows", self._with_rows(view, self._location))
            return explain(self._env, self._env.vertices[-1].final_id)

    @contextmanager
    def _trying(self) -> Iterator[None]:
        env, lowering = self._env, self._lowering
        vertices, edges, saved = list(env.vertices), list(env.edges), lowering.save()
        try:
            yield
        finally:
            env.vertices[:], env.edges[:] = vertices, edges
            lowering.restore(saved)

    def _with_rows(self, view: str, location: str) -> Plan:
        plan = self._plan(view)
        with self._refusing(location, "correct the query"):
            require_rows(plan)
        return plan

    def _plan(self, view: str) -> Plan:
        return self._building.binder.relation(view, 0)


def _refusal(call: str, problem: str, hint: str, location: str) -> StreamDefinitionError:
    return StreamDefinitionError(call=call, problem=problem, hint=hint, location=location)
