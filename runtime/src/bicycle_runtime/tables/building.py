"""The graph of an SQL file: statements are read, bound, and lowered as one job.

All problems of a file are reported at once. The statements share each epoch and its seal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

from msgspec import field

from bicycle_runtime.endpoints.checking import Checks
from bicycle_runtime.endpoints.job_settings import Settings
from bicycle_runtime.endpoints.values import describe
from bicycle_runtime.tables.binding import Binder
from bicycle_runtime.tables.catalog import Catalog, Table
from bicycle_runtime.tables.dialect import Name, Query
from bicycle_runtime.tables.errors import SQL_INVALID, SqlProblem
from bicycle_runtime.tables.lateness import reads_late_rows
from bicycle_runtime.tables.lowering import Lowering
from bicycle_runtime.tables.plans import (
    Plan,
    UnionAll,
    require_append_only,
    require_rows,
    require_stream,
)
from bicycle_runtime.tables.statements import (
    CreateFunction,
    CreateTable,
    CreateView,
    Insert,
    SetOption,
    Statement,
    WrongDefinition,
    read_statements,
)
from bicycle_runtime.tables.texts import SqlText
from bicycle_sdk import StreamEnvironment

_SET = "SET"
_PROPERTY = "properties."


class SqlSettings(Settings, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Settings of the job of an SQL file."""

    aliases: ClassVar[Mapping[str, str]] = {
        "parallelism.default": "parallelism", "execution.runtime-mode": "mode",
    }  # fmt: skip

    on_error: Annotated[
        Literal["fail", "skip", "dead_letter"],
        describe(
            "Policy for rows that cannot be read, computed or written: fail ends the job, skip "
            "drops the row, dead_letter stores it as a dead letter."
        ),
    ] = "fail"
    properties: Annotated[
        dict[str, str], describe("Properties of the job: SET 'properties.NAME' = 'value'.")
    ] = field(default_factory=dict)


def build_tables(env: StreamEnvironment, text: str, *, file: str, of_plugins: bool = False) -> None:
    """Add the streams of an SQL file to an environment.

    Args:
        env: The environment.
        text: The content of the file.
        file: Its name, for errors.
        of_plugins: Whether it may name functions of installed plugins only.

    Raises:
        SQL_INVALID: with all problems of the file.
    """
    check_tables(text, file=file, of_plugins=of_plugins).lower(env)


def check_tables(text: str, *, file: str, of_plugins: bool = False) -> Building:
    """Return the bound statements of an SQL file.

    Args:
        text: The content of the file.
        file: Its name, for errors.
        of_plugins: Whether it may name functions of installed plugins only.

    Raises:
        SQL_INVALID: with all problems of the file.
    """
    found = Building(SqlText(text.removeprefix("\ufeff"), file), of_plugins=of_plugins)
    found.bind()
    return found


class Building:
    """The statements of a file, and the plans of its tables.

    Args:
        text: The file.
        of_plugins: Whether it may name functions of installed plugins only.
        checks: Takes the problems; by default they are those of a file.
    """

    def __init__(
        self, text: SqlText, *, of_plugins: bool = False, checks: Checks | None = None
    ) -> None:
        self.text, self._of_plugins = text, of_plugins
        self.checks = Checks(text, SQL_INVALID) if checks is None else checks
        self.catalog = Catalog(text, self.checks)
        self.binder = Binder(self.catalog)
        self.settings: SqlSettings | None = None
        self.plans: dict[str, tuple[Table, list[Plan]]] = {}
        self.outputs: dict[str, Plan] = {}

    def bind(self, outputs: Mapping[str, Query | Name] | None = None) -> None:
        """Read the statements and bind their queries.

        Args:
            outputs: Queries, views and tables whose rows are collected, by the name of the output.
                Then a text without INSERT INTO is valid.

        Raises:
            SQL_INVALID: a statement is wrong.
        """
        statements = read_statements(self.text, self.checks)
        self.set_options([each for each in statements if isinstance(each, SetOption)])
        self.bind_statements(statements)
        inserts = [each for each in statements if isinstance(each, Insert)]
        for table in self.catalog.tables:
            if not self.catalog.is_used(table):
                self.check_unused(table)
        if outputs is not None:
            self._attach_sinks()
        for name, output in (outputs or {}).items():
            self.note(self._output, name, output)
        if not inserts and outputs is None and not self.checks.problems:
            end = len(self.text.text.rstrip())
            self.checks.note_position(
                self.text.position(end), "the file has no INSERT INTO … SELECT, so nothing to run"
            )
        self.checks.raise_problems()

    def bind_statements(self, statements: Sequence[Statement]) -> None:
        """Add the tables and views of statements, then bind their queries; note problems."""
        for each in statements:
            if isinstance(each, CreateFunction):
                self.note(self.catalog.add_function, each, self._of_plugins)
            elif isinstance(each, CreateTable):
                self.note(self.catalog.add_table, each)
            elif isinstance(each, CreateView):
                self.note(self.catalog.add_view, each)
            elif isinstance(each, WrongDefinition):
                self.catalog.undefined.update(dict.fromkeys(each.words))
        for each in statements:
            if isinstance(each, CreateView):
                self.note(self.binder.relation, each.name.text, each.name.at)
        for each in statements:
            if isinstance(each, Insert):
                self.note(self._insert, each)

    def check_unused(self, table: Table) -> None:
        """Note problems of a table that no query uses, so that either role is fine."""
        at, problems, first = table.definition.name.at, self.checks.problems, []
        count, saved = len(problems), self.save()
        if self.catalog.is_source(table):
            self.note(self.catalog.source, table, at)
            first = problems[count:]
            if not first:
                self.note(self.binder.relation, table.name, at)
                return
            del problems[count:]
        self.note(self.catalog.sink, table, at)
        if not problems[count:]:
            self.restore(saved)  # An output that reads it notes what is wrong with the source.
        elif first:
            problems[count:] = first

    def lower(self, env: StreamEnvironment) -> None:
        """Add the streams to an environment."""
        assert self.settings is not None
        self.settings.apply_to(env)
        every = [plan for _, plans in self.plans.values() for plan in plans]
        lowering = Lowering(
            env, self.catalog, self.binder.names(), self.settings.on_error,
            plans=[*every, *self.outputs.values()],
        )  # fmt: skip
        # A window has the name of its view's readers, also if its late rows are read, too.
        writes = sorted(self.plans.values(), key=lambda each: reads_late_rows(each[1]))
        for table, plans in writes:
            lowering.write(table, plans)
        for name, plan in sorted(self.outputs.items(), key=lambda each: reads_late_rows([each[1]])):
            lowering.collect(name, plan)

    def save(self) -> Any:
        """Return the definitions and plans, for ``restore``."""
        parts = [
            {name: dict(value) for name, value in vars(each).items() if isinstance(value, dict)}
            for each in (self.catalog, self.binder)
        ]
        return parts, {name: (table, [*plans]) for name, (table, plans) in self.plans.items()}

    def restore(self, saved: Any) -> None:
        """Forget the definitions and plans that were added after a ``save``."""
        parts, self.plans = saved
        for each, values in zip((self.catalog, self.binder), parts, strict=True):
            vars(each).update(values)

    def note(self, bind: Any, *arguments: Any) -> Any:
        """Return the result of a call; None if it has a problem, which is noted."""
        try:
            found = bind(*arguments)
            if isinstance(found, Plan):
                require_append_only(found)
            return found
        except SqlProblem as problem:
            if problem.follows:
                return None
            count, known = len(self.checks.problems), set(self.checks.problems)
            self.checks.note_position(self.text.position(problem.at), str(problem))
            if self.checks.problems[-1] in known:  # A view may be bound for several queries.
                del self.checks.problems[count:]
            return None

    def _insert(self, statement: Insert) -> Plan:
        self.catalog.sink(self.catalog.target(statement.name), statement.name.at)
        table, plan = self.binder.insert(statement)
        _, plans = self.plans.setdefault(table.name, (table, []))
        plans.append(plan)
        return plan

    def _attach_sinks(self) -> None:
        """Make the rows that are written to a table readable by outputs."""
        for table, plans in self.plans.values():
            plan = plans[0]
            if len(plans) > 1:
                plan = UnionAll(columns=plan.columns, inputs=tuple(plans))
            self.binder.attach(table.name, plan)

    def _output(self, name: str, output: Query | Name) -> Plan:
        if isinstance(output, Query):
            self.outputs[name] = self.binder.query(output)
        else:
            self.outputs[name] = self.binder.relation(output.text, output.at)
            require_stream(self.outputs[name], output.at)
        require_rows(self.outputs[name])
        return self.outputs[name]

    def set_options(self, options: Sequence[SetOption]) -> None:
        """Set ``settings`` from statements; wrong ones are noted."""
        data: dict[str, Any] = {}
        properties: dict[str, str] = {}
        for each in options:
            name = each.key.text
            if name.startswith(_PROPERTY):
                properties[name.removeprefix(_PROPERTY)] = each.value
            else:
                data[name] = each.value
        if properties:
            data["properties"] = properties
        self.settings = self.checks.table(data, SqlSettings, (_SET,))
