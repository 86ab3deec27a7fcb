"""The tables of an SQL file, with the connector of each.

The keys of ``WITH (…)`` are those of sources and sinks in pipelines: both come from the descriptor
of the connector. A table is a source where a query reads it, and a sink where rows are inserted, so
its options are checked for the roles that it has.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from bicycle_runtime.endpoints.catalog import find_connector
from bicycle_runtime.endpoints.checking import Checks, likely
from bicycle_runtime.endpoints.ends import Kinds
from bicycle_runtime.endpoints.sinks import SINKS, SinkKeys
from bicycle_runtime.endpoints.sources import SOURCES, SourceKeys
from bicycle_runtime.expressions.sql.types import SqlType
from bicycle_runtime.tables.dialect import Name
from bicycle_runtime.tables.errors import SqlProblem
from bicycle_runtime.tables.lookups import LOOKUPS, lookup_keys
from bicycle_runtime.tables.python_functions import RESERVED_FUNCTIONS, UserFunction, load_function
from bicycle_runtime.tables.statements import (
    ColumnDefinition,
    CreateFunction,
    CreateTable,
    CreateView,
)
from bicycle_runtime.tables.texts import SqlText
from bicycle_sdk.connector_options import SourceOptions
from bicycle_sdk.descriptors import SourceDescriptor
from bicycle_sdk.errors import BicycleError
from bicycle_sdk.graph import OperatorKind
from bicycle_sdk.options import from_mapping

Role = Literal["source", "sink"]
NO_NAME = " "  # Begins the names of views that a program did not name.
_KIND_KEYS = ("kind", "connector")
# Keys of sources and sinks that follow from the statement, with the clause that sets them.
_FROM_CLAUSES = {
    "fields": "the columns of the table are declared in CREATE TABLE",
    "time_field": "write WATERMARK FOR column AS column - INTERVAL '…' SECOND",
    "columns": "the columns of the table are declared in CREATE TABLE",
    "keys": "write PRIMARY KEY (…)",
    "key_field": "write PRIMARY KEY (…)",
}
_FORMAT = "value_format"
# Connectors of other systems, with those that read and write the same data.
_KINDS_OF_OTHERS = {
    **dict.fromkeys(("filesystem", "posix_fs", "s3"), "file"), "print": "console",
    "upsert-kafka": "kafka", "jdbc": "postgres", "postgres-cdc": "postgres",
}  # fmt: skip
_MISSING_KINDS = {
    "datagen": "write example rows as lines of JSON, and read them with kind = 'file'",
    "blackhole": "print the rows with kind = 'console'",
}
# Options of other systems, with the spelling here.
_OPTIONS_OF_OTHERS = {
    "properties.bootstrap.servers": "brokers = 'host:port'", "table-name": "table = '…'",
    "properties.group.id": "group_id = '…'", "scan.bounded.mode": "bounded = 'true'",
    "scan.startup.mode": "starting_offsets = 'earliest', or 'latest'",
    "value.format": "value_format = 'json'", "key.format": "key_format = 'string'",
    "topic-pattern": "topic_pattern = '…'", "source.monitor-interval": "follow = 'true'",
    "sink.rolling-policy.file-size": "roll_bytes = '128MiB'",
    "username": "url = 'postgresql://user@host/database'",
    "lookup.cache.ttl": "cache_ms = 60000", "sink.parallelism": "SET parallelism = 4",
    "json.ignore-parse-errors": "SET on_error = 'dead_letter'",
    "csv.ignore-parse-errors": "SET on_error = 'dead_letter'",
}  # fmt: skip
_PREFIXES_OF_OTHERS = ("scan.", "sink.", "lookup.", "key.", "value.", "json.", "csv.", "format.")
# Sources whose records have no fields, or that only make sense in a pipeline.
_NO_TABLES = {"collection", "generator", "text"}
_COLUMN_WORDS: Mapping[SqlType, str] = {
    "BIGINT": "int", "DOUBLE": "float", "VARCHAR": "string", "BOOLEAN": "bool", "BLOB": "bytes",
    "TIMESTAMP": "datetime", "DATE": "date", "TIME": "time", "JSON": "json",
}  # fmt: skip
_WHOLE_ROLES: Mapping[Role, str] = {"source": "read", "sink": "written"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table: its definition, and the word of its connector or its stream.

    Args:
        definition: Its columns.
        kind: The word of its connector.
        stream: Its records, if it is a stream.
        has_fields: Whether each record has all columns; otherwise, a missing column is NULL.
        uid: The beginning of the ids of its operators; by default its name.
        is_timed: Whether its records have event times.
        time_hint: The way to set the event time, for errors.
    """

    definition: CreateTable
    kind: str = ""
    stream: Any = None
    has_fields: bool = False
    uid: str = ""
    is_timed: bool = False
    time_hint: str = ""

    @property
    def name(self) -> str:
        """The name, as it is defined."""
        return self.definition.name.text

    @property
    def columns(self) -> tuple[ColumnDefinition, ...]:
        """The columns, as they are defined."""
        return self.definition.columns

    @property
    def stored_columns(self) -> tuple[ColumnDefinition, ...]:
        """The columns that are not computed."""
        return tuple(column for column in self.columns if column.value is None)

    def targets(self, names: Sequence[Name]) -> list[ColumnDefinition]:
        """Return the columns that an INSERT fills, in its order.

        Args:
            names: The columns that it names; none for all.

        Raises:
            SqlProblem: a name is wrong, or a column that is NOT NULL is missing.
        """
        stored = {column.name.text: column for column in self.stored_columns}
        if not names:
            return list(stored.values())
        found: dict[str, ColumnDefinition] = {}
        for name in names:
            known = find_name(name.text, stored)
            if known is None:
                raise SqlProblem(name.at, no_such("column", name.text, stored))
            if known in found:
                raise SqlProblem(name.at, f"column {known} is named twice")
            found[known] = stored[known]
        for column in stored.values():
            if column.name.text not in found and not column.is_nullable:
                raise SqlProblem(
                    names[0].at,
                    f"column {column.name.text} of {self.name} is NOT NULL; name it, too",
                )
        return list(found.values())


class Catalog:
    """The tables and views of a file.

    Args:
        text: The file.
        checks: Takes the problems of options.
    """

    def __init__(self, text: SqlText, checks: Checks) -> None:
        self.text, self._checks = text, checks
        self._tables: dict[str, Table] = {}
        self._views: dict[str, CreateView] = {}
        self.functions: dict[str, UserFunction] = {}
        # Names of tables and views whose problems are noted, in lower case.
        self.undefined: dict[str, None] = {}
        self._sources: dict[str, SourceKeys | None] = {}
        self._sinks: dict[str, SinkKeys | None] = {}

    @property
    def tables(self) -> Iterable[Table]:
        """The tables, in the order of the file."""
        return self._tables.values()

    @property
    def views(self) -> Iterable[CreateView]:
        """The views, in the order of the file."""
        return self._views.values()

    def add_table(self, definition: CreateTable) -> None:
        """Add a table.

        Raises:
            SqlProblem: its name, its columns or its connector are wrong.
        """
        self._require_new(definition.name)
        name = definition.name.text
        self.undefined[name.lower()] = None
        _check_columns(definition)
        table = Table(definition=definition, kind=self._kind_of(definition))
        del self.undefined[name.lower()]
        kind = self.text.default_kind
        if kind and self.is_lookup(table):  # Tests insert its rows.
            given = replace(definition, options={"kind": kind, "path": name})
            table = Table(definition=given, kind=kind)
        self._tables[name.lower()] = table

    def add_stream(self, definition: CreateTable, **facts: Any) -> None:
        """Add a table with the records of a stream; ``facts`` are arguments of ``Table``.

        Raises:
            SqlProblem: its name or its columns are wrong.
        """
        self._require_new(definition.name)
        _check_columns(definition)
        self._tables[definition.name.text.lower()] = Table(definition=definition, **facts)

    def add_view(self, definition: CreateView) -> None:
        """Add a view.

        Raises:
            SqlProblem: its name is in use.
        """
        self._require_new(definition.name)
        self._views[definition.name.text.lower()] = definition

    def add_function(self, definition: CreateFunction, of_plugins: bool) -> None:
        """Add a function in Python.

        Raises:
            SqlProblem: its name is in use, or it cannot be called by SQL.
        """
        name = definition.name
        if name.text.lower() in self.functions:
            raise SqlProblem(name.at, f"{name.text} is defined twice")
        if name.text.lower() in RESERVED_FUNCTIONS:
            raise SqlProblem(name.at, f"{name.text} is a function of SQL; choose another name")
        found = load_function(name, definition.location, of_plugins=of_plugins)
        self.functions[name.text.lower()] = found

    def find(self, name: str, at: int) -> Table | CreateView:
        """Return a table or a view.

        Raises:
            SqlProblem: no table or view has this name.
        """
        found = self._tables.get(name.lower()) or self._views.get(name.lower())
        if found is None:
            known = [each.name for each in self.tables] + [each.name.text for each in self.views]
            shown = [each for each in known if not each.startswith(NO_NAME)]
            follows = name.lower() in self.undefined
            raise SqlProblem(at, no_such("table", name, shown), follows=follows)
        return found

    def target(self, name: Name) -> Table:
        """Return the table of an INSERT.

        Raises:
            SqlProblem: there is no such table, or it is a view.
        """
        found = self.find(name.text, name.at)
        if isinstance(found, CreateView) or found.stream is not None:
            kind = "view" if isinstance(found, CreateView) else "stream"
            raise SqlProblem(name.at, f"{name.text} is a {kind}; rows are inserted into tables")
        return found

    # --- connectors --------------------------------------------------------------------------

    def source(self, table: Table, at: int) -> SourceKeys | None:
        """Return the checked keys of a source; None if they are wrong, which is noted.

        Raises:
            SqlProblem: the connector is not a source of rows.
        """
        if table.stream is not None:
            return None
        if table.name not in self._sources:
            self._sources[table.name] = None
            self._require_role(table, "source", at)
            is_lookup = self.is_lookup(table)
            kind = lookup_keys(table.kind) if is_lookup else SOURCES[table.kind]
            data = self._data(table, kind)
            found = self._check_keys(table, kind, data, "lookup" if is_lookup else "source")
            if not is_lookup and found is not None and found.source().output_type in (str, bytes):
                raise SqlProblem(at, f"{table.name} cannot be read: its records have no columns")
            self._sources[table.name] = found
        return self._sources[table.name]

    def sink(self, table: Table, at: int) -> SinkKeys | None:
        """Return the checked keys of a sink; None if they are wrong, which is noted.

        Raises:
            SqlProblem: the connector is not a sink, or does not store a column.
        """
        if table.name not in self._sinks:
            self._sinks[table.name] = None
            self._require_role(table, "sink", at)
            kind = SINKS[table.kind]
            data = self._data(table, kind)
            options = kind.all_options
            if "columns" in options and table.kind != "console":  # Its columns are only names.
                data["columns"] = _column_words(table)
            key = [name.text for name in table.definition.key]
            if key and "keys" in options:
                data["keys"] = key
            elif key and "key_field" in kind.__struct_fields__ and len(key) == 1:
                data["key_field"] = key[0]
            elif key:
                problem = f"has no rows with keys; remove PRIMARY KEY from {table.name}"
                if "key_field" in kind.__struct_fields__:
                    problem = f"has one column as key; write PRIMARY KEY ({key[0]})"
                raise SqlProblem(table.definition.key[0].at, f"{table.kind} {problem}")
            self._sinks[table.name] = self._check_keys(table, kind, data, "sink")
        return self._sinks[table.name]

    def unbounded_reason(self, table: Table, at: int) -> str:
        """Return why the input of a table never ends; empty if it ends."""
        if table.stream is None:
            keys = self.source(table, at)
            sources = [] if keys is None else [keys.source()]
        else:
            sources = [
                SourceDescriptor(**vertex.details["connector"]) for vertex in _sources(table.stream)
            ]
        return next(filter(None, map(_unbounded_reason, sources)), "")

    def is_used(self, table: Table) -> bool:
        """Return whether a query reads a table, or writes to it."""
        return table.name in self._sources or table.name in self._sinks

    @staticmethod
    def is_lookup(table: Table) -> bool:
        """Return whether rows of a table are found by its key, not read as a stream."""
        given = table.definition.options
        return table.kind in LOOKUPS and bool(table.definition.key) and "column" not in given

    @staticmethod
    def is_source(table: Table) -> bool:
        """Return whether queries can read a table."""
        return table.kind in SOURCES and table.kind not in _NO_TABLES

    def _kind_of(self, definition: CreateTable) -> str:
        options, name = definition.options, definition.name
        given = [key for key in _KIND_KEYS if key in options]
        if not given:
            raise SqlProblem(name.at, f"{name.text} needs WITH (kind = '…'), its connector")
        if len(given) > 1:
            at = self.text.keys[name.text, given[1]]
            raise SqlProblem(at, "kind and connector are the same key; use only one")
        word, at = options[given[0]], self.text.values[name.text, given[0]]
        if word not in SOURCES and word not in SINKS:
            known = sorted({*SOURCES, *SINKS} - _NO_TABLES)
            near = _KINDS_OF_OTHERS.get(str(word).lower())
            if (hint := _MISSING_KINDS.get(str(word).lower())) is not None:
                raise SqlProblem(at, f"there is no connector {word!r}; {hint}")
            raise SqlProblem(at, no_such("connector", word, known, near=near))
        return str(word)

    def _require_role(self, table: Table, role: Role, at: int) -> None:
        kinds: Kinds[Any] = SOURCES if role == "source" else SINKS
        others = SINKS if role == "source" else SOURCES
        word = table.kind
        if word in kinds and not (role == "source" and word in _NO_TABLES):
            return
        hint = "; its records have no columns" if word in kinds else ""
        if word in others and word not in kinds:
            hint = f": {word} is only a {'sink' if role == 'source' else 'source'}"
            near = "file" if word.removesuffix("_file") in ("jsonl", "csv") else ""
            near = "parquet" if word == "parquet_file" else near
            hint += f"; use kind = '{near}'" if near else ""
        raise SqlProblem(at, f"{table.name} cannot be {_WHOLE_ROLES[role]}{hint}")

    def _data(self, table: Table, kind: type[Any]) -> dict[str, Any]:
        """Return the options of a table as keys of its source or sink."""
        given = {
            key: value for key, value in table.definition.options.items() if key not in _KIND_KEYS
        }
        names = {kind.aliases.get(key, key) for key in given}
        if _FORMAT in kind.all_options and _FORMAT not in names:
            given[_FORMAT] = "json"
        return given

    def _check_keys(self, table: Table, kind: type[Any], data: dict[str, Any], role: str) -> Any:
        path, count = (table.name,), len(self._checks.problems)
        own = table.definition.options
        for key in own:
            option, name = key, kind.aliases.get(key, key)
            hint = _FROM_CLAUSES.get(name, "") if name in data else ""
            if key not in kind.all_options and (ours := _OPTIONS_OF_OTHERS.get(key)):
                option, hint = ours.partition(" ")[0], f"write {ours}"
                self._checks.locate((*path, option), (*path, key))  # So it is not missing.
            if hint:
                self._checks.note((*path, option), f"{table.name}.{key}: {hint}", at_key=True)
                data.pop(key, None)
            elif key.startswith(_PREFIXES_OF_OTHERS) and key not in kind.aliases:
                self._checks.unknown(key, kind.all_options, path, aliases=kind.aliases)
                data.pop(key)
        data = kind.collect_tables(data, self._checks, path)
        found = self._checks.table(data, kind, path, of=f"{table.kind} {role}")
        if found is None:
            return None
        try:
            found.check(self._checks, path)
        except BicycleError as error:
            self._checks.note(path, f"{table.name}: {error.summary}")
        return None if len(self._checks.problems) > count else found

    def _require_new(self, name: Name) -> None:
        key = name.text.lower()
        if key in self._tables or key in self._views:
            raise SqlProblem(
                name.at, f"{name.text} is defined twice{self.show('; first at', [key])}"
            )

    def show_cycle(self, name: str, views: Sequence[str]) -> str:
        """Return the problem of a view that reads itself, by the last views of some."""
        cycle = views[views.index(name.lower()) :]
        text = f"view {name} reads itself"
        if len(cycle) == 1:
            return text
        return f"{text}, by {', '.join(cycle[1:])}{self.show('; defined at', cycle)}"

    def show(self, text: str, keys: Sequence[str]) -> str:
        """Return a text with the positions of tables and views, or an empty text."""
        names = [each.definition.name for each in self.tables]
        names += [each.name for each in self.views]
        at = {each.text.lower(): self.text.show(each.at) for each in names}
        positions = [at[key] for key in keys]
        return f"{text} {', '.join(positions)}" if all(positions) else ""


def _sources(stream: Any) -> Iterator[Any]:
    """Yield the source vertices of a stream."""
    waiting, seen = [stream._vertex], set[int]()
    while waiting:
        vertex = waiting.pop()
        if id(vertex) not in seen:
            seen.add(id(vertex))
            waiting += [edge.source for edge in stream._draft.edges if edge.target is vertex]
            if vertex.kind is OperatorKind.SOURCE:
                yield vertex


def _unbounded_reason(source: SourceDescriptor[Any]) -> str:
    if source.connector_type == "collection":
        return ""
    options: Any = find_connector("source", source.connector_type).options_class
    if not issubclass(options, SourceOptions):
        return "has a connector that does not declare an end"
    found: SourceOptions[Any] = from_mapping(options, source.properties)
    return found.unbounded_reason()


def _check_columns(definition: CreateTable) -> None:
    seen: set[str] = set()
    for column in definition.columns:
        if column.name.text.lower() in seen:
            raise SqlProblem(column.name.at, f"column {column.name.text} is defined twice")
        seen.add(column.name.text.lower())
    if not any(column.value is None for column in definition.columns):
        raise SqlProblem(definition.name.at, f"{definition.name.text} has no columns with a type")
    names = [column.name.text for column in definition.columns if column.value is None]
    for name in definition.key:
        if find_name(name.text, names) is None:
            raise SqlProblem(name.at, no_such("column", name.text, names))


def _column_words(table: Table) -> dict[str, str]:
    """Return the columns of a table as sinks name their types.

    Raises:
        SqlProblem: a sink has no such type.
    """
    found = {}
    for column in table.stored_columns:
        word = _COLUMN_WORDS.get(column.type)
        if word is None and column.type.startswith("DECIMAL("):
            word = column.type.lower()
        if word is None:
            raise SqlProblem(
                column.name.at,
                f"column {column.name.text} is {column.type}, which {table.kind} does not store",
            )
        found[column.name.text] = word
    return found


def find_name(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that equals a name, or the only one in other case."""
    names = list(known)
    if name in names:
        return name
    found = [each for each in names if each.lower() == name.lower()]
    return found[0] if len(found) == 1 else None


def no_such(kind: str, name: str, known: Iterable[str], *, near: str | None = None) -> str:
    """Return the problem of an unknown name, with the nearest known one."""
    names = list(known)
    near = near or likely(name, names) or likely(name.lower(), names)
    hint = f"did you mean {near!r}? " if near else ""
    return f"there is no {kind} {name!r}; {hint}known: {', '.join(names) or 'none'}"
