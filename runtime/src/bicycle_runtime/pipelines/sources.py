"""Sources of pipelines: their keys, and the source of the SDK that they make.

``SOURCES`` maps a word to its struct of keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta, Struct, field

from bicycle_runtime.pipelines.checking import (
    Checks,
    check_address,
    check_secret,
    check_secrets,
    label_of,
)
from bicycle_runtime.pipelines.documents import KeyPath
from bicycle_runtime.pipelines.record_functions import PayloadSchema
from bicycle_runtime.pipelines.values import (
    NOTHING_NAMED,
    Brokers,
    FieldType,
    KafkaProperties,
    Port,
    Positive,
    Text,
    describe,
    with_secrets,
)
from bicycle_sdk import connectors
from bicycle_sdk.connectors import SourceDescriptor
from bicycle_sdk.kafka import KafkaSourceBuilder
from bicycle_sdk.secrets import Secret
from bicycle_sdk.sources import postgres_source

__all__ = ["SOURCES", "FileSource", "KafkaSource", "SourceKeys"]

_KAFKA_FORMATS: Mapping[str, Any] = {"string": str, "bytes": bytes}


class SourceKeys(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """The keys of a source.

    ``reads_time`` means that it can take event times from a field itself, ``has_times`` that its
    records have some without a field.
    """

    reads_time: ClassVar[bool] = False
    has_times: ClassVar[bool] = False

    def source(self) -> SourceDescriptor[Any]:
        """Return the source that they describe."""
        raise AssertionError(f"{type(self).__name__} creates no source")

    def source_with_times(self) -> SourceDescriptor[Any]:
        """Return that source, which takes event times from its records itself."""
        return self.source()

    def check(self, checks: Checks, path: KeyPath) -> None:
        """Note contradictions between the keys."""
        fields, name = getattr(self, "fields", None), getattr(self, "time_field", None)
        if fields is not None and name is not None and name not in fields:
            label = label_of((*path, "time_field"))
            text = f"{label} is {name}, which is not a declared field"
            checks.note((*path, "time_field"), text)


class FileSource(SourceKeys, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Files: JSON lines, CSV with a header line, Parquet, or lines of text."""

    reads_time: ClassVar[bool] = True

    path: Annotated[Text, describe("File, glob or directory.")]
    format: Annotated[
        Literal["jsonl", "csv", "parquet", "text"], describe("Format of the files.")
    ] = "jsonl"
    time_field: Annotated[
        str | None, describe("Field with the event time: RFC 3339, or ms since 1970.")
    ] = None
    fields: Annotated[
        dict[str, FieldType] | None,
        describe(
            "Types of the fields; a type with a question mark allows null "
            "and missing values. A record with another type is invalid. "
            "Other fields are not read."
        ),
    ] = None
    follow: Annotated[bool, describe("Wait for appended lines and new files.")] = False

    def source(self) -> SourceDescriptor[Any]:
        return self._read(None)

    def source_with_times(self) -> SourceDescriptor[Any]:
        return self._read(self.time_field)

    def _read(self, time_field: str | None) -> SourceDescriptor[Any]:
        if self.format == "text":
            return connectors.text_file_source(self.path, follow=self.follow)
        make = {
            "jsonl": connectors.jsonl_file_source,
            "csv": connectors.csv_file_source,
            "parquet": connectors.parquet_file_source,
        }[self.format]
        return make(self.path, follow=self.follow, timestamp_field=time_field)


class KafkaSource(SourceKeys, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Messages of a Kafka topic."""

    has_times: ClassVar[bool] = True

    bootstrap_servers: Brokers
    topic: Annotated[Text, describe("Topics, separated by commas.")]
    group_id: Annotated[str, describe("Consumer group to which progress is committed.")] = (
        "bicycle-default-group"
    )
    format: Annotated[
        Literal["any", "json", "string", "bytes"],
        describe(
            "json: any other value is an invalid record. any: an object "
            "gets the fields _topic, _partition and _offset; other text "
            'becomes {"bytes": text}, and other bytes {"bytes_b64": '
            "base64}."
        ),
    ] = "any"
    time_field: Annotated[
        str | None, describe("Field with the event time. Default: the time of the message.")
    ] = None
    fields: Annotated[
        dict[str, FieldType] | None,
        describe("Types of the fields, for the format json; int? allows null and missing values."),
    ] = None
    auto_offset_reset: Annotated[
        Literal["earliest", "latest"], describe("Start position of a new job.")
    ] = "earliest"
    bounded: Annotated[bool, describe("End after the messages that existed at the start.")] = False
    commit_interval_ms: Annotated[
        int | None, describe(f"{NOTHING_NAMED}: progress is sealed and reported with each epoch.")
    ] = None
    path: Annotated[str, describe(f"{NOTHING_NAMED}.")] = ""
    properties: KafkaProperties = field(default_factory=dict)

    def source(self) -> SourceDescriptor[Any]:
        topics = [topic.strip() for topic in self.topic.split(",") if topic.strip()]
        declared = _KAFKA_FORMATS.get(self.format, dict)
        if self.format == "any":
            declared = None
        builder = KafkaSourceBuilder[Any](
            self.bootstrap_servers, topics=topics, record_type=declared
        )
        builder.group_id(self.group_id).starting_offsets(self.auto_offset_reset)
        builder.properties(with_secrets(self.properties))
        if self.format == "any":
            builder.with_schema(PayloadSchema())
        if self.bounded:
            builder.bounded()
        return builder.build_connector()

    def check(self, checks: Checks, path: KeyPath) -> None:
        check_secrets(checks, self.properties, (*path, "properties"))
        super().check(checks, path)


class PostgresSource(SourceKeys, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Rows of a table of PostgreSQL, in the order of an increasing column."""

    reads_time: ClassVar[bool] = True

    url: Annotated[Text, describe("postgresql://user@host:port/database, without a password.")]
    table: Annotated[Text, describe("Name of the table, or schema.table.")]
    column: Annotated[
        Text,
        describe(
            "An increasing column: whole numbers, unique, not null, "
            "larger for each new row, such as an identity."
        ),
    ]
    password: Annotated[
        str | None,
        describe(
            "Reference to the password: env:NAME or file:PATH. Default: "
            "the password that libpq finds."
        ),
    ] = None
    follow: Annotated[bool, describe("Wait for new rows.")] = False
    start_at: Annotated[
        int, Meta(ge=0, description="Skip rows with smaller values of the column.")
    ] = 0
    time_field: Annotated[str | None, describe("Column with the event time.")] = None
    fields: Annotated[
        dict[str, FieldType] | None,
        describe(
            "Types of the fields; a type with a question mark allows "
            "null. A record with another type is invalid. Other columns "
            "are dropped."
        ),
    ] = None

    def source(self) -> SourceDescriptor[Any]:
        return self._read(None)

    def source_with_times(self) -> SourceDescriptor[Any]:
        return self._read(self.time_field)

    def _read(self, time_field: str | None) -> SourceDescriptor[Any]:
        return postgres_source(
            self.url,
            self.table,
            self.column,
            password=None if self.password is None else Secret.parse(self.password),
            follow=self.follow,
            start_at=self.start_at or None,
            timestamp_field=time_field,
        )

    def check(self, checks: Checks, path: KeyPath) -> None:
        check_address(checks, self.url, (*path, "url"))
        if self.password is not None:
            check_secret(checks, self.password, (*path, "password"))
        super().check(checks, path)


class SocketSource(SourceKeys, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Lines that clients send to a TCP server."""

    host: Annotated[str, describe("Address to listen on.")] = "127.0.0.1"
    port: Annotated[Port, describe("Port to listen on.")] = 9_999
    clients_max: Annotated[Positive | None, describe("Maximum number of connected clients.")] = None

    def source(self) -> SourceDescriptor[Any]:
        return connectors.socket_source(
            host=self.host, port=self.port, clients_max=self.clients_max
        )


class GeneratorSource(SourceKeys, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Seven words in a cycle, for trials."""

    rate_ms: Annotated[int, Meta(ge=0, description="Pause between two words.")] = 100
    count: Annotated[int | None, Meta(description="Total number of words. Default: unlimited.")] = (
        None
    )

    def source(self) -> SourceDescriptor[Any]:
        return connectors.generator_source(rate_ms=self.rate_ms, count=self.count)


class CollectionSource(SourceKeys, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Records in the pipeline file."""

    items: Annotated[list[Any], describe("The records.")]
    time_field: Annotated[str | None, describe("Field with the event time.")] = None

    def source(self) -> SourceDescriptor[Any]:
        return connectors.collection_source(self.items)


SOURCES: Mapping[str, type[SourceKeys]] = {
    "file": FileSource,
    "kafka": KafkaSource,
    "postgres": PostgresSource,
    "socket": SocketSource,
    "generator": GeneratorSource,
    "collection": CollectionSource,
}
