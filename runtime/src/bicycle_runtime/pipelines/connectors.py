"""The sources and sinks of a pipeline: how their keys are those of the SDK, and what must hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from bicycle_runtime.pipelines.checking import Checks, check_secret, label_of
from bicycle_runtime.pipelines.connector_keys import (
    CollectionSource,
    ConsoleSink,
    DeltaSink,
    FileSink,
    FileSource,
    GeneratorSource,
    HttpSink,
    IcebergSink,
    KafkaSink,
    KafkaSource,
    ParquetSink,
    PostgresSink,
    SocketSink,
    SocketSource,
)
from bicycle_runtime.pipelines.documents import KeyPath
from bicycle_runtime.pipelines.record_functions import FieldText, PayloadSchema
from bicycle_runtime.pipelines.values import ColumnWord, Scalar, duration_ms
from bicycle_sdk import connectors
from bicycle_sdk.connectors import SinkDescriptor, SourceDescriptor
from bicycle_sdk.kafka import DeliveryGuarantee, KafkaSinkBuilder, KafkaSourceBuilder
from bicycle_sdk.kafka.base import is_secret_property
from bicycle_sdk.secrets import Secret
from bicycle_sdk.sinks import (
    Folders,
    IcebergCatalog,
    Rolling,
    by_date,
    by_field,
    console_table_sink,
    delta_sink,
    http_sink,
    iceberg_sink,
    parquet_sink,
    postgres_sink,
)

__all__ = ["check_sink", "check_source", "sink_of", "source_of"]

_EVENT_TIME = "event_time"

_KAFKA_FORMATS: Mapping[str, Any] = {"string": str, "bytes": bytes}


def source_of(spec: Any, *, reads_time: bool) -> SourceDescriptor[Any]:
    """Return the source that a struct of keys describes.

    Args:
        spec: The keys.
        reads_time: Whether it takes event times from its records itself, if it can.
    """
    match spec:
        case FileSource():
            return _file_source(spec, reads_time=reads_time)
        case KafkaSource():
            return _kafka_source(spec)
        case SocketSource():
            return connectors.socket_source(
                host=spec.host, port=spec.port, clients_max=spec.clients_max
            )
        case GeneratorSource():
            return connectors.generator_source(rate_ms=spec.rate_ms, count=spec.count)
        case CollectionSource():
            return connectors.collection_source(spec.items)
    raise AssertionError(spec)


def check_source(checks: Checks, spec: Any, path: KeyPath) -> None:
    """Take note of what does not fit together in the keys of a source."""
    if isinstance(spec, KafkaSource):
        _check_secrets(checks, spec.properties, (*path, "properties"))
    fields, name = getattr(spec, "fields", None), getattr(spec, "time_field", None)
    if fields is not None and name is not None and name not in fields:
        label = label_of((*path, "time_field"))
        text = f"{label} is {name}, which is not among the declared fields"
        checks.note((*path, "time_field"), text)


def check_sink(checks: Checks, spec: Any, path: KeyPath) -> None:
    """Take note of what does not fit together in the keys of a sink."""
    kind = _SINKS.get(type(spec))
    if kind is not None and kind.check is not None:
        kind.check(checks, spec, path)


def sink_of(spec: Any, *, is_timed: bool) -> SinkDescriptor[Any]:
    """Return the sink that a struct of keys describes.

    Args:
        spec: The keys.
        is_timed: Whether its records have an event time.
    """
    kind = _SINKS[type(spec)]
    return kind.build(spec, is_timed=is_timed) if kind.asks_for_time else kind.build(spec)


def _file_source(spec: FileSource, *, reads_time: bool) -> SourceDescriptor[Any]:
    if spec.format == "text":
        return connectors.text_file_source(spec.path, follow=spec.follow)
    make = {
        "jsonl": connectors.jsonl_file_source,
        "csv": connectors.csv_file_source,
        "parquet": connectors.parquet_file_source,
    }[spec.format]
    return make(
        spec.path,
        follow=spec.follow,
        timestamp_field=spec.time_field if reads_time else None,
    )


def _kafka_source(spec: KafkaSource) -> SourceDescriptor[Any]:
    topics = [topic.strip() for topic in spec.topic.split(",") if topic.strip()]
    declared = _KAFKA_FORMATS.get(spec.format, dict)
    if spec.format == "any":
        declared = None
    builder = KafkaSourceBuilder[Any](spec.bootstrap_servers, topics=topics, record_type=declared)
    builder.group_id(spec.group_id).starting_offsets(spec.auto_offset_reset)
    builder.properties(_properties(spec.properties))
    if spec.format == "any":
        builder.with_schema(PayloadSchema())
    if spec.bounded:
        builder.bounded()
    return builder.build_connector()


def _file_sink(spec: FileSink) -> SinkDescriptor[Any]:
    if not spec.out_dir:
        return connectors.console_sink()
    return connectors.file_sink(
        spec.out_dir,
        format=spec.format,
        roll_bytes=spec.roll_bytes,
        roll_ms=None if spec.roll_after is None else duration_ms(spec.roll_after),
        timestamp_field=spec.time_field,
    )


def _kafka_sink(spec: KafkaSink) -> SinkDescriptor[Any]:
    builder = KafkaSinkBuilder[Any](spec.bootstrap_servers, spec.topic)
    builder.delivery_guarantee(DeliveryGuarantee(spec.guarantee))
    properties = dict(spec.properties)
    if spec.acks != "all":
        properties["acks"] = spec.acks
    builder.properties(_properties(properties))
    if spec.key_field is not None:
        builder.key(FieldText(spec.key_field))
    if spec.format is not None:
        builder.serializer(spec.format)
    if spec.transactional_id_prefix is not None:
        builder.transactional_id_prefix(spec.transactional_id_prefix)
    return builder.build_connector()


def _parquet_sink(spec: ParquetSink, *, is_timed: bool) -> SinkDescriptor[Any]:
    return parquet_sink(
        spec.out_dir,
        folders=_folders(spec, is_timed=is_timed),
        columns=None if spec.columns is None else _columns(spec.columns),
        timestamp_field=spec.time_field,
        compression=spec.compression,
        roll_rows=spec.max_rows,
        roll_bytes=spec.max_bytes,
        roll_ms=None if spec.max_age is None else duration_ms(spec.max_age),
    )


def _folders(spec: ParquetSink, *, is_timed: bool) -> Folders | None:
    name = "" if spec.partition_field in (None, _EVENT_TIME) else str(spec.partition_field)
    kind = spec.partition_by
    if kind is None and (spec.partition_format is not None or spec.partition_field == _EVENT_TIME):
        kind = "date"
    if kind is None and name:
        kind = "field"
    if kind == "field":
        return by_field(name)
    if kind == "date" or (kind is None and is_timed):
        return by_date(spec.partition_format or "%Y-%m-%d", field=name)
    return None


def _lake_sink(spec: DeltaSink | IcebergSink) -> SinkDescriptor[Any]:
    age_ms = None if spec.max_age is None else duration_ms(spec.max_age)
    shared: dict[str, Any] = {
        "keys": spec.keys,
        "columns": _columns(spec.columns),
        "partition_by": spec.partition_by,
        "timestamp_field": spec.time_field,
        "rolling": Rolling(rows=spec.max_rows, size_bytes=spec.max_bytes, age_ms=age_ms),
        "on_rewind": spec.on_rewind,
    }
    if isinstance(spec, DeltaSink):
        return delta_sink(spec.out_dir, compression=spec.compression, **shared)
    password = None if spec.catalog_password is None else Secret.parse(spec.catalog_password)
    catalog = IcebergCatalog(
        address=spec.catalog, warehouse=spec.warehouse, password=password, name=spec.catalog_name
    )
    return iceberg_sink(catalog, spec.table, **shared)


def _http_sink(spec: HttpSink) -> SinkDescriptor[Any]:
    secrets = {name: Secret.parse(text) for name, text in spec.secret_headers.items()}
    return http_sink(
        spec.url,
        headers={**spec.headers, **secrets} or None,
        body=spec.body,
        batch_records=spec.batch_records,
        idempotent=spec.idempotent,
        on_refused=spec.on_refused,
        method=spec.method,
        request_timeout_ms=None if spec.timeout is None else duration_ms(spec.timeout),
    )


def _console_sink(spec: ConsoleSink) -> SinkDescriptor[Any]:
    if spec.format == "lines":
        return connectors.console_sink()
    columns = None if spec.columns is None else _columns(spec.columns)
    return console_table_sink(columns=columns, rows=spec.rows)


def _postgres_sink(spec: PostgresSink) -> SinkDescriptor[Any]:
    return postgres_sink(
        spec.url,
        spec.table,
        password=None if spec.password is None else Secret.parse(spec.password),
        keys=spec.keys,
        delete_field=spec.delete_field,
        columns=_columns(spec.columns),
        create_table=spec.create_table,
        on_rewind=spec.on_rewind,
    )


def _columns(given: Mapping[str, ColumnWord]) -> dict[str, str]:
    return {name: "str" if word == "string" else word for name, word in given.items()}


def _properties(given: Mapping[str, Scalar]) -> dict[str, Scalar | Secret]:
    """Return properties of the client; what is secret is a reference to its place."""
    return {
        name: Secret.parse(str(value)) if is_secret_property(name) else value
        for name, value in given.items()
    }


def _socket_sink(spec: SocketSink) -> SinkDescriptor[Any]:
    return connectors.socket_sink(host=spec.host, port=spec.port, clients_max=spec.clients_max)


# What must hold between the keys, which no type says.


def _check_parquet(checks: Checks, spec: ParquetSink, path: KeyPath) -> None:
    by, name, date_format = spec.partition_by, spec.partition_field, spec.partition_format
    if by == "field" and not name:
        label = label_of((*path, "partition_field"))
        checks.missing((*path, "partition_field"), f"{label} must be set for folders by field")
    if by != "date" and by is not None and date_format is not None:
        label = label_of((*path, "partition_format"))
        checks.note((*path, "partition_format"), f"{label} is for folders by date, not {by}")
    if by == "none" and name is not None:
        label = label_of((*path, "partition_field"))
        checks.note((*path, "partition_field"), f"{label} is given, and folders are none")
    if date_format is not None and "%" not in date_format:
        label = label_of((*path, "partition_format"))
        text = f"{label} is {date_format}; expected a format of dates such as %Y-%m-%d"
        checks.note((*path, "partition_format"), text)
    _check_age(checks, spec, path)


def _check_age(checks: Checks, spec: ParquetSink | DeltaSink | IcebergSink, path: KeyPath) -> None:
    if spec.max_age is not None and duration_ms(spec.max_age) < 1:
        label = label_of((*path, "max_age"))
        checks.note((*path, "max_age"), f"{label} is {spec.max_age}; expected 1ms or more")


def _check_lake(checks: Checks, spec: DeltaSink | IcebergSink, path: KeyPath) -> None:
    _check_age(checks, spec, path)
    _check_columns(checks, spec, "keys", path)
    _check_columns(checks, spec, "partition_by", path)
    if not isinstance(spec, IcebergSink):
        return
    if spec.catalog_password is not None:
        check_secret(checks, spec.catalog_password, (*path, "catalog_password"))
    if not all(spec.table.partition(".")):
        label = label_of((*path, "table"))
        checks.note((*path, "table"), f"{label} is {spec.table}; expected namespace.table")


def _check_columns(checks: Checks, spec: Any, key: str, path: KeyPath) -> None:
    for index, name in enumerate(getattr(spec, key)):
        if name not in spec.columns:
            label = label_of((*path, key, index))
            checks.note((*path, key, index), f"{label} is {name}, which is no column")


def _check_http(checks: Checks, spec: HttpSink, path: KeyPath) -> None:
    for name, text in spec.secret_headers.items():
        check_secret(checks, text, (*path, "secret_headers", name))
    if spec.body == "object" and spec.batch_records not in (None, 1):
        label = label_of((*path, "batch_records"))
        text = f"{label} is {spec.batch_records}; a body that is an object has one record"
        checks.note((*path, "batch_records"), text)


def _check_console(checks: Checks, spec: ConsoleSink, path: KeyPath) -> None:
    for key in ("columns", "rows"):
        if spec.format == "lines" and getattr(spec, key) is not None:
            label = label_of((*path, key))
            checks.note((*path, key), f"{label} is for the format table", at_key=True)


def _check_postgres(checks: Checks, spec: PostgresSink, path: KeyPath) -> None:
    if spec.password is not None:
        check_secret(checks, spec.password, (*path, "password"))
    _check_columns(checks, spec, "keys", path)
    if spec.delete_field is not None and not spec.keys:
        label = label_of((*path, "keys"))
        checks.missing((*path, "keys"), f"{label} must be set: delete_field deletes by key")


def _check_secrets(checks: Checks, properties: Mapping[str, Any], path: KeyPath) -> None:
    for name, value in properties.items():
        if is_secret_property(name):
            check_secret(checks, str(value), (*path, name))


def _check_kafka(checks: Checks, spec: KafkaSink, path: KeyPath) -> None:
    _check_secrets(checks, spec.properties, (*path, "properties"))


class _SinkKind(NamedTuple):
    """What makes a sink of its keys, and what must hold between them."""

    build: Callable[..., SinkDescriptor[Any]]
    check: Callable[[Checks, Any, KeyPath], None] | None = None
    asks_for_time: bool = False  # Whether ``build`` is told if records have an event time.


_SINKS: Mapping[type, _SinkKind] = {
    ConsoleSink: _SinkKind(_console_sink, _check_console),
    DeltaSink: _SinkKind(_lake_sink, _check_lake),
    FileSink: _SinkKind(_file_sink),
    HttpSink: _SinkKind(_http_sink, _check_http),
    IcebergSink: _SinkKind(_lake_sink, _check_lake),
    KafkaSink: _SinkKind(_kafka_sink, _check_kafka),
    ParquetSink: _SinkKind(_parquet_sink, _check_parquet, asks_for_time=True),
    PostgresSink: _SinkKind(_postgres_sink, _check_postgres),
    SocketSink: _SinkKind(_socket_sink),
}
