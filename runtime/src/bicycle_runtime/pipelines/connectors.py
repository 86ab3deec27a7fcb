"""The sources and sinks of a pipeline as those of the SDK."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

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

__all__ = ["sink_of", "source_of"]

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


def sink_of(spec: Any, *, is_timed: bool) -> SinkDescriptor[Any]:
    """Return the sink that a struct of keys describes.

    Args:
        spec: The keys.
        is_timed: Whether its records have an event time.
    """
    if isinstance(spec, ParquetSink):
        return _parquet_sink(spec, is_timed=is_timed)
    return _SINKS[type(spec)](spec)


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


_SINKS: Mapping[type, Callable[[Any], SinkDescriptor[Any]]] = {
    ConsoleSink: _console_sink,
    DeltaSink: _lake_sink,
    FileSink: _file_sink,
    HttpSink: _http_sink,
    IcebergSink: _lake_sink,
    KafkaSink: _kafka_sink,
    PostgresSink: _postgres_sink,
    SocketSink: _socket_sink,
}
