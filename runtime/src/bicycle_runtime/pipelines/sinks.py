"""Sinks of pipelines; ``SINKS`` maps a kind to its keys.

A kind in this module has keys beside the options of its connector, or defaults that follow from the
pipeline.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta, field

from bicycle_runtime.endpoints.checking import Checks, check_secret
from bicycle_runtime.endpoints.positions import KeyPath
from bicycle_runtime.endpoints.values import ColumnWord, describe
from bicycle_runtime.pipelines.ends import EndKeys, Kinds
from bicycle_runtime.pipelines.record_functions import FieldText
from bicycle_runtime.pipelines.values import NOTHING_NAMED
from bicycle_sdk.connectors import SinkDescriptor
from bicycle_sdk.secrets import Secret
from bicycle_sdk.sinks import by_date, by_field

_EVENT_TIME = "event_time"


class SinkKeys(EndKeys, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """The keys of a sink."""

    @property
    def connector_name(self) -> str:
        """The name of the connector."""
        return self.connector.name

    def sink(self, *, is_timed: bool = False) -> SinkDescriptor[Any]:
        """Return the sink that they describe.

        Args:
            is_timed: Whether records have an event time.
        """
        return SinkDescriptor(
            connector_type=self.connector_name,
            properties=self.sink_properties(is_timed=is_timed),
            payloads=self.payloads(),
        )

    def sink_properties(self, *, is_timed: bool) -> dict[str, Any]:  # noqa: ARG002 - some need it
        """Return the options of the sink, as they are in the graph."""
        return self.graph_properties()

    def payloads(self) -> dict[str, Any]:
        """Return the objects of the sink that are not JSON."""
        return {}


class _Files(SinkKeys, forbid_unknown_fields=True, frozen=True, kw_only=True):
    about: ClassVar[str] = "Files in a directory; without a directory, lines on the console."
    kind: ClassVar[str] = "jsonl_file"

    path: Annotated[str, describe("The directory; it is created if it is missing.")] = ""
    format: Annotated[Literal["jsonl", "csv", "text"], describe("Format of the files.")] = "jsonl"

    @property
    def connector_name(self) -> str:
        return f"{self.format}_file" if self.path else "console"

    def sink_properties(self, *, is_timed: bool) -> dict[str, Any]:
        return super().sink_properties(is_timed=is_timed) if self.path else {}

    def check(self, checks: Checks, path: KeyPath) -> None:
        if self.format == "text" and self.value_of("timestamp_field") is not None:
            at = (*path, "timestamp_field")
            checks.note(at, f"{checks.label(at)} is set, but lines of text have no fields")
        super().check(checks, path)


class _Messages(SinkKeys, forbid_unknown_fields=True, frozen=True, kw_only=True):
    about: ClassVar[str] = "A Kafka topic."
    client_names: ClassVar[bool] = True

    acks: Annotated[
        Literal["all", "1", "0", "-1"] | Annotated[int, Meta(ge=-1, le=1)],
        describe("Brokers that must acknowledge a message."),
    ] = "all"
    key_field: Annotated[str | None, describe("Field with the key of messages.")] = None
    out_dir: Annotated[str, describe(f"{NOTHING_NAMED}.")] = ""

    def sink_properties(self, *, is_timed: bool) -> dict[str, Any]:
        found = super().sink_properties(is_timed=is_timed)
        if self.acks != "all":
            found["properties"] = {**found.get("properties", {}), "acks": str(self.acks)}
        return found

    def payloads(self) -> dict[str, Any]:
        return {} if self.key_field is None else {"key": FieldText(self.key_field)}


class _Parquet(SinkKeys, forbid_unknown_fields=True, frozen=True, kw_only=True):
    about: ClassVar[str] = "Parquet files in folders; rows appear when their file is complete."
    kind: ClassVar[str] = "parquet_file"

    partition_by: Annotated[
        Literal["date", "field", "none"] | None,
        describe(
            "Folders dt=DATE, folders FIELD=VALUE, or none. Default: according to the next two "
            "keys; without them by date, if records have event time."
        ),
    ] = None
    partition_field: Annotated[
        str | None,
        describe(
            "Field whose values name the folders. For dates, event_time or no field means the "
            "event time."
        ),
    ] = None
    partition_format: Annotated[
        str | None, describe("Format of dates, such as %Y-%m. Default: %Y-%m-%d.")
    ] = None

    def graph_properties(self) -> dict[str, Any]:
        return self.sink_properties(is_timed=False)

    def sink_properties(self, *, is_timed: bool) -> dict[str, Any]:
        found = super().graph_properties()
        names = ("partition_by", "partition_field", "partition_format")
        others = {name: value for name, value in found.items() if name not in names}
        return {**others, **self._folders(is_timed=is_timed)}

    def _folders(self, *, is_timed: bool) -> dict[str, str]:
        name = "" if self.partition_field in (None, _EVENT_TIME) else str(self.partition_field)
        kind = self.partition_by
        if kind is None and (
            self.partition_format is not None or self.partition_field == _EVENT_TIME
        ):
            kind = "date"
        if kind is None and name:
            kind = "field"
        if kind == "field":
            return {"partition_by": "field", "partition_field": by_field(name).field}
        if kind == "date" or (kind is None and is_timed):
            folders = by_date(self.partition_format or "%Y-%m-%d", field=name)
            return {
                "partition_by": "date",
                "partition_field": name,
                "partition_format": folders.date_format,
            }
        return {}

    def check(self, checks: Checks, path: KeyPath) -> None:
        by, name, date_format = self.partition_by, self.partition_field, self.partition_format
        field_at, format_at = (*path, "partition_field"), (*path, "partition_format")
        if by == "field" and not name:
            checks.missing(field_at, f"{checks.label(field_at)} must be set for folders by field")
        if by != "date" and by is not None and date_format is not None:
            label = checks.label(format_at)
            checks.note(format_at, f"{label} applies to folders by date, not {by}")
        if by == "none" and name is not None:
            label = checks.label(field_at)
            checks.note(field_at, f"{label} is set, but partition folders are disabled")
        if date_format is not None and "%" not in date_format:
            label = checks.label(format_at)
            text = f"{label} is {date_format}; expected a date format such as %Y-%m-%d"
            checks.note(format_at, text)
        super().check(checks, path)


class _Table(SinkKeys, forbid_unknown_fields=True, frozen=True, kw_only=True):
    columns: Annotated[
        dict[str, ColumnWord], Meta(min_length=1, description="Types of the columns.")
    ]

    def sink_properties(self, *, is_timed: bool) -> dict[str, Any]:
        found = super().sink_properties(is_timed=is_timed)
        return {"mode": "upsert", **found} if found.get("keys") else found

    def check(self, checks: Checks, path: KeyPath) -> None:
        for key in ("keys", "partition_by"):
            for index, name in enumerate(self.value_of(key) or ()):
                if name not in self.columns:
                    at = (*path, key, index)
                    checks.note(at, f"{checks.label(at)} is {name}, which is not a column")
        super().check(checks, path)


class _DatabaseTable(_Table, forbid_unknown_fields=True, frozen=True, kw_only=True):
    about: ClassVar[str] = "Rows of a table of PostgreSQL."

    def check(self, checks: Checks, path: KeyPath) -> None:
        if self.value_of("delete_field") is not None and not self.value_of("keys"):
            at = (*path, "keys")
            checks.missing(at, f"{checks.label(at)} must be set: delete_field deletes by key")
        super().check(checks, path)


class _CatalogTable(_Table, forbid_unknown_fields=True, frozen=True, kw_only=True):
    about: ClassVar[str] = "Rows of an Iceberg table, which is created if it is missing."

    def check(self, checks: Checks, path: KeyPath) -> None:
        table = self.value_of("table")
        if not all(table.partition(".")):
            at = (*path, "table")
            checks.note(at, f"{checks.label(at)} is {table}; expected namespace.table")
        super().check(checks, path)


class _Requests(SinkKeys, forbid_unknown_fields=True, frozen=True, kw_only=True):
    about: ClassVar[str] = "Requests to a server, with records as JSON."

    secret_headers: Annotated[
        dict[str, str], describe("Headers with secrets; each value is env:NAME or file:PATH.")
    ] = field(default_factory=dict)

    def sink_properties(self, *, is_timed: bool) -> dict[str, Any]:
        found = super().sink_properties(is_timed=is_timed)
        if self.secret_headers:
            secrets = {
                name: Secret.parse(text).to_json() for name, text in self.secret_headers.items()
            }
            found["headers"] = {**found.get("headers", {}), **secrets}
        return {**found, "batch_records": 1} if found.get("body") == "object" else found

    def check(self, checks: Checks, path: KeyPath) -> None:
        for name, text in self.secret_headers.items():
            check_secret(checks, text, (*path, "secret_headers", name))
        count = self.value_of("batch_records")
        if self.value_of("body") == "object" and count not in (None, 1):
            at = (*path, "batch_records")
            checks.note(at, f"{checks.label(at)} is {count}; a body of one record requires 1")
        super().check(checks, path)


class _Console(SinkKeys, forbid_unknown_fields=True, frozen=True, kw_only=True):
    about: ClassVar[str] = "The console: one line per record, or one table per epoch."

    def check(self, checks: Checks, path: KeyPath) -> None:
        is_lines = self.value_of("format") != "table" and not checks.is_wrong((*path, "format"))
        for key in ("columns", "rows"):
            if is_lines and self.value_of(key) is not None:
                at = (*path, key)
                checks.note(at, f"{checks.label(at)} applies to the format table", at_key=True)
        super().check(checks, path)


_SPECIAL: Mapping[str, type[SinkKeys]] = {
    "file": _Files,
    "delta": _Table,
    "http": _Requests,
    "iceberg": _CatalogTable,
    "kafka": _Messages,
    "parquet": _Parquet,
    "postgres": _DatabaseTable,
    "console": _Console,
}
SINKS: Kinds[SinkKeys] = Kinds("sink", SinkKeys, _SPECIAL)
