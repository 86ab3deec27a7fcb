"""The sources and sinks of a pipeline as those of the SDK."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bicycle_runtime.pipelines.connector_keys import (
    CollectionSource,
    ConsoleSink,
    FileSink,
    FileSource,
    GeneratorSource,
    KafkaSink,
    KafkaSource,
    SocketSink,
    SocketSource,
)
from bicycle_runtime.pipelines.record_functions import FieldText, PayloadSchema
from bicycle_runtime.pipelines.values import Scalar, duration_ms
from bicycle_sdk import connectors
from bicycle_sdk.connectors import SinkDescriptor, SourceDescriptor
from bicycle_sdk.kafka import DeliveryGuarantee, KafkaSinkBuilder, KafkaSourceBuilder
from bicycle_sdk.kafka.base import is_secret_property
from bicycle_sdk.secrets import Secret

__all__ = ["sink_of", "source_of"]

_KAFKA_FORMATS: Mapping[str, Any] = {"string": str, "bytes": bytes}


def source_of(spec: Any) -> SourceDescriptor[Any]:
    """Return the source that a struct of keys describes."""
    match spec:
        case FileSource():
            return _file_source(spec)
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


def sink_of(spec: Any) -> SinkDescriptor[Any]:
    """Return the sink that a struct of keys describes."""
    match spec:
        case FileSink():
            return _file_sink(spec)
        case KafkaSink():
            return _kafka_sink(spec)
        case SocketSink():
            return connectors.socket_sink(
                host=spec.host, port=spec.port, clients_max=spec.clients_max
            )
        case ConsoleSink():
            return connectors.console_sink()
    raise AssertionError(spec)


def _file_source(spec: FileSource) -> SourceDescriptor[Any]:
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
        timestamp_field=spec.time_field,
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


def _properties(given: Mapping[str, Scalar]) -> dict[str, Scalar | Secret]:
    """Return properties of the client; what is secret is a reference to its place."""
    return {
        name: Secret.parse(str(value)) if is_secret_property(name) else value
        for name, value in given.items()
    }
