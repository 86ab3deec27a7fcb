"""The options of the Kafka source and sink, for builders, connectors and docs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bicycle_sdk.options import option

__all__ = ["KafkaSinkOptions", "KafkaSourceOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSourceOptions:
    """The options of a Kafka source: topics, start offsets, and formats."""

    brokers: str = option(
        doc="Bootstrap addresses of the brokers: host:port, separated by commas.",
        aliases=("bootstrap_servers", "bootstrap.servers"),
    )
    topics: tuple[str, ...] = option(
        (), doc="Names of the topics; alternatively set topic_pattern.", aliases=("topic",)
    )
    topic_pattern: str | None = option(
        None,
        doc="Regular expression that matches the whole name of a topic; alternatively set topics.",
    )
    group_id: str = option(
        "bicycle-default-group",
        doc=(
            "Consumer group to which published offsets are reported, for tools that show lag; the "
            "job itself continues from its checkpoints."
        ),
        call="group_id",
        aliases=("group", "group.id"),
    )
    starting_offsets: object = option(
        "earliest",
        doc=(
            "Start position of a job without a checkpoint: earliest, latest, {timestamp_ms: "
            "number} or {offsets: {topic: {partition: offset}}}."
        ),
        call="starting_offsets",
        aliases=("start", "auto_offset_reset", "auto.offset.reset"),
    )
    value_format: str | None = option(
        None,
        doc=(
            "Format of message values: the name of a format, or schema for an object of the job. "
            "Default: string for str, bytes for bytes, else json."
        ),
        call="deserializer",
        aliases=("format", "value.deserializer"),
    )
    value_format_options: object = option(
        None, doc="Options of the value format, such as its schema."
    )
    key_format: str = option("bytes", doc="Format of message keys.", call="key_deserializer")
    key_format_options: object = option(None, doc="Options of the key format.")
    bounded: bool = option(
        default=False,
        doc="Read up to the offsets at the time of the first start, then end.",
        call="bounded",
    )
    discovery_ms: int = option(
        10_000,
        low=100,
        high=86_400_000,
        doc="Interval of the search for new partitions and topics.",
        call="discovery_interval",
    )
    on_data_loss: Literal["fail", "earliest", "latest"] = option(
        "fail",
        doc=(
            "Reaction when the next offset is no longer in the topic: fail, or continue with the "
            "earliest or the latest message."
        ),
        call="on_data_loss",
    )
    connect_timeout_ms: int = option(
        30_000,
        low=1_000,
        high=3_600_000,
        doc=(
            "Time limit for the first response of a broker to a job without a checkpoint; later "
            "starts wait without a limit."
        ),
        call="connect_timeout",
    )
    transaction_wait_ms: int = option(
        900_000,
        low=0,
        high=86_400_000,
        doc=(
            "Time that a bounded read waits for a transaction that was open at the first start. "
            "The log then reports the unread messages."
        ),
        call="transaction_wait",
    )
    properties: object = option(
        None,
        doc="Properties of the Kafka client (librdkafka) by name; secrets only as references.",
        call="properties",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSinkOptions:
    """The options of a Kafka sink: target, format, and guarantee."""

    brokers: str = option(
        doc="Bootstrap addresses of the brokers: host:port, separated by commas.",
        aliases=("bootstrap_servers", "bootstrap.servers"),
    )
    topic: str = option(doc="Name of the topic.")
    value_format: str | None = option(
        None,
        doc=(
            "Format of message values: the name of a format, or schema for an object of the job. "
            "Default: string for str, bytes for bytes, json for other declared types; without a "
            "declared type, by the type of each value."
        ),
        call="serializer",
        aliases=("format", "value.serializer"),
    )
    value_format_options: object = option(
        None, doc="Options of the value format, such as its schema."
    )
    key_format: str | None = option(
        None,
        doc="Format of message keys. Default: text as UTF-8, bytes unchanged, other types as JSON.",
        call="key_serializer",
    )
    key_format_options: object = option(None, doc="Options of the key format.")
    guarantee: Literal["at-least-once", "exactly-once"] = option(
        "at-least-once",
        doc=(
            "at-least-once: tasks write immediately, and a repeated epoch writes again. "
            "exactly-once: sealed epochs are published in transactions."
        ),
        call="delivery_guarantee",
        aliases=("delivery.guarantee",),
    )
    transactional_id_prefix: str | None = option(
        None,
        doc="Prefix of the transactional ids. Default: bicycle-<job>-<sink>.",
        call="transactional_id_prefix",
        aliases=("transactional.id.prefix",),
    )
    marker_topic: str | None = option(
        None, doc="Topic for the epoch markers. Default: <prefix>-marker.", call="marker_topic"
    )
    transaction_timeout_ms: int = option(
        60_000,
        low=1_000,
        high=86_400_000,
        doc="Time after which the brokers abort an open transaction.",
        call="transaction_timeout",
    )
    recovery_budget_ms: int = option(
        30_000,
        low=0,
        high=86_400_000,
        doc=(
            "Additional time for an interruption during publication, which the transaction must "
            "outlast."
        ),
        call="recovery_budget",
    )
    publish_timeout_ms: int = option(
        900_000,
        low=1_000,
        high=86_400_000,
        doc="Time without brokers after which the job ends; its output is kept for the next start.",
        call="publish_timeout",
    )
    connect_timeout_ms: int = option(
        30_000,
        low=1_000,
        high=3_600_000,
        doc="Time limit for the first response of a broker to a job without a checkpoint.",
        call="connect_timeout",
    )
    publish_threads_max: int = option(
        4, low=1, high=64, doc="Number of writers that publish concurrently."
    )
    on_rewind: Literal["fail", "publish_again"] = option(
        "fail",
        doc=(
            "Reaction when an older epoch or a savepoint is restored, so that published output "
            "would be duplicated."
        ),
        call="on_rewind",
    )
    message_time: Literal["event", "written"] = option(
        "event",
        doc=(
            "Timestamp of messages: event: event time of the record, if it has one; written: time "
            "of writing. A timestamp function takes precedence."
        ),
        call="message_time",
    )
    create_topic: object = option(
        None,
        doc="{partitions, replication_factor, config}: create the topic if it is missing.",
        call="create_topic",
    )
    properties: object = option(
        None,
        doc="Properties of the Kafka client (librdkafka) by name; secrets only as references.",
        call="properties",
    )
