"""Keys of sources and sinks: options of the connector, and a few of the pipeline.

Every connector of this installation is a kind, under its own name. Some kinds have further keys, or
another name than their connector: they are in ``sources`` and ``sinks``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Generic, TypeVar

from bicycle_runtime.endpoints.catalog import (
    Direction,
    connector_names,
    find_connector,
    has_connector,
)
from bicycle_runtime.endpoints.checking import Checks, check_address
from bicycle_runtime.endpoints.keys import ConnectorKeys, keys_of_connector
from bicycle_runtime.endpoints.positions import KeyPath
from bicycle_runtime.endpoints.values import describe
from bicycle_sdk.connector_options import SinkOptions, SourceOptions
from bicycle_sdk.errors import BicycleError, OptionError, StreamDefinitionError
from bicycle_sdk.formats import Format
from bicycle_sdk.option_values import OptionValueError
from bicycle_sdk.options import declared_options, from_mapping
from bicycle_sdk.uri_queries import format_with_schema

K = TypeVar("K", bound="EndKeys")
_SCHEMA = (
    "schema",
    Annotated[
        str | None, describe("Schema of the format: a file for avro, module:Class for protobuf.")
    ],
    None,
)


class EndKeys(ConnectorKeys, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """The keys of a source or a sink.

    Attributes:
        role: Source or sink.
        kind: The connector, if the kind has another name.
        client_names: Whether keys with a dot are properties of the client.
        needs: Groups of keys of which one must be set.
    """

    role: ClassVar[Direction]
    kind: ClassVar[str] = ""
    client_names: ClassVar[bool] = False
    needs: ClassVar[tuple[tuple[str, ...], ...]] = ()

    @classmethod
    def collect_tables(
        cls, data: Mapping[str, Any], checks: Checks, path: KeyPath
    ) -> dict[str, Any]:
        """Return keys; keys with a dot become items of tables.

        ``headers.Accept`` is an item of the option ``headers``; other unknown keys with a dot are
        properties of the client, if there is one.
        """
        found = dict(data)
        for key in data:
            word, dot, name = key.partition(".")
            table = cls.aliases.get(word, word)
            if table not in cls.tables and cls.client_names:
                table, name = "properties", key
            if not dot or key in cls.aliases or table not in cls.tables:
                continue
            given = found.get(table) or {}
            if name in given:
                checks.note((*path, key), f"{table}.{name} is set twice", at_key=True)
            elif isinstance(given, dict):
                checks.locate((*path, table, name), (*path, key))
                found[table] = {**given, name: data[key]}
            else:
                continue
            del found[key]
        return found

    def format_of_values(self) -> Format | None:
        """Return the format of values with its options; None for that of the connector.

        Raises:
            StreamDefinitionError: a schema is missing, is not supported by the format, or cannot
                be read.
        """
        name, schema = self.value_of("value_format"), self.value_of("schema")
        options = self.value_of("value_format_options")
        if name is None and schema is None:
            return None
        if name is not None and options:
            return Format(name, options)
        return format_with_schema(name, schema, call="format")

    def graph_properties(self) -> dict[str, Any]:
        """Return the options as they are in the graph, with derived defaults."""
        options = self.options()
        if options is None:
            return self.given_properties()
        return dict(options.build_connector().properties)

    def options(self) -> SourceOptions[Any] | SinkOptions | None:
        """Return the options as an object; None for a class that is not of the SDK."""
        options_class = find_connector(self.role, self.connector_name).options_class
        if not issubclass(options_class, SourceOptions | SinkOptions):
            return None
        found: SourceOptions[Any] | SinkOptions
        found = from_mapping(options_class, self.given_properties())
        return found

    @property
    def connector_name(self) -> str:
        """The name of the connector."""
        return self.connector.name

    def given_properties(self) -> dict[str, Any]:
        """Return the options of the text, with the schema of the format."""
        found, format = self.properties(), self.format_of_values()
        if format is not None:
            found["value_format"] = format.name
            if format.options:
                found["value_format_options"] = dict(format.options)
        return found

    def check(self, checks: Checks, path: KeyPath) -> None:
        """Note secrets in the text, unusable formats, and contradictions between the keys."""
        for name in self.option_names:
            value = self.value_of(name)
            if isinstance(value, str) and "://" in value:
                check_address(checks, value, (*path, name))
        if self.value_of("schema") is not None and self.value_of("value_format_options"):
            at = (*path, "schema")
            checks.note(at, f"{checks.label(at)} and value_format_options are set; use only one")
        try:
            self.format_of_values()
        except StreamDefinitionError as error:
            name = "schema" if self.value_of("schema") else "value_format"
            at = (*path, name)
            checks.note(at, f"{checks.label(at)}: {error.facts['problem']}; {error.facts['hint']}")
        self._check_options(checks, path)

    def _check_options(self, checks: Checks, path: KeyPath) -> None:
        """Note conflicts of options, and properties of the client that an option decides."""
        try:
            options = None if checks.is_wrong(path) else self.options()
        except OptionError as error:
            at, cause = (*path, error.facts["name"]), error.__cause__
            text = f"expected {error.facts['expected']}"
            if isinstance(cause, OptionValueError):
                at, text = (*at, *filter(None, [cause.item])), f"{cause.problem}; {cause.hint}"
            checks.note(at, f"{checks.label(at)}: {text}")
            return
        reserved: Mapping[str, str] = getattr(options, "reserved", {})
        for name in reserved.keys() & (getattr(options, "properties", None) or ()):
            at = (*path, "properties", name)
            checks.note(at, f"{checks.label(at)} cannot be set; {reserved[name]}")
        for found in () if options is None else options.conflicts():
            at = (*path, found.option)
            checks.note(at, f"{checks.label(at)}: {found.problem}; {found.hint}")


class Kinds(Mapping[str, type[K]], Generic[K]):
    """The kinds of sources or sinks, with their keys.

    A connector is imported when the keys of its kind are requested.

    Args:
        direction: Sources or sinks.
        base: The keys of a kind without further keys.
        special: The kinds with further keys.
    """

    def __init__(self, direction: Direction, base: type[K], special: Mapping[str, type[K]]) -> None:
        self._direction: Direction = direction
        self._base = base
        self._special = special
        self._made: dict[str, type[K]] = {}

    def __getitem__(self, word: str) -> type[K]:
        """Return the keys of a kind.

        Raises:
            KeyError: there is no such kind.
            UNKNOWN_CONNECTOR: its connector cannot be imported.
        """
        if word not in self._made:
            if word not in self:
                raise KeyError(word)
            base = self._special.get(word, self._base)
            connector = find_connector(self._direction, base.kind or word)
            name = "".join(part.title() for part in (*word.split("_"), self._direction))
            has_schemas = "value_format_options" in declared_options(connector.options_class)
            more = [_SCHEMA] if has_schemas else []
            self._made[word] = keys_of_connector(name, connector, base, more=more)
        return self._made[word]

    def of_connector(self, name: str) -> str:
        """Return the kind of a connector: its name, or the kind with further keys for it."""
        found = (word for word, base in self._special.items() if name in (base.kind, word))
        return next(found, name)

    def __contains__(self, word: object) -> bool:
        return word in self._special or has_connector(self._direction, str(word))

    def __iter__(self) -> Iterator[str]:
        names = set(connector_names(self._direction))
        return iter([*self._special, *sorted(names - set(self._special))])

    def __len__(self) -> int:
        return len(list(iter(self)))

    def load_all(self) -> dict[str, type[K]]:
        """Return the kinds whose connectors can be imported, with their keys."""
        found = {}
        for word in self:
            try:
                found[word] = self[word]
            except BicycleError:
                continue  # A library that it needs is not installed.
        return found
