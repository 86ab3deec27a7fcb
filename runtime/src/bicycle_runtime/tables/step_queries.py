"""The query of a step of a pipeline, over streams of records with declared fields.

It is bound before the start, over the fields alone, and again when the graph is built, over the
streams. The event time is that of the pipeline.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bicycle_runtime.endpoints.checking import Checks
from bicycle_runtime.endpoints.positions import Position
from bicycle_runtime.expressions.sql import tree
from bicycle_runtime.expressions.sql.compiling import OF_FIELDS
from bicycle_runtime.expressions.sql.types import SqlType, decimal_type
from bicycle_runtime.tables.building import Building
from bicycle_runtime.tables.dialect import Name
from bicycle_runtime.tables.errors import SqlProblem
from bicycle_runtime.tables.lateness import require_final
from bicycle_runtime.tables.lowering import Lowering, decode_json
from bicycle_runtime.tables.plans import (
    Plan,
    PlanColumn,
    compose,
    require_append_only,
    require_rows,
)
from bicycle_runtime.tables.statements import (
    ColumnDefinition,
    CreateFunction,
    CreateTable,
    CreateView,
    Select,
    SetOption,
    Watermark,
    WrongDefinition,
    read_statements,
)
from bicycle_runtime.tables.texts import SqlText
from bicycle_sdk import StreamEnvironment
from bicycle_sdk.failures import OnError
from bicycle_sdk.option_values import decimal_digits

_TIME_HINT = "set the event time before the step, in a field of the type timestamp"
_WORDS: Mapping[SqlType, str] = {kind: word for word, kind in OF_FIELDS.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class InputTable:
    """The records that reach a step, as a table.

    Args:
        name: Its name in the query.
        fields: The types of its fields, as words of pipelines.
        time: The field with the event time, of the type timestamp, or None.
        stream: The stream of the records, when the graph is built.
    """

    name: str
    fields: Mapping[str, str]
    time: str | None = None
    stream: Any = None


class StepQuery:
    """The query of a step; problems are noted.

    Args:
        query: The text; views and functions of installed plugins may precede the query.
        checks: Takes the problems.
        inputs: The tables that it reads.
        uid: The id of the step.
        locate: Returns the position of an offset of the text in the file.
    """

    def __init__(
        self, query: str, checks: Checks, inputs: Sequence[InputTable], *, uid: str,
        locate: Callable[[int], Position],
    ) -> None:  # fmt: skip
        text = SqlText(query, checks.document.file, locate)
        self._building = building = Building(text, checks=checks, of_plugins=True)
        self._uid, self._plan = uid, Plan(columns=())
        self.fields: dict[str, str] | None = None
        self.time: str | None = None
        count = len(checks.problems)
        for table in inputs:
            building.note(self._add, table, "" if len(inputs) == 1 else f"-{table.name}")
        statements = read_statements(text, checks, has_queries=True)
        named = [each for each in statements if isinstance(each, CreateView | CreateFunction)]
        queries = [each.query for each in statements if isinstance(each, Select)]
        for each in statements:
            if not isinstance(each, CreateView | CreateFunction | Select | WrongDefinition):
                at = each.key.at if isinstance(each, SetOption) else each.name.at
                building.note(_refuse, at)
        if len(checks.problems) == count:
            building.bind_statements(named)
        if len(checks.problems) == count:
            building.note(self._bind, *queries)

    def _add(self, table: InputTable, suffix: str) -> None:
        columns = tuple(
            ColumnDefinition(name=Name(name, 0), type=_type_of(word))
            for name, word in table.fields.items()
        )
        time = None if table.time is None else Watermark(column=Name(table.time, 0), delay_ms=0)
        definition = CreateTable(
            name=Name(table.name, 0), columns=columns, watermark=time, key=(), options={}
        )
        self._building.catalog.add_stream(
            definition, stream=table.stream or table, uid=f"{self._uid}{suffix}", is_timed=True,
            time_hint=_TIME_HINT,
        )  # fmt: skip

    def _bind(self, *queries: Any) -> None:
        if len(queries) != 1:
            at = queries[1].at if queries else 0
            raise SqlProblem(at, f"a step has one query, not {len(queries)}: SELECT … FROM …")
        [query] = queries
        plan = self._building.binder.query(query)
        require_append_only(plan)
        require_rows(plan)
        require_final(plan, query.at, "a pipeline has no table with a PRIMARY KEY")
        self.fields = dict(_fields_of(plan, query.at))
        self.time = next((each.name for each in plan.columns if each.field == plan.time), None)
        kinds = [PlanColumn(each.name, each.name, each.type) for each in plan.columns]
        values = [each.read() for each in plan.columns]
        for at, each in enumerate(kinds):
            if each.type == "TIMESTAMP":  # A pipeline has times as text.
                kinds[at] = PlanColumn(each.name, each.name, "VARCHAR")
                values[at] = tree.cast(values[at], "VARCHAR")
        json = {each.name for each in plan.columns if "JSON" in each.type}
        self._plan = decode_json(compose(plan, kinds, values), json)

    def add_to(self, env: StreamEnvironment, on_error: OnError) -> Any:
        """Add the streams; the last vertex has the id of the step."""
        lowering = Lowering(env, self._building.catalog, {}, on_error, plans=[self._plan])
        return lowering.records(self._plan, self._uid).uid(self._uid)


def _refuse(at: int) -> None:
    raise SqlProblem(
        at, "a step has no such statement: only CREATE VIEW and CREATE FUNCTION precede its query"
    )


def _type_of(word: str) -> SqlType:
    digits = decimal_digits(word)
    return OF_FIELDS[word] if digits is None else decimal_type(*digits)


def _fields_of(plan: Plan, at: int) -> Iterator[tuple[str, str]]:
    """Yield the name and the word of each column.

    Raises:
        SqlProblem: two columns have the same name, or a type is not one of fields.
    """
    seen = set()
    for each in plan.columns:
        if each.name in seen:
            raise SqlProblem(at, f"two columns are named {each.name}; rename one with AS")
        seen.add(each.name)
        word = each.type.lower() if each.type.startswith("DECIMAL(") else _WORDS.get(each.type)
        if word is None:
            raise SqlProblem(
                at, f"column {each.name} is {each.type}, which is not a type of fields; cast it"
            )
        yield each.name, word
