"""Steps of a pipeline that are SQL queries: their tables and positions."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

from bicycle_runtime.endpoints.checking import Checks, label_of
from bicycle_runtime.endpoints.positions import KeyPath, Position
from bicycle_runtime.pipelines.documents import Document
from bicycle_runtime.pipelines.errors import SQL_EXTRA_MISSING
from bicycle_runtime.pipelines.key_rules import sources_before

if TYPE_CHECKING:
    from bicycle_runtime.tables.step_queries import InputTable, StepQuery

Fields = Mapping[str, str] | None
_QUERIES = "bicycle_runtime.tables.step_queries"  # It needs an extra, and is slow to import.
# Operators whose records have the event time and the fields of their input.
_KEEP_TIME = ("filter", "key_by", "dedup", "split", "rate_limit", "union")


class QueryChecks:
    """The checks of all queries of a pipeline, whose nodes are checked in order.

    By the id of a node, ``fields`` and ``times`` are the fields of the records that it emits and
    the field with their event time, and ``tables`` the inputs of a query.

    Args:
        checks: Takes the problems.
        nodes: All nodes.
    """

    def __init__(self, checks: Checks, nodes: Sequence[Any]) -> None:
        self._checks = checks
        self._by_id = {node.id: node for node in nodes}
        self.fields: dict[str, Fields] = {}
        self.times: dict[str, str | None] = {}
        self.tables: dict[str, Sequence[InputTable]] = {}

    def check(self, node: Any, inputs: Sequence[Fields]) -> Fields:
        """Return the fields of the results of a query; None if it is wrong (noted).

        Raises:
            SQL_EXTRA_MISSING: the parser is not installed.
        """
        tables = self._tables(node, inputs)
        if tables is None:
            return None
        self.tables[node.id] = tables
        query = bind_query(self._checks, node, tables)
        self.times[node.id] = query.time
        return query.fields

    def follow_time(self, node: Any) -> None:
        """Find the field with the event time of the records of a node that is not a query."""
        spec, times = node.spec, self._inputs(node)
        time = times[0] if len(set(times)) == 1 else None
        match node.operator:
            case "time":
                fields = {each.spec.time_field for each in sources_before(node, self._by_id)}
                time = spec.field or (fields.pop() if len(fields) == 1 else None)
            case "map":
                changed = [*(spec.set or ()), *(spec.drop or ())]
                is_kept = spec.function is None and time not in changed
                if not is_kept or (spec.select is not None and spec.select.get(time) != time):
                    time = None
            case "lookup" | "enrich":
                time = time if time not in (spec.fields or [time]) else None
            case word:
                time = time if word in _KEEP_TIME else None
        self.times[node.id] = time

    def _inputs(self, node: Any) -> list[str | None]:
        return [
            None if each.output == "late" else self.times.get(each.node) for each in node.inputs
        ]

    def _tables(self, node: Any, inputs: Sequence[Fields]) -> list[InputTable] | None:
        found = []
        for given, fields, time in zip(node.inputs, inputs, self._inputs(node), strict=True):
            name = "input" if len(node.inputs) == 1 else given.output or given.node
            if fields is None:
                text = (
                    f"{label_of(query_path(node))} reads {name!r}, but the fields of its records "
                    "are unknown: add `fields` with types to the source"
                )
                self._checks.note(query_path(node), text)
                return None
            is_time = time is not None and fields.get(time) == "timestamp"
            table = _step_queries(self._checks.document.file).InputTable
            found.append(table(name=name, fields=fields, time=time if is_time else None))
        return found


def bind_query(checks: Checks, node: Any, tables: Sequence[InputTable]) -> StepQuery:
    """Return the query of a step; problems are noted at their positions in the file.

    Raises:
        SQL_EXTRA_MISSING: the parser is not installed.
    """
    queries, path, count = (
        _step_queries(checks.document.file),
        query_path(node),
        len(checks.problems),
    )
    assert isinstance(checks.document, Document)
    locate = _Locations(checks.document, path, node.spec.query)
    found: StepQuery = queries.StepQuery(
        node.spec.query, checks, tables, uid=node.id, locate=locate
    )
    checks.problems[count:] = [replace(each, path=path) for each in checks.problems[count:]]
    return found


def query_path(node: Any) -> KeyPath:
    """Return the path of the query of a node."""
    path: KeyPath = node.path
    return (*path, "config", "query") if path[0] == "vertices" else (*path, "query")


def _step_queries(file: str) -> Any:
    try:
        return import_module(_QUERIES)
    except ModuleNotFoundError as error:
        raise SQL_EXTRA_MISSING(file=file, missing=error.name or "a library") from error


# --- positions -----------------------------------------------------------------------------------

# What precedes the first character: anchors and tags of YAML, then a quote or a sign of a block.
_OPENING = re.compile(r"""(?:[&!]\S*\s+)*("{3}|'{3}|"|'|[|>][^\n]*\n|)""")
_CHARACTER = {
    '"': re.compile(r"\\(?:u[\da-fA-F]{4}|U[\da-fA-F]{8}|x[\da-fA-F]{2}|[\s\S])|[\s\S]"),
    "'": re.compile(r"''|[\s\S]"),
}
_ANY = re.compile(r"[\s\S]")
_BLANKS = {"n": "\n", "t": "\t", "r": "\r"}


class _Locations:
    """The positions of the characters of a text value in its file.

    The visible characters of the value and of the file are the same, in the same order; blanks,
    indentation and escapes differ.
    """

    def __init__(self, document: Document, path: KeyPath, value: str) -> None:
        text = document.text
        self._starts = [0, *(match.end() for match in re.finditer("\n", text))]
        first = document.value_position(path)
        given = _visible(text, self._starts[first.line - 1] + first.column - 1)
        self._offsets, at = [], 0
        for character in value:
            self._offsets.append(at)
            if not character.isspace():
                at = next((offset for offset, each in given if each == character), at)
                self._offsets[-1] = at
        self._offsets.append(at)

    def __call__(self, at: int) -> Position:
        offset = self._offsets[min(at, len(self._offsets) - 1)]
        line = bisect_right(self._starts, offset)
        return Position(line, offset - self._starts[line - 1] + 1)


def _visible(text: str, at: int) -> Iterator[tuple[int, str]]:
    """Yield the offset and the value of each visible character of a value in a file."""
    opening = _OPENING.match(text, at)
    assert opening is not None  # It may be empty.
    quote = opening[1]
    pattern = _CHARACTER.get(quote[:1] if quote != "'''" else "", _ANY)
    for match in pattern.finditer(text, opening.end()):
        word = match[0]
        value = word[-1]
        if word[0] == "\\" and len(word) > 1:
            value = _BLANKS.get(word[1], word[1])
            value = chr(int(word[2:], 16)) if len(word) > 2 else value
        if not value.isspace():
            yield match.start(), value
