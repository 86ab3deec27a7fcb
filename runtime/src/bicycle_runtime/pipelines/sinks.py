"""Sinks of pipelines: their keys, the rules between keys, and the SDK's sinks.

``SINKS`` maps a word to its struct of keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from bicycle_runtime.pipelines.checking import (
    Checks,
    check_address,
    check_secret,
    check_secrets,
    label_of,
)
from bicycle_runtime.pipelines.documents import KeyPath
from bicycle_runtime.pipelines.record_functions import FieldText
from bicycle_runtime.pipelines.values import (
    NOTHING_NAMED,
    Brokers,
    ColumnWord,
    Duration,
    KafkaProperties,
    Port,
    Positive,
    Text,
    describe,
    duration_ms,
    with_secrets,
)
from bicycle_sdk.connectors import SinkDescriptor, console_sink, file_sink, socket_sink
from bicycle_sdk.kafka import DeliveryGuarantee, KafkaSinkBuilder
from bicycle_sdk.secrets import Secret
from bicycle_sdk.sinks import (
    Folders,
    HttpServer,
    by_date,
    by_field,
    console_table_sink,
    delta_sink,
    http_sink,
    iceberg_sink,
    parquet_sink,
    postgres_sink,
)

__all__ = ["SINKS", "SinkKeys"]

_EVENT_TIME = "event_time"


class SinkKeys(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """The keys of a sink."""

    def sink(self) -> SinkDescriptor[Any]:
        """Return the sink that they describe."""
        raise AssertionError(f"{type(self).__name__} creates no sink")

    def sink_with_times(self) -> SinkDescriptor[Any]:
        """Return that sink for records with an event time."""
        return self.sink()

    def check(self, checks: Checks, path: KeyPath) -> None:
        """Note contradictions between the keys."""


class FileSink(SinkKeys, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Files in a directory; without a directory, lines on the console."""

    out_dir: Annotated[str, describe("The directory.")] = ""
    format: Annotated[Literal["jsonl", "csv", "text"], describe("Format of the files.")] = "jsonl"
    roll_bytes: Annotated[Positive | None, describe("Complete a file at this size.")] = None
    roll_after: Annotated[Duration | None, describe("Complete a file at this age.")] = None
    time_field: Annotated[
        str | None, describe("Add a field with the event time, in ms since 1970.")
    ] = None

    def sink(self) -> SinkDescriptor[Any]:
        if not self.out_dir:
            return console_sink()
        return file_sink(
            self.out_dir,
            format=self.format,
            roll_bytes=self.roll_bytes,
            roll_ms=None if self.roll_after is None else duration_ms(self.roll_after),
            timestamp_field=self.time_field,
        )


class KafkaSink(SinkKeys, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """A Kafka topic."""

    bootstrap_servers: Brokers
    topic: Annotated[Text, describe("The topic.")]
    acks: Annotated[
        Literal["all", "1", "0", "-1"], describe("Brokers that must acknowledge a message.")
    ] = "all"
    key_field: Annotated[str | None, describe("Field with the key of messages.")] = None
    format: Annotated[
        Literal["json", "string", "bytes"] | None,
        describe("Format of the values. Default: by the type of the record."),
    ] = None
    guarantee: Annotated[
        Literal["at-least-once", "exactly-once"], describe("Delivery guarantee.")
    ] = "at-least-once"
    transactional_id_prefix: Annotated[
        str | None, describe("Prefix of the names of transactions.")
    ] = None
    out_dir: Annotated[str, describe(f"{NOTHING_NAMED}.")] = ""
    properties: KafkaProperties = field(default_factory=dict)

    def sink(self) -> SinkDescriptor[Any]:
        builder = KafkaSinkBuilder[Any](self.bootstrap_servers, self.topic)
        builder.delivery_guarantee(DeliveryGuarantee(self.guarantee))
        properties = dict(self.properties)
        if self.acks != "all":
            properties["acks"] = self.acks
        builder.properties(with_secrets(properties))
        if self.key_field is not None:
            builder.key(FieldText(self.key_field))
        if self.format is not None:
            builder.serializer(self.format)
        if self.transactional_id_prefix is not None:
            builder.transactional_id_prefix(self.transactional_id_prefix)
        return builder.build_connector()

    def check(self, checks: Checks, path: KeyPath) -> None:
        check_secrets(checks, self.properties, (*path, "properties"))


class ParquetSink(SinkKeys, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Parquet files in folders; rows appear when their file is complete."""

    out_dir: Annotated[Text, describe("Output directory, or a URL such as s3://bucket/folder.")]
    columns: Annotated[
        dict[str, ColumnWord] | None,
        describe("Types of the columns. Default: event_time, and payload with the record as JSON."),
    ] = None
    partition_by: Annotated[
        Literal["date", "field", "none"] | None,
        describe(
            "Folders dt=DATE, folders FIELD=VALUE, or none. Default: "
            "according to the next two keys; without them by date, if "
            "records have event time."
        ),
    ] = None
    partition_field: Annotated[
        str | None,
        describe(
            "Field whose values name the folders. For dates, event_time "
            "or no field means the event time."
        ),
    ] = None
    partition_format: Annotated[
        str | None, describe("Format of dates, such as %Y-%m. Default: %Y-%m-%d.")
    ] = None
    compression: Annotated[
        Literal["snappy", "zstd", "gzip", "none"], describe("Compression of the files.")
    ] = "snappy"
    max_rows: Annotated[Positive | None, describe("Complete a file at this number of rows.")] = None
    max_bytes: Annotated[Positive | None, describe("Complete a file at about this size.")] = None
    max_age: Annotated[
        Duration | None, describe("Complete all files at this time after their first row.")
    ] = None
    time_field: Annotated[str | None, describe("Add a column with the event time.")] = None

    def sink(self) -> SinkDescriptor[Any]:
        return self._in(self._folders(is_timed=False))

    def sink_with_times(self) -> SinkDescriptor[Any]:
        return self._in(self._folders(is_timed=True))

    def _in(self, folders: Folders | None) -> SinkDescriptor[Any]:
        options: dict[str, Any] = {
            "partition_by": folders,
            "columns": None if self.columns is None else _columns(self.columns),
            "timestamp_field": self.time_field,
            "compression": self.compression,
            "roll_rows": self.max_rows,
            "roll_bytes": self.max_bytes,
            "roll_ms": None if self.max_age is None else duration_ms(self.max_age),
        }
        return parquet_sink(self.out_dir, **options)

    def _folders(self, *, is_timed: bool) -> Folders | None:
        name = "" if self.partition_field in (None, _EVENT_TIME) else str(self.partition_field)
        kind = self.partition_by
        if kind is None and (
            self.partition_format is not None or self.partition_field == _EVENT_TIME
        ):
            kind = "date"
        if kind is None and name:
            kind = "field"
        if kind == "field":
            return by_field(name)
        if kind == "date" or (kind is None and is_timed):
            return by_date(self.partition_format or "%Y-%m-%d", field=name)
        return None

    def check(self, checks: Checks, path: KeyPath) -> None:
        by, name, date_format = self.partition_by, self.partition_field, self.partition_format
        if by == "field" and not name:
            label = label_of((*path, "partition_field"))
            checks.missing((*path, "partition_field"), f"{label} must be set for folders by field")
        if by != "date" and by is not None and date_format is not None:
            label = label_of((*path, "partition_format"))
            checks.note(
                (*path, "partition_format"), f"{label} applies to folders by date, not {by}"
            )
        if by == "none" and name is not None:
            label = label_of((*path, "partition_field"))
            checks.note(
                (*path, "partition_field"), f"{label} is set, but partition folders are disabled"
            )
        if date_format is not None and "%" not in date_format:
            label = label_of((*path, "partition_format"))
            text = f"{label} is {date_format}; expected a date format such as %Y-%m-%d"
            checks.note((*path, "partition_format"), text)
        _check_age(checks, self.max_age, path)


class PostgresSink(SinkKeys, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Rows of a table of PostgreSQL."""

    url: Annotated[Text, describe("postgresql://user@host:port/database, without a password.")]
    table: Annotated[Text, describe("Name of the table, or schema.table.")]
    columns: Annotated[
        dict[str, ColumnWord], Meta(min_length=1, description="Types of the columns.")
    ]
    password: Annotated[
        str | None,
        describe(
            "Reference to the password: env:NAME or file:PATH. Default: "
            "the password that libpq finds."
        ),
    ] = None
    keys: Annotated[
        list[Text],
        describe(
            "Columns that identify a row. With keys, a record replaces "
            "the row; without, it adds one."
        ),
    ] = field(default_factory=list)
    delete_field: Annotated[
        str | None, describe("Field of the record; if it is true, the row is deleted.")
    ] = None
    create_table: Annotated[bool, describe("Create the table if it is missing.")] = False
    on_rewind: Annotated[
        Literal["fail", "publish_again"],
        describe("Reaction if the job starts from an earlier epoch than the last written one."),
    ] = "fail"

    def sink(self) -> SinkDescriptor[Any]:
        return postgres_sink(
            self.url,
            self.table,
            password=None if self.password is None else Secret.parse(self.password),
            keys=self.keys,
            delete_field=self.delete_field,
            columns=_columns(self.columns),
            create_table=self.create_table,
            on_rewind=self.on_rewind,
        )

    def check(self, checks: Checks, path: KeyPath) -> None:
        check_address(checks, self.url, (*path, "url"))
        if self.password is not None:
            check_secret(checks, self.password, (*path, "password"))
        _check_columns(checks, self, "keys", path)
        if self.delete_field is not None and not self.keys:
            label = label_of((*path, "keys"))
            checks.missing((*path, "keys"), f"{label} must be set: delete_field deletes by key")


class _LakeTable(SinkKeys, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """The common keys of lake tables."""

    columns: Annotated[
        dict[str, ColumnWord], Meta(min_length=1, description="Types of the columns.")
    ]
    keys: Annotated[
        list[Text],
        describe(
            "Columns that identify a row. With keys, a record replaces "
            "the row; without, it adds one."
        ),
    ] = field(default_factory=list)
    partition_by: Annotated[
        list[Text], describe("Columns by which a new table is partitioned into folders.")
    ] = field(default_factory=list)
    time_field: Annotated[str | None, describe("Add a column with the event time.")] = None
    max_rows: Annotated[Positive | None, describe("Commit at this number of rows.")] = None
    max_bytes: Annotated[Positive | None, describe("Commit at about this size.")] = None
    max_age: Annotated[Duration | None, describe("Commit at this time after the first row.")] = None
    on_rewind: Annotated[
        Literal["fail", "publish_again"],
        describe("Reaction if the job starts from an earlier epoch than the last written one."),
    ] = "fail"

    def check(self, checks: Checks, path: KeyPath) -> None:
        _check_age(checks, self.max_age, path)
        _check_columns(checks, self, "keys", path)
        _check_columns(checks, self, "partition_by", path)

    def _table(self) -> dict[str, Any]:
        """Return the common arguments of lake tables."""
        age_ms = None if self.max_age is None else duration_ms(self.max_age)
        return {
            "keys": self.keys,
            "columns": _columns(self.columns),
            "partition_by": self.partition_by,
            "timestamp_field": self.time_field,
            "roll_rows": self.max_rows,
            "roll_bytes": self.max_bytes,
            "roll_ms": age_ms,
            "on_rewind": self.on_rewind,
        }


class DeltaSink(_LakeTable, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Rows of a Delta table, which is created if it is missing."""

    out_dir: Annotated[Text, describe("Directory of the table, or a URL.")]
    compression: Annotated[
        Literal["snappy", "zstd", "gzip", "none"], describe("Compression of the files.")
    ] = "snappy"

    def sink(self) -> SinkDescriptor[Any]:
        return delta_sink(self.out_dir, compression=self.compression, **self._table())


class IcebergSink(_LakeTable, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Rows of an Iceberg table, which is created if it is missing."""

    catalog: Annotated[
        Text, describe("sqlite:////data/lake.db, or postgresql://user@host:port/database.")
    ]
    warehouse: Annotated[Text, describe("Directory or URL for new tables.")]
    table: Annotated[Text, describe("namespace.table.")]
    catalog_name: Annotated[str | None, describe("Name of the catalog in its database.")] = None
    catalog_password: Annotated[
        str | None, describe("Reference to the password: env:NAME or file:PATH.")
    ] = None

    def sink(self) -> SinkDescriptor[Any]:
        secret = self.catalog_password
        catalog: dict[str, Any] = {
            "warehouse": self.warehouse,
            "catalog_password": None if secret is None else Secret.parse(secret),
            "catalog_name": self.catalog_name,
        }
        return iceberg_sink(self.catalog, self.table, **catalog, **self._table())

    def check(self, checks: Checks, path: KeyPath) -> None:
        super().check(checks, path)
        check_address(checks, self.catalog, (*path, "catalog"))
        if self.catalog_password is not None:
            check_secret(checks, self.catalog_password, (*path, "catalog_password"))
        if not all(self.table.partition(".")):
            label = label_of((*path, "table"))
            checks.note((*path, "table"), f"{label} is {self.table}; expected namespace.table")


class HttpSink(SinkKeys, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Requests to a server, with records as JSON."""

    url: Annotated[
        Text, describe("Address of the server: http://… or https://…, without a password.")
    ]
    method: Annotated[Literal["POST", "PUT"], describe("HTTP method of the requests.")] = "POST"
    headers: Annotated[dict[str, str], describe("Additional headers.")] = field(
        default_factory=dict
    )
    secret_headers: Annotated[
        dict[str, str], describe("Headers with secrets; each value is env:NAME or file:PATH.")
    ] = field(default_factory=dict)
    body: Annotated[
        Literal["array", "object", "keyed"],
        describe(
            "array: an array of records; object: one record; keyed: an array of {key, record}."
        ),
    ] = "array"
    batch_records: Annotated[
        Positive | None, describe("Maximum number of records per request.")
    ] = None
    idempotent: Annotated[
        bool, describe("The server drops a request with a repeated Idempotency-Key.")
    ] = False
    on_refused: Annotated[
        Literal["keep", "fail"],
        describe("keep stores a rejected record as a dead letter; fail ends the job."),
    ] = "keep"
    timeout: Annotated[Duration | None, describe("Time limit of a response.")] = None
    ca_file: Annotated[Text | None, describe("PEM file with the trusted certificates.")] = None
    cert_file: Annotated[Text | None, describe("PEM file with our own certificate.")] = None
    key_file: Annotated[Text | None, describe("PEM file with its private key.")] = None

    def sink(self) -> SinkDescriptor[Any]:
        secrets = {name: Secret.parse(text) for name, text in self.secret_headers.items()}
        return http_sink(
            HttpServer(self.url, self.ca_file, self.cert_file, self.key_file),
            headers={**self.headers, **secrets} or None,
            body=self.body,
            batch_records=self.batch_records,
            idempotent=self.idempotent,
            on_refused=self.on_refused,
            method=self.method,
            request_timeout_ms=None if self.timeout is None else duration_ms(self.timeout),
        )

    def check(self, checks: Checks, path: KeyPath) -> None:
        check_address(checks, self.url, (*path, "url"))
        for name, text in self.secret_headers.items():
            check_secret(checks, text, (*path, "secret_headers", name))
        if self.body == "object" and self.batch_records not in (None, 1):
            label = label_of((*path, "batch_records"))
            text = f"{label} is {self.batch_records}; a body of one record requires 1"
            checks.note((*path, "batch_records"), text)


class SocketSink(SinkKeys, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Lines for all clients of a TCP server."""

    host: Annotated[str, describe("Address to listen on.")] = "127.0.0.1"
    port: Annotated[Port, describe("Port to listen on.")] = 9_998
    clients_max: Annotated[Positive | None, describe("Maximum number of connected clients.")] = None

    def sink(self) -> SinkDescriptor[Any]:
        return socket_sink(host=self.host, port=self.port, clients_max=self.clients_max)


class ConsoleSink(SinkKeys, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """The console: one line per record, or one table per epoch."""

    format: Annotated[Literal["lines", "table"], describe("Output per record or per epoch.")] = (
        "lines"
    )
    columns: Annotated[
        dict[str, ColumnWord] | None, describe("Types of the columns of a table.")
    ] = None
    rows: Annotated[Positive | None, describe("Maximum number of rows per table.")] = None

    def sink(self) -> SinkDescriptor[Any]:
        if self.format == "lines":
            return console_sink()
        columns = None if self.columns is None else _columns(self.columns)
        return console_table_sink(columns=columns, rows=self.rows)

    def check(self, checks: Checks, path: KeyPath) -> None:
        is_lines = self.format == "lines" and not checks.is_wrong((*path, "format"))
        for key in ("columns", "rows"):
            if is_lines and getattr(self, key) is not None:
                label = label_of((*path, key))
                checks.note((*path, key), f"{label} applies to the format table", at_key=True)


SINKS: Mapping[str, type[SinkKeys]] = {
    "file": FileSink,
    "delta": DeltaSink,
    "http": HttpSink,
    "iceberg": IcebergSink,
    "kafka": KafkaSink,
    "parquet": ParquetSink,
    "postgres": PostgresSink,
    "socket": SocketSink,
    "console": ConsoleSink,
}


def _columns(given: Mapping[str, ColumnWord]) -> dict[str, str]:
    return {name: "str" if word == "string" else word for name, word in given.items()}


def _check_age(checks: Checks, age: Duration | None, path: KeyPath) -> None:
    if age is not None and duration_ms(age) < 1:
        label = label_of((*path, "max_age"))
        checks.note((*path, "max_age"), f"{label} is {age}; expected 1ms or more")


def _check_columns(checks: Checks, spec: Any, key: str, path: KeyPath) -> None:
    for index, name in enumerate(getattr(spec, key)):
        if name not in spec.columns:
            label = label_of((*path, key, index))
            checks.note((*path, key, index), f"{label} is {name}, which is not a column")
